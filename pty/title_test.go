package pty

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTitles(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"OSC 0 and BEL", "a\x1b]0;one\x07b", "one"},
		{"OSC 2 and ST", "\x1b]2;two\x1b\\", "two"},
		{"the last one counts", "\x1b]0;one\x07 \x1b]2;two\x07", "two"},
		{"OSC 1 is the icon", "\x1b]1;icon\x07", "none"},
		{"OSC 10 is a colour", "\x1b]10;red\x07", "none"},
		{"a semicolon in the text", "\x1b]0;a;b\x07", "a;b"},
		{"no text separator", "\x1b]0\x07", "none"},
		{"empty", "\x1b]0;\x07", ""},
		{"characters", "\x1b]0;ü漢🙂\x07", "ü漢🙂"},
		{"control characters go", "\x1b]0;a\nb\tc\x07", "abc"},
		{"invalid bytes", "\x1b]0;a\xffb\x07", "a\uFFFDb"},
		{"cancelled", "\x1b]0;one\x18 \x07", "none"},
		{"broken off by another sequence", "\x1b]0;one\x1b[31m\x07", "none"},
		{"broken off by a title", "\x1b]0;one\x1b]0;two\x07", "two"},
		{"two escapes", "\x1b\x1b]0;one\x07", "one"},
		{"never ended", "\x1b]0;one", "none"},
		{"too long to be one", "\x1b]0;" + strings.Repeat("x", 2*oscMax) + "\x07", "none"},
		{"long", "\x1b]0;" + strings.Repeat("é", titleMax) + "\x07", strings.Repeat("é", titleMax/2)},
		{"huge number", "\x1b]99999999999999999999;x\x07", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for size := range 4 {
				if got := feedInPieces([]byte(c.in), size); got != c.want {
					t.Errorf("in pieces of %d: %q, want %q", size, got, c.want)
				}
			}
		})
	}
}

// feedInPieces returns the last title of p, or "none"; size 0 feeds it whole.
func feedInPieces(p []byte, size int) string {
	var parser titles
	last := "none"
	for len(p) > 0 {
		n := len(p)
		if size > 0 {
			n = min(size, n)
		}
		if title, found := parser.feed(p[:n]); found {
			last = title
		}
		p = p[n:]
	}
	return last
}

func FuzzTitles(f *testing.F) {
	f.Add([]byte("a\x1b]0;one\x07b"), 1)
	f.Add([]byte("\x1b]2;two\x1b\\\x1b]0;t\xc3"), 2)
	f.Add([]byte("\x1b]0;one\x1b[31m\x07\x1b\x1b]1;\x18"), 3)
	f.Fuzz(func(t *testing.T, p []byte, size int) {
		whole := feedInPieces(p, 0)
		if size > 0 {
			if cut := feedInPieces(p, size); cut != whole {
				t.Errorf("pieces of %d give %q, the whole %q", size, cut, whole)
			}
		}
		if !utf8.ValidString(whole) || strings.ContainsFunc(whole, unicode.IsControl) {
			t.Errorf("a title nobody can show: %q", whole)
		}
		if len(whole) > 3*titleMax {
			t.Errorf("a title of %d bytes", len(whole))
		}
	})
}
