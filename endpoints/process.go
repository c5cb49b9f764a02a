package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) process() []api.Endpoint {
	exec := api.Row{
		Method: "POST", Group: "process", Scopes: []string{"process:run"},
		Limits: []string{"timeout_seconds", "max_output_bytes", "max_processes"},
		Params: []string{"allow_commands", "deny_commands", "allow_users"},
		Paths:  true, Op: policy.Exec, Exec: true, Mutates: true,
	}
	shell, stream := exec, exec
	shell.Name, shell.Path, shell.Summary = "shell", "/shell", "Run a command and answer its output."
	stream.Name, stream.Path, stream.Summary = "shell_stream", "/shell/stream", "Run a command and stream its output."
	start := exec
	start.Name, start.Path, start.Summary = "process_start", "/process/start", "Start a background process."
	return append(s.background(start),
		api.Unary(shell, s.shell),
		api.Streaming(stream, s.shellStream),
	)
}

// wholeOutput is how much of a stream an answer keeps when no rule says.
const wholeOutput = 10 << 20

// grace is how long the pipes of an ended command are read on while a
// grandchild holds them: a second of silence.
var grace = proc.Grace{Silence: time.Second}

// spec is the start of a launch.
func (l *prepared) spec(in *proc.Input, out proc.Sink) proc.Spec {
	spec := l.how
	spec.Path, spec.Argv, spec.Env, spec.DirFile = l.file, l.argv, l.env, l.dir
	spec.Stdin, spec.Output, spec.Grace = in, out, grace
	return spec
}

type shellIn struct {
	execIn
	inputIn
	Encoding api.Field[string] `json:"encoding" doc:"base64 adds the exact bytes of both streams."`
	Keep     api.Field[string] `json:"keep" doc:"tail keeps the last bytes of a long output instead of the first."`
}

func (s *Server) shell(ctx context.Context, c *api.Call, in shellIn) (api.Body, error) {
	l, leave, err := s.admitCommand(c, &in.execIn, &s.shells)
	if err != nil {
		return nil, err
	}
	defer leave()
	kept, err := in.Keep.Optional("keep", "")
	if err != nil {
		return nil, err
	}
	keep := proc.KeepHead
	switch kept {
	case "", "head":
	case "tail":
		keep = proc.KeepTail
	default:
		return nil, api.Invalidf("Invalid 'keep': head or tail")
	}
	encoding, err := in.Encoding.Optional("encoding", "")
	if err != nil {
		return nil, err
	}
	exact, err := wantsBase64(encoding)
	if err != nil {
		return nil, err
	}
	stdin, err := in.input()
	if err != nil {
		return nil, err
	}
	limit := wholeOutput
	if n, ok := c.Rule.Int("max_output_bytes"); ok {
		limit = int(n)
	}
	out := proc.NewBuffers(limit, keep)
	p, err := s.Procs.Start(ctx, l.spec(stdin, out))
	if err != nil {
		return nil, l.failed(err)
	}
	<-p.Done() // not ctx: its end ends the process, and with it this wait
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, _ := p.Status()
	if st.Reason == proc.ReasonTimeout {
		return nil, timedOut(l.how.Timeout, out, keep)
	}
	o := &api.Object{}
	o.Text("stdout", out.Out.Bytes())
	o.Text("stderr", out.Err.Bytes())
	o.Set("exit_code", st.Code)
	if out.Out.Truncated() || out.Err.Truncated() {
		o.Set("truncated", true)
	}
	if st.Detached {
		o.Set("detached", true)
	}
	if exact {
		stdout, stderr := out.Out.Bytes(), out.Err.Bytes()
		o.Base64("stdout_base64", bytes.NewReader(stdout), int64(len(stdout)))
		o.Base64("stderr_base64", bytes.NewReader(stderr), int64(len(stderr)))
	}
	o.Set("duration_ms", float64(st.Ended.Sub(p.Started()).Microseconds())/1000)
	o.Set("pid", p.PID())
	o.Set("signal", signalName(st.Signal))
	o.Set("reason", st.Reason)
	return o, nil
}

