package endpoints

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// execIn are the fields every endpoint that starts a command takes.
type execIn struct {
	Command api.Field[string]         `json:"command" doc:"The command line; split into words by POSIX quoting, run without a shell."`
	Args    api.Field[[]string]       `json:"args" doc:"The argument vector, instead of command."`
	Cwd     api.Field[string]         `json:"cwd" doc:"Working directory; the server's own by default."`
	Env     api.Field[map[string]any] `json:"env" doc:"Variables to set over the server's environment."`
	Timeout api.Field[any]            `json:"timeout" doc:"Seconds the command may run; 300 by default."`
	circumstances
}

const (
	defaultTimeout = 300 * time.Second
	maxTimeout     = 1e7 // seconds
)

// launch is a command that policy has decided about: what was judged is what
// is started.
type launch struct {
	argv []string
	file string   // what to execute
	env  []string // the whole child environment
	dir  *os.File // pinned; nil for the server's own directory
	// how has the circumstances and the time limit; the rest is for spec.
	how proc.Spec
}

func (l *launch) close() {
	if l.dir != nil {
		_ = l.dir.Close()
	}
}

// words are the argument vector a request asks for.
func (in *execIn) words() ([]string, error) {
	if in.Command.State == api.Absent && in.Args.State != api.Absent {
		if in.Args.State != api.Good || len(in.Args.V) == 0 {
			return nil, api.Invalidf("Missing or invalid 'args'")
		}
		return in.Args.V, nil
	}
	if in.Command.State != api.Good || in.Command.V == "" {
		return nil, api.Invalidf("Missing or invalid 'command'")
	}
	return policy.SplitWords(in.Command.V)
}

// shown is the command as records and lists show it.
func (in *execIn) shown() string {
	if in.Command.State == api.Good {
		return in.Command.V
	}
	return strings.Join(in.Args.V, " ")
}

// variables are the caller's environment, checked for type only.
func (in *execIn) variables() (map[string]string, error) {
	if in.Env.State == api.Wrong {
		return nil, policy.Refuse(policy.EnvInvalid, "'env' must be an object of strings").Err()
	}
	out := make(map[string]string, len(in.Env.V))
	for name, v := range in.Env.V {
		s, ok := v.(string)
		if !ok {
			return nil, policy.Refuse(policy.EnvInvalid, "The value of a variable in 'env' must be a string").Err()
		}
		out[name] = s
	}
	return out, nil
}

// prepare judges a command in the order of the contract; the first check that
// fails answers. rule is the endpoint's whose command and path rules count.
// The caller closes the launch.
func (s *Server) prepare(c *api.Call, rule *policy.Rule, in *execIn) (l *launch, err error) {
	argv, err := in.words()
	if err != nil {
		return nil, err
	}
	if in.Cwd.State == api.Wrong {
		return nil, api.Invalidf("Invalid 'cwd'")
	}
	env, err := in.variables()
	if err != nil {
		return nil, err
	}
	l = &launch{argv: argv}
	if err := in.arrange(&l.how); err != nil {
		return nil, err
	}
	limitTime(rule, &l.how, in.wanted())
	defer func() {
		if err != nil {
			l.close()
			l = nil
		}
	}()

	// The directory is pinned first, because a relative program is looked up
	// from it; whether it may be used is asked in its turn below.
	dir, dirErr := s.Workdir, error(nil)
	guard := c.Guard(rule)
	if in.Cwd.V != "" {
		l.dir, dir, dirErr = guard.Dir(in.Cwd.V, policy.Exec)
		if dirErr != nil {
			dir = s.Workdir
		}
	}
	restricted := rule.Command.Restricts()
	child := s.Env.Child(c.Policy, restricted)
	path := child["PATH"]
	if p, ok := env["PATH"]; ok {
		path = p
	}
	prog := findProgram(argv[0], path, dir, restricted)
	if err := policy.ProgramDecision(argv[0], prog.asked, prog.leads).Err(); err != nil {
		return l, err
	}
	names := slices.Sorted(maps.Keys(env))
	for _, name := range names {
		if err := policy.EnvSyntax(name, env[name]).Err(); err != nil {
			return l, err
		}
	}
	for _, name := range names {
		if err := policy.EnvReserved(name, restricted).Err(); err != nil {
			return l, err
		}
	}
	if err := policy.ArgumentsDecision(argv).Err(); err != nil {
		return l, err
	}
	judged := rule.Command.Decide(policy.CommandQuery{
		Argv: argv, File: prog.clean(), Real: prog.real(),
		OnServerPath: s.onServerPath,
		ResolvePath: func(arg string) (string, policy.Decision) {
			if !filepath.IsAbs(arg) {
				arg = dir + "/" + arg
			}
			real, err := guard.Check(arg, policy.Exec)
			return real, refusal(err)
		},
	})
	if err := judged.Err(); err != nil {
		return l, err
	}
	l.argv, l.file = judged.Argv, prog.file
	if restricted {
		// The file that was judged, not a link that may lead elsewhere by now.
		l.file = prog.real()
	}
	if dirErr != nil {
		return l, cwdError(dirErr)
	}
	if in.User.State == api.Good {
		if l.how.User, err = runAs(rule, in.User.V, child); err != nil {
			return l, err
		}
	}
	rules := policy.NewEnvRules(nil, nil, nil, c.Policy.SecretEnv)
	for _, name := range names {
		if err := rules.Permits(name).Err(); err != nil {
			return l, err
		}
		child[name] = env[name]
	}
	l.env = childenv.List(child)
	return l, startError(prog.err, argv[0])
}

// program is the executable that a command names.
type program struct {
	file  string // what to execute; "" when there is none
	err   error  // why there is none
	asked string // file, or else the path asked for; "" for a bare name
	leads string // asked with all links resolved; "" when there is nothing
}

// findProgram looks for what name means to a child with that PATH and
// directory. Where commands are restricted, a path is cleaned first: what the
// patterns see is then what is run, and not where a link with dots behind it
// leads.
func findProgram(name, path, dir string, restricted bool) program {
	slashed := strings.Contains(name, "/")
	if slashed && !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	if slashed && restricted {
		name = filepath.Clean(name)
	}
	var p program
	p.file, p.err = proc.LookPath(name, path, dir)
	p.asked = p.file
	if p.err != nil && slashed {
		p.asked = name // what cannot be run may lie where nothing is to be run
	}
	if real, err := filepath.EvalSymlinks(p.asked); err == nil && p.asked != "" {
		p.leads = real
	}
	return p
}

// clean is the file to execute, lexically clean.
func (p program) clean() string {
	if p.file == "" {
		return ""
	}
	return filepath.Clean(p.file)
}

// real is the file to execute with its links resolved.
func (p program) real() string {
	if p.file == "" {
		return ""
	}
	return cmp.Or(p.leads, p.file)
}

// onServerPath tells whether a directory of the server's own PATH holds the
// very file real under the bare name.
func (s *Server) onServerPath(name, real string) bool {
	want, err := os.Stat(real)
	if err != nil {
		return false
	}
	for _, dir := range filepath.SplitList(s.Env.AtStart("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if got, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(want, got) {
			return true
		}
	}
	return false
}
