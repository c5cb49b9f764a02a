package proc

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"
)

// fill prints n blocks of 64 KiB into a log, each of one letter.
func fill(l *Log, n int) {
	for i := range n {
		b := getBlock()
		for j := range b {
			b[j] = 'a' + byte(i%26)
		}
		l.take(Stdout, b, len(b))
		putBlock(b)
	}
}

func drainAll(t *testing.T, f *Follower) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out []byte
	for {
		page, err := f.Next(ctx)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("after %d bytes: %v %v", len(out), err, ctx.Err())
		}
		for _, e := range page.Events {
			out = append(out, e.Data...)
			f.Take(e.Seq + 1)
		}
		if page.Ended && len(page.Events) == 0 {
			return out
		}
	}
}

// A client that is merely slow was cut off from what fell out of the log.
func TestSlowFollowerLosesNothing(t *testing.T) {
	const blocks = 200 // 12.5 MiB through a log of 1 KiB
	l := NewLog(1 << 10)
	f := l.Follow(-1, nil)
	defer f.Close()
	go func() { fill(l, blocks); l.exited(); l.end() }()
	got := drainAll(t, f)
	if len(got) != blocks*blockSize {
		t.Fatalf("got %d bytes of %d", len(got), blocks*blockSize)
	}
	for i := range blocks {
		if b := got[i*blockSize : (i+1)*blockSize]; !bytes.Equal(b, bytes.Repeat([]byte{'a' + byte(i%26)}, blockSize)) {
			t.Fatalf("block %d is not as printed", i)
		}
	}
	if l.Bytes() > 1<<10 {
		t.Errorf("%d bytes are kept though all was taken", l.Bytes())
	}
}

// A client that stopped reading froze the program and all other clients.
func TestStalledFollowerIsCutOff(t *testing.T) {
	const blocks = 120
	l := NewLog(1 << 10)
	l.patience = 50 * time.Millisecond
	cut := make(chan struct{})
	stalled := l.Follow(-1, func() { close(cut) })
	defer stalled.Close()
	other := l.Follow(-1, nil)
	defer other.Close()
	go func() { fill(l, blocks); l.exited(); l.end() }()
	if got := drainAll(t, other); len(got) != blocks*blockSize {
		t.Errorf("the other client got %d bytes of %d", len(got), blocks*blockSize)
	}
	select {
	case <-cut:
	default:
		t.Error("nobody was told of the cut")
	}
	if _, err := stalled.Next(t.Context()); !errors.Is(err, ErrLagged) {
		t.Errorf("the stalled client: %v", err)
	}
}

// One that takes little by little is not taken for one that takes nothing.
func TestFollowerThatMovesIsNotCutOff(t *testing.T) {
	l := NewLog(1 << 10)
	l.patience = 200 * time.Millisecond
	f := l.Follow(-1, func() { t.Error("cut off") })
	defer f.Close()
	done := make(chan struct{})
	go func() { defer close(done); fill(l, 80); l.end() }()
	for until := time.Now().Add(3 * l.patience); time.Now().Before(until); {
		f.Touch()
		select {
		case <-done:
			t.Fatal("the program did not wait")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := drainAll(t, f); len(got) != 80*blockSize {
		t.Errorf("got %d bytes", len(got))
	}
	<-done
}

// What was printed while nobody was attached was lost, or came twice.
func TestNextFollowerGoesOnWhereOthersStopped(t *testing.T) {
	l := NewLog(1 << 20)
	put := func(text string) {
		b := getBlock()
		defer putBlock(b)
		l.take(Stdout, b, copy(b[:], text))
	}
	first := l.Follow(-1, nil)
	put("one ")
	page, _ := first.Next(t.Context())
	first.Take(page.Next)
	put("two ")
	first.Close()
	put("three")
	l.end()
	second := l.Follow(-1, nil)
	defer second.Close()
	if got := string(drainAll(t, second)); got != "two three" {
		t.Errorf("got %q", got)
	}
	third := l.Follow(-1, nil)
	defer third.Close()
	if got := string(drainAll(t, third)); got != "" {
		t.Errorf("repeated %q", got)
	}
}

// Ending a process must not wait for a client.
func TestEndFreesTheProgramFromItsFollower(t *testing.T) {
	l := NewLog(0)
	f := l.Follow(-1, nil)
	defer f.Close()
	done := make(chan struct{})
	go func() { defer close(done); fill(l, 100) }()
	select {
	case <-done:
		t.Fatal("the program did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	l.discard()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("the program still waits")
	}
}
