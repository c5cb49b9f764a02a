package watch

import (
	"context"
	"sync"
	"time"
)

// queue is the bounded, ordered list of events between a listener's tree and
// its reader. Each event rests for the time hold, so that what follows on the
// same path can be merged into it; the order is never changed.
type queue struct {
	max  int
	hold time.Duration // zero: nothing is merged either
	stop <-chan struct{}

	mu    sync.Mutex
	list  []queued
	base  uint64            // number of list[0]
	last  map[string]uint64 // path → number of its last event in list
	err   error             // what the reader gets when list is empty
	ended bool

	ready chan struct{} // one token: something for the reader
	space chan struct{} // one token: something for the writer
}

type queued struct {
	Event
	since time.Time
	void  bool // taken back
}

func newQueue(size int, hold time.Duration, stop <-chan struct{}) *queue {
	return &queue{
		max: size, hold: hold, stop: stop, base: 1, last: map[string]uint64{},
		ready: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
}

// push appends an event, waiting while the queue is full, and returns its
// number. It gives up when stop is closed. There is one pusher.
func (q *queue) push(e Event) (uint64, bool) {
	for {
		q.mu.Lock()
		n, done := q.add(e)
		q.mu.Unlock()
		if done {
			token(q.ready)
			return n, true
		}
		select {
		case <-q.space:
		case <-q.stop:
			return 0, false
		}
	}
}

func (q *queue) add(e Event) (uint64, bool) {
	if n, ok := q.last[e.Path]; ok && e.Kind == Modified {
		if k := q.list[n-q.base].Kind; k == Created || k == Modified || k == Renamed {
			return n, true
		}
	}
	if e.Kind == Overflow {
		if k := len(q.list); k > 0 && q.list[k-1].Kind == Overflow && q.list[k-1].Reason == e.Reason {
			return q.base + uint64(k-1), true
		}
	}
	if len(q.list) >= q.max {
		return 0, false
	}
	n := q.base + uint64(len(q.list))
	q.list = append(q.list, queued{Event: e, since: time.Now()})
	if q.hold > 0 && e.Kind != Overflow {
		q.last[e.Path] = n
	}
	return n, true
}

// retract takes back the events from first to last, the last being about path,
// if none was read and nothing was said of path since.
func (q *queue) retract(first, last uint64, path string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, ok := q.last[path]; first < q.base || !ok || n != last {
		return false
	}
	for i := first; i <= last; i++ {
		e := &q.list[i-q.base]
		e.void = true
		if q.last[e.Path] == i {
			delete(q.last, e.Path)
		}
	}
	return true
}

// pop returns up to most events that have rested long enough, waiting for the
// first. When the queue has ended it returns what is left, then the reason.
func (q *queue) pop(ctx context.Context, most int) ([]Event, error) {
	for {
		got, wait, err := q.ripe(most)
		if len(got) > 0 || err != nil {
			return got, err
		}
		if err := q.rest(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// rest waits for a token or, if wait is set, for that long.
func (q *queue) rest(ctx context.Context, wait time.Duration) error {
	var alarm <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.ready:
	case <-alarm:
	}
	return nil
}

// ripe takes what may be read now; wait is how long the next needs, 0 if there
// is none.
func (q *queue) ripe(most int) (got []Event, wait time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	n := 0
	for ; n < len(q.list) && len(got) < most; n++ {
		e := &q.list[n]
		if wait = q.hold - now.Sub(e.since); wait > 0 && !q.ended {
			break
		}
		wait = 0
		if !e.void {
			got = append(got, e.Event)
		}
		if q.last[e.Path] == q.base+uint64(n) {
			delete(q.last, e.Path)
		}
		e.Event = Event{} // the names may go
	}
	if n > 0 {
		q.list, q.base = q.list[n:], q.base+uint64(n)
		token(q.space)
	}
	if len(q.list) == 0 {
		q.list = nil
		if len(got) == 0 {
			err = q.err
		}
	}
	return got, wait, err
}

// end lets the reader have what is in the queue at once, and then err. What
// was said first stays.
func (q *queue) end(err error) {
	q.mu.Lock()
	if !q.ended {
		q.ended, q.err = true, err
	}
	q.mu.Unlock()
	token(q.ready)
}

// abort drops everything: the reader gets err at once, however it ended before.
func (q *queue) abort(err error) {
	q.mu.Lock()
	q.list, q.base, q.last = nil, q.base+uint64(len(q.list)), map[string]uint64{}
	q.ended, q.err = true, err
	q.mu.Unlock()
	token(q.ready)
}

func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
