package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// stdinKind is what a program reads.
type stdinKind uint8

const (
	stdinJSON stdinKind = iota // the effective arguments
	stdinNone
	stdinArg // the text of one argument
)

// program is how a manifest command runs.
type program struct {
	host   *host
	name   string
	dir    string // of the manifest
	params []*param
	settings

	argv        []item
	shell       string
	script      string
	interpreter []string
	env         []envEntry
	stdin       stdinKind
	stdinArg    string
	result      string
	success     []int

	running proc.Slots
}

type envEntry struct {
	name string
	text template
}

const (
	stopGrace = 2 * time.Second
	// maxVariable is the longest value a variable may have; longer ones are
	// left out, programs read them from standard input.
	maxVariable = 65_536
)

// pipes of what a program left behind are read for a second, whatever comes.
var grace = proc.Grace{Silence: time.Second, Total: time.Second}

// run is a command's run.
func (p *program) run(ctx context.Context, call Call) ([]byte, error) {
	values, fail := effective(p.params, call.Values())
	if fail != nil {
		return nil, fail
	}
	if p.maxConcurrency > 0 {
		leave, err := p.running.Take(p.maxConcurrency)
		if err != nil {
			return nil, failed(429, "RateLimited", "concurrency_limited", "Command '%s' runs as often as it may", p.name).with("retry_after", int64(1))
		}
		defer leave()
	}
	env, fail := p.variables(values, call)
	if fail != nil {
		return nil, fail
	}
	spec := proc.Spec{Dir: p.workdir, Env: childenv.List(env), Grace: grace, KillGrace: stopGrace, Timeout: p.timeout}
	if call.Timeout > 0 {
		spec.Timeout = min(spec.Timeout, call.Timeout)
	}
	if spec.Dir == "" {
		spec.Dir = p.host.startDir(call.Dir)
	} else if info, err := os.Stat(spec.Dir); err != nil || !info.IsDir() {
		return nil, &Failure{Status: 500, Type: "NotADirectoryError", Code: "command_not_runnable", Text: "The working directory does not exist: " + spec.Dir, Err: err}
	}
	argv, remove, err := p.command(values)
	if err != nil {
		return nil, err
	}
	defer remove()
	spec.Argv = argv
	if spec.Path, err = proc.LookPath(argv[0], env["PATH"], spec.Dir); err != nil {
		return nil, notRunnable(err, argv[0])
	}
	spec.Stdin = p.input(values)
	limit := p.maxOutput
	if call.MaxOutput > 0 {
		limit = min(limit, call.MaxOutput)
	}
	return p.start(ctx, spec, &collector{limit: limit, also: call.Output})
}

// startDir is where programs run that name no directory.
func (h *host) startDir(dir string) string {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return h.workdir
}

