package pty

import (
	"io"
	"sync"
	"time"
)

const (
	// drainTime is how long the terminal is read on after its program has
	// ended, while a background job holds it open.
	drainTime = time.Second
	// What the kernel may still hold when slow readers have used that time up
	// is read all the same: so many bytes at most, as long as they come at once.
	drainRest     = pieceMax
	drainRestTime = 20 * time.Millisecond
)

// read is the goroutine every session has: it reads the terminal to its end.
func (s *Session) read() {
	var t titles
	rest := drainRest
	for rest > 0 {
		n := s.waitForRoom()
		late := s.drainOver()
		if late {
			n = min(n, rest)
			s.term.stopReading(time.Now().Add(drainRestTime))
		}
		p, n, err := s.term.read(n)
		if p != nil {
			s.append(p[:n], &t)
			pieces.Put(p)
		}
		if err != nil {
			return // EIO: nobody has the terminal open; or the drain is over
		}
		if late {
			rest -= n
		}
	}
}

// append adds output to the ring and tells everybody who waits for it.
func (s *Session) append(p []byte, t *titles) {
	title, found := t.feed(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.write(p)
	if found {
		s.title = title
	}
	s.touch()
	for a := range s.attached {
		s.checkLag(a)
	}
	s.tellAll()
}

// tellAll wakes all who wait for output or the end. Called with s.mu held.
func (s *Session) tellAll() {
	for a := range s.attached {
		tell(a.wake)
	}
	for c := range s.waiting {
		tell(c)
	}
}

// waitForRoom returns how much may be read now. It waits while the fastest
// attachment is a full ring behind.
func (s *Session) waitForRoom() int {
	for {
		if n := s.roomNow(); n > 0 {
			return n
		}
		<-s.room
	}
}

func (s *Session) roomNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.attached) == 0 || s.closing {
		return pieceMax
	}
	behind := int64(s.ring.max)
	for a := range s.attached {
		behind = min(behind, s.ring.end-a.pos)
	}
	return int(min(pieceMax, int64(s.ring.max)-behind))
}

// drainOver tells whether the program has ended and the time for the rest of
// its output is over.
func (s *Session) drainOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.drainBy.IsZero() && time.Now().After(s.drainBy)
}

// run follows the session from its start to its end, and calls over just
// before it has ended for everybody. tty is the program's
// side of the terminal: held open while the program lives, so that one that
// closes all its own copies for a while does not seem to have ended.
func (s *Session) run(tty io.Closer, over func()) {
	var reader sync.WaitGroup
	reader.Go(s.read)
	<-s.proc.Exited()
	close(s.gone)
	_ = tty.Close()
	s.mu.Lock()
	s.drain()
	s.mu.Unlock()
	tell(s.room)
	reader.Wait()
	_ = s.term.close()
	s.in.finish()
	over()
	s.mu.Lock()
	s.finish()
	s.mu.Unlock()
	close(s.done)
}

// finish marks the end. Called with s.mu held.
func (s *Session) finish() {
	s.ended = true
	s.ring.trim()
	for a := range s.attached {
		a.stopLag()
	}
	if s.idleTimer != nil {
		s.idleTimer.Stop()
	}
	s.touch()
	s.tellAll()
}
