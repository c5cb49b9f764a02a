package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

const (
	defaultProcesses = 100
	mostProcesses    = 10_000
	mostTerminals    = 1000
)

// oomScore makes the kernel choose programs before the server when memory is
// short.
const oomScore = "100"

type sender = connect.Sender[eventResponse]

// start starts a process and streams its events.
func (s *Server) start(ctx context.Context, rc *connect.Call, in *startRequest, out sender) error {
	c := callOf(ctx)
	if in.PTY != nil {
		return s.startTerminal(ctx, c, rc, in, out)
	}
	if err := c.Enter("process_start"); err != nil {
		return err
	}
	if in.Process == nil || in.Process.Cmd == "" {
		return connect.Errorf(connect.InvalidArgument, "no command is given")
	}
	most := int64(defaultProcesses)
	if n, ok := c.Rule.Int("max_processes"); ok {
		most = min(n, mostProcesses)
	}
	place, err := s.Processes.Reserve(int(most))
	if err != nil {
		return err
	}
	defer place.Release()
	spec, missing, err := c.spec(in.Process, c.Rule)
	if err != nil {
		return err
	}
	defer closeDir(&spec)
	if missing != nil {
		return cannotRun(out, in.Process.Cmd, missing)
	}
	spec.Timeout = limit(rc, c.Rule)
	if in.Stdin == nil || *in.Stdin {
		spec.Stdin = proc.NewInput()
	}
	keep := int64(s.ReplayBytes)
	if n, ok := c.Rule.Int("max_output_bytes"); ok {
		keep = min(keep, n)
	}
	spec.Output = proc.NewLog(int(keep))
	// The process does not end with this call.
	e, err := place.Start(ctx, spec, c.Identity.ID, shown(in.Process), tagText(in.Tag))
	if errors.Is(err, proc.ErrNotFound) || errors.Is(err, proc.ErrNotExecutable) || errors.Is(err, proc.ErrNotProgram) {
		return cannotRun(out, in.Process.Cmd, err)
	}
	if err != nil {
		return err
	}
	giveUpFirst(e.Process.PID())
	r := &record{config: in.Process, tag: in.Tag, owner: c.Identity.ID, entry: e}
	s.remember(r)
	return c.follow(ctx, rc, r, out)
}

func closeDir(spec *proc.Spec) {
	if spec.DirFile != nil {
		_ = spec.DirFile.Close()
	}
}

// giveUpFirst sets the OOM score. The process may be gone already.
func giveUpFirst(pid int) {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString(oomScore)
	_ = f.Close()
}

// shown is a command as process lists show it.
func shown(p *processConfig) string {
	return strings.Join(append([]string{p.Cmd}, p.Args...), " ")
}

// tagText is the tag as the label of other dialects.
func tagText(tag *string) string {
	if tag == nil {
		return ""
	}
	return *tag
}

// limit is the time limit of a program: the caller's, within the rule's; 0 is
// none.
func limit(rc *connect.Call, rule *policy.Rule) time.Duration {
	d, _ := rc.Timeout()
	if most, ok := rule.Seconds("timeout_seconds"); ok {
		bound := time.Duration(min(most, 1e9) * float64(time.Second))
		if d == 0 || bound < d {
			d = bound
		}
	}
	return d
}

// spec judges a command and says how to start it. missing is why there is
// nothing to run, of a command that is allowed. The caller closes spec.DirFile.
func (c *call) spec(p *processConfig, rule *policy.Rule) (spec proc.Spec, missing, err error) {
	s := c.s
	guard := c.guard(rule)
	order := launch.Order{
		Argv: append([]string{p.Cmd}, p.Args...), Vars: p.Envs, Rule: rule, Guard: guard,
		ServerPath: s.Env.AtStart("PATH"), Secret: c.Policy.SecretEnv,
		Base: c.environment(rule.Command.Restricts()),
	}
	spec.DirFile, order.Dir, order.DirErr = c.workdir(guard, p.Cwd)
	defer func() {
		if err != nil || missing != nil {
			closeDir(&spec)
			spec.DirFile = nil
		}
	}()
	if order.DirErr != nil {
		order.Dir = "/"
	}
	cmd, err := order.Judge()
	if err != nil {
		return spec, nil, err
	}
	spec.Path, spec.Argv, spec.Env, spec.User = cmd.File, cmd.Argv, cmd.Env, c.ids()
	return spec, cmd.Missing, nil
}

// environment is what programs get beside the variables of their call. Nothing
// of the server's own environment is in it but PATH.
func (c *call) environment(restricted bool) map[string]string {
	env := map[string]string{}
	if path, ok := c.s.Env.Child(c.Policy, restricted)["PATH"]; ok {
		env["PATH"] = path
	}
	c.user.Become(env)
	maps.Copy(env, c.s.Env.Added(c.Policy, restricted))
	for name, value := range c.s.settings().vars {
		if !restricted || !policy.IsLoaderName(name) {
			env[name] = value
		}
	}
	env[sandboxVariable] = sandboxValue
	return env
}

