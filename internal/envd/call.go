package envd

import (
	"context"
	"encoding/base64"
	"net/http"
	"path"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// call is one call of this dialect: who makes it, and as whom it works.
type call struct {
	*api.Call
	s    *Server
	user *launch.User
}

type callKey struct{}

// callOf is the call of a handler's context.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// admit lets RPC calls of one method in as far as that can be said without
// their message; id is the endpoint they are about unless it says otherwise.
func (s *Server) admit(id string) func(context.Context, *connect.Call) (context.Context, func(*connect.Error), error) {
	return func(ctx context.Context, rc *connect.Call) (context.Context, func(*connect.Error), error) {
		arrived, err := s.Gate.Arrive(rc.R, door, id, s.identify(rc.R))
		done := func(e *connect.Error) { arrived.Leave(outcome(e)) }
		if err != nil {
			return ctx, done, err
		}
		c := &call{Call: arrived, s: s}
		if err := c.become(basicUser(rc.R)); err != nil {
			return ctx, done, err
		}
		rc.MaxMessage = s.MaxMessage
		if rule := arrived.Policy.Rule(id); rule != nil {
			if n, ok := rule.Int("max_request_bytes"); ok {
				rc.MaxMessage = min(n, rc.MaxMessage)
			}
		}
		return context.WithValue(ctx, callKey{}, c), done, nil
	}
}

// outcome is how a call ended, as audit lines say it.
func outcome(e *connect.Error) (status int, code string) {
	if e == nil {
		return http.StatusOK, ""
	}
	return e.Code.Status(), codeOf(e)
}

// basicUser is the user that the Authorization header names, "" for none.
func basicUser(r *http.Request) string {
	for _, v := range r.Header.Values("Authorization") {
		scheme, text, _ := strings.Cut(strings.TrimSpace(v), " ")
		if !strings.EqualFold(scheme, "basic") {
			continue
		}
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
			name, _, _ := strings.Cut(string(plain), ":")
			return name
		}
	}
	return ""
}

// expand makes a path of a call absolute.
func (c *call) expand(name string) (string, error) {
	home := c.user.Home
	switch {
	case name == "":
		if dir := c.s.settings().workdir; dir != "" {
			return dir, nil
		}
		return home, nil
	case name == "~":
		return home, nil
	case strings.HasPrefix(name, "~/"):
		return path.Join(home, name[2:]), nil
	case strings.HasPrefix(name, "~"):
		return "", connect.Errorf(connect.InvalidArgument, "homes of other users are not looked up: %s", name)
	case path.IsAbs(name):
		return name, nil
	}
	return path.Join(home, name), nil
}

// guard judges paths under a rule, within the boundary of this listener: all
// files, where nobody has named a boundary, for callers who may start any
// program, since such a program reaches them anyway.
func (c *call) guard(rule *policy.Rule) *guardfs.Guard {
	base := c.Policy.BaseDir()
	if base == "" && !c.s.Confined && (c.Policy.Preset() == "" || c.Policy.Preset() == "default") {
		start := c.Policy.Rule("process_start")
		if start != nil && c.Policy.Decide(c.Identity, "process_start").OK() && !start.Command.Restricts() {
			base = "/"
		}
	}
	return c.GuardIn(rule, base)
}
