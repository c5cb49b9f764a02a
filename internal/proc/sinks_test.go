package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestBuffersAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 50).Draw(t, "limit")
		keep := Keep(rapid.IntRange(0, 1).Draw(t, "keep"))
		b := NewBuffers(limit, keep)
		var all []byte
		for range rapid.IntRange(0, 10).Draw(t, "writes") {
			data := text(t, "data", 30)
			all = append(all, data...)
			give(b, Stdout, data)
			if rapid.Bool().Draw(t, "look") {
				b.Out.Bytes()
			}
		}
		b.end()
		got := b.Out.Bytes()
		cut := len(all) > limit
		if b.Out.Truncated() != cut || b.Out.Total() != int64(len(all)) {
			t.Fatalf("truncated %v, %d bytes", b.Out.Truncated(), b.Out.Total())
		}
		kept := all[:min(limit, len(all))]
		if keep == KeepTail {
			kept = all[max(len(all)-limit, 0):]
		}
		switch {
		case !cut && !bytes.Equal(got, all):
			t.Fatalf("%q is not %q", got, all)
		case keep == KeepHead && (!bytes.HasPrefix(kept, got) || len(kept)-len(got) > 3),
			keep == KeepTail && (!bytes.HasSuffix(kept, got) || len(kept)-len(got) > 3):
			t.Fatalf("%q of %q", got, kept)
		case utf8.Valid(all) && !utf8.Valid(got):
			t.Fatalf("%q cuts a character", got)
		}
		give(b, Stdout, []byte("late"))
		if !bytes.Equal(got, b.Out.Bytes()) || len(b.Err.Bytes()) != 0 {
			t.Fatal("changed after the end")
		}
	})
}

func TestExactlyTheLimitIsNotTruncated(t *testing.T) {
	m := newManager(t, Options{})
	for out, want := range map[string]string{"1234567890": "1234567890", "12345678901": "1234567890!", `a\303\251\303\251\303\251\303\251\303\251`: "aéééé!"} {
		r, err := m.Run(t.Context(), Spec{Path: "/usr/bin/printf", Argv: []string{"printf", out}, Env: testEnv}, 10)
		if err != nil {
			t.Fatal(err)
		}
		got := string(r.Stdout)
		if r.Truncated {
			got += "!"
		}
		if got != want || r.Code != 0 {
			t.Errorf("%s: %q %+v", out, got, r.Status)
		}
	}
}

// plainLines is the obvious way to cut text into lines.
func plainLines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		whole := strings.TrimSuffix(line, "\n")
		for len(whole) > MaxLine {
			n := MaxLine
			for n > MaxLine-4 && !utf8.RuneStart(whole[n]) {
				n--
			}
			out = append(out, whole[:n]+"…")
			whole = whole[n:]
		}
		out = append(out, whole)
	}
	return out
}

func feedLines(pieces ...[]byte) []string {
	var l Lines
	var out []string
	emit := func(line []byte, partial bool) error {
		if partial {
			line = append(slices.Clip(line), "…"...)
		}
		out = append(out, string(line))
		return nil
	}
	for _, p := range pieces {
		_ = l.Feed(p, emit)
	}
	_ = l.Flush(emit)
	return out
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\n\nb\r\n\n  c\ttail"), 3)
	f.Add([]byte("\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		var pieces [][]byte
		for rest := text; len(rest) > 0; {
			n := min(max(size, 1), len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got, want := feedLines(pieces...), plainLines(string(text)); fmt.Sprint(len(got), got) != fmt.Sprint(len(want), want) {
			t.Fatalf("%q, not %q", got, want)
		}
	})
}

func TestLongLinesComeInPieces(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", MaxLine) + "\nend",
		strings.Repeat("x", MaxLine+1) + "\nend",
		"a" + strings.Repeat("é", MaxLine) + "\n\n" + strings.Repeat("☃", MaxLine) + "y",
		strings.Repeat("0123456789", MaxLine/2) + "\n",
	} {
		for _, size := range []int{1000, blockSize, 3 << 20, len(text)} {
			var pieces [][]byte
			for rest := []byte(text); len(rest) > 0; {
				n := min(size, len(rest))
				pieces = append(pieces, rest[:n])
				rest = rest[n:]
			}
			got, want := feedLines(pieces...), plainLines(text)
			if len(got) != len(want) {
				t.Fatalf("%d pieces of input: %d lines, want %d", len(pieces), len(got), len(want))
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("line %d has %d bytes, want %d", i, len(got[i]), len(want[i]))
				}
			}
		}
	}
	var l Lines
	stop := errors.New("stop")
	if err := l.Feed([]byte("a\nb\n"), func([]byte, bool) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the consumer's error is lost: %v", err)
	}
}

func TestASlowConsumerSlowsTheProgram(t *testing.T) {
	m := newManager(t, Options{})
	feed := NewFeed()
	dir := t.TempDir()
	s := bash("head -c 20000000 /dev/zero; : >done")
	s.Output, s.Dir = feed, dir
	p := start(t, m, s)
	eventually(t, "a full feed", func() bool { return len(feed.pieces) == feedDepth })
	if !alive(p.PID()) {
		t.Error("the program did not wait")
	}
	if n := len(readFeed(t, feed)); n != 20000000 {
		t.Errorf("%d bytes arrived", n)
	}
	await(t, p.Done(), "done")
}

