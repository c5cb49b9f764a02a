package endpoints

import (
	"context"
	"math"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// background are the rows of processes that outlive the request which started
// them.
func (s *Server) background(start api.Row) []api.Endpoint {
	if s.Background == nil {
		s.Background = proc.NewTable(s.Procs)
	}
	row := func(name, method, path, scope, summary string) api.Row {
		return api.Row{
			Name: name, Method: method, Path: path, Group: "process", Scopes: []string{scope},
			Summary: summary, Mutates: scope == "process:manage",
		}
	}
	list := row("process_list", "GET", "/process/list", "process:read", "List background processes.")
	detail := row("process_detail", "GET", "/process/{pid}", "process:read", "Describe a background process.")
	signal := row("process_signal", "POST", "/process/{pid}/signal", "process:manage", "Send a signal to a background process.")
	signal.Params = []string{"allowed_signals"}
	stop := row("process_stop", "DELETE", "/process/{pid}", "process:manage", "End a background process.")
	stop.As = "process_signal"
	stdin := row("process_stdin", "POST", "/process/{pid}/stdin", "process:manage", "Write to the input of a background process.")
	output := row("process_output", "GET", "/process/{pid}/output", "process:read", "Read the captured output of a background process.")
	return []api.Endpoint{
		api.Unary(start, s.startProcess),
		api.Unary(list, s.listProcesses),
		api.Unary(detail, s.describeProcess),
		api.Unary(signal, s.signalProcess),
		api.Unary(stop, s.stopProcess),
		api.Unary(stdin, s.writeStdin),
		api.Either(output, s.readOutput),
	}
}

const (
	defaultProcesses = 100
	mostProcesses    = 10_000
	capturedOutput   = 1 << 20 // bytes kept of a process when no rule says
	maxLabel         = 256
	maxDetailWait    = 60 // seconds
)

type startIn struct {
	execIn
	Capture api.Field[any]    `json:"capture_output" doc:"Keep the newest output for /process/{pid}/output."`
	Stdin   api.Field[any]    `json:"stdin" doc:"Open an input for /process/{pid}/stdin; without it the input is empty."`
	Enforce api.Field[any]    `json:"enforce_timeout" doc:"Heed 'timeout', which is ignored otherwise."`
	Detach  api.Field[any]    `json:"detach" doc:"Leave the process running when the server stops."`
	Label   api.Field[string] `json:"label" doc:"A text of the caller's that records show."`
	// Terminal makes the process the program of a terminal session.
	Terminal api.Field[map[string]any] `json:"pty" doc:"A terminal of {cols, rows} to run on; pty_create_session must be allowed too."`
}

type startOut struct {
	PID       int    `json:"pid"`
	Command   string `json:"command"`
	SessionID string `json:"session_id,omitempty" doc:"The terminal, when one was asked for."`
	WSURL     string `json:"ws_url,omitempty"`
}

func (s *Server) startProcess(ctx context.Context, c *api.Call, in startIn) (startOut, error) {
	if _, err := in.words(); err != nil {
		return startOut{}, err
	}
	most := int64(defaultProcesses)
	if n, ok := c.Rule.Int("max_processes"); ok {
		most = min(n, mostProcesses)
	}
	place, err := s.Background.Reserve(int(most))
	if err != nil {
		return startOut{}, crowded(err)
	}
	defer place.Release()
	wishes, err := in.wishes()
	if err != nil {
		return startOut{}, err
	}
	if in.Terminal.Set() {
		return s.startOnTerminal(c, &in, wishes, place) //nolint:contextcheck // a terminal outlives the request
	}
	l, err := s.prepare(c, c.Rule, &in.execIn)
	if err != nil {
		return startOut{}, err
	}
	defer l.close()
	e, err := place.Start(ctx, wishes.spec(l, c.Rule), c.Identity.ID, in.shown(), wishes.label)
	if err != nil {
		return startOut{}, l.failed(err)
	}
	return startOut{PID: e.Process.PID(), Command: e.Command}, nil
}

// startWishes is what a start asks for beyond the command.
type startWishes struct {
	capture, stdin, enforce, detach bool
	label                           string
}

func (in *startIn) wishes() (w startWishes, err error) {
	for _, f := range []struct {
		name  string
		field api.Field[any]
		to    *bool
	}{
		{"capture_output", in.Capture, &w.capture},
		{"stdin", in.Stdin, &w.stdin},
		{"enforce_timeout", in.Enforce, &w.enforce},
		{"detach", in.Detach, &w.detach},
	} {
		if *f.to, err = flag(f.field, f.name); err != nil {
			return w, err
		}
	}
	w.label, err = in.Label.Optional("label", "")
	if err != nil || len(w.label) > maxLabel {
		return w, api.Invalidf("Invalid 'label': a text of at most %d bytes", maxLabel)
	}
	return w, nil
}

func (w startWishes) spec(l *prepared, rule *policy.Rule) proc.Spec {
	if !w.enforce {
		limitTime(rule, &l.how, math.Inf(1)) // the rule's own limit holds all the same
	}
	var in *proc.Input
	if w.stdin {
		in = proc.NewInput()
	}
	var out proc.Sink
	if w.capture {
		keep := int64(capturedOutput)
		if n, ok := rule.Int("max_output_bytes"); ok {
			keep = n
		}
		out = proc.NewLog(int(min(keep, math.MaxInt)))
	}
	spec := l.spec(in, out)
	spec.Detach = w.detach
	return spec
}

// flag reads a boolean member; 0 and 1 count too, nothing else does, so that
// "no" is not taken for yes.
func flag(f api.Field[any], name string) (bool, error) {
	switch v := f.V.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case api.Number:
		if n := v.Float(); n == 0 || n == 1 {
			return n == 1, nil
		}
	}
	return false, api.Invalidf("Invalid '%s': true or false", name)
}

