package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options set up a [Manager]. The zero Options are what the server uses.
type Options struct {
	// StopGrace is the time between SIGTERM and SIGKILL in Close; 2 s when 0.
	StopGrace time.Duration
	// NoCgroups leaves cgroups alone even where they are writable.
	NoCgroups bool

	noMarks bool // tests of the way without marks
}

// Manager starts processes and is the only one that waits for them. There is
// one for the whole server.
type Manager struct {
	opts    Options
	null    *os.File
	marks   marker
	cgroups *cgroups
	oom     oomCounter
	stage   bool           // every start needs the stage: signals are blocked in us
	before  map[int]uint64 // children that are none of our business: they were there first

	chld    chan os.Signal
	quit    chan struct{} // ends the reaper
	reaperC chan struct{}

	mu      sync.Mutex
	byPID   map[int]*Process // not reaped
	live    map[*Process]struct{}
	drains  []*pipe // oldest first
	hunts   []*tree // being killed
	closing bool    // Close was called
	sealed  bool    // no more starts
	closed  bool    // no more goroutines
	wg      sync.WaitGroup
}

// maxDrains bounds the pipes that are read only so that what processes left
// behind does not block. Beyond, the oldest is closed.
const maxDrains = 1024

// closeWait bounds how long Close waits for what it has killed to be reaped:
// the kernel may hold a process that sleeps on a dead disk for ever.
const closeWait = 2 * time.Second

// managers counts those that are not closed. A server has one, tests have many.
var managers atomic.Int32

// New makes a manager and starts its reaper. It makes the server the reaper of
// its orphaned descendants, marks every descriptor above 2 close-on-exec, and
// sees to it that signals which the server was told to ignore when it was
// started are not ignored by what it starts. Close ends it.
func New(opts Options) (*Manager, error) {
	if opts.StopGrace == 0 {
		opts.StopGrace = 2 * time.Second
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("proc: %w", err)
	}
	// EINVAL is an emulator of user programs that does not know the request;
	// orphans then belong to init, and are still found by their marks.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) && os.Getpid() != 1 {
		null.Close()
		return nil, fmt.Errorf("proc: become the reaper of orphans: %w", err)
	}
	closeOnExec()
	blocked := fixSignals()
	m := &Manager{
		opts:    opts,
		null:    null,
		stage:   blocked,
		chld:    make(chan os.Signal, 1),
		quit:    make(chan struct{}),
		reaperC: make(chan struct{}),
		byPID:   map[int]*Process{},
		live:    map[*Process]struct{}{},
		before:  descendants(os.Getpid(), treeLimit),
	}
	managers.Add(1)
	if !opts.noMarks {
		m.marks = newMarker()
	}
	if !opts.NoCgroups {
		m.cgroups = newCgroups()
	}
	m.oom.open()
	signal.Notify(m.chld, unix.SIGCHLD)
	go m.reap()
	return m, nil
}

// closeOnExec marks what we were started with, so that no child inherits it.
// What Go opens is marked already.
func closeOnExec() {
	if unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// enter counts a goroutine (or a call that Close must await) in. The caller
// calls wg.Done when it is true.
func (m *Manager) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Add(1)
	return true
}

// spawn runs f in a goroutine that Close awaits.
func (m *Manager) spawn(f func()) bool {
	if !m.enter() {
		return false
	}
	go func() {
		defer m.wg.Done()
		f()
	}()
	return true
}

// finished is called under p.mu when p is done.
func (m *Manager) finished(p *Process) {
	m.mu.Lock()
	delete(m.live, p)
	m.mu.Unlock()
	m.cgroups.put(p.cg)
	m.wg.Done()
}

// drain takes over a pipe that is read only to be dropped.
func (m *Manager) drain(pp *pipe) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drains = append(m.drains, pp)
	if len(m.drains) > maxDrains {
		m.drains[0].f.Close()
		m.drains = m.drains[1:]
	}
}

func (m *Manager) undrain(pp *pipe) {
	if !pp.drop.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, d := range m.drains {
		if d == pp {
			m.drains = append(m.drains[:i], m.drains[i+1:]...)
			return
		}
	}
}

