package pty

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// The errors of [Manager.Create] and look-ups, for errors.Is.
var (
	ErrInvalid   = errors.New("pty: invalid value")
	ErrNameTaken = errors.New("pty: a session of that name exists")
	ErrLimit     = errors.New("pty: too many sessions")
	ErrUnknown   = errors.New("pty: no such session")
	ErrClosed    = errors.New("pty: the manager is closed")
)

// LimitError is the ErrLimit that says how many sessions there may be.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string { return fmt.Sprintf("%v: at most %d", ErrLimit, e.Limit) }
func (e *LimitError) Unwrap() error { return ErrLimit }

const (
	// DefaultSessions is how many sessions may live at once unless a policy
	// says otherwise.
	DefaultSessions = 64
	// DefaultScrollback is how many bytes of output a session keeps unless
	// its creator says otherwise.
	DefaultScrollback = 1 << 20
	// MaxScrollback is the most bytes of output a session keeps.
	MaxScrollback = 16 << 20
	// minScrollback keeps reads and messages of a useful size.
	minScrollback = pieceMax

	defaultRetain = 10 * time.Minute
	// Ended sessions beyond these are forgotten early, the oldest first.
	keptSessions = 256
	keptBytes    = 64 << 20
)

var nameShape = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// Options are what a [Manager] is made with. The zero value has the defaults.
type Options struct {
	IdleTimeout time.Duration // without attachment, input and output; 0 is never
	Retain      time.Duration // how long an ended session is known; 0 is 10 minutes
}

// Manager owns all terminal sessions. It is safe for concurrent use.
type Manager struct {
	opts    Options
	procs   *proc.Manager
	lagTime time.Duration

	mu       sync.Mutex
	sessions map[string]*Session // by id, ended ones too
	names    map[owned]*naming   // of live sessions and those being made
	live     int                 // sessions alive or being made
	ended    []*Session          // those still known, the oldest first
	closed   bool
	wg       sync.WaitGroup
}

type owned struct{ owner, name string }

// naming is a name given to a session that may still be in the making.
type naming struct {
	made chan struct{} // closed when s is set, or was not made
	s    *Session
}

// Viewer is who asks for sessions: an identity, or one that sees them all.
type Viewer struct {
	Owner string
	All   bool
}

func (v Viewer) sees(s *Session) bool { return v.All || v.Owner == s.owner }

// New makes a manager that starts its programs through procs, which must live
// until the manager is closed.
func New(procs *proc.Manager, o Options) *Manager {
	o.Retain = cmp.Or(o.Retain, defaultRetain)
	return &Manager{
		opts: o, procs: procs, lagTime: lagTime,
		sessions: map[string]*Session{}, names: map[owned]*naming{},
	}
}

// Create starts a session, or returns the live one of that name when the spec
// says AttachExisting; made tells which. It lives until its program ends, it is
// deleted, or the manager is closed. Errors are those above, and those of
// package proc when the program cannot be started.
func (m *Manager) Create(spec Spec) (s *Session, made bool, err error) {
	if err := spec.check(); err != nil {
		return nil, false, err
	}
	for {
		n, ours, err := m.reserve(spec)
		if err != nil {
			return nil, false, err
		}
		if ours {
			s, err = m.make(spec, n)
			return s, err == nil, err
		}
		<-n.made
		if n.s != nil {
			return n.s, false, nil
		}
	}
}

// reserve takes a place under the limit, and the name if one is given. When
// the name is another session's and that will do, it returns that naming.
func (m *Manager) reserve(spec Spec) (n *naming, ours bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := owned{spec.Owner, spec.Name}
	switch n := m.names[key]; {
	case m.closed:
		return nil, false, ErrClosed
	case n != nil && spec.AttachExisting:
		return n, false, nil
	case n != nil:
		return nil, false, ErrNameTaken
	}
	if limit := cmp.Or(spec.MaxSessions, DefaultSessions); m.live >= limit {
		return nil, false, &LimitError{limit}
	}
	m.live++
	m.wg.Add(1) // for the goroutine that follows the session
	n = &naming{made: make(chan struct{})}
	if spec.Name != "" {
		m.names[key] = n
	}
	return n, true, nil
}

