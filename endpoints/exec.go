package endpoints

import (
	"os"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
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

// prepared is a command that policy has decided about: what was judged is what
// is started.
type prepared struct {
	argv []string
	file string   // what to execute
	env  []string // the whole child environment
	dir  *os.File // pinned; nil for the server's own directory
	// how has the circumstances and the time limit; the rest is for spec.
	how proc.Spec
}

func (l *prepared) close() {
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
func (s *Server) prepare(c *api.Call, rule *policy.Rule, in *execIn) (l *prepared, err error) {
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
	l = &prepared{argv: argv}
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
	order := launch.Order{
		Argv: argv, Vars: env, Base: s.Env.Child(c.Policy, rule.Command.Restricts()),
		Dir: dir, Rule: rule, Guard: guard,
		ServerPath: s.Env.AtStart("PATH"), Secret: c.Policy.SecretEnv,
	}
	if dirErr != nil {
		order.DirErr = cwdError(dirErr)
	}
	if in.User.State == api.Good {
		order.Become = func(child map[string]string) (err error) {
			l.how.User, err = runAs(rule, in.User.V, child)
			return err
		}
	}
	judged, err := order.Judge()
	l.argv, l.file, l.env = judged.Argv, judged.File, judged.Env
	if err != nil {
		return l, err
	}
	return l, startError(judged.Missing, argv[0])
}
