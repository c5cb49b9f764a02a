package pty

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// ErrLagged ends an attachment that stayed a full ring behind for 10 seconds.
// It may attach again at the offset it has reached.
var ErrLagged = errors.New("pty: too far behind the terminal's output")

// lagTime is how long an attachment may be a full ring behind.
const lagTime = 10 * time.Second

// quietTime is how long an unfinished character is held back in the hope of
// its rest.
const quietTime = 2 * time.Second

// An Attachment is one reader's place in a session's output. While there are
// attachments, the terminal is read no faster than the fastest of them takes
// it. It must be closed. Its methods are for one goroutine, Close is for any.
type Attachment struct {
	s    *Session
	wake chan struct{} // told of output, end, and err
	from int64         // the offset it began at
	seen int64         // the offset that should come next

	// Guarded by s.mu.
	pos     int64 // everything before it was taken
	lost    bool  // output fell out of the ring before it was taken
	lagging *time.Timer
	err     error // why the attachment is over
}

// Attach opens a place in the session's output: at offset since, moved into
// what is kept, or, when since is negative, at the end of what any attachment
// has taken so far, so that nothing is lost and nothing repeated. An ended
// session can be attached to and read to its end.
func (s *Session) Attach(since int64) *Attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since < 0 {
		since = s.sent
	}
	a := &Attachment{s: s, wake: make(chan struct{}, 1), pos: s.ring.clamp(since)}
	a.from, a.seen = a.pos, min(since, a.pos)
	s.attached[a] = struct{}{}
	s.touch()
	s.checkLag(a)
	tell(s.room)
	return a
}

// Close gives the place up. It is safe to call twice.
func (a *Attachment) Close() { a.end(os.ErrClosed) }

// Next waits for output and copies it to p: n bytes that begin at offset off.
// An offset beyond the last one plus n says that output between was lost. The
// bytes count as taken once Next is called again. The error is io.EOF after
// the session's last output, ErrLagged, or that of ctx.
func (a *Attachment) Next(ctx context.Context, p []byte) (off int64, n int, err error) {
	a.take(a.seen)
	if err = a.wait(ctx, 0); err != nil {
		return 0, 0, err
	}
	off, n = a.peek(p)
	a.seen = off + int64(n)
	return off, n, nil
}

// wait returns when there are more than held bytes to take. With held bytes
// it also returns when no more came for quietTime, or ever will.
func (a *Attachment) wait(ctx context.Context, held int) error {
	var quiet <-chan time.Time
	for {
		have, ended, err := a.look()
		switch {
		case err != nil:
			return err
		case have > int64(held):
			return nil
		case ended && held > 0:
			return nil
		case ended:
			return io.EOF
		}
		if held > 0 && quiet == nil {
			t := time.NewTimer(quietTime)
			defer t.Stop()
			quiet = t.C
		}
		select {
		case <-a.wake:
		case <-quiet:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (a *Attachment) look() (have int64, ended bool, err error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return a.s.ring.end - a.pos, a.s.ended, a.err
}

// peek copies what follows the taken bytes and is still kept.
func (a *Attachment) peek(p []byte) (off int64, n int) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	return a.s.ring.read(a.pos, p)
}

// take marks everything before offset off as taken.
func (a *Attachment) take(off int64) {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if off <= a.pos || a.err != nil {
		return
	}
	a.pos = off
	s.sent = max(s.sent, off)
	// One that lost output is behind until it has really caught up: it would
	// otherwise be overtaken for ever.
	if behind := s.ring.end - off; !a.lost && behind < int64(s.ring.max) || behind < int64(s.ring.max)/2 {
		a.lost = false
		a.stopLag()
	}
	tell(s.room)
}

func (a *Attachment) stopLag() {
	if a.lagging != nil {
		a.lagging.Stop()
		a.lagging = nil
	}
}

// end closes the attachment for a reason; the first one counts.
func (a *Attachment) end(reason error) {
	s := a.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.err != nil {
		return
	}
	a.err = reason
	a.stopLag()
	delete(s.attached, a)
	s.touch()
	tell(a.wake)
	tell(s.room)
}

// checkLag starts the clock of an attachment that is a full ring behind.
// Called with s.mu held.
func (s *Session) checkLag(a *Attachment) {
	if a.pos < s.ring.start {
		a.lost = true
	}
	if a.lagging != nil || s.ended || s.ring.end-a.pos < int64(s.ring.max) {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(s.lagTime, func() {
		s.mu.Lock()
		still := a.lagging == t
		s.mu.Unlock()
		if still {
			a.end(ErrLagged)
		}
	})
	a.lagging = t
}

// tell wakes the one who waits on c, now or when it next looks.
func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
