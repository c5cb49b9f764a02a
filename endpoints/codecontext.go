package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// contexts are the routes of contexts, interpreters that keep variables; like
// makes a row that is judged as code_run.
func (s *Server) contexts(like func(name, method, path, summary string) api.Row) []api.Endpoint {
	if s.Contexts == nil {
		s.Contexts = devtools.NewContexts(s.Procs, devtools.ContextOptions{})
	}
	return []api.Endpoint{
		api.Unary(like("code_context_create", "POST", "/code/contexts", "Make a context, in which code keeps its variables."), s.createContext),
		api.Unary(like("code_context_list", "GET", "/code/contexts", "List contexts."), s.listContexts),
		api.Unary(like("code_context_restart", "POST", "/code/contexts/{id}/restart", "Start the interpreter of a context afresh."), s.restartContext),
		api.Unary(like("code_context_delete", "DELETE", "/code/contexts/{id}", "End a context."), s.deleteContext),
	}
}

type contextIn struct {
	Language api.Field[any]            `json:"language" doc:"python (default), node or bash."`
	Cwd      api.Field[string]         `json:"cwd" doc:"Working directory; the server's own by default."`
	Env      api.Field[map[string]any] `json:"env" doc:"Variables to set over the server's environment."`
}

type contextOut struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func describeContext(c *devtools.Context) contextOut {
	return contextOut{ID: c.ID, Language: c.Language.Name, Cwd: c.Cwd}
}

func (s *Server) createContext(ctx context.Context, c *api.Call, in contextIn) (contextOut, error) {
	l, err := language(in.Language, "python")
	if err != nil {
		return contextOut{}, err
	}
	if !l.KeepsContexts() {
		return contextOut{}, api.Invalidf("There are no contexts for this language")
	}
	cwd, err := in.Cwd.Optional("cwd", "")
	if err != nil {
		return contextOut{}, err
	}
	env, err := (&execIn{Env: in.Env}).variables()
	if err != nil {
		return contextOut{}, err
	}
	if err := mayUse(c.Rule, l); err != nil {
		return contextOut{}, err
	}
	ip, err := s.findInterpreter(c, l, cwd, env)
	if err != nil {
		return contextOut{}, err
	}
	defer ip.close()
	made, err := s.Contexts.Create(ctx, devtools.ContextSpec{
		Owner: c.Identity.ID, Language: l, Program: ip.program, How: ip.how, Cwd: ip.cwd,
	})
	if full, ok := errors.AsType[*proc.LimitError](err); ok {
		return contextOut{}, api.Errorf(429, "ResourceError", "context_limit", "Too many contexts; the limit is %d", full.Limit).With("limit", full.Limit)
	}
	if err != nil {
		return contextOut{}, ip.failed(err)
	}
	return describeContext(made), nil
}

type contextsOut struct {
	Contexts []contextOut `json:"contexts"`
}

func (s *Server) listContexts(_ context.Context, c *api.Call, _ struct{}) (contextsOut, error) {
	out := contextsOut{Contexts: []contextOut{}}
	for _, k := range s.Contexts.List(viewer(c)) {
		out.Contexts = append(out.Contexts, describeContext(k))
	}
	return out, nil
}

type oneContextIn struct {
	ID string `path:"id"`
}

// findContext finds a context of the caller.
func (s *Server) findContext(c *api.Call, id string) (*devtools.Context, error) {
	if k, ok := s.Contexts.Get(id, viewer(c)); ok {
		return k, nil
	}
	return nil, unknownContext()
}

func unknownContext() error { return api.Errorf(404, "ValueError", "", "Unknown context") }

func (s *Server) restartContext(ctx context.Context, c *api.Call, in oneContextIn) (contextOut, error) {
	k, err := s.findContext(c, in.ID)
	if err != nil {
		return contextOut{}, err
	}
	if err := k.Restart(ctx); err != nil {
		return contextOut{}, contextError(k, err)
	}
	return describeContext(k), nil
}

type contextDeleted struct {
	Deleted bool `json:"deleted"`
}

func (s *Server) deleteContext(_ context.Context, c *api.Call, in oneContextIn) (contextDeleted, error) {
	k, err := s.findContext(c, in.ID)
	if err != nil {
		return contextDeleted{}, err
	}
	s.Contexts.Delete(k)
	return contextDeleted{true}, nil
}

// contextError is the answer to a context that cannot be used.
func contextError(k *devtools.Context, err error) error {
	switch {
	case errors.Is(err, devtools.ErrContextGone), errors.Is(err, proc.ErrClosed):
		return unknownContext()
	case errors.Is(err, devtools.ErrContextBusy):
		return api.Errorf(408, "TimeoutError", "", "The context was busy with other code for all the time")
	case errors.Is(err, proc.ErrNotFound), errors.Is(err, proc.ErrNotExecutable), errors.Is(err, os.ErrNotExist):
		return missingInterpreter(k.Language, err)
	}
	return err
}