// viewer is whose processes a caller sees.
func viewer(c *api.Call) proc.Viewer {
	return proc.Viewer{Owner: c.Identity.ID, All: c.Identity.Holds("*")}
}

// find is the process a path names, if the caller may know it.
func (s *Server) find(c *api.Call, pid string) (*proc.Entry, error) {
	n, err := parsePID(pid)
	if err != nil {
		return nil, err
	}
	if e, ok := s.Background.Get(n, viewer(c)); ok {
		return e, nil
	}
	return nil, unknownProcess(pid)
}

// parsePID reads a number; one that no process can have becomes 0.
func parsePID(pid string) (int, error) {
	n, ok := queryInt(pid)
	if !ok {
		return 0, api.Invalidf("Invalid process id")
	}
	if n < 0 || n > math.MaxInt32 {
		n = 0
	}
	return int(n), nil
}

func unknownProcess(pid string) error {
	return api.Errorf(404, "NotFoundError", "", "Process not found: %s", pid)
}

// record is a process as callers see it.
type record struct {
	PID        int      `json:"pid"`
	Command    string   `json:"command"`
	State      string   `json:"state" doc:"running or exited"`
	StartedAt  float64  `json:"started_at" doc:"Unix seconds."`
	ExitCode   *int     `json:"exit_code" doc:"-N for signal N; null while it runs."`
	ID         string   `json:"id" doc:"Never used again, as process ids are."`
	Label      string   `json:"label"`
	Identity   string   `json:"identity" doc:"Whose process it is."`
	EndedAt    *float64 `json:"ended_at"`
	Reason     *string  `json:"reason" doc:"exited, signaled, timeout, oom or shutdown; null while it runs."`
	CPUSeconds float64  `json:"cpu_seconds"`
	MaxRSS     int64    `json:"max_rss_bytes"`
	StdinOpen  bool     `json:"stdin_open"`
	Captured   bool     `json:"captured" doc:"Its output can be read."`
}

func recordOf(e *proc.Entry) record {
	p := e.Process
	cpu, rss := p.Usage()
	r := record{
		PID: p.PID(), Command: e.Command, State: "running", StartedAt: unixSeconds(p.Started()),
		ID: e.ID, Label: e.Label, Identity: e.Owner, CPUSeconds: cpu.Seconds(), MaxRSS: rss,
		StdinOpen: p.Input() != nil && p.Input().Open(), Captured: e.Log != nil,
	}
	if st, ok := p.Status(); ok {
		ended, reason := unixSeconds(st.Ended), string(st.Reason)
		r.State, r.ExitCode, r.EndedAt, r.Reason = "exited", &st.Code, &ended, &reason
	}
	return r
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

type processListIn struct {
	All bool `query:"all" doc:"List ended processes too."`
}

type processListOut struct {
	Processes []record `json:"processes"`
}

func (s *Server) listProcesses(_ context.Context, c *api.Call, in processListIn) (processListOut, error) {
	entries := s.Background.List(viewer(c), in.All)
	out := processListOut{make([]record, len(entries))}
	for i, e := range entries {
		out.Processes[i] = recordOf(e)
	}
	return out, nil
}

type detailIn struct {
	PID  string `path:"pid"`
	Wait string `query:"wait" doc:"Seconds to wait for the process to end, at most 60."`
}

func (s *Server) describeProcess(ctx context.Context, c *api.Call, in detailIn) (record, error) {
	e, err := s.find(c, in.PID)
	if err != nil {
		return record{}, err
	}
	wait, err := waitTime(in.Wait, maxDetailWait)
	if err != nil {
		return record{}, err
	}
	awaitExit(ctx, c, e, wait)
	return recordOf(e), nil
}

// awaitExit waits for a process to end, but not longer than d, the caller or
// the server.
func awaitExit(ctx context.Context, c *api.Call, e *proc.Entry, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-e.Process.Exited():
	case <-t.C:
	case <-ctx.Done():
	case <-c.Stopping():
	}
}

// waitTime reads how long a caller is ready to wait, in seconds.
func waitTime(text string, most float64) (time.Duration, error) {
	f, err := querySeconds(text, "wait", 0)
	return seconds(min(max(f, 0), most)), err
}
