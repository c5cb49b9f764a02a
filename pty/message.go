package pty

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"syscall"
)

// MaxSize is the most columns or rows a caller may ask for.
const MaxSize = 1000

const (
	// pieceMax is the most terminal bytes of one message.
	pieceMax = 64 << 10
	// textMax bounds the text of one output message: control characters
	// become six bytes each, clients refuse messages over 1 MiB, and a message
	// should fit the socket's buffer at once.
	textMax = 128 << 10
	// messageMax is the longest message a client may send.
	messageMax = 1 << 20
)

// command is one understood message of a client. Exactly one of its parts is
// set.
type command struct {
	input  []byte
	resize *size
	signal syscall.Signal // 0 for none
}

// ParseSignal is the signal a client may send by name.
func ParseSignal(name string) (syscall.Signal, bool) {
	switch name {
	case "SIGINT":
		return syscall.SIGINT, true
	case "SIGTERM":
		return syscall.SIGTERM, true
	case "SIGKILL":
		return syscall.SIGKILL, true
	case "SIGHUP":
		return syscall.SIGHUP, true
	case "SIGQUIT":
		return syscall.SIGQUIT, true
	}
	return 0, false
}

// size is a wish for columns and rows; 0 keeps what is.
type size struct{ cols, rows int }

// decode reads one JSON message of a client. Whatever it does not understand
// is false: the contract ignores such messages.
func decode(msg []byte) (command, bool) {
	// A map, because names are exact: struct fields would match in any case.
	var m map[string]json.RawMessage
	if json.Unmarshal(msg, &m) != nil {
		return command{}, false
	}
	kind, _ := text(m["type"])
	switch kind {
	case "input":
		p, ok := inputBytes(m)
		return command{input: p}, ok
	case "resize":
		s, ok := wantedSize(m)
		return command{resize: &s}, ok
	case "signal":
		name := "SIGINT"
		if raw, has := m["signal"]; has {
			name, _ = text(raw)
		}
		sig, ok := ParseSignal(name)
		return command{signal: sig}, ok
	}
	return command{}, false
}

// text is a JSON string; false for anything else, null too.
func text(raw json.RawMessage) (string, bool) {
	var s string
	ok := len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
	return s, ok
}

// inputBytes is what an input message types. data_base64 wins over data.
func inputBytes(m map[string]json.RawMessage) ([]byte, bool) {
	if raw, has := m["data_base64"]; has {
		s, ok := text(raw)
		if !ok {
			return nil, false
		}
		p, err := base64.StdEncoding.Strict().DecodeString(s)
		return p, err == nil
	}
	s, ok := text(m["data"])
	return []byte(s), ok
}

// wantedSize is what a resize message asks for. One bad number spoils both.
func wantedSize(m map[string]json.RawMessage) (s size, ok bool) {
	for name, to := range map[string]*int{"cols": &s.cols, "rows": &s.rows} {
		raw, has := m[name]
		if !has {
			continue
		}
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || f != math.Trunc(f) || f < 1 || f > MaxSize {
			return size{}, false
		}
		*to = int(f)
	}
	return s, s != size{}
}

// appendOutput appends an output message with as much of p, which begins at
// offset off of the terminal's output, as one message may hold. Unless p is
// the last there is, an unfinished character at its end is left for the next
// message. It returns the message, nil when there is nothing to send, and the
// bytes of p it covers.
func appendOutput(dst []byte, off int64, p []byte, last bool) (msg []byte, taken int) {
	if len(p) > pieceMax {
		p, last = p[:pieceMax], false
	}
	if !last {
		p = cutTail(p)
	}
	if len(p) == 0 {
		return nil, 0
	}
	msg = append(dst, `{"type":"output","offset":`...)
	msg = strconv.AppendInt(msg, off, 10)
	msg = append(msg, `,"data":"`...)
	msg, taken, replaced := appendText(msg, p, textMax)
	msg = append(msg, '"')
	if replaced {
		// Else the bytes are those of data, and the next offset follows.
		msg = append(msg, `,"bytes":`...)
		msg = strconv.AppendInt(msg, int64(taken), 10)
	}
	return append(msg, '}'), taken
}

// The events a client is told of. Fields that are always there have no
// omitempty.
type (
	startedEvent struct {
		Type      string `json:"type"`
		Event     string `json:"event"`
		SessionID string `json:"session_id"`
		PID       int    `json:"pid"`
		Offset    int64  `json:"offset"`
		Cols      int    `json:"cols"`
		Rows      int    `json:"rows"`
		Title     string `json:"title,omitempty"`
	}
	exitedEvent struct {
		Type      string  `json:"type"`
		Event     string  `json:"event"`
		SessionID string  `json:"session_id"`
		ExitCode  int     `json:"exit_code"`
		Signal    *string `json:"signal"`
	}
	titleEvent struct {
		Type  string `json:"type"`
		Event string `json:"event"`
		Title string `json:"title"`
	}
	// skippedEvent tells a raw client, whose frames carry no offsets, that
	// output before this one was lost to it.
	skippedEvent struct {
		Type   string `json:"type"`
		Event  string `json:"event"`
		Offset int64  `json:"offset"`
	}
)
