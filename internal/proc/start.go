package proc

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts a program. The process belongs to the manager: it runs on when
// the caller forgets it. When ctx ends while it runs, everything it started is
// ended, with reason [ReasonDisconnected]; pass a context that does not end to
// a background process. When the cause is [ErrStopping] it is left to Close,
// which asks before it kills. Errors are [*StartError] or [ErrClosed].
func (m *Manager) Start(ctx context.Context, spec Spec) (*Process, error) {
	return m.start(ctx, spec, nil)
}

func (m *Manager) start(ctx context.Context, spec Spec, onExit func()) (*Process, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if spec.Grace.Total == 0 {
		spec.Grace.Total = defaultGraceTotal
	}
	p := &Process{
		m:       m,
		spec:    spec,
		onExit:  onExit,
		exitedC: make(chan struct{}),
		doneC:   make(chan struct{}),
	}
	if !m.enter() {
		return nil, ErrClosed
	}
	st := &starting{m: m, p: p}
	err := st.run()
	if err != nil {
		m.wg.Done()
		return nil, err
	}
	for _, pp := range p.pipes {
		go func() {
			defer m.wg.Done()
			pp.run(spec.Output)
		}()
	}
	if st.inputW != nil {
		spec.Stdin.attach(st.inputW, m.spawn)
	}
	p.mu.Lock()
	p.ready = true
	if !p.reaped && spec.Timeout > 0 {
		p.limit = time.AfterFunc(spec.Timeout, p.timeout)
	}
	if !p.done && ctx.Done() != nil {
		p.unwatch = context.AfterFunc(ctx, func() { p.disconnected(context.Cause(ctx)) })
	}
	p.mu.Unlock()
	if st.status != nil {
		if err := st.await(); err != nil {
			p.End("")
			<-p.doneC
			return nil, err
		}
	}
	// An ended process may be kept for long; these are not needed any more.
	p.spec.Argv, p.spec.Env, p.spec.Files = nil, nil, nil
	p.spec.TTY, p.spec.DirFile = nil, nil
	p.spec.StdinFile, p.spec.StdoutFile, p.spec.StderrFile = nil, nil, nil
	return p, nil
}

// starting is what one start holds until the program runs.
type starting struct {
	m *Manager
	p *Process

	files  []uintptr  // descriptors of the child, in order
	theirs []int      // opened for the child: closed here afterwards
	keep   []*os.File // must not be collected before the fork
	inputW *os.File
	status *os.File // tells how the stage went
}

// run ends with a running child that is in the manager's table, or with an
// error and nothing left behind.
func (st *starting) run() (err error) {
	p := st.p
	defer func() {
		for _, fd := range st.theirs {
			unix.Close(fd)
		}
		runtime.KeepAlive(st.keep)
		if err == nil {
			return
		}
		for _, pp := range p.pipes {
			pp.f.Close()
		}
		if st.inputW != nil {
			st.inputW.Close()
		}
		if st.status != nil {
			st.status.Close()
		}
		st.m.cgroups.put(p.cg)
	}()
	if err := st.connect(); err != nil {
		return &StartError{Path: p.spec.Path, Err: err}
	}
	path, argv, env, attr := st.prepare()
	if p.spec.staged() || st.m.stage {
		path, argv, env, err = st.viaStage(argv, env)
		if err != nil {
			return err
		}
	}
	attr.Files = st.files
	attr.Env = env
	return st.fork(path, argv, attr)
}

// connect makes the child's descriptors.
func (st *starting) connect() error {
	s := &st.p.spec
	if s.TTY != nil {
		s.Stdin, s.Output = nil, nil
		tty := st.hand(s.TTY)
		st.files = []uintptr{tty, tty, tty}
	} else {
		in, err := st.input()
		if err != nil {
			return err
		}
		out, err := st.output(Stdout, s.StdoutFile)
		if err != nil {
			return err
		}
		errOut, err := st.output(Stderr, s.StderrFile)
		if err != nil {
			return err
		}
		st.files = []uintptr{in, out, errOut}
	}
	for _, f := range s.Files {
		st.files = append(st.files, st.hand(f))
	}
	st.p.open = len(st.p.pipes)
	return nil
}

func (st *starting) hand(f *os.File) uintptr {
	st.keep = append(st.keep, f)
	return f.Fd()
}

func (st *starting) input() (uintptr, error) {
	s := &st.p.spec
	if s.StdinFile != nil {
		s.Stdin = nil
		return st.hand(s.StdinFile), nil
	}
	if s.Stdin == nil {
		return st.hand(st.m.null), nil
	}
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe2", err)
	}
	st.theirs = append(st.theirs, fd[0])
	if err := unix.SetNonblock(fd[1], true); err != nil {
		unix.Close(fd[1])
		return 0, err
	}
	st.inputW = os.NewFile(uintptr(fd[1]), "|stdin")
	return uintptr(fd[0]), nil
}