// make starts the session that was reserved.
func (m *Manager) make(spec Spec, n *naming) (*Session, error) {
	s, tty, err := m.open(spec)
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(n.made)
	if err != nil {
		m.release(owned{spec.Owner, spec.Name}, n)
		m.wg.Done()
		return nil, err
	}
	n.s = s
	m.sessions[s.id] = s
	if s.idle > 0 {
		s.idleTimer = time.AfterFunc(s.idle, func() { m.checkIdle(s) })
	}
	go func() {
		defer m.wg.Done()
		s.run(tty, func() { m.over(s, n) })
	}()
	if m.closed { // Close has not seen it
		m.wg.Go(func() { m.terminate(hangUp, s) })
	}
	return s, nil
}

// release gives back what reserve took. Called with m.mu held.
func (m *Manager) release(key owned, n *naming) {
	m.live--
	if m.names[key] == n {
		delete(m.names, key)
	}
}

// open makes the terminal and starts the program on it.
func (m *Manager) open(spec Spec) (s *Session, tty *os.File, err error) {
	term, tty, err := openTerminal(spec.Cols, spec.Rows)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	if u := spec.Program.User; u != nil { // some programs open their terminal by its name
		err = tty.Chown(int(u.UID), -1)
	}
	var p *proc.Process
	if err == nil {
		spec.Program.TTY = tty
		p, err = m.procs.Start(context.Background(), spec.Program)
	}
	if err != nil {
		_ = term.close()
		_ = tty.Close()
		return nil, nil, err
	}
	now := time.Now()
	s = &Session{
		id: newID(), name: spec.Name, owner: spec.Owner, shell: spec.Program.Path,
		created: now, active: now, idle: m.opts.IdleTimeout, lagTime: m.lagTime,
		term: term, proc: p, cols: spec.Cols, rows: spec.Rows,
		room: make(chan struct{}, 1), gone: make(chan struct{}), done: make(chan struct{}),
		ring:     ring{max: max(cmp.Or(spec.Scrollback, DefaultScrollback), minScrollback)},
		attached: map[*Attachment]struct{}{}, waiting: map[chan struct{}]struct{}{},
	}
	if spec.IdleTimeout != 0 {
		s.idle = spec.IdleTimeout
	}
	s.in = newInput(term, s.gone)
	return s, tty, nil
}

// newID is 128 random bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Get is the session of that id, alive or ended not long ago. To others than
// its owner, and those who see all, it does not exist: ErrUnknown.
func (m *Manager) Get(id string, who Viewer) (*Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(id, who)
}

// find is Get with m.mu held.
func (m *Manager) find(id string, who Viewer) (*Session, error) {
	if s := m.sessions[id]; s != nil && who.sees(s) {
		return s, nil
	}
	return nil, ErrUnknown
}

// List is the live sessions who may see, the oldest first.
func (m *Manager) List(who Viewer) []*Session {
	m.mu.Lock()
	list := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		if who.sees(s) {
			list = append(list, s)
		}
	}
	m.mu.Unlock()
	list = slices.DeleteFunc(list, func(s *Session) bool { _, ended := s.Status(); return ended })
	slices.SortFunc(list, func(a, b *Session) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.id, b.id))
	})
	return list
}

// over keeps a session that is ending for a while, and gives its place back.
func (m *Manager) over(s *Session, n *naming) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release(owned{s.owner, s.name}, n)
	if m.sessions[s.id] != s || m.closed {
		return // deleted
	}
	m.ended = append(m.ended, s)
	s.forget = time.AfterFunc(m.opts.Retain, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.drop(s)
	})
	kept := 0
	for i, old := range slices.Backward(m.ended) {
		kept += old.kept()
		if len(m.ended)-i > keptSessions || kept > keptBytes {
			for _, old := range slices.Clone(m.ended[:i+1]) {
				m.drop(old)
			}
			break
		}
	}
}

// drop forgets a session. Called with m.mu held.
func (m *Manager) drop(s *Session) {
	delete(m.sessions, s.id)
	if s.forget != nil {
		s.forget.Stop()
		m.ended = slices.DeleteFunc(m.ended, func(e *Session) bool { return e == s })
	}
}
