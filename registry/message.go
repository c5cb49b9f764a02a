package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	err := s.object(func(key string, raw []byte) error {
		switch key {
		case "op":
			return json.Unmarshal(raw, &m.op)
		case "id":
			return json.Unmarshal(raw, &m.id)
		case "status":
			return json.Unmarshal(raw, &m.status)
		case "failed":
			return json.Unmarshal(raw, &m.failed)
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
		var key string
		if err := json.Unmarshal(s.text[start:s.pos], &key); err != nil {
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
	for i := s.pos + 1; i < len(s.text); i += 2 { // past what is escaped
		n := bytes.IndexAny(s.text[i:], `"\`)
		if n < 0 {
			return false
		}
		if i += n; s.text[i] == '"' {
			s.pos = i + 1
			return true
		}
	}
	return false
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
