package devtools

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// Contexts holds the contexts there are: interpreters that run one cell after
// another and keep what cells leave behind. All methods are safe together. Who
// makes it calls Close.
type Contexts struct {
	procs *proc.Manager
	idle  time.Duration
	most  int

	mu     sync.Mutex
	all    []*Context // in the order they were made
	making int
	closed bool
	wait   sync.WaitGroup
}

// ContextOptions set up [Contexts]. The zero options are what the server uses.
type ContextOptions struct {
	// Idle is how long a context lives without a cell; 30 minutes when 0.
	Idle time.Duration
	// Most is how many contexts there may be; 16 when 0.
	Most int
}

// NewContexts makes an empty set. It starts nothing by itself.
func NewContexts(m *proc.Manager, o ContextOptions) *Contexts {
	if o.Idle == 0 {
		o.Idle = 30 * time.Minute
	}
	if o.Most == 0 {
		o.Most = 16
	}
	return &Contexts{procs: m, idle: o.Idle, most: o.Most}
}

var (
	// ErrContextGone says that a context was deleted or has expired.
	ErrContextGone = errors.New("the context is gone")
	// ErrContextBusy says that another cell ran until the time was over.
	ErrContextBusy = errors.New("the context is busy")
)

// Context is one lasting interpreter. All methods are safe together; cells run
// one after another.
type Context struct {
	// ID, Owner, Cwd and Language do not change.
	ID, Owner, Cwd string
	Language       *Language
	Made           time.Time

	set     *Contexts
	program string
	how     proc.Spec
	turn    chan struct{} // holds one item while a cell runs
	gone    chan struct{}

	mu     sync.Mutex
	kernel *kernel // nil until the first start and after the last end
	ended  bool
	count  int
	used   time.Time
}

// ContextSpec says how the interpreter of a context is started.
type ContextSpec struct {
	Owner    string
	Language *Language
	Program  string // one of Language.Programs
	// How is the program's path, environment and directory. A DirFile stays
	// the caller's.
	How proc.Spec
	Cwd string // as answers show it
}

// Create makes a context and starts its interpreter, which does not depend on
// ctx. The error is a
// *[proc.LimitError] when there are as many as there may be.
func (s *Contexts) Create(ctx context.Context, spec ContextSpec) (*Context, error) {
	s.mu.Lock()
	full, closed := len(s.all)+s.making >= s.most, s.closed
	if !full && !closed {
		s.making++
		s.wait.Add(1)
	}
	s.mu.Unlock()
	switch {
	case closed:
		return nil, proc.ErrClosed
	case full:
		return nil, &proc.LimitError{Limit: s.most}
	}
	c, err := s.create(ctx, spec)
	s.mu.Lock()
	s.making--
	if err == nil && s.closed {
		err = proc.ErrClosed
	}
	if err == nil {
		s.all = append(s.all, c)
	}
	s.mu.Unlock()
	if err != nil {
		if c != nil {
			c.end()
		}
		s.wait.Done()
		return nil, err
	}
	go func() {
		defer s.wait.Done()
		c.expire()
	}()
	return c, nil
}

func (s *Contexts) create(ctx context.Context, spec ContextSpec) (*Context, error) {
	c := &Context{
		ID: rand.Text(), Owner: spec.Owner, Cwd: spec.Cwd, Language: spec.Language, Made: time.Now(),
		set: s, program: spec.Program, how: spec.How, turn: make(chan struct{}, 1), gone: make(chan struct{}), used: time.Now(),
	}
	if spec.How.DirFile != nil {
		// Later starts are in the same directory, whatever its path means then.
		dir, err := openAgain(spec.How.DirFile)
		if err != nil {
			return nil, err
		}
		c.how.DirFile = dir
	}
	_, err := c.start(ctx)
	return c, err
}

// List returns what v may see, in the order it was made.
func (s *Contexts) List(v proc.Viewer) []*Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(c *Context) bool { return !v.All && c.Owner != v.Owner })
}

// Get finds a context, if v may see it.
func (s *Contexts) Get(id string, v proc.Viewer) (*Context, bool) {
	for _, c := range s.List(v) {
		if c.ID == id {
			return c, true
		}
	}
	return nil, false
}

// Delete ends a context with all it started. A cell that runs ends with
// [ErrContextGone].
func (s *Contexts) Delete(c *Context) {
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(o *Context) bool { return o == c })
	s.mu.Unlock()
	c.end()
}

// Close ends all contexts, and waits for that until ctx ends.
func (s *Contexts) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	all := s.all
	s.all = nil
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var each sync.WaitGroup
		for _, c := range all {
			each.Go(c.end)
		}
		each.Wait()
		s.wait.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expire deletes the context when nobody has used it for long. It returns when
