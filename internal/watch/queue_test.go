package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestQueueHoldsMergesAndKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8, hold, nil)
		start := time.Now()
		q.push(Event{Kind: Created, Path: "a"})
		q.push(Event{Kind: Modified, Path: "b"})
		q.push(Event{Kind: Modified, Path: "a"})
		time.Sleep(5 * time.Millisecond)
		q.push(Event{Kind: Deleted, Path: "a"})
		q.push(Event{Kind: Overflow, Reason: QueueLost})
		q.push(Event{Kind: Overflow, Reason: QueueLost})
		var got []string
		for len(got) < 4 {
			events, err := q.pop(t.Context(), 8)
			must(t, err)
			for _, e := range events {
				got = append(got, fmt.Sprint(time.Since(start), " ", text(e)))
			}
		}
		equal(t, got, "20ms created a", "20ms modified b", "25ms deleted a", "25ms overflow queue")
		if len(q.last) > 0 {
			t.Errorf("remembered for ever: %v", q.last)
		}
	})
}

func TestQueueIsBoundedAndItsWriterCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		q := newQueue(2, hold, stop)
		pushed := 0
		go func() {
			for i := range 4 {
				if _, ok := q.push(Event{Kind: Created, Path: fmt.Sprint(i)}); ok {
					pushed++
				}
			}
		}()
		synctest.Wait()
		if pushed != 2 {
			t.Errorf("%d of 2", pushed)
		}
		events, err := q.pop(t.Context(), 1)
		must(t, err)
		synctest.Wait()
		if len(events) != 1 || pushed != 3 {
			t.Errorf("%d read, %d pushed", len(events), pushed)
		}
		close(stop)
		synctest.Wait()
		q.abort(ErrClosed)
		if _, err := q.pop(t.Context(), 1); !errors.Is(err, ErrClosed) || pushed != 3 {
			t.Errorf("%v, %d pushed", err, pushed)
		}
	})
}

func TestQueueRetractsOnlyWhatNobodyKnowsOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8, hold, nil)
		first, _ := q.push(Event{Kind: Deleted, Path: "d/f"})
		last, _ := q.push(Event{Kind: Deleted, Path: "d"})
		if !q.retract(first, last, "d") {
			t.Error("not retracted")
		}
		last, _ = q.push(Event{Kind: Deleted, Path: "x"})
		q.push(Event{Kind: Created, Path: "x"})
		if q.retract(last, last, "x") {
			t.Error("retracted though x is there anew")
		}
		last, _ = q.push(Event{Kind: Deleted, Path: "y"})
		q.end(io.EOF)
		events, err := q.pop(t.Context(), 8)
		must(t, err)
		if q.retract(last, last, "y") {
			t.Error("retracted though it was read")
		}
		var got []string
		for _, e := range events {
			got = append(got, text(e))
		}
		equal(t, got, "deleted x", "created x", "deleted y")
		if _, err := q.pop(t.Context(), 8); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
}

// TestQueueAgainstASlice compares with the obvious version: all events in a
// slice, where a Modified goes unless its path's last unread event is Deleted.
func TestQueueAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue(1000, time.Nanosecond, nil)
		var want []string
		last := map[string]Kind{} // of unread events
		var got []string
		read := func(most int) {
			events, err := q.pop(context.Background(), most)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got = append(got, text(e))
			}
		}
		unread := func() int { return len(want) - len(got) }
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if unread() > 0 && rapid.Bool().Draw(t, "read") {
				read(1000)
				if unread() == 0 {
					clear(last)
				}
				continue
			}
			e := Event{
				Kind: rapid.SampledFrom([]Kind{Created, Modified, Deleted}).Draw(t, "kind"),
				Path: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "path"),
			}
			q.push(e)
			if k := last[e.Path]; e.Kind != Modified || k == 0 || k == Deleted {
				want = append(want, text(e))
				last[e.Path] = e.Kind
			}
		}
		for unread() > 0 {
			read(1)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
