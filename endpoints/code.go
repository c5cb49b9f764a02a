package endpoints

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) code() []api.Endpoint {
	run := api.Row{
		Name: "code_run", Method: "POST", Path: "/code/run", Group: "dev_tools",
		Summary: "Run a code snippet.", Scopes: []string{"devtools:run"},
		Limits: []string{"timeout_seconds", "max_output_bytes"}, Params: []string{"languages"},
		Exec: true,
	}
	like := func(name, method, path, summary string) api.Row {
		r := run
		r.Name, r.Method, r.Path, r.Summary, r.As = name, method, path, summary, run.Name
		return r
	}
	stream := like("code_run_stream", "POST", "/code/run/stream", "Run a code snippet and stream what it prints and shows.")
	stream.Streaming = true
	return append([]api.Endpoint{
		api.Unary(run, s.runCode),
		api.Streaming(stream, s.streamCode),
	}, s.contexts(like)...)
}

const (
	defaultCodeTimeout = 30  // seconds
	maxCodeTimeout     = 300 // seconds
	minCodeTimeout     = 1   // seconds a policy must leave
)

// codeGrace is how long pipes that a child of the code holds are read on.
var codeGrace = proc.Grace{Silence: 250 * time.Millisecond, Total: 250 * time.Millisecond}

type codeIn struct {
	Code     api.Field[string]         `json:"code" doc:"The code."`
	Language api.Field[any]            `json:"language" doc:"python (default), node, bash, and where installed typescript, ruby, perl, go, r."`
	Timeout  api.Field[any]            `json:"timeout" doc:"Seconds the code may run; 30 by default, at most 300."`
	Cwd      api.Field[string]         `json:"cwd" doc:"Working directory; the server's own by default."`
	Env      api.Field[map[string]any] `json:"env" doc:"Variables to set over the server's environment."`
	Context  api.Field[string]         `json:"context_id" doc:"Run in this context, which keeps variables; see /code/contexts."`
	inputIn
}

// text is the code, which must be there.
func (in *codeIn) text() (string, error) {
	code, err := in.Code.Want("code")
	if err != nil || code == "" || strings.IndexByte(code, 0) >= 0 {
		return "", api.Invalidf("Missing or invalid 'code'")
	}
	return code, nil
}

// language is the one that field names, or def where it is absent.
func language(field api.Field[any], def string) (*devtools.Language, error) {
	name, _ := field.V.(string)
	if field.State == api.Absent {
		name = def
	}
	l, ok := devtools.FindLanguage(name)
	if !ok {
		return nil, api.Invalidf("Unsupported language")
	}
	return l, nil
}

// mayUse asks the rule about a language.
func mayUse(rule *policy.Rule, l *devtools.Language) error {
	listed, set := rule.Strings("languages")
	if set && !slices.ContainsFunc(listed, func(name string) bool { return strings.EqualFold(name, l.Name) }) {
		return policy.Refuse(policy.LanguageNotAllowed, "Language '"+l.Name+"' is not allowed by policy").Err()
	}
	return nil
}

// codeTimeout is how long code may run.
func codeTimeout(rule *policy.Rule, field api.Field[any]) time.Duration {
	seconds := float64(defaultCodeTimeout)
	if f, ok := api.Lenient(field.V); ok && field.State == api.Good && f > 0 {
		seconds = min(f, maxCodeTimeout)
	}
	if most, ok := rule.Seconds("timeout_seconds"); ok {
		seconds = min(seconds, max(most, minCodeTimeout))
	}
	return time.Duration(seconds * float64(time.Second))
}

// codeOutput is how many bytes of each stream an answer keeps.
func codeOutput(rule *policy.Rule) int {
	if n, ok := rule.Int("max_output_bytes"); ok {
		return int(n)
	}
	return wholeOutput
}

// interpreter is a program found and judged, and what it is started with.
type interpreter struct {
	language *devtools.Language
	program  string
	cwd      string // where it runs, as answers show it
	how      proc.Spec
}

func (i *interpreter) close() {
	if i.how.DirFile != nil {
		_ = i.how.DirFile.Close()
	}
}

// findInterpreter finds what runs a language, on the server's own PATH, and
// judges directory and variables of the call. The caller closes it.
func (s *Server) findInterpreter(c *api.Call, l *devtools.Language, cwd string, env map[string]string) (*interpreter, error) {
	child := s.Env.Child(c.Policy, false)
	in := &interpreter{language: l, cwd: s.Workdir}
	var found launch.Program
	for _, name := range l.Programs() {
		found, in.program = launch.Find(name, child["PATH"], s.Workdir, false), name
		if found.Err == nil {
			break
		}
	}
	if err := policy.ProgramDecision(in.program, found.Asked, found.Leads).Err(); err != nil {
		return nil, err
	}
	if err := judgeVariables(c, env, false); err != nil {
		return nil, err
	}
	maps.Copy(child, env)
	in.how = proc.Spec{Path: found.File, Env: childenv.List(child), Dir: s.Workdir, Grace: codeGrace}
	if cwd != "" {
		dir, real, err := c.Guard(nil).Dir(cwd, policy.Exec)
		if err != nil {
			return nil, cwdError(err)
		}
		in.how.DirFile, in.cwd = dir, real
	}
	if found.Err != nil {
		in.close()
		return nil, missingInterpreter(l, found.Err)
	}
	return in, nil
}