// the context is gone.
func (c *Context) expire() {
	for {
		c.mu.Lock()
		left := time.Until(c.used.Add(c.set.idle))
		c.mu.Unlock()
		if left <= 0 && len(c.turn) == 0 {
			c.set.Delete(c)
			return
		}
		t := time.NewTimer(max(left, c.set.idle/100, time.Millisecond))
		select {
		case <-c.gone:
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// end ends the interpreter for good.
func (c *Context) end() {
	c.mu.Lock()
	first := !c.ended
	c.ended = true
	k := c.kernel
	c.kernel = nil
	c.mu.Unlock()
	if !first {
		return
	}
	close(c.gone)
	if k != nil {
		k.stop(proc.ReasonSignaled)
	}
	if c.how.DirFile != nil {
		c.turn <- struct{}{} // nobody starts anything in it any more
		_ = c.how.DirFile.Close()
	}
}

// start returns the interpreter, a new one if there is none that lives. It is
// called by who has the turn.
func (c *Context) start(ctx context.Context) (*kernel, error) {
	c.mu.Lock()
	k := c.kernel
	ended := c.ended
	c.mu.Unlock()
	switch {
	case ended:
		return nil, ErrContextGone
	case k != nil && k.alive():
		return k, nil
	case k != nil:
		k.stop("")
	}
	k, err := startKernel(ctx, c.set.procs, c.Language, c.program, c.how)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if !c.ended {
		c.kernel, c.count = k, 0
		c.mu.Unlock()
		return k, nil
	}
	c.mu.Unlock()
	k.stop("")
	return nil, ErrContextGone
}

// take waits for the turn to use the interpreter.
func (c *Context) take(ctx context.Context) error {
	select {
	case <-c.gone:
		return ErrContextGone
	default:
	}
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-c.gone:
		return ErrContextGone
	case <-ctx.Done():
		return ErrContextBusy
	}
}

func (c *Context) leave() {
	c.mu.Lock()
	c.used = time.Now()
	c.mu.Unlock()
	<-c.turn
}

// Restart ends the interpreter, also one that runs a cell, and starts a new
// one, without anything that cells had made.
func (c *Context) Restart(ctx context.Context) error {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		k.condemn() // a cell that runs sees it, those that wait get the new one
	}
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.leave()
	_, err := c.start(ctx)
	return err
}

// Cell is how a run in a context ended.
type Cell struct {
	// Count numbers the cells of the interpreter, from 1.
	Count int
	// Status is 0, or what the language says of a failure.
	Status int
	Error  *CellError
	Took   time.Duration
	// TimedOut says that the time was over and the cell was interrupted.
	TimedOut bool
	// Lost says that the interpreter ended with the cell, and with it
	// everything it knew; the next cell gets a new one.
	Lost bool
	// Dropped says that some results were too many or too large.
	Dropped bool
}

// Run runs code after all cells before it, for at most timeout, the waiting
// included. When ctx ends the cell is interrupted too, and the error is ctx's.
// An interpreter that does not heed the interrupt for five seconds is ended.
func (c *Context) Run(ctx context.Context, code string, timeout time.Duration, sink CellSink) (Cell, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.take(limited); err != nil {
		if ctx.Err() != nil {
			return Cell{}, ctx.Err()
		}
		return Cell{}, err
	}
	defer c.leave()
	k, err := c.start(ctx)
	if err != nil {
		return Cell{}, err
	}
	c.mu.Lock()
	c.count++
	out := Cell{Count: c.count}
	c.mu.Unlock()
	began := time.Now()
	run, err := k.begin(limited, code, sink)
	if err == nil {
		err = k.wait(limited, run)
	}
	if limited.Err() != nil && err != nil {
		out.TimedOut, err = true, nil
		if !k.interrupt(ctx, run) {
			out.Lost = true
			k.stop(proc.ReasonTimeout)
		}
	}
	out.Took = time.Since(began)
	if err != nil {
		// The interpreter is gone: the code ended it, or somebody else did. What
		// it printed last may still be on its way.
		out.Lost = true
		k.stop("")
	}
	k.drop(nil)
	out.Status, out.Error, out.Dropped = run.status, run.failure, run.lost
	if err != nil {
		st, _ := k.p.Status()
		out.Status = st.Code
	}
	select {
	case <-c.gone:
		return out, ErrContextGone
	default:
		return out, ctx.Err()
	}
}

// openAgain is a further descriptor of an open directory.
func openAgain(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep the working directory: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