func (p *program) start(ctx context.Context, spec proc.Spec, out *collector) ([]byte, error) {
	feed := proc.NewFeed()
	spec.Output = feed
	// Not ctx: its end would kill at once, and these programs are asked first.
	process, err := p.host.procs.Start(context.WithoutCancel(ctx), spec)
	if err != nil {
		return nil, notRunnable(err, spec.Argv[0])
	}
	err = out.read(ctx, feed)
	switch {
	case err == nil:
	case errors.Is(err, errTooMuch):
		feed.Close()
		process.End(proc.ReasonOutputLimit)
	default:
		feed.Close()
		process.Stop(stopGrace, proc.ReasonDisconnected, syscall.SIGTERM) //nolint:contextcheck // bounded by its own grace
	}
	<-process.Done()
	if err != nil && !errors.Is(err, errTooMuch) {
		return nil, err
	}
	if err != nil {
		return nil, tooMuchOutput(out.limit)
	}
	st, _ := process.Status()
	if st.Reason == proc.ReasonTimeout {
		return nil, timedOut(spec.Timeout.Seconds())
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return p.outcome(st, out)
}

// variables is the environment of a run.
func (p *program) variables(values map[string]value, call Call) (map[string]string, *Failure) {
	env := call.Env()
	if !p.inheritEnv {
		kept := map[string]string{}
		for _, name := range []string{"PATH", "HOME", "LANG", "TERM", "USER"} {
			if v, ok := env[name]; ok {
				kept[name] = v
			}
		}
		env = kept
	}
	for _, e := range p.env {
		words, ok, fail := e.text.fill(values)
		if fail != nil {
			return nil, fail
		}
		if ok {
			env[e.name] = strings.Join(words, "")
		}
	}
	for _, a := range p.params {
		name := "ARG_" + a.Name
		delete(env, name) // an absent argument is unset, whatever the server has
		v, ok := values[a.Name]
		if !ok || len(v.text) > maxVariable {
			continue
		}
		if fail := usable(a.Name, v.text); fail != nil {
			return nil, fail
		}
		env[name] = v.text
	}
	env["COMMAND_NAME"] = p.name
	return env, nil
}

// command is the argument vector; remove takes away what was written for it.
func (p *program) command(values map[string]value) (argv []string, remove func(), err error) {
	switch {
	case p.argv != nil:
		for _, it := range p.argv {
			var fail *Failure
			if argv, fail = it.fill(argv, values); fail != nil {
				return nil, nil, fail
			}
		}
		return argv, func() {}, nil
	case p.shell != "":
		return []string{"/bin/sh", "-c", p.shell}, func() {}, nil
	}
	file, err := writeScript(p.script)
	if err != nil {
		return nil, nil, fmt.Errorf("write the script of command %q: %w", p.name, err)
	}
	return append(slices.Clone(p.interpreter), file), func() { _ = os.Remove(file) }, nil
}

func writeScript(text string) (name string, err error) {
	f, err := os.CreateTemp("", "command-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.WriteString(text); err == nil {
		err = f.Chmod(0o700)
	}
	return f.Name(), errors.Join(err, f.Close())
}

func (p *program) input(values map[string]value) *proc.Input {
	switch p.stdin {
	case stdinNone:
		return nil
	case stdinArg:
		return proc.InputBytes([]byte(values[p.stdinArg].text))
	}
	var b []byte
	for _, a := range p.params {
		v, ok := values[a.Name]
		if !ok {
			continue
		}
		b = append(b, ',')
		b = append(b, quoteJSON(a.Name)...)
		b = append(b, ':')
		b = append(b, v.json...)
	}
	if b == nil {
		b = []byte{','}
	}
	b[0] = '{'
	return proc.InputBytes(append(b, "}\n"...))
}

// notRunnable is the answer to a program that does not start; other errors
// pass.
func notRunnable(err error, program string) error {
	fail := func(typ, text string) error {
		f := failed(500, typ, "command_not_runnable", "%s: %s", text, program)
		f.Err = err
		return f
	}
	switch {
	case errors.Is(err, proc.ErrNotFound):
		return fail("FileNotFoundError", "No such program")
	case errors.Is(err, proc.ErrNotExecutable):
		return fail("PermissionError", "Not executable")
	case errors.Is(err, proc.ErrNotProgram):
		return fail("OSError", "Not a program")
	case errors.Is(err, proc.ErrDir):
		return fail("NotADirectoryError", "The working directory cannot be entered")
	case errors.Is(err, syscall.E2BIG):
		return failed(400, "ValueError", "argument_invalid", "Arguments and environment are too long together")
	case proc.NoRoom(err):
		return failed(429, "ResourceError", "process_limit", "The system has no room for another process")
	}
	return err
}

// collector gathers both outputs up to a limit each.
type collector struct {
	limit    int64
	out, err []byte
	also     func(proc.Stream, []byte) error
}

var errTooMuch = errors.New("output limit")

// read takes output until its end, the limit or the end of ctx.
func (c *collector) read(ctx context.Context, feed *proc.Feed) error {
	for {
		stream, data, err := feed.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		to := &c.out
		if stream == proc.Stderr {
			to = &c.err
		}
		if int64(len(*to)+len(data)) > c.limit {
			return errTooMuch
		}
		*to = append(*to, data...)
		if c.also != nil {
			if err := c.also(stream, data); err != nil {
				return err
			}
		}
	}
}
