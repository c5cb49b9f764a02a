package proc

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stageName is argv[0] of the stage; what follows are the numbers of two
// descriptors.
const stageName = "agent-sandbox-server: stage"

// stageReady says that Stage was called, so that running our own binary again
// leads to it and not to a second server.
var stageReady atomic.Bool

// stageWait bounds the time from the fork of the stage to the program's exec.
const stageWait = 30 * time.Second

// orders tell the stage what to do. They travel in a memory file: an argument
// would be shown by ps, and our own start must not heed the program's
// environment. Bytes, because arguments need not be UTF-8.
type orders struct {
	Path   []byte
	Argv   [][]byte
	Env    [][]byte
	User   *User
	Umask  *int
	Nice   int
	Limits Limits
}

// Stage must be the first thing that main (and TestMain) calls. In a normal
// run it returns at once. When the binary was started as the stage between a
// fork and a program's exec, it applies umask, niceness, user, limits and an
// empty signal mask to itself and becomes the program; then it does not
// return.
func Stage() {
	if len(os.Args) != 3 || os.Args[0] != stageName {
		stageReady.Store(true)
		return
	}
	runtime.LockOSThread() // niceness and signal mask belong to the thread that execs
	err := stageMain(os.Args[1], os.Args[2])
	// Only a failure comes back. The other end of the pipe is our parent.
	if fd, convErr := strconv.Atoi(os.Args[2]); convErr == nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = unix.EINVAL
		}
		_, _ = unix.Write(fd, []byte(strconv.Itoa(int(errno))))
	}
	os.Exit(127)
}

func stageMain(ordersFD, statusFD string) error {
	in, err := strconv.Atoi(ordersFD)
	if err != nil {
		return err
	}
	out, err := strconv.Atoi(statusFD)
	if err != nil {
		return err
	}
	unix.CloseOnExec(in)
	unix.CloseOnExec(out)
	f := os.NewFile(uintptr(in), "orders")
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<20))
	if err != nil {
		return err
	}
	var o orders
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	return o.carryOut()
}

// carryOut becomes the program or returns why not.
func (o *orders) carryOut() error {
	if o.Nice != 0 {
		prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			return err
		}
		// The raw call answers 20 - niceness.
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 20-prio+o.Nice); err != nil {
			return err
		}
	}
	if err := o.becomeUser(); err != nil {
		return err
	}
	if o.Umask != nil {
		unix.Umask(*o.Umask)
	}
	argv, env := texts(o.Argv), texts(o.Env)
	// Nothing can be mapped any more once the address space is bounded below
	// what the Go runtime has reserved. So let the heap grow to what Exec is
	// going to need, and give that back to the heap.
	if err := roomFor(argv, env); err != nil {
		return err
	}
	if err := o.limit(); err != nil {
		return err
	}
	var empty uint64
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&empty)), 0, unsafe.Sizeof(empty), 0, 0); errno != 0 { //nolint:gosec // the kernel takes an address
		return errno
	}
	pause := busyPause
	for try := 1; ; try++ {
		err := syscall.Exec(string(o.Path), argv, env)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return err
		}
		time.Sleep(pause)
		pause = longer(pause)
	}
}

func (o *orders) becomeUser() error {
	if o.User == nil {
		return nil
	}
	groups := make([]int, len(o.User.Groups))
	for i, g := range o.User.Groups {
		groups[i] = int(g)
	}
	if err := syscall.Setgroups(groups); err != nil {
		return err
	}
	if err := syscall.Setgid(int(o.User.GID)); err != nil {
		return err
	}
	return syscall.Setuid(int(o.User.UID))
}

// limit lowers our rlimits, soft and hard. The address space comes last.
func (o *orders) limit() error {
	for _, l := range []struct {
		resource int
		max      uint64
	}{
		{unix.RLIMIT_CPU, o.Limits.CPUSeconds},
		{unix.RLIMIT_NPROC, o.Limits.Processes},
		{unix.RLIMIT_NOFILE, o.Limits.OpenFiles},
		{unix.RLIMIT_FSIZE, o.Limits.FileSizeBytes},
		{unix.RLIMIT_AS, o.Limits.MemoryBytes},
	} {
		if l.max == 0 {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(l.resource, &now); err != nil {
			return err
		}
		if l.max >= now.Max {
			continue
		}
		// By package syscall, which then no longer restores the number of
		// files that the Go runtime raised.
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return err
		}
	}
	return nil
}

func roomFor(argv, env []string) error {
	for range 2 {
		if _, err := syscall.SlicePtrFromStrings(argv); err != nil {
			return err
		}
		if _, err := syscall.SlicePtrFromStrings(env); err != nil {
			return err
		}
	}
	runtime.GC()
	return nil
}

func texts(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

func raw(in []string) [][]byte {
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}

// viaStage turns a start into one of the stage.
func (st *starting) viaStage(argv, env []string) (string, []string, []string, error) {
	s := &st.p.spec
	fail := func(err error) (string, []string, []string, error) {
		return "", nil, nil, &StartError{Path: s.Path, Err: err}
	}
	if !stageReady.Load() {
		return fail(errors.New("the program did not call proc.Stage"))
	}
	text, err := json.Marshal(orders{[]byte(s.Path), raw(argv), raw(env), s.User, s.Umask, s.Nice, s.Limits})
	if err != nil {
		return fail(err)
	}
	mem, err := unix.MemfdCreate("orders", unix.MFD_CLOEXEC)
	if err != nil {
		return fail(os.NewSyscallError("memfd_create", err))
	}
	st.theirs = append(st.theirs, mem)
	for at := 0; at < len(text); {
		n, err := unix.Pwrite(mem, text[at:], int64(at))
		if err != nil {
			return fail(err)
		}
		at += n
	}
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return fail(os.NewSyscallError("pipe2", err))
	}
	st.theirs = append(st.theirs, fd[1])
	if err := unix.SetNonblock(fd[0], true); err != nil {
		unix.Close(fd[0])
		return fail(err)
	}
	st.status = os.NewFile(uintptr(fd[0]), "|stage")
	n := len(st.files)
	st.files = append(st.files, uintptr(mem), uintptr(fd[1]))
	return "/proc/self/exe", []string{stageName, strconv.Itoa(n), strconv.Itoa(n + 1)}, []string{}, nil
}

// await waits until the stage has become the program, or says why it did not.
func (st *starting) await() error {
	defer st.status.Close()
	_ = st.status.SetReadDeadline(time.Now().Add(stageWait))
	var buf [16]byte
	n, err := io.ReadFull(st.status, buf[:])
	switch {
	case n > 0:
		errno, _ := strconv.Atoi(string(buf[:n]))
		return classify(st.p.spec, syscall.Errno(errno))
	case errors.Is(err, io.EOF):
		return nil
	}
	return &StartError{Path: st.p.spec.Path, Err: err}
}
