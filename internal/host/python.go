package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// Python knows the python3 of a search path: its version, and what pip would
// list. It starts the interpreter only when what it knows may no longer hold,
// and reads the packages from their files. Its methods are safe for concurrent
// use; they take turns.
type Python struct {
	procs    *proc.Manager
	patience time.Duration // with one start of the interpreter
	turn     chan struct{} // holds the one turn; the fields below are its holder's

	known interpreter
	sites sites
}

// Where says which python3 is meant, and how it is started to be asked.
type Where struct {
	Path string   // the search path
	Dir  string   // the working directory, absolute
	Env  []string // the whole environment
}

// ErrNoAnswer says that there is a python3, but that it does not tell about
// itself.
var ErrNoAnswer = errors.New("python3 does not answer")

// NewPython makes a Python that starts interpreters through procs.
func NewPython(procs *proc.Manager) *Python {
	p := &Python{procs: procs, turn: make(chan struct{}, 1), patience: askTime}
	p.turn <- struct{}{}
	return p
}

// interpreter is what a python3 said about itself, or that it did not.
type interpreter struct {
	where  Where
	file   string // where the search found it
	stamps []stamp
	until  time.Time // zero: as long as the stamps hold

	version string
	path    []string // sys.path
	err     error
}

const (
	// askTime bounds one start of the interpreter. It is less than the ten
	// seconds a listing has, so that who waited is told why.
	askTime = 9 * time.Second
	// A python3 that is a script (pyenv, asdf) may choose another interpreter
	// when files change that we know nothing of.
	shimTime = time.Minute
	// failTime is how long a python3 that gave no answer is left alone.
	failTime = 30 * time.Second
	// mostAnswer bounds what is read of an answer.
	mostAnswer = 1 << 20
	// mostFolders bounds its sys.path.
	mostFolders = 256
)

// question must import nothing but sys, which is built in: the first item of
// sys.path is "", the working directory, and what lies there must not run.
const question = `import sys
v = sys.version_info
sys.stdout.buffer.write("\0".join(["%d.%d.%d" % v[:3], sys.executable or ""] + [p for p in sys.path if isinstance(p, str) and p]).encode("utf-8", "surrogateescape"))`

// Version is the version of the python3, as "3.11.7". Without a python3 the
// error is [proc.ErrNotFound] or [proc.ErrNotExecutable]; one that says
// nothing sensible gives [ErrNoAnswer], one that takes too long
// [context.DeadlineExceeded].
func (p *Python) Version(ctx context.Context, at Where) (string, error) {
	if err := p.begin(ctx); err != nil {
		return "", err
	}
	defer p.end()
	k, err := p.ask(ctx, at)
	if err != nil {
		return "", err
	}
	return k.version, nil
}

// Packages is what pip lists for the python3: the same names and versions in
// the same order. Errors are those of Version.
func (p *Python) Packages(ctx context.Context, at Where) (Packages, error) {
	if err := p.begin(ctx); err != nil {
		return Packages{}, err
	}
	defer p.end()
	k, err := p.ask(ctx, at)
	if err != nil {
		return Packages{}, err
	}
	return p.sites.list(ctx, k.path)
}

func (p *Python) begin(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Python) end() { p.turn <- struct{}{} }

// ask returns what is known of the python3, asking it if need be.
func (p *Python) ask(ctx context.Context, at Where) (*interpreter, error) {
	file, err := proc.LookPath("python3", at.Path, at.Dir)
	if err != nil {
		return nil, err
	}
	if !p.known.holds(at, file) {
		fresh, err := p.start(ctx, at, file)
		if err != nil {
			return nil, err
		}
		p.known = fresh
	}
	return &p.known, p.known.err
}

func (k *interpreter) holds(at Where, file string) bool {
	return k.file == file && k.where.Path == at.Path && k.where.Dir == at.Dir && slices.Equal(k.where.Env, at.Env) &&
		(k.until.IsZero() || time.Now().Before(k.until)) && fresh(k.stamps)
}

// start asks the python3. Only what is no property of the interpreter is an
// error here; that it fails is known of it from now on.
func (p *Python) start(ctx context.Context, at Where, file string) (interpreter, error) {
	began := time.Now()
	k := interpreter{where: at, file: file, stamps: []stamp{stampOf(file)}}
	run, err := p.procs.Run(ctx, proc.Spec{
		Path: file, Argv: []string{file, "-c", question}, Env: at.Env, Dir: at.Dir, Timeout: p.patience,
	}, mostAnswer)
	switch {
	case err == nil && ctx.Err() != nil:
		return k, ctx.Err()
	case err == nil && run.Reason == proc.ReasonTimeout:
		k.err = fmt.Errorf("%w: %w", ErrNoAnswer, context.DeadlineExceeded)
	case err == nil && run.Code == 0 && !run.Truncated && k.understand(run.Stdout):
		for _, dir := range k.path { // a .pth file there may add to sys.path
			k.stamps = append(k.stamps, stampOf(dir))
		}
		if k.until.IsZero() && !settled(k.stamps, began) {
			k.until = began.Add(2 * coarse)
		}
		return k, nil
	case errors.Is(err, proc.ErrClosed), proc.NoRoom(err), ctx.Err() != nil:
		return k, err
	default:
		k.err = ErrNoAnswer
	}
	k.until = time.Now().Add(failTime)
	return k, nil
}

// understand reads an answer.
func (k *interpreter) understand(answer []byte) bool {
	parts := strings.Split(string(answer), "\x00")
	if len(parts) < 2 || !proper(parts[0]) || strings.Trim(parts[0], "0123456789.") != "" {
		return false
	}
	k.version = parts[0]
	k.path = nil
	for _, dir := range parts[2:] {
		if strings.HasPrefix(dir, "/") && len(k.path) < mostFolders {
			k.path = append(k.path, dir)
		}
	}
	if !sameFile(k.file, parts[1]) {
		k.until = time.Now().Add(shimTime)
	}
	return true
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