func missingInterpreter(l *devtools.Language, err error) error {
	e := api.Errorf(500, "FileNotFoundError", "", "No interpreter for %s is installed", l.Name)
	e.Err = err
	return e
}

// judgeVariables asks whether a call may set these variables.
func judgeVariables(c *api.Call, env map[string]string, restricted bool) error {
	rules := policy.NewEnvRules(nil, nil, nil, c.Policy.SecretEnv)
	for _, judge := range []func(name string) policy.Decision{
		func(name string) policy.Decision { return policy.EnvSyntax(name, env[name]) },
		func(name string) policy.Decision { return policy.EnvReserved(name, restricted) },
		rules.Permits,
	} {
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if err := judge(name).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareCode judges everything about a stateless run, in the order of the
// contract. The caller closes both.
func (s *Server) prepareCode(c *api.Call, in *codeIn) (*interpreter, *devtools.Snippet, error) {
	code, err := in.text()
	if err != nil {
		return nil, nil, err
	}
	l, err := language(in.Language, "python")
	if err != nil {
		return nil, nil, err
	}
	cwd, err := in.Cwd.Optional("cwd", "")
	if err != nil {
		return nil, nil, err
	}
	env, err := (&execIn{Env: in.Env}).variables()
	if err != nil {
		return nil, nil, err
	}
	stdin, err := in.input()
	if err != nil {
		return nil, nil, err
	}
	if err := mayUse(c.Rule, l); err != nil {
		return nil, nil, err
	}
	ip, err := s.findInterpreter(c, l, cwd, env)
	if err != nil {
		return nil, nil, err
	}
	snippet, err := l.Snippet(ip.program, code)
	if err != nil {
		ip.close()
		return nil, nil, err
	}
	ip.how.Argv, ip.how.Files, ip.how.Stdin = snippet.Argv, snippet.Files, stdin
	ip.how.Timeout = codeTimeout(c.Rule, in.Timeout)
	return ip, snippet, nil
}

func (s *Server) runCode(ctx context.Context, c *api.Call, in codeIn) (api.Body, error) {
	if in.Context.Set() {
		return s.runCell(ctx, c, &in)
	}
	ip, snippet, err := s.prepareCode(c, &in)
	if err != nil {
		return nil, err
	}
	defer ip.close()
	defer snippet.Close()
	out := proc.NewBuffers(codeOutput(c.Rule), proc.KeepHead)
	ip.how.Output = out
	p, err := s.Procs.Start(ctx, ip.how)
	if err != nil {
		return nil, ip.failed(err)
	}
	<-p.Done() // not ctx: its end ends the process, and with it this wait
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st, _ := p.Status()
	if st.Reason == proc.ReasonTimeout {
		return nil, codeTimedOut(ip.how.Timeout, out.Out.Bytes(), out.Err.Bytes(), out.Out.Truncated() || out.Err.Truncated())
	}
	o := &api.Object{}
	o.Text("stdout", out.Out.Bytes())
	o.Text("stderr", out.Err.Bytes())
	o.Set("exit_code", st.Code)
	o.Set("language", ip.language.Name)
	o.Set("execution_time_ms", elapsedMS(st.Ended.Sub(p.Started())))
	if out.Out.Truncated() || out.Err.Truncated() {
		o.Set("truncated", true)
	}
	return o, nil
}

// elapsedMS has two decimals.
func elapsedMS(d time.Duration) float64 {
	return float64(max(d, 10*time.Microsecond).Round(10*time.Microsecond).Microseconds()) / 1000
}

// failed is the answer to an interpreter that could not be started.
func (i *interpreter) failed(err error) error {
	if errors.Is(err, proc.ErrNotFound) || errors.Is(err, proc.ErrNotExecutable) || errors.Is(err, os.ErrNotExist) {
		return missingInterpreter(i.language, err)
	}
	return startError(err, i.program)
}

// codeTimedOut is the answer to code that ran too long, with what it printed.
func codeTimedOut(after time.Duration, stdout, stderr []byte, cut bool) *api.Error {
	out, cutOut := head(stdout)
	errs, cutErr := head(stderr)
	e := api.Errorf(408, "TimeoutError", "", "Code execution timed out after %gs", after.Seconds()).
		With("stdout", out).With("stderr", errs)
	if cmp.Or(cut, cutOut, cutErr) {
		e = e.With("truncated", true)
	}
	return e
}

// head is what an answer about a time limit shows of a stream.
func head(b []byte) (text string, cut bool) {
	if len(b) <= partialOutput {
		return string(b), false
	}
	b = b[:partialOutput]
	return string(bytes.Clone(b[:proc.Whole(b)])), true
}