func TestASlowConsumerGetsTheEndToo(t *testing.T) {
	m := newManager(t, Options{})
	feed := NewFeed()
	// The program ends while its last output waits in the pipe, and a child
	// holds that: the grace is over long before the consumer begins.
	s := bash("sleep 7146 & seq 1 200000")
	s.Output, s.Grace = feed, Grace{Silence: time.Millisecond, Total: 2 * time.Millisecond}
	p := start(t, m, s)
	eventually(t, "a full feed", func() bool { return len(feed.pieces) == feedDepth })
	_, data, err := feed.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	eventually(t, "the leader's end", func() bool {
		if alive(p.PID()) && len(feed.pieces) == feedDepth {
			_, data, _ := feed.Next(t.Context())
			got += string(data)
		}
		return !alive(p.PID())
	})
	got += readFeed(t, feed)
	if !strings.HasSuffix(got, "\n200000\n") || strings.Count(got, "\n") != 200000 {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	p.End("")
}

func TestFeedNextHeedsItsContext(t *testing.T) {
	feed := NewFeed()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := feed.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	feed.Close()
	feed.Close()
	if _, _, err := feed.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	give(feed, Stdout, []byte("x")) // must not hang
}

func TestInputArrivesInOrder(t *testing.T) {
	m := newManager(t, Options{})
	in := NewInput()
	out := NewBuffers(8<<20, KeepHead)
	p := start(t, m, Spec{Path: "/bin/cat", Env: testEnv, Stdin: in, Output: out})
	var want bytes.Buffer
	for i := range 200 {
		piece := bytes.Repeat(fmt.Appendf(nil, "%d,", i), i*40)
		want.Write(piece)
		if n, err := in.Write(t.Context(), piece, false); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if !in.Open() {
		t.Error("closed too early")
	}
	if n, err := in.Write(t.Context(), nil, true); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := in.Write(t.Context(), []byte("x"), false); !errors.Is(err, ErrInputClosed) || in.Open() {
		t.Errorf("after end of file: %v", err)
	}
	await(t, p.Done(), "done")
	if !bytes.Equal(out.Out.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes came back of %d", out.Out.Total(), want.Len())
	}
	if _, err := in.Write(t.Context(), []byte("x"), false); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

func TestInputBytes(t *testing.T) {
	m := newManager(t, Options{})
	for _, n := range []int{0, 5, 3 << 20} {
		s := Spec{Path: "/usr/bin/wc", Argv: []string{"wc", "-c"}, Env: testEnv, Stdin: InputBytes(make([]byte, n))}
		if r := run(t, m, s); strings.TrimSpace(string(r.Stdout)) != itoa(n) {
			t.Errorf("%d: %q", n, r.Stdout)
		}
	}
}

func TestAProgramThatDoesNotReadItsInputBlocksNobody(t *testing.T) {
	m := newManager(t, Options{})
	in := NewInput()
	in.wait = 50 * time.Millisecond
	s := sh("sleep 60")
	s.Stdin = in
	p := start(t, m, s)
	n, err := in.Write(t.Context(), make([]byte, 3<<20), true)
	if !errors.Is(err, ErrInputFull) || n < 1<<20 || n > 1<<20+200<<10 {
		t.Errorf("took %d: %v", n, err)
	}
	eventually(t, "the pipe is full too, and nothing more is taken", func() bool {
		n, err := in.Write(t.Context(), make([]byte, blockSize), false)
		return n == 0 && errors.Is(err, ErrInputFull)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in.wait = time.Hour
	if _, err := in.Write(ctx, []byte("x"), false); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	// A writer that waits is told when the process ends.
	told := make(chan error)
	go func() {
		_, err := in.Write(t.Context(), []byte("x"), false)
		told <- err
	}()
	p.End("")
	if err := <-told; !errors.Is(err, ErrEnded) && !errors.Is(err, ErrInputClosed) {
		t.Errorf("%v", err)
	}
}

func TestAProgramThatClosesItsInput(t *testing.T) {
	m := newManager(t, Options{})
	in := NewInput()
	s := bash("exec 0<&-; echo closed; sleep 60")
	log := NewLog(1 << 10)
	s.Stdin, s.Output = in, log
	p := start(t, m, s)
	defer p.End("")
	waitText(t, log, "closed")
	eventually(t, "the write fails", func() bool {
		_, err := in.Write(t.Context(), []byte("x"), false)
		return errors.Is(err, ErrInputClosed)
	})
}

func TestConcurrentWritersKeepTheirBytesTogether(t *testing.T) {
	m := newManager(t, Options{})
	in := NewInput()
	out := NewBuffers(32<<20, KeepHead)
	start(t, m, Spec{Path: "/bin/cat", Env: testEnv, Stdin: in, Output: out})
	var wg sync.WaitGroup
	const each = 2 << 20 // more than the buffer holds
	for _, c := range "abcd" {
		wg.Go(func() {
			if n, err := in.Write(t.Context(), bytes.Repeat([]byte{byte(c)}, each), false); n != each || err != nil {
				t.Error(n, err)
			}
		})
	}
	wg.Wait()
	_, _ = in.Write(t.Context(), nil, true)
	eventually(t, "all bytes", func() bool { return out.Out.Total() == 4*each })
	got := out.Out.Bytes()
	for i := 1; i < len(got); i++ {
		if got[i] != got[i-1] && i%each != 0 {
			t.Fatalf("writers are mixed at %d", i)
		}
	}
}

func TestInputWaitsTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewInput() // not attached: nobody empties it
		began := time.Now()
		n, err := in.Write(t.Context(), make([]byte, 2<<20), false)
		if n != 1<<20 || !errors.Is(err, ErrInputFull) || time.Since(began) != 10*time.Second {
			t.Errorf("%d %v after %v", n, err, time.Since(began))
		}
	})
}
