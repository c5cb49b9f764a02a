package pty

import (
	"bytes"
	"strings"
	"unicode"
)

const (
	titleMax = 512  // bytes of a title that are kept
	oscMax   = 4096 // bytes after which an unfinished sequence was none
)

// titles finds the window title in terminal output: the text of OSC 0 and
// OSC 2, ended by BEL or ST, in however many pieces it comes. The zero value
// is ready.
type titles struct {
	state titleState
	cmd   int    // the number of the OSC, -1 when it is no number
	named bool   // the number is complete
	text  []byte // at most titleMax bytes
	seen  int    // bytes since the sequence began
}

type titleState uint8

const (
	plainText   titleState = iota
	afterEscape            // ESC
	inOSC                  // ESC ] 0 ; text
	oscEscape              // ESC inside it: the first half of ST
)

const (
	bel = 0x07
	can = 0x18
	sub = 0x1a
	esc = 0x1b
)

// feed takes the next bytes and returns the last title that ended in them.
func (t *titles) feed(p []byte) (title string, found bool) {
	for len(p) > 0 {
		if t.state == plainText {
			i := bytes.IndexByte(p, esc)
			if i < 0 {
				return title, found
			}
			t.state = afterEscape
			p = p[i+1:]
			continue
		}
		if t.step(p[0]) {
			title, found = clean(t.text), true
		}
		p = p[1:]
	}
	return title, found
}

// step takes one byte inside a sequence; true when it ended a title.
func (t *titles) step(c byte) (done bool) {
	switch t.state {
	case afterEscape:
		t.escaped(c)
		return false
	case oscEscape:
		if c == '\\' {
			return t.finish()
		}
		t.escaped(c)
		return false
	}
	if t.seen++; t.seen > oscMax || c == can || c == sub {
		t.state = plainText
		return false
	}
	switch {
	case c == bel:
		return t.finish()
	case c == esc:
		t.state = oscEscape
	case t.named:
		if len(t.text) < titleMax {
			t.text = append(t.text, c)
		}
	case c == ';':
		t.named = true
	case c >= '0' && c <= '9' && t.cmd >= 0 && t.cmd < 1000:
		t.cmd = t.cmd*10 + int(c-'0')
	default:
		t.cmd = -1
	}
	return false
}

// escaped is the byte after an ESC.
func (t *titles) escaped(c byte) {
	switch c {
	case ']':
		*t = titles{state: inOSC, text: t.text[:0]}
	case esc:
		t.state = afterEscape
	default:
		t.state = plainText
	}
}

// finish ends a sequence; true when it was a title.
func (t *titles) finish() bool {
	t.state = plainText
	return t.named && (t.cmd == 0 || t.cmd == 2)
}

// clean makes a title fit to be shown: whole characters, none of control.
func clean(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, string(cutTail(text)))
}
