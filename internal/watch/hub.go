package watch

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	defaultInterval = 500 * time.Millisecond
	defaultQueue    = 8192
	inboxSize       = 1 << 16
)

// Hub is where trees are watched. One is enough for a process: its listeners
// share one inotify instance, which is there only while there are listeners.
// All methods may be called by any goroutine.
type Hub struct {
	init  func() (int, error) // tests put other ones here
	limit int                 // most watches; 0: as many as the kernel gives
	inbox int

	mu     sync.Mutex
	in     *instance
	users  int // listeners that use in
	live   map[*Listener]struct{}
	closed bool
}

// New makes a Hub. It holds nothing until the first Watch.
func New() *Hub {
	return &Hub{
		init:  func() (int, error) { return unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK) },
		inbox: inboxSize,
		live:  map[*Listener]struct{}{},
	}
}

// Watch listens to the tree below dir, an open directory (O_PATH will do). name
// is its absolute path, under which it is found again; links in it are allowed.
// When Watch returns, every later change is told. ctx bounds only the time that
// this takes, which grows with the tree. dir stays the caller's, is not used
// after the return and should be closed: while it is open, its file system
// cannot be unmounted.
//
// What cannot be listed to begin with is an [fs.PathError]; that name does not
// lead to dir is [fs.ErrNotExist]; a closed hub is [ErrClosed]. The listener
// must be closed.
func (h *Hub) Watch(ctx context.Context, dir *os.File, name string, opt Options) (*Listener, error) {
	fd, err := duplicate(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "watch", Path: name, Err: err}
	}
	if name, err = filepath.Abs(name); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if opt.Interval <= 0 {
		opt.Interval = defaultInterval
	}
	if opt.Queue <= 0 {
		opt.Queue = defaultQueue
	}
	l := &Listener{stop: make(chan struct{}), finish: make(chan struct{}), ended: make(chan struct{})}
	rest := hold
	if opt.Raw {
		rest = 0
	}
	l.q = newQueue(opt.Queue, rest, l.stop)
	t := &tree{
		name: name, opt: opt, box: newInbox(h.inbox), q: l.q, stop: l.stop,
		places: places{}, blind: map[*node]struct{}{}, moves: map[uint32]*move{},
	}
	if t.in, err = h.enter(l, t.box); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	armed := make(chan error, 1)
	go h.serve(l, t, fd, armed)
	select {
	case err = <-armed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		l.Close()
		return nil, &fs.PathError{Op: "watch", Path: name, Err: err}
	}
	return l, nil
}

// serve is a listener's goroutine.
func (h *Hub) serve(l *Listener, t *tree, fd int, armed chan<- error) {
	defer close(l.ended)
	defer h.leave(l, t)
	err := t.arm(fd)
	_ = unix.Close(fd)
	armed <- err
	if err == nil {
		t.follow(l.finish)
	}
}

// enter registers a listener and gives it the instance, nil if none is to be had.
func (h *Hub) enter(l *Listener, box *inbox) (*instance, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if h.in == nil {
		// Too many instances, no inotify, no descriptors: the tree is polled.
		h.in, _ = newInstance(h.limit, h.init)
	}
	h.live[l] = struct{}{}
	if h.in != nil {
		h.users++
		h.in.join(box)
	}
	return h.in, nil
}

func (h *Hub) leave(l *Listener, t *tree) {
	h.mu.Lock()
	delete(h.live, l)
	last := false
	if t.in != nil {
		if h.users--; h.users == 0 {
			h.in, last = nil, true
		}
	}
	h.mu.Unlock()
	switch {
	case t.in == nil:
	case last:
		t.in.close() // with all its watches
	default:
		t.letGo()
	}
}

// Close ends all listeners, whose readers get [ErrClosed], and frees everything.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	all := make([]*Listener, 0, len(h.live))
	for l := range h.live {
		all = append(all, l)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.Close()
	}
}

func duplicate(dir *os.File) (fd int, err error) {
	conn, err := dir.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := conn.Control(func(from uintptr) {
		fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0)
	}); e != nil {
		return -1, e
	}
	return fd, err
}
