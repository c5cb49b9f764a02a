package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

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
	return []api.Endpoint{
		api.Unary(shell, s.shell),
		api.Streaming(stream, s.shellStream),
	}
}

// wholeOutput is how much of a stream an answer keeps when no rule says.
const wholeOutput = 10 << 20

// grace is how long the pipes of an ended command are read on while a
// grandchild holds them: a second of silence.
var grace = proc.Grace{Silence: time.Second}

// spec is the start of a launch.
func (l *launch) spec(out proc.Sink) proc.Spec {
	return proc.Spec{
		Path: l.file, Argv: l.argv, Env: l.env, DirFile: l.dir,
		Output: out, Timeout: l.timeout, Grace: grace,
	}
}

type shellIn struct {
	execIn
	Encoding api.Field[string] `json:"encoding" doc:"base64 adds the exact bytes of both streams."`
	Keep     api.Field[string] `json:"keep" doc:"tail keeps the last bytes of a long output instead of the first."`
}

func (s *Server) shell(ctx context.Context, c *api.Call, in shellIn) (api.Body, error) {
	l, leave, err := s.admitCommand(c, &in.execIn)
	if err != nil {
		return nil, err
	}
	defer leave()
	keep := proc.KeepHead
	switch in.Keep.V {
	case "", "head":
	case "tail":
		keep = proc.KeepTail
	default:
		return nil, api.Invalidf("Invalid 'keep': head or tail")
	}
	if in.Encoding.V != "" && in.Encoding.V != "base64" {
		return nil, api.Invalidf("Invalid 'encoding': base64 or nothing")
	}
	limit := wholeOutput
	if n, ok := c.Rule.Int("max_output_bytes"); ok {
		limit = int(n)
	}
	out := proc.NewBuffers(limit, keep)
	p, err := s.Procs.Start(ctx, l.spec(out))
	if err != nil {
		return nil, startError(err, l.argv[0])
	}
	st, err := p.Wait(ctx)
	if err != nil {
		return nil, err
	}
	if st.Reason == proc.ReasonTimeout {
		return nil, timedOut(l.timeout, out)
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
	if in.Encoding.V != "" {
		o.Set("stdout_base64", out.Out.Bytes())
		o.Set("stderr_base64", out.Err.Bytes())
	}
	o.Set("duration_ms", float64(st.Ended.Sub(p.Started()).Microseconds())/1000)
	o.Set("pid", p.PID())
	o.Set("signal", signalName(st.Signal))
	o.Set("reason", st.Reason)
	return o, nil
}

func timedOut(after time.Duration, out *proc.Buffers) error {
	e := api.Errorf(500, "TimeoutError", "command_timeout", "Command timed out after %gs", after.Seconds())
	return e.With("stdout", string(out.Out.Bytes())).With("stderr", string(out.Err.Bytes()))
}

// admitCommand judges a command and takes one of the endpoint's places for
// commands that run at once. leave gives back what both hold.
func (s *Server) admitCommand(c *api.Call, in *execIn) (l *launch, leave func(), err error) {
	if l, err = s.prepare(c, c.Rule, in); err != nil {
		return nil, nil, err
	}
	free := func() {}
	if most, ok := c.Rule.Int("max_processes"); ok {
		if free, ok = s.places.enter(c.Rule.Row.Name, most); !ok {
			l.close()
			return nil, nil, processLimit(most)
		}
	}
	return l, func() { free(); l.close() }, nil
}

func processLimit(most int64) error {
	return api.Errorf(429, "ResourceError", "process_limit", "Too many processes; the limit is %d", most).With("limit", most)
}

// places counts what runs at once, by name.
type places struct {
	mu    sync.Mutex
	taken map[string]int64
}

func (p *places) enter(name string, most int64) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[name] >= most {
		return nil, false
	}
	if p.taken == nil {
		p.taken = map[string]int64{}
	}
	p.taken[name]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken[name]--
	}), true
}

type streamIn struct {
	execIn
	Mode api.Field[string] `json:"mode" doc:"chunks sends pieces as they come instead of whole lines."`
}

func (s *Server) shellStream(ctx context.Context, c *api.Call, in streamIn, ev *api.Events) error {
	if in.Mode.V != "" && in.Mode.V != "lines" && in.Mode.V != "chunks" {
		return api.Invalidf("Invalid 'mode': lines or chunks")
	}
	l, leave, err := s.admitCommand(c, &in.execIn)
	if isStartFailure(err) {
		// A published contract: a program that cannot start is told in the stream.
		return ev.Send("error", map[string]string{"error": api.Public(err)})
	}
	if err != nil {
		return err
	}
	defer leave()
	feed := proc.NewFeed()
	p, err := s.Procs.Start(ctx, l.spec(feed))
	if err != nil {
		return ev.Send("error", map[string]string{"error": api.Public(startError(err, l.argv[0]))})
	}
	defer onStop(c, func() { p.Stop(stopGrace, proc.ReasonShutdown, syscall.SIGTERM) })()

	out := newLineStream(ev, c.Rule)
	if in.Mode.V == "chunks" {
		out = newChunkStream(ev, c.Rule, p.PID())
	}
	if err := ev.Start(); err != nil {
		return err
	}
	if err := pump(ctx, feed, out); errors.Is(err, errOutputLimit) {
		feed.Close()
		p.End(proc.ReasonOutputLimit)
	} else if err != nil {
		return err
	}
	st, err := p.Wait(ctx)
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

// onStop runs f when the server begins to stop, unless cancel is called first;
// cancel waits for a running f.
func onStop(c *api.Call, f func()) (cancel func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.Stopping():
			f()
		case <-over:
		}
	}()
	return func() { close(over); <-done }
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
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
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
	return fmt.Errorf("open the working directory: %w", err)
}

// signalName is the name of a signal, nil for none.
func signalName(sig syscall.Signal) *string {
	if sig == 0 {
		return nil
	}
	name := unix.SignalName(sig)
	return &name
}