// workdir opens where a program begins. Only a directory that the caller named
// is judged; where the default one is missing, programs begin at the root.
func (c *call) workdir(guard *guardfs.Guard, cwd *string) (*os.File, string, error) {
	if cwd == nil || *cwd == "" {
		name, err := c.expand("")
		if err != nil {
			return nil, "", err
		}
		var f *os.File
		err = c.files(func() (err error) { f, err = openDir(name); return err })
		if err != nil {
			name = "/"
			f, err = openDir(name)
		}
		return f, name, err
	}
	name, err := c.expand(*cwd)
	if err != nil {
		return nil, "", err
	}
	var f *os.File
	var real string
	err = c.files(func() (err error) { f, real, err = guard.Dir(name, policy.Exec); return err })
	switch d, refused := errors.AsType[*policy.Denied](err); {
	case err == nil:
		return f, real, nil
	case refused:
		return nil, "", d.Prefix("cwd: ")
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", connect.Errorf(connect.InvalidArgument, "cwd '%s' does not exist", name)
	}
	return nil, "", &connect.Error{Code: connect.InvalidArgument, Msg: "cwd: " + text(err), Err: err}
}

// notRun gives numbers to programs that never ran; no process has such a one.
var notRun atomic.Uint32

// cannotRun tells of a program that cannot be run as a shell would.
func cannotRun(out sender, cmd string, why error) error {
	const aboveAll = 1 << 22 // the kernel's own bound of process ids
	code, what := int32(126), why.Error()
	if errors.Is(why, proc.ErrNotFound) {
		code, what = 127, proc.ErrNotFound.Error()
	}
	status := fmt.Sprintf("exit status %d", code)
	for _, e := range []*processEvent{
		{Start: &startEvent{PID: aboveAll + 1 + notRun.Add(1)%(1<<20)}},
		{Data: &dataEvent{Stderr: fmt.Appendf(nil, "%s: %s\n", cmd, what)}},
		{End: &endEvent{ExitCode: code, Exited: true, Status: status, Error: &status}},
	} {
		if err := out.Send(&eventResponse{Event: e}); err != nil {
			return err
		}
	}
	return nil
}

// startTerminal starts a program on a terminal of its own.
func (s *Server) startTerminal(ctx context.Context, c *call, rc *connect.Call, in *startRequest, out sender) error {
	if err := c.Enter("pty_create_session"); err != nil {
		return err
	}
	if in.Process == nil || in.Process.Cmd == "" {
		return connect.Errorf(connect.InvalidArgument, "no command is given")
	}
	terminal := c.Rule
	rule, err := c.terminalRule(in.Process, terminal)
	if err != nil {
		return err
	}
	deny, _ := terminal.Strings("env_deny")
	rules := policy.NewEnvRules(nil, nil, deny, c.Policy.SecretEnv)
	for name := range in.Process.Envs {
		if err := rules.Permits(name).Err(); err != nil {
			return err
		}
	}
	spec, missing, err := c.spec(in.Process, rule)
	if err != nil {
		return err
	}
	defer closeDir(&spec)
	if missing != nil {
		return cannotRun(out, in.Process.Cmd, missing)
	}
	spec.Timeout = limit(rc, rule)
	wish := pty.Spec{Owner: c.Identity.ID, Program: spec, MaxSessions: pty.DefaultSessions}
	if n, ok := terminal.Int("max_sessions"); ok {
		wish.MaxSessions = int(min(n, mostTerminals))
	}
	if size := in.PTY.Size; size != nil {
		wish.Cols, wish.Rows = int(min(size.Cols, math.MaxUint16)), int(min(size.Rows, math.MaxUint16))
	}
	session, _, err := s.Terminals.Create(wish) //nolint:contextcheck // a terminal outlives the call
	if err != nil {
		return err
	}
	giveUpFirst(session.PID())
	r := &record{config: in.Process, tag: in.Tag, owner: c.Identity.ID, session: session}
	s.remember(r)
	return c.follow(ctx, rc, r, out)
}

// terminalRule is the rule that a terminal's program is judged by. One that is
// no plain shell is a start of a process too.
func (c *call) terminalRule(p *processConfig, terminal *policy.Rule) (*policy.Rule, error) {
	plain := pty.IsShell(p.Cmd) && !slices.ContainsFunc(p.Args, func(arg string) bool {
		return arg != "-i" && arg != "-l" && arg != "--login"
	})
	if !plain {
		return c.Also("process_start")
	}
	if allowed, set := terminal.Strings("shells"); set && !slices.Contains(allowed, p.Cmd) {
		return nil, policy.Refuse(policy.ShellNotAllowed, "This shell is not allowed").Err()
	}
	// Its commands are those of the terminal, which has no lists; paths are
	// judged as for processes.
	rule := *terminal
	if start := c.Policy.Rule("process_start"); start != nil {
		rule.Paths = start.Paths
	}
	return &rule, nil
}

func (s *Server) listProcesses(ctx context.Context, _ *connect.Call, _ *empty) (*listResponse, error) {
	c := callOf(ctx)
	if err := c.Enter("process_list"); err != nil {
		return nil, err
	}
	out := &listResponse{}
	for _, r := range c.live(c.Policy.Decide(c.Identity, "pty_connect").OK()) {
		out.Processes = append(out.Processes, r.info())
	}
	return out, nil
}
