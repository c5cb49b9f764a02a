package endpoints

import (
	"errors"
	"maps"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

// startOnTerminal makes the command the program of a terminal session: it is
// listed, waited for and signalled as a process, and read and typed into as a
// terminal.
func (s *Server) startOnTerminal(c *api.Call, in *startIn, wishes startWishes, place *proc.Reservation) (startOut, error) {
	if wishes.capture || wishes.stdin || wishes.detach {
		return startOut{}, api.Invalidf("'capture_output', 'stdin' and 'detach' do not go with 'pty'")
	}
	if in.Terminal.State == api.Wrong {
		return startOut{}, api.Invalidf("Invalid 'pty': an object with cols and rows")
	}
	terminal, err := c.Also("pty_create_session")
	if err != nil {
		return startOut{}, err
	}
	spec := pty.Spec{Owner: c.Identity.ID, MaxSessions: sessionLimit(terminal)}
	if spec.Cols, err = size(member(in.Terminal.V, "cols"), "cols", defaultCols); err != nil {
		return startOut{}, err
	}
	if spec.Rows, err = size(member(in.Terminal.V, "rows"), "rows", defaultRows); err != nil {
		return startOut{}, err
	}
	if err := in.terminalVariables(c, terminal); err != nil {
		return startOut{}, err
	}
	l, err := s.prepare(c, c.Rule, &in.execIn)
	if err != nil {
		return startOut{}, err
	}
	defer l.close()
	spec.Program = wishes.spec(l, c.Rule)
	session, _, err := s.Terminals.Create(spec)
	if err != nil {
		if _, full := errors.AsType[*pty.LimitError](err); full {
			return startOut{}, terminalError(err, l.argv[0])
		}
		return startOut{}, l.failed(err)
	}
	e := place.Adopt(session.Process(), c.Identity.ID, in.shown(), wishes.label)
	return startOut{PID: session.PID(), Command: e.Command, SessionID: session.ID(), WSURL: s.terminalURL(session)}, nil
}

// member is a member of an object in a body.
func member(object map[string]any, name string) api.Field[any] {
	v, given := object[name]
	if !given {
		return api.Field[any]{}
	}
	return api.Field[any]{V: v, State: api.Good}
}

// terminalVariables holds the caller's variables to the rule of terminals, and
// says what kind of terminal it is unless the caller does.
func (in *startIn) terminalVariables(c *api.Call, terminal *policy.Rule) error {
	deny, _ := terminal.Strings("env_deny")
	rules := policy.NewEnvRules(nil, nil, deny, c.Policy.SecretEnv)
	for name := range in.Env.V {
		if err := rules.Permits(name).Err(); err != nil {
			return err
		}
	}
	if _, named := in.Env.V["TERM"]; named || in.Env.State == api.Wrong {
		return nil
	}
	env := map[string]any{"TERM": pty.Term}
	maps.Copy(env, in.Env.V)
	in.Env = api.Field[map[string]any]{V: env, State: api.Good}
	return nil
}
