package proc

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Log is a [Sink] that keeps the newest output of both streams as numbered
// events. Reading does not consume: every reader has its own cursor. All
// methods are safe together.
type Log struct {
	limit, maxEvent, maxEvents int

	mu      sync.Mutex
	events  []Event // a queue; its head is cut off now and then
	next    int64
	bytes   int
	dropped bool
	sealed  bool // the last event has been shown and must not grow
	held    [2][]byte
	left    bool // the process has ended
	done    bool
	change  chan struct{} // made by the first who waits
	account *atomic.Int64 // where bytes are counted too

	followers map[*Follower]struct{}
	taken     int64         // events before it were taken by some follower
	room      chan struct{} // made by a take that waits, closed when a follower moved
	patience  time.Duration // with followers that take nothing
}

// Event is one piece of output, at most 64 KiB. The pieces of one stream,
// joined, are the exact output. No character lies across two of them, but for
// bytes that are no character at all and for the moment of the process's end.
type Event struct {
	Seq    int64
	Stream Stream
	Data   []byte // never changes
}

// Page is what a [Log] answers.
type Page struct {
	// Events from the asked number on, as far as they are still kept.
	Events []Event
	// First is the oldest number kept, Next the number to be given next.
	First, Next int64
	// Dropped says that events have gone, for good.
	Dropped bool
	// Exited: the process has ended, and everything it wrote up to its end is
	// in the log.
	Exited bool
	// Ended: nothing more will come.
	Ended bool
}

// NewLog makes a log that keeps at most limit bytes of output. So that many
// tiny events cannot cost more than that, it keeps no more than one event per
// 32 bytes of limit (and never fewer than 1024).
func NewLog(limit int) *Log {
	limit = max(limit, 0)
	return &Log{
		limit:     limit,
		patience:  followWait,
		maxEvent:  min(blockSize, max(limit/4, 4)),
		maxEvents: max(limit/32, 1024),
	}
}

func (l *Log) take(s Stream, b *block, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaitRoom(); l.done {
		return false
	}
	data := b[:n]
	if held := l.held[s]; len(held) > 0 {
		data = append(slices.Clip(held), data...)
		l.held[s] = nil
	}
	whole := Whole(data)
	if whole < len(data) {
		l.held[s] = append([]byte(nil), data[whole:]...)
	}
	l.append(s, data[:whole])
	return false
}

// append cuts data, which holds no incomplete character at its end, into
// events. It is called under l.mu.
func (l *Log) append(s Stream, data []byte) {
	if len(data) == 0 {
		return
	}
	for len(data) > 0 {
		n := len(data)
		if n > l.maxEvent {
			n = l.maxEvent
			if w := Whole(data[:n]); w > 0 {
				n = w
			}
		}
		l.push(s, data[:n])
		data = data[n:]
	}
	l.wake()
}

func (l *Log) push(s Stream, piece []byte) {
	l.count(len(piece))
	for f := range l.followers {
		f.behind += len(piece)
	}
	if last := len(l.events) - 1; last >= 0 && !l.sealed && l.events[last].Stream == s &&
		len(l.events[last].Data)+len(piece) <= l.maxEvent {
		// Nobody has seen the last event: fewer, larger ones cost less.
		l.events[last].Data = append(l.events[last].Data, piece...)
	} else {
		l.events = append(l.events, Event{l.next, s, append([]byte(nil), piece...)})
		l.next++
		l.sealed = false
	}
	l.prune()
}

// prune drops the oldest events that are too many and that no follower waits
// for. It is called under l.mu.
func (l *Log) prune() {
	if len(l.events) == 0 || l.bytes <= l.limit && len(l.events) <= l.maxEvents {
		return
	}
	wanted := l.wanted()
	for len(l.events) > 0 && l.events[0].Seq < wanted && (l.bytes > l.limit || len(l.events) > l.maxEvents) {
		l.count(-len(l.events[0].Data))
		l.events[0] = Event{}
		l.events = l.events[1:] // append moves the rest to a new array when this one is full
		l.dropped = true
	}
}

// count is called under l.mu.
func (l *Log) count(n int) {
	l.bytes += n
	if l.account != nil {
		l.account.Add(int64(n))
	}
}

// countIn makes the log add the bytes it keeps to total.
func (l *Log) countIn(total *atomic.Int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account = total
	total.Add(int64(l.bytes))
}

// discard ends the log and lets go of its events.
func (l *Log) discard() {
	l.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(-l.bytes)
	l.dropped = l.dropped || len(l.events) > 0
	for f := range l.followers {
		f.pos, f.behind = l.next, 0
	}
	l.events = nil
}

// wake is called under l.mu.
func (l *Log) wake() {
	if l.change != nil {
		close(l.change)
		l.change = nil
	}
}

// flush gives up waiting for the rest of a character. It is called under l.mu.
func (l *Log) flush() {
	for s := range l.held {
		l.append(Stream(s), l.held[s])
		l.held[s] = nil
	}
}

func (l *Log) exited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	l.left = true
	l.wake()
}

func (l *Log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return
	}
	l.flush()
	l.done = true
	l.wake()
	l.freed()
}

func (l *Log) lasting() bool { return true }

// Bytes is the number of bytes kept.
func (l *Log) Bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// Read returns the events numbered since and above. The same question gives
// the same events again, as long as they are kept.
func (l *Log) Read(since int64) Page {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.page(since)
}

func (l *Log) page(since int64) Page {
	first := l.next - int64(len(l.events))
	p := Page{First: first, Next: l.next, Dropped: l.dropped, Exited: l.left, Ended: l.done}
	if from := max(since, first); from < l.next {
		p.Events = append([]Event(nil), l.events[from-first:]...)
	}
	l.sealed = true
	return p
}

// Wait is Read that waits for an event numbered since or above, or for the end
// of the log. When ctx ends first it returns what there is, which is no event.
func (l *Log) Wait(ctx context.Context, since int64) Page {
	for {
		l.mu.Lock()
		if l.next > since || l.done || ctx.Err() != nil {
			defer l.mu.Unlock()
			return l.page(since)
		}
		if l.change == nil {
			l.change = make(chan struct{})
		}
		change := l.change
		l.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
		}
	}
}
