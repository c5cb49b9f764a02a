package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Spec says everything about one start.
type Spec struct {
	// Path is the executable, absolute and already resolved (see [LookPath]).
	Path string
	// Argv is the whole argument vector, Argv[0] included. Empty means Path
	// alone.
	Argv []string
	// Env is the whole environment, as "NAME=value".
	Env []string

	// DirFile is an opened directory to start in; it wins over Dir. It is used
	// until Start returns and stays the caller's.
	DirFile *os.File
	// Dir is the path of the directory to start in. Without Dir and DirFile it
	// is the server's own working directory.
	Dir string

	// Stdin feeds the program's standard input. Nil is an empty input.
	Stdin *Input
	// Output takes standard output and error. Nil drops both.
	Output Sink
	// StdinFile, StdoutFile and StderrFile are handed to the program as they
	// are, instead of Stdin and Output. They stay the caller's, who may close
	// them when Start has returned. They are switched to blocking mode.
	StdinFile, StdoutFile, StderrFile *os.File
	// Files become descriptors 3, 4, … of the program. As above.
	Files []*os.File
	// TTY is the terminal (the inner side) that becomes descriptors 0, 1 and 2
	// and the controlling terminal of a new session. The other fields for
	// input and output are ignored.
	TTY *os.File

	// User is whom to run as. Nil is the server's user.
	User *User
	// Umask is the program's file mode mask. Nil is the server's.
	Umask *int
	// Nice is added to the server's niceness; 0…19.
	Nice int
	// Limits bound what the program and its children may use.
	Limits Limits

	// Timeout ends the whole tree that long after the start, with reason
	// [ReasonTimeout]. It counts until the program itself has ended. 0 is
	// none.
	Timeout time.Duration
	// KillGrace is the time between SIGTERM and SIGKILL when Timeout ends the
	// program. 0 means SIGKILL at once.
	KillGrace time.Duration
	// Grace says how long to read on when a grandchild holds the pipes after
	// the program has ended.
	Grace Grace
	// Detach leaves the program and its children running when the manager is
	// closed.
	Detach bool
}

// Grace bounds the reading of pipes that outlive the program. The zero Grace
// does not wait: what was written before the end is read and no more. A [Log]
// is read to end of file whatever Grace says.
type Grace struct {
	// Silence ends the reading when no byte came for that long.
	Silence time.Duration
	// Total ends it in any case, counted from the program's end. 0 means ten
	// seconds.
	Total time.Duration
}

const defaultGraceTotal = 10 * time.Second

// User is whom to run as. Groups are the supplementary groups; none when nil.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Limits bound a program and each of its children by rlimits; where cgroup v2
// controllers are delegated to the server, memory and processes are bounded
// for all of them together too. 0 is no limit of ours. A limit never raises
// what the server itself is bound to.
//
// Without cgroups Processes is RLIMIT_NPROC, which counts all processes of the
// user and does not bind root.
type Limits struct {
	CPUSeconds    uint64
	MemoryBytes   uint64
	Processes     uint64
	OpenFiles     uint64
	FileSizeBytes uint64
}

// Reason says why a process is no longer running.
type Reason string

// The reasons a process can have ended for.
const (
	ReasonExited       Reason = "exited"
	ReasonSignaled     Reason = "signaled"
	ReasonTimeout      Reason = "timeout"
	ReasonOutputLimit  Reason = "output_limit"
	ReasonOOM          Reason = "oom"
	ReasonDisconnected Reason = "disconnected"
	ReasonShutdown     Reason = "shutdown"
)

// Status is how a process ended.
type Status struct {
	// Code is the exit status, or -N when signal N ended the process.
	Code int
	// Signal is the signal that ended it, 0 when it exited by itself.
	Signal syscall.Signal
	Reason Reason
	Ended  time.Time
	// CPU is user and system time of the process and of the children it
	// waited for.
	CPU time.Duration
	// MaxRSS is its largest resident size in bytes.
	MaxRSS int64
	// Detached says that something it started still held its output when
	// reading stopped. It is known when the process is done.
	Detached bool
}

// What can go wrong with a start. They are found by errors.Is in what
// [LookPath] and [Manager.Start] return.
var (
	// ErrNotFound: there is no such program (or its interpreter is missing).
	ErrNotFound = errors.New("command not found")
	// ErrNotExecutable: a directory, or a file that may not be executed.
	ErrNotExecutable = errors.New("not executable")
	// ErrNotProgram: executable by its mode, but no binary for this machine
	// and no script with a "#!" line.
	ErrNotProgram = errors.New("not a program: no #! line")
	// ErrDir: the directory to start in cannot be entered.
	ErrDir = errors.New("cannot enter the working directory")
	// ErrUser: the server may not become that user.
	ErrUser = errors.New("cannot switch to that user")
	// ErrInvalid: the Spec makes no sense, or a string holds a NUL byte.
	ErrInvalid = errors.New("invalid start")
	// ErrStopping is the cause of a context that ends because the server
	// stops, and not because whoever wanted the answer has gone.
	ErrStopping = errors.New("the server stops")
	// ErrClosed: the manager was closed.
	ErrClosed = errors.New("the process manager is closed")
	// ErrEnded: the process has ended.
	ErrEnded = errors.New("the process has ended")
)

// StartError is a start that failed. It unwraps to one of the errors above,
// if one fits, and to the system's own error, if there was one.
type StartError struct {
	Path string
	Kind error
	Err  error
}

func (e *StartError) Error() string {
	switch {
	case e.Kind == nil:
		return fmt.Sprintf("start %s: %v", e.Path, e.Err)
	case e.Err == nil:
		return fmt.Sprintf("%s: %v", e.Path, e.Kind)
	}
	return fmt.Sprintf("%s: %v (%v)", e.Path, e.Kind, e.Err)
}

// Unwrap gives the kind and the system's error to errors.Is.
func (e *StartError) Unwrap() []error {
	var out []error
	if e.Kind != nil {
		out = append(out, e.Kind)
	}
	if e.Err != nil {
		out = append(out, e.Err)
	}
	return out
}

func (s *Spec) check() error {
	bad := func(why string) error {
		return &StartError{Path: s.Path, Kind: ErrInvalid, Err: errors.New(why)}
	}
	switch {
	case !strings.HasPrefix(s.Path, "/"):
		return bad("the path is not absolute")
	case s.Nice < 0 || s.Nice > 19:
		return bad("niceness outside 0…19")
	case s.Umask != nil && (*s.Umask < 0 || *s.Umask > 0o777):
		return bad("umask outside 0…0777")
	}
	for _, list := range [][]string{{s.Path, s.Dir}, s.Argv, s.Env} {
		for _, text := range list {
			if strings.IndexByte(text, 0) >= 0 {
				return bad("NUL byte in an argument or variable")
			}
		}
	}
	return nil
}

// staged says that the start needs the stage.
func (s *Spec) staged() bool {
	return s.Umask != nil || s.Nice != 0 || s.Limits != (Limits{})
}
