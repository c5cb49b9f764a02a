package pty

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// ending is how sessions are ended by force: signals first, SIGKILL for what
// is left after grace.
type ending struct {
	first  []syscall.Signal
	grace  time.Duration
	reason proc.Reason
}

var (
	// hangUp ends a terminal that was deleted or left alone.
	hangUp = ending{[]syscall.Signal{syscall.SIGHUP}, 200 * time.Millisecond, ""}
	// shutDown ends all terminals when the server stops.
	shutDown = ending{[]syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}, 2 * time.Second, proc.ReasonShutdown}
)

// closingDrain bounds the reading of a terminal that is closed by force.
const closingDrain = 100 * time.Millisecond

// Delete ends the session with all that it started, and forgets it: within
// half a second nothing of it is left, nor of what an ended one left behind.
// Its attachments get the rest of the output and the end.
func (m *Manager) Delete(id string, who Viewer) error {
	m.mu.Lock()
	s, err := m.find(id, who)
	if err == nil {
		m.drop(s)
	}
	m.mu.Unlock()
	if err == nil {
		m.terminate(hangUp, s)
	}
	return err
}

// Close ends all sessions and waits for them, or for ctx. Creating another
// fails with ErrClosed from here on.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	var live []*Session
	for _, s := range m.sessions {
		if s.forget == nil {
			live = append(live, s)
		}
	}
	for _, s := range m.ended {
		s.forget.Stop()
	}
	m.mu.Unlock()

	done := make(chan struct{})
	go func() { //nolint:contextcheck // each ending has its own grace; ctx ends the wait below
		defer close(done)
		var ending sync.WaitGroup
		for _, s := range live {
			ending.Go(func() { m.terminate(shutDown, s) })
		}
		ending.Wait()
		m.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkIdle ends a session that was left alone for its time, or comes back
// when that could be so.
func (m *Manager) checkIdle(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.closed || s.ended || s.closing {
		return
	}
	left := s.idle
	if len(s.attached) == 0 && len(s.waiting) == 0 {
		left -= time.Since(s.active)
	}
	if left > 0 {
		s.idleTimer.Reset(left)
		return
	}
	m.wg.Go(func() { m.terminate(hangUp, s) })
}

// terminate ends a session by force, with all that its program has started.
func (m *Manager) terminate(how ending, s *Session) {
	s.beginClosing()
	s.proc.Stop(how.grace, how.reason, how.first...)
	late := time.NewTimer(2 * closingDrain)
	defer late.Stop()
	select {
	case <-s.done:
	case <-late.C: // something that the kernel does not let end
	}
}

// beginClosing marks the session as being ended by force: nobody's slowness
// holds up the end from here on.
func (s *Session) beginClosing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if !s.drainBy.IsZero() && !s.ended {
		s.drain()
	}
	tell(s.room)
}

// drain sets the time at which the terminal of an ended program is given up.
// Called with s.mu held.
func (s *Session) drain() {
	d := drainTime
	if s.closing {
		d = closingDrain
	}
	s.drainBy = time.Now().Add(d)
	s.term.stopReading(s.drainBy)
}