// partialOutput bounds what an answer about a time limit shows of each stream.
const partialOutput = 1 << 20

func timedOut(after time.Duration, out *proc.Buffers, keep proc.Keep) error {
	stdout, cutOut := shorten(&out.Out, keep)
	stderr, cutErr := shorten(&out.Err, keep)
	e := api.Errorf(500, "TimeoutError", "command_timeout", "Command timed out after %gs", after.Seconds()).
		With("stdout", stdout).With("stderr", stderr)
	if cutOut || cutErr {
		e = e.With("truncated", true)
	}
	return e
}

func shorten(out *proc.Buffer, keep proc.Keep) (text string, cut bool) {
	b := out.Bytes()
	if len(b) <= partialOutput {
		return string(b), out.Truncated()
	}
	if keep == proc.KeepHead {
		b = b[:partialOutput]
		return string(b[:proc.Whole(b)]), true
	}
	b = b[len(b)-partialOutput:]
	for len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	return string(b), true
}

// admitCommand judges a command and takes one of the endpoint's places for
// commands that run at once. leave gives back what both hold.
func (s *Server) admitCommand(c *api.Call, in *execIn, places *proc.Slots) (l *prepared, leave func(), err error) {
	if l, err = s.prepare(c, c.Rule, in); err != nil {
		return nil, nil, err
	}
	free := func() {}
	if most, ok := c.Rule.Int("max_processes"); ok {
		if free, err = places.Take(int(min(most, math.MaxInt32))); err != nil {
			l.close()
			return nil, nil, crowded(err)
		}
	}
	return l, func() { free(); l.close() }, nil
}

// crowded is the answer to a limit of processes that is reached; other errors
// pass.
func crowded(err error) error {
	if full, ok := errors.AsType[*proc.LimitError](err); ok {
		return api.Errorf(429, "ResourceError", "process_limit", "Too many processes; the limit is %d", full.Limit).With("limit", full.Limit)
	}
	return err
}

type streamIn struct {
	execIn
	inputIn
	Mode api.Field[string] `json:"mode" doc:"chunks sends pieces as they come instead of whole lines."`
}

func (s *Server) shellStream(ctx context.Context, c *api.Call, in streamIn, ev *api.Events) error {
	mode, err := in.Mode.Optional("mode", "")
	if err != nil {
		return err
	}
	if mode != "" && mode != "lines" && mode != "chunks" {
		return api.Invalidf("Invalid 'mode': lines or chunks")
	}
	stdin, err := in.input()
	if err != nil {
		return err
	}
	l, leave, err := s.admitCommand(c, &in.execIn, &s.streams)
	if isStartFailure(err) {
		// A published contract: a program that cannot start is told in the stream.
		return ev.Send("error", map[string]string{"error": api.Public(err)})
	}
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	feed := proc.NewFeed()
	p, err := s.Procs.Start(ctx, l.spec(stdin, feed))
	if err != nil {
		cancel()
		if err = l.failed(err); isStartFailure(err) {
			return ev.Send("error", map[string]string{"error": api.Public(err)})
		}
		return err
	}
	defer func() {
		cancel()
		feed.Close()
		<-p.Done() // its place is taken as long as it runs
	}()
	//nolint:contextcheck // the stop is bounded by its own grace
	defer when(c.Stopping(), func() { p.Stop(stopGrace, proc.ReasonShutdown, syscall.SIGTERM) })()

	out := newLineStream(ev, c.Rule)
	if mode == "chunks" {
		out = newChunkStream(ev, c.Rule, p.PID())
	}
	if err := ev.Start(); err != nil {
		return err
	}
	st, err := deliver(ctx, p, feed, out)
	if err != nil {
		return err
	}
	switch st.Reason {
	case proc.ReasonTimeout, proc.ReasonOutputLimit:
		_ = ev.Send("error", map[string]string{"error": string(st.Reason)})
	}
	return ev.Send("exit", map[string]any{"exit_code": st.Code})
}

