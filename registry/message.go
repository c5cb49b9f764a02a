package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// message is one line from a worker. Values that are handed on are kept as
// they were written: a result may hold what JSON has no word for, such as NaN.
type message struct {
	op      string
	id      uint64
	status  int
	failed  bool            // body is an error
	body    []byte          // raw
	headers json.RawMessage // raw
	data    json.RawMessage // raw
	all     []byte          // the whole line, for messages that are read once
}

var errMessage = errors.New("not a message")

// parseMessage reads a line. The parts of the message point into it.
func parseMessage(line []byte) (message, error) {
	m := message{all: line}
	s := spans{text: line}
	err := s.object(func(key string, raw []byte) (err error) {
		switch key {
		case "op":
			m.op, err = unquote(raw)
			return err
		case "id":
			m.id, err = strconv.ParseUint(string(raw), 10, 64)
			return err
		case "status":
			m.status, err = strconv.Atoi(string(raw))
			return err
		case "failed":
			m.failed = string(raw) == "true"
		case "body":
			m.body = raw
		case "headers":
			m.headers = raw
		case "data":
			m.data = raw
		}
		return nil
	})
	if err == nil && m.op == "" {
		err = errMessage
	}
	return m, err
}

// unquote reads a JSON string; most have no escapes.
func unquote(raw []byte) (s string, err error) {
	if n := len(raw); n >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return string(raw[1 : n-1]), nil
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

// spans finds the members of one object without decoding their values.
type spans struct {
	text []byte
	pos  int
}

func (s *spans) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *spans) take(c byte) bool {
	s.space()
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *spans) object(member func(key string, raw []byte) error) error {
	if !s.take('{') {
		return errMessage
	}
	for first := true; !s.take('}'); first = false {
		if !first && !s.take(',') {
			return errMessage
		}
		s.space()
		start := s.pos
		if !s.skipString() {
			return errMessage
		}
		key, err := unquote(s.text[start:s.pos])
		if err != nil {
			return errMessage
		}
		if !s.take(':') {
			return errMessage
		}
		s.space()
		start = s.pos
		if !s.skipValue() {
			return errMessage
		}
		if err := member(key, s.text[start:s.pos:s.pos]); err != nil {
			return fmt.Errorf("%w: %s: %w", errMessage, key, err)
		}
	}
	s.space()
	if s.pos != len(s.text) {
		return errMessage
	}
	return nil
}

// skipString passes a string, which must start here.
func (s *spans) skipString() bool {
	if s.pos >= len(s.text) || s.text[s.pos] != '"' {
		return false
	}
	for i := s.pos + 1; ; i++ {
		n := bytes.IndexByte(s.text[i:], '"')
		if n < 0 {
			return false
		}
		i += n
		back := i // a quote after an odd number of backslashes is escaped
		for s.text[back-1] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			s.pos = i + 1
			return true
		}
	}
}

// skipValue passes any value: brackets that match, a string, or a word.
func (s *spans) skipValue() bool {
	var open []byte
	for {
		if s.pos >= len(s.text) {
			return false
		}
		switch c := s.text[s.pos]; c {
		case '"':
			if !s.skipString() {
				return false
			}
		case '{', '[':
			open = append(open, c+2) // '}' and ']' come two after
			s.pos++
			continue
		case '}', ']':
			if len(open) == 0 || open[len(open)-1] != c {
				return false
			}
			open = open[:len(open)-1]
			s.pos++
		case ',', ':', ' ', '\t':
			if len(open) == 0 {
				return false
			}
			s.pos++
			continue
		default:
			start := s.pos
			for s.pos < len(s.text) && !bytes.ContainsRune([]byte(`,:"{}[] `+"\t\r\n"), rune(s.text[s.pos])) {
				s.pos++
			}
			if s.pos == start {
				return false
			}
		}
		if len(open) == 0 {
			return true
		}
	}
}

// AppendLine appends JSON text on one line of pure ASCII. The text must be
// sound: then a control character is white space between values.
func AppendLine(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	unit := func(u rune) { dst = append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15]) }
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && text[i] >= 0x20 && text[i] < utf8.RuneSelf {
			i++
		}
		dst = append(dst, text[start:i]...)
		if i == len(text) {
			break
		}
		if text[i] < 0x20 {
			dst = append(dst, ' ')
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r > 0xFFFF {
			r -= 0x10000
			unit(0xD800 | r>>10)
			r = 0xDC00 | r&0x3FF
		}
		unit(r)
		i += n
	}
	return dst
}

// encodeMessage writes a message of ours.
func encodeMessage(v any) []byte {
	text, err := encodeJSON(v)
	if err != nil {
		panic("registry: " + err.Error()) // made of text and raw JSON that was checked
	}
	return append(AppendLine(make([]byte, 0, len(text)+1), text), '\n')
}