// prepareCell judges a run in a context, in the order of the contract.
func (s *Server) prepareCell(c *api.Call, in *codeIn) (*devtools.Context, string, time.Duration, error) {
	code, err := in.text()
	if err != nil {
		return nil, "", 0, err
	}
	if in.Cwd.Set() || in.Env.Set() || in.Stdin.Set() || in.StdinBase64.Set() {
		return nil, "", 0, api.Invalidf("'cwd' and 'env' are the context's, and it has no input")
	}
	id, err := in.Context.Want("context_id")
	if err != nil {
		return nil, "", 0, err
	}
	k, err := s.findContext(c, id)
	if err != nil {
		return nil, "", 0, err
	}
	l, err := language(in.Language, k.Language.Name)
	if err == nil && l != k.Language {
		err = api.Invalidf("The context is of another language")
	}
	if err == nil {
		err = mayUse(c.Rule, l)
	}
	return k, code, codeTimeout(c.Rule, in.Timeout), err
}

// cellOutput collects what a cell produces.
type cellOutput struct {
	limit   int
	streams [2][]byte
	cut     bool
	results api.List
}

func (o *cellOutput) Output(s proc.Stream, data []byte) {
	room := o.limit - len(o.streams[s])
	if len(data) > room {
		o.cut = true
		data = data[:room]
	}
	o.streams[s] = append(o.streams[s], data...)
}

func (o *cellOutput) Result(bundle json.RawMessage) {
	o.results.Add(func(dst []byte) []byte { return append(dst, bundle...) })
}

// text is what a stream holds, to the last whole character.
func (o *cellOutput) text(s proc.Stream) []byte {
	b := o.streams[s]
	if len(b) == o.limit {
		b = b[:proc.Whole(b)]
	}
	return b
}

func (s *Server) runCell(ctx context.Context, c *api.Call, in *codeIn) (api.Body, error) {
	k, code, timeout, err := s.prepareCell(c, in)
	if err != nil {
		return nil, err
	}
	out := &cellOutput{limit: codeOutput(c.Rule)}
	cell, err := k.Run(ctx, code, timeout, out)
	if err != nil {
		return nil, contextError(k, err)
	}
	cut := out.cut || cell.Dropped
	stdout, stderr := out.text(proc.Stdout), out.text(proc.Stderr)
	if cell.TimedOut {
		e := codeTimedOut(timeout, stdout, stderr, cut).With("context_id", k.ID).With("execution_count", cell.Count)
		if cell.Lost {
			e = e.With("context_lost", true)
		}
		return nil, e
	}
	o := &api.Object{}
	o.Text("stdout", stdout)
	o.Text("stderr", stderr)
	o.Set("exit_code", cell.Status)
	o.Set("language", k.Language.Name)
	o.Set("execution_time_ms", elapsedMS(cell.Took))
	if cut {
		o.Set("truncated", true)
	}
	o.Set("context_id", k.ID)
	o.Set("execution_count", cell.Count)
	o.List("results", &out.results)
	o.Set("error", cellFailure(&cell))
	if cell.Lost {
		o.Set("context_lost", true)
	}
	return o, nil
}

// cellFailure is what a cell failed with, nil for nothing.
func cellFailure(cell *devtools.Cell) *devtools.CellError {
	if cell.Error == nil && cell.Lost {
		return &devtools.CellError{
			Name: "InterpreterEnded", Value: fmt.Sprintf("The interpreter ended with exit code %d", cell.Status),
		}
	}
	return cell.Error
}

// cellStream sends what a cell produces.
type cellStream struct {
	ev  *api.Events
	out chunkStream
	cut bool
}

// Output sends a piece. When the peer is gone the events have ended the run,
// so their errors need no answer here; past the limit nothing more is sent.
func (o *cellStream) Output(s proc.Stream, data []byte) {
	if !o.cut && errors.Is(o.out.put(s, data), errOutputLimit) {
		o.cut = true
	}
}

func (o *cellStream) Result(bundle json.RawMessage) { _ = o.ev.Send("result", bundle) }

func (s *Server) streamCell(ctx context.Context, c *api.Call, in *codeIn, ev *api.Events) error {
	k, code, timeout, err := s.prepareCell(c, in)
	if err != nil {
		return err
	}
	running, done := until(ctx, c.Stopping())
	defer done()
	if err := ev.Start(); err != nil {
		return err
	}
	out := &cellStream{ev: ev, out: chunkStream{ev: ev, left: outputBudget(c.Rule)}}
	cell, err := k.Run(running, code, timeout, out)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		_ = ev.Send("error", cellError{Error: string(proc.ReasonShutdown), Name: "Shutdown", Value: "The server stops"})
	} else if err != nil {
		return contextError(k, err)
	}
	if !out.cut && errors.Is(out.out.end(), errOutputLimit) {
		out.cut = true
	}
	switch failure := cellFailure(&cell); {
	case err != nil: // told before
	case cell.TimedOut:
		_ = ev.Send("error", timeoutEvent(timeout.Seconds()))
	case failure != nil:
		_ = ev.Send("error", cellError{failure.Name + ": " + failure.Value, failure.Name, failure.Value, failure.Traceback})
	}
	return ev.Send("exit", cellExit{
		Code: cell.Status, Took: elapsedMS(cell.Took), Count: cell.Count, Truncated: out.cut || cell.Dropped, Lost: cell.Lost,
	})
}