func (st *starting) output(which Stream, f *os.File) (uintptr, error) {
	switch {
	case f != nil:
		return st.hand(f), nil
	case st.p.spec.Output == nil:
		return st.hand(st.m.null), nil
	}
	pp, theirs, err := newPipe(st.p, which)
	if err != nil {
		return 0, err
	}
	st.p.pipes = append(st.p.pipes, pp)
	st.theirs = append(st.theirs, theirs)
	return uintptr(theirs), nil
}

func (st *starting) prepare() (path string, argv, env []string, attr *syscall.ProcAttr) {
	s := &st.p.spec
	argv = s.Argv
	if len(argv) == 0 {
		argv = []string{s.Path}
	}
	env = s.Env
	if env == nil {
		env = []string{} // nil would mean ours
	}
	sys := &syscall.SysProcAttr{Setpgid: true}
	if s.TTY != nil {
		sys = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}
	if u := s.User; u != nil && !s.staged() && !st.m.stage {
		sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	if st.p.cg, st.p.cgGen = st.m.cgroups.get(s.Limits, s.Detach); st.p.cg != nil {
		sys.UseCgroupFD = true
		sys.CgroupFD = int(st.p.cg.dir.Fd())
	}
	attr = &syscall.ProcAttr{Dir: s.Dir, Sys: sys}
	if s.DirFile != nil {
		attr.Dir = "/proc/self/fd/" + strconv.Itoa(int(st.hand(s.DirFile)))
	}
	return s.Path, argv, env, attr
}

// A file that was just written may still be open for writing in a child that
// another start has forked and that has not come to its exec yet; the kernel
// then says "text file busy". It passes within milliseconds.
const (
	busyTries = 12
	busyPause = time.Millisecond
)

func longer(pause time.Duration) time.Duration { return min(pause*3/2, 50*time.Millisecond) }

func (st *starting) fork(path string, argv []string, attr *syscall.ProcAttr) error {
	pause := busyPause
	for try := 1; ; try++ {
		err := st.forkOnce(path, argv, attr)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrClosed):
			return err
		case errors.Is(err, unix.ETXTBSY) && try < busyTries:
			time.Sleep(pause)
			pause = longer(pause)
		default:
			return classify(st.p.spec, err)
		}
	}
}

func (st *starting) forkOnce(path string, argv []string, attr *syscall.ProcAttr) error {
	m, p := st.m, st.p
	forkMu.Lock()
	defer forkMu.Unlock()
	m.mu.Lock()
	sealed := m.sealed
	m.mu.Unlock()
	if sealed {
		return ErrClosed
	}
	if m.marks.on {
		p.mark = m.marks.next(p.spec.Detach)
		m.marks.set(p.mark)
		defer m.marks.clear()
	}
	p.ooms = m.oom.count()
	p.began = time.Now()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil && attr.Sys.UseCgroupFD && cgroupError(err) {
		attr.Sys.UseCgroupFD = false
		if pid, err = syscall.ForkExec(path, argv, attr); err == nil {
			m.cgroups.fails() // so it was the cgroup
		}
		m.cgroups.put(p.cg)
		p.cg = nil
	}
	if err != nil {
		return err
	}
	p.pid = pid
	m.mu.Lock()
	m.byPID[pid] = p
	m.live[p] = struct{}{}
	m.wg.Add(len(p.pipes))
	m.mu.Unlock()
	return nil
}

// cgroupError says that err may come from a fork into a cgroup: no clone3 here
// (some seccomp filters), a group that takes no processes, or one that somebody
// has removed.
func cgroupError(err error) bool {
	for _, e := range []error{unix.ENOSYS, unix.EPERM, unix.EBUSY, unix.EOPNOTSUPP, unix.EINVAL, unix.ENODEV, unix.ENOENT} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// classify gives a failed start its kind. The kernel has one error number for
// the directory, the user and the program.
func classify(s Spec, err error) error {
	out := &StartError{Path: s.Path, Err: err}
	switch {
	case s.dirFails():
		out.Kind = ErrDir
	case errors.Is(err, unix.EPERM) && s.User != nil:
		out.Kind = ErrUser
	default:
		out.Kind = programError(err)
	}
	return out
}

func programError(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return ErrNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ETXTBSY):
		return ErrNotExecutable
	case errors.Is(err, unix.ENOEXEC):
		return ErrNotProgram
	}
	return nil
}

func (s *Spec) dirFails() bool {
	if s.DirFile != nil || s.Dir == "" {
		return false
	}
	return unix.Access(s.Dir+"/.", unix.X_OK) != nil
}