// running lists the processes that are not done and not detached.
func (m *Manager) running() []*Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Process
	for p := range m.live {
		if !p.spec.Detach {
			out = append(out, p)
		}
	}
	return out
}

// Close ends everything that was started, but for what was started with
// Detach: SIGTERM to all, also to what ended commands have left behind, and
// SIGKILL to what is left after StopGrace. Starts fail from its beginning on.
// It returns when all goroutines of the manager have ended, or with the error
// of ctx when that ends first. It is called once.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closing {
		m.mu.Unlock()
		return errors.New("proc: closed twice")
	}
	m.closing = true
	m.mu.Unlock()
	defer managers.Add(-1)
	m.seal()
	m.stopAll(ctx)

	// Programs are gone. What still keeps a process from being done is a
	// consumer that does not read, or a pipe in a detached process's hand.
	running := m.running()
	for _, p := range running {
		p.Forget()
	}
	late, cancel := context.WithTimeout(ctx, closeWait)
	for _, p := range running {
		_, _ = p.Wait(late)
	}
	cancel()
	m.mu.Lock()
	rest := slices.Collect(maps.Keys(m.live))
	m.mu.Unlock()
	for _, p := range rest {
		p.abandon()
	}
	m.mu.Lock()
	for _, pp := range m.drains {
		pp.f.Close()
	}
	m.closed = true
	m.mu.Unlock()

	idle := make(chan struct{})
	go func() {
		m.wg.Wait()
		signal.Stop(m.chld)
		close(m.quit)
		<-m.reaperC
		m.cgroups.close()
		m.oom.close()
		m.null.Close()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends everything that was started, but for what was started with Detach,
// at once and without asking, for a server that is not given the time for
// Close. Starts fail from its beginning on. It may be called while Close runs.
func (m *Manager) Kill() {
	m.seal()
	m.killEach(m.running())
}

// seal lets nothing be started any more. What is under way has its entry in
// the table when it returns.
func (m *Manager) seal() {
	m.mu.Lock()
	m.sealed = true
	m.mu.Unlock()
	forkMu.Lock()
	forkMu.Unlock() //nolint:staticcheck // it waits for the fork under way
}

// abandon gives up a process that will not be done by itself: it was detached,
// or the kernel does not let it end.
func (p *Process) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	if p.spec.Output != nil {
		p.spec.Output.end()
	}
	p.leave()
	if !p.reaped {
		p.m.forget(p)
		p.reaped = true
		p.status.Reason = ReasonShutdown
	}
	p.step()
}

// forget makes the reaper take p for a stranger.
func (m *Manager) forget(p *Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byPID[p.pid] == p {
		delete(m.byPID, p.pid)
	}
}

// byDefault gives a signal its default handler, behind the Go runtime's back.
func byDefault(n syscall.Signal) {
	// A kernel sigaction: the default handler, no flags, no mask.
	var none [4]uint64
	//nolint:gosec // the kernel takes an address
	_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(n), uintptr(unsafe.Pointer(&none)), 0, unsafe.Sizeof(none[0]), 0, 0)
}

// fixSignals makes children start with default handlers. A signal that we were
// started with as ignored (nohup, a shell's "&") would stay ignored through
// exec; one with a handler becomes the default. So it gets a handler that
// drops it. A mask of blocked signals can only be cleared in the child itself;
// fixSignals reports that there is one.
//
// It is a matter of the whole process, so it is done once.
var fixSignals = sync.OnceValue(func() (blocked bool) {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false
	}
	ignored := statusMask(status, "SigIgn:")
	drop := make(chan os.Signal, 1)
	for n := syscall.Signal(1); n <= 64; n++ {
		switch {
		case ignored&(1<<(n-1)) == 0 || n == unix.SIGURG:
		case n == 32 || n == 33:
			// The C library keeps these two for itself, so the Go runtime does
			// not touch them; its posix_spawn, which make uses, leaves them
			// ignored.
			byDefault(n)
		default:
			signal.Notify(drop, n)
		}
	}
	return statusMask(status, "SigBlk:") != 0
})