// stopGrace is the time between SIGTERM and SIGKILL when the server stops.
const stopGrace = 2 * time.Second

// when runs f when ch is closed, unless cancel is called first; cancel waits
// for a running f.
func when(ch <-chan struct{}, f func()) (cancel func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ch:
			f()
		case <-over:
		}
	}()
	return func() { close(over); <-done }
}

// until is a context that also ends when ch is closed.
func until(ctx context.Context, ch <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	over := when(ch, cancel)
	return ctx, func() { over(); cancel() }
}

// outStream turns a command's output into events.
type outStream interface {
	put(s proc.Stream, data []byte) error
	end() error
}

// pump moves output from a feed to the peer, a burst at a time.
func pump(ctx context.Context, feed *proc.Feed, out outStream) error {
	for {
		stream, data, err := feed.Next(ctx)
		if errors.Is(err, io.EOF) {
			return out.end()
		}
		if err == nil {
			err = out.put(stream, data)
		}
		if err != nil {
			return err
		}
	}
}

// deliver sends what a process prints, ends the process past the limit, and
// tells how it ended.
func deliver(ctx context.Context, p *proc.Process, feed *proc.Feed, out outStream) (proc.Status, error) {
	err := pump(ctx, feed, out)
	limited := errors.Is(err, errOutputLimit)
	if limited {
		feed.Close()
		p.End(proc.ReasonOutputLimit)
	} else if err != nil {
		return proc.Status{}, err
	}
	st, err := p.Wait(ctx)
	if limited {
		// Also for a process that had ended before its output was all read:
		// whether it was quick must not decide whether its caller is told.
		st.Reason, st.Code = proc.ReasonOutputLimit, -int(syscall.SIGKILL)
	}
	return st, err
}

var errOutputLimit = errors.New("output limit")

// isStartFailure tells whether a command is sound and allowed, and its program
// cannot be run.
func isStartFailure(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && (e.Code == "command_not_found" || e.Code == "command_not_executable")
}

// startError is the answer to a program that cannot be started; other errors
// pass.
func startError(err error, program string) error {
	failed := func(typ, code, text string) error {
		if program != "" {
			text += ": " + program
		}
		e := api.Errorf(400, typ, code, "%s", text)
		e.Err = err
		return e
	}
	switch {
	case errors.Is(err, proc.ErrNotFound):
		return failed("FileNotFoundError", "command_not_found", "Command not found")
	case errors.Is(err, proc.ErrNotExecutable):
		return failed("PermissionError", "command_not_executable", "Not executable")
	case errors.Is(err, proc.ErrNotProgram):
		return failed("OSError", "command_not_executable", "Not a program")
	case errors.Is(err, proc.ErrDir):
		return api.Invalidf("The working directory cannot be entered")
	case errors.Is(err, syscall.E2BIG):
		return policy.Refuse(policy.CommandInvalid, "Arguments and environment are too long").Err()
	}
	return noRoom(err)
}

// noRoom is the answer when the system, or what it grants the server, has no
// room for another process: no number, memory, descriptor or terminal is left.
// It passes with time, so it is no failure of the server; other errors pass.
func noRoom(err error) error {
	if proc.NoRoom(err) || errors.Is(err, syscall.ENOSPC) {
		e := api.Errorf(429, "ResourceError", "process_limit", "The system has no room for another process")
		e.Err = err
		return e
	}
	return err
}

// cwdError is the answer to a working directory that cannot be used.
func cwdError(err error) error {
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return d.Prefix("cwd: ")
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, guardfs.ErrNotDirectory) || errors.Is(err, fs.ErrPermission) {
		return api.Invalidf("The working directory does not exist or cannot be entered")
	}
	return noRoom(fmt.Errorf("open the working directory: %w", err))
}

// signalName is the name of a signal, nil for none.
func signalName(sig syscall.Signal) *string {
	if sig == 0 {
		return nil
	}
	name := unix.SignalName(sig)
	return &name
}
