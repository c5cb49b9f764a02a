package main

import (
	"strings"
	"testing"
)

func TestFinderSeesTheMarkInPieces(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{{"xxxDONE2\n", true}, {"DONEDONE2", true}, {"DONE 2", false}, {"", false}, {"DONE", false}} {
		for size := 1; size <= len(c.text)+1; size++ {
			f := finder{mark: []byte("DONE2")}
			found := false
			for at := 0; at < len(c.text); at += size {
				found = found || f.find([]byte(c.text[at:min(at+size, len(c.text))]))
			}
			if found != c.want {
				t.Errorf("%q in pieces of %d: %v, want %v", c.text, size, found, c.want)
			}
		}
	}
	f := finder{mark: []byte("k")}
	if f.find([]byte("abc")) || !f.find([]byte("k")) {
		t.Error("a mark of one byte")
	}
}

func TestOutputTextIsThatOfOutputOnly(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{`{"type":"output","data":"a\r\nb","offset":3}`, `a\r\nb`},
		{`{"type": "output", "data": "a \"k\" \\"}`, `a \"k\" \\`},
		{`{"type":"event","event":"started","session_id":"kk"}`, ""},
		{`{"type":"output","data":"cut`, ""},
		{`{"type":"output","data":7}`, ""},
	} {
		if got := string(outputText([]byte(c.message))); got != c.want {
			t.Errorf("%s: %q, want %q", c.message, got, c.want)
		}
	}
}

func TestCreatedInNamesTheFile(t *testing.T) {
	for _, c := range []struct {
		line string
		want int
		ok   bool
	}{
		{`data: {"type": "created", "path": "/b/new7", "is_dir": false}`, 7, true},
		{`data: {"type": "modified", "path": "/b/new7", "is_dir": false}`, 0, false},
		{`data: {"type": "created", "path": "/b/new300", "is_dir": false}`, 0, false},
		{`data: {"type": "created", "path": "/b/other"}`, 0, false},
		{`event: change`, 0, false},
	} {
		if got, ok := createdIn(c.line); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %d %v", c.line, got, ok)
		}
	}
}

func TestTypedTextDoesNotHoldItsMark(t *testing.T) {
	// It is echoed, and would be taken for the end.
	if strings.Contains(typeFlood, floodMark) || strings.Contains(typeCat, catMark) || strings.Contains(catMark, "k") {
		t.Error("a mark is in what is typed")
	}
}
