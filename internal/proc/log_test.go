package proc

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// give writes text to a sink as a pipe's reader does.
func give(s Sink, which Stream, text []byte) {
	for len(text) > 0 {
		b := getBlock()
		n := copy(b[:], text)
		text = text[n:]
		if !s.take(which, b, n) {
			putBlock(b)
		}
	}
}

// text generates output: plain text, characters of all widths, odd bytes.
func text(t *rapid.T, name string, most int) []byte {
	var out []byte
	for range rapid.IntRange(1, 3).Draw(t, name) {
		switch rapid.IntRange(0, 4).Draw(t, name+" kind") {
		case 0:
			out = append(out, rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, name)...)
		case 1:
			out = append(out, strings.Repeat("é☃😀", rapid.IntRange(1, most/9+1).Draw(t, name))...)
		case 2:
			whole := []byte("x☃😀")
			out = append(out, whole[:rapid.IntRange(1, len(whole)).Draw(t, name)]...)
		default:
			out = append(out, strings.Repeat("a\n", rapid.IntRange(1, most/2+1).Draw(t, name))...)
		}
	}
	return out
}

// TestLogAgainstASlice compares the log with the obvious: everything written,
// in order.
func TestLogAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{0, 3, 10, 100, 5000, 200_000}).Draw(t, "limit")
		l := NewLog(limit)
		var all [2][]byte
		seen := map[int64]Event{} // what any reader was ever told
		var total atomic.Int64
		if rapid.Bool().Draw(t, "counted") {
			l.countIn(&total)
		}
		look := func(since int64) Page {
			p := l.Read(since)
			at := max(since, p.First)
			if want := max(p.Next-at, 0); int64(len(p.Events)) != want {
				t.Fatalf("%d events from %d to %d", len(p.Events), at, p.Next)
			}
			kept := 0
			for i, e := range p.Events {
				if e.Seq != at+int64(i) || len(e.Data) == 0 || len(e.Data) > blockSize {
					t.Fatalf("event %d: seq %d, %d bytes", i, e.Seq, len(e.Data))
				}
				kept += len(e.Data)
				if old, again := seen[e.Seq]; again && (old.Stream != e.Stream || !bytes.Equal(old.Data, e.Data)) {
					t.Fatalf("event %d was %q and is %q", e.Seq, old.Data, e.Data)
				}
				seen[e.Seq] = e
			}
			if kept > limit || l.Bytes() > limit {
				t.Fatalf("%d bytes kept of %d", kept, limit)
			}
			if p.Dropped != (p.First > 0) {
				t.Fatalf("first %d, dropped %v", p.First, p.Dropped)
			}
			return p
		}
		steps := rapid.IntRange(1, 20).Draw(t, "steps")
		for range steps {
			if rapid.Bool().Draw(t, "read") {
				look(rapid.Int64Range(-2, 30).Draw(t, "since"))
				continue
			}
			s := Stream(rapid.IntRange(0, 1).Draw(t, "stream"))
			data := text(t, "data", 3000)
			all[s] = append(all[s], data...)
			give(l, s, data)
		}
		l.exited()
		if p := look(0); !p.Exited || p.Ended {
			t.Fatalf("%+v", p)
		}
		l.end()
		p := look(0)
		if !p.Ended {
			t.Fatal("not ended")
		}
		var got [2][]byte
		for _, e := range p.Events {
			got[e.Stream] = append(got[e.Stream], e.Data...)
		}
		for s := range all {
			if !bytes.HasSuffix(all[s], got[s]) || (!p.Dropped && len(all[s]) != len(got[s])) {
				t.Fatalf("%v: %d of %d bytes, not the last ones", Stream(s), len(got[s]), len(all[s]))
			}
		}
		if l.account != nil && total.Load() != int64(l.Bytes()) {
			t.Fatalf("counted %d, kept %d", total.Load(), l.Bytes())
		}
		// Nothing comes after the end.
		give(l, Stdout, []byte("late"))
		if l.Read(0).Next != p.Next {
			t.Fatal("the log grew after its end")
		}
	})
}

func TestNoCharacterIsCutAcrossEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := []byte(strings.Repeat("aé☃😀", rapid.IntRange(1, 20_000).Draw(t, "length")))
		l := NewLog(1 << 20)
		for rest := whole; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 70_000)).Draw(t, "piece")
			give(l, Stderr, rest[:n])
			rest = rest[n:]
			if rapid.Bool().Draw(t, "look") {
				l.Read(0)
			}
		}
		var got []byte
		for _, e := range l.Read(0).Events {
			if !utf8.Valid(e.Data) {
				t.Fatalf("event %d of %d bytes is cut", e.Seq, len(e.Data))
			}
			got = append(got, e.Data...)
		}
		if !bytes.Equal(got, whole) {
			t.Fatal("not the same text")
		}
	})
}

func TestManyTinyEventsStayBounded(t *testing.T) {
	l := NewLog(1 << 16)
	for i := range 100_000 {
		give(l, Stream(i%2), []byte("x"))
		l.Read(1 << 60) // seals the event
	}
	if n := len(l.events); n > 1<<16/32 || cap(l.events) > 4*(1<<16/32) {
		t.Errorf("%d events in an array of %d", n, cap(l.events))
	}
	l = NewLog(1 << 16)
	for range 1000 {
		give(l, Stdout, []byte("x"))
	}
	if p := l.Read(0); len(p.Events) != 1 {
		t.Errorf("what nobody has seen takes %d events", len(p.Events))
	}
}

func TestLogWait(t *testing.T) {
	l := NewLog(1 << 10)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	if p := l.Wait(ctx, 0); len(p.Events) != 0 || p.Ended {
		t.Errorf("%+v", p)
	}
	cancel()
	pages := make(chan Page)
	follow := func(since int64) {
		for {
			p := l.Wait(t.Context(), since)
			since = p.Next
			pages <- p
			if p.Ended {
				return
			}
		}
	}
	go follow(0)
	for i := range 3 {
		give(l, Stdout, fmt.Appendf(nil, "%d", i))
		if p := <-pages; len(p.Events) != 1 || string(p.Events[0].Data) != itoa(i) {
			t.Errorf("%+v", p)
		}
	}
	l.exited() // no event, not the end: the reader waits on
	l.end()
	if p := <-pages; !p.Ended || !p.Exited || len(p.Events) != 0 {
		t.Errorf("%+v", p)
	}
	if p := l.Wait(t.Context(), 100); !p.Ended || p.Next != 3 {
		t.Errorf("beyond the end: %+v", p)
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "é": 2, "a\xc3": 1, "\xe2\x98": 0, "x\xe2\x98": 1, "☃": 3, "\xf0\x9f\x98": 0,
		"\xff": 1, "a\x80": 2, "\x80\x80\x80": 3, "\xc3a": 2, "\xe2\xc3": 1, "\xf5\x80\x80": 3, "\xed\xa0": 2,
	} {
		if got := Whole([]byte(in)); got != want {
			t.Errorf("Whole(%q) = %d, want %d", in, got, want)
		}
	}
}

func FuzzWhole(f *testing.F) {
	f.Add([]byte("a☃"), 2)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		n := Whole(b)
		if n < 0 || n > len(b) || len(b)-n > 3 {
			t.Fatalf("%d of %d", n, len(b))
		}
		if utf8.Valid(b) {
			if n != len(b) {
				t.Fatal("valid text is held back")
			}
			if cut >= 0 && cut <= len(b) && !utf8.Valid(b[:Whole(b[:cut])]) {
				t.Fatalf("cut at %d leaves half a character", cut)
			}
		}
	})
}
