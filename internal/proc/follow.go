package proc

import (
	"context"
	"errors"
	"time"
)

// ErrLagged ends a [Follower] that held up the program and took nothing.
var ErrLagged = errors.New("the reader takes no output any more")

const (
	// followBytes and followEvents are how far a follower may be behind before
	// the program has to wait for it.
	followBytes  = 4 << 20
	followEvents = 1 << 16
	// followWait is how long, by default, the program waits for one that takes nothing.
	followWait = 10 * time.Second
)

// Follower is one reader of a [Log] that gets every event: what it has not
// taken is kept for it, and when that is 4 MiB the program waits, as for any
// full pipe. One that takes nothing for ten seconds meanwhile is cut off; the
// other followers and the program then go on without it.
//
// Next, Take and Close are for one goroutine, Touch is for any.
type Follower struct {
	l     *Log
	onLag func()

	// Guarded by l.mu.
	pos    int64 // events before it are taken
	behind int   // bytes of events not taken
	moved  time.Time
	closed bool
	lagged bool
}

// Follow opens a place in the log: at event since or, when since is negative,
// behind what any follower has taken, so that nothing is lost and nothing is
// repeated. onLag, if not nil, is called when the follower is cut off; it must
// not block. The follower must be closed.
func (l *Log) Follow(since int64, onLag func()) *Follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since < 0 {
		since = l.taken
	}
	first := l.next - int64(len(l.events))
	f := &Follower{l: l, onLag: onLag, pos: min(max(since, first), l.next), moved: time.Now()}
	for _, e := range l.events[f.pos-first:] {
		f.behind += len(e.Data)
	}
	if l.followers == nil {
		l.followers = map[*Follower]struct{}{}
	}
	l.sealed = true // what comes is counted for it too
	l.followers[f] = struct{}{}
	return f
}

// Next returns the events that were not taken, waiting for one or for the end
// of the log. Until ctx ends it waits; then the page may have none. The error
// is ErrLagged, or nil.
func (f *Follower) Next(ctx context.Context) (Page, error) {
	f.l.mu.Lock()
	pos, lagged := f.pos, f.lagged
	f.l.mu.Unlock()
	if lagged {
		return Page{}, ErrLagged
	}
	return f.l.Wait(ctx, pos), nil
}

// Take says that the peer has all events before the number next.
func (f *Follower) Take(next int64) {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = max(l.taken, next)
	if f.closed || next <= f.pos {
		return
	}
	first := l.next - int64(len(l.events))
	for _, e := range l.events[f.pos-first : min(next, l.next)-first] {
		f.behind -= len(e.Data)
	}
	f.pos, f.moved = next, time.Now()
	l.prune()
	l.freed()
}

// Touch says that the peer has taken something, if no whole event.
func (f *Follower) Touch() {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.moved = time.Now()
}

// Close gives the place up.
func (f *Follower) Close() {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.leave()
}

// leave is called under l.mu.
func (f *Follower) leave() {
	if f.closed {
		return
	}
	f.closed = true
	delete(f.l.followers, f)
	f.l.prune()
	f.l.freed()
}

// freed wakes a take that waits for room. It is called under l.mu.
func (l *Log) freed() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// awaitRoom waits while a follower is too far behind. It is called, and
// returns, under l.mu.
func (l *Log) awaitRoom() {
	for !l.done {
		f := l.slowest()
		if f == nil {
			return
		}
		left := time.Until(f.moved.Add(l.patience))
		if left <= 0 {
			f.lagged = true
			f.leave()
			l.wake()
			if f.onLag != nil {
				f.onLag()
			}
			continue
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		t := time.NewTimer(left)
		select {
		case <-room:
		case <-t.C:
		}
		t.Stop()
		l.mu.Lock()
	}
}

// slowest is a follower that is too far behind. It is called under l.mu.
func (l *Log) slowest() *Follower {
	for f := range l.followers {
		if f.behind > followBytes || l.next-f.pos > followEvents {
			return f
		}
	}
	return nil
}

// wanted is the oldest event that a follower has still to take. It is called
// under l.mu.
func (l *Log) wanted() int64 {
	oldest := l.next
	for f := range l.followers {
		oldest = min(oldest, f.pos)
	}
	return oldest
}
