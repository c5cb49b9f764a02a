package endpoints

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

type envIn struct {
	Filter string `query:"filter" doc:"Names, separated by commas; all by default."`
}

type envOut struct {
	Variables map[string]api.Name `json:"variables"`
}

// envRules are the rules of a call that shows or sets variables.
func envRules(c *api.Call) policy.EnvRules {
	allow, _ := c.Rule.Strings("allow_vars")
	deny, _ := c.Rule.Strings("deny_vars")
	return policy.NewEnvRules(allow, deny, nil, c.Policy.SecretEnv)
}

func (s *Server) env(_ context.Context, c *api.Call, in envIn) (envOut, error) {
	rules, out := envRules(c), envOut{Variables: map[string]api.Name{}}
	now := s.Env.Now()
	names := maps.Keys(now)
	if in.Filter != "" {
		names = slices.Values(split(in.Filter))
	}
	for name := range names {
		if value, ok := now[name]; ok && rules.Shows(name, value) {
			out.Variables[name] = api.Name(value)
		}
	}
	return out, nil
}

// split gives the parts of a list without blanks around them, and no empty
// ones.
func split(list string) []string {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

type envSetIn struct {
	Vars  api.Field[map[string]any] `json:"vars" doc:"Variables to set; the values are strings."`
	Unset api.Field[[]string]       `json:"unset" doc:"Variables to remove."`
}

type envSetOut struct {
	Updated []string `json:"updated" doc:"The names that were set, sorted."`
	Removed []string `json:"removed" doc:"The names that were there and are no more, sorted."`
}

// The answers list nothing as [].
func listed(names []string) []string { return append([]string{}, names...) }

func (s *Server) setEnv(_ context.Context, c *api.Call, in envSetIn) (envSetOut, error) {
	if in.Vars.State == api.Wrong || in.Vars.State == api.Null {
		return envSetOut{}, api.Invalidf("Missing or invalid 'vars'")
	}
	unset, err := in.Unset.Optional("unset", nil)
	if err != nil {
		return envSetOut{}, err
	}
	updated := slices.Sorted(maps.Keys(in.Vars.V))
	set, err := values(updated, in.Vars.V)
	if err != nil {
		return envSetOut{}, err
	}
	for _, name := range unset {
		if err := policy.EnvSyntax(name, "").Err(); err != nil {
			return envSetOut{}, err
		}
		if _, both := set[name]; both {
			return envSetOut{}, api.Invalidf("'vars' and 'unset' both name %s", name)
		}
	}
	if err := mayChange(envRules(c), slices.Concat(updated, unset)); err != nil {
		return envSetOut{}, err
	}
	removed, err := s.Env.Change(set, unset)
	if errors.Is(err, childenv.ErrTooLarge) {
		err = policy.Refuse(policy.EnvInvalid, "The environment would be larger than programs can be started with").Err()
	}
	return envSetOut{Updated: listed(updated), Removed: listed(removed)}, err
}

// longestVariable is the kernel's bound for "NAME=value"; a program with a
// longer one cannot be started.
const longestVariable = 131_071

// values judges the form of variables in the order of their names.
func values(names []string, vars map[string]any) (map[string]string, error) {
	set := make(map[string]string, len(vars))
	for _, name := range names {
		value, ok := vars[name].(string)
		if err := policy.EnvSyntax(name, value).Err(); err != nil {
			return nil, err
		}
		switch {
		case !ok:
			return nil, policy.Refuse(policy.EnvInvalid, "The value of environment variable "+name+" must be a string").Err()
		case len(name)+1+len(value) > longestVariable:
			return nil, policy.Refuse(policy.EnvInvalid, "Environment variable "+name[:min(len(name), 100)]+" is too long").Err()
		}
		set[name] = value
	}
	return set, nil
}

// mayChange judges names, each check over all of them before the next.
func mayChange(rules policy.EnvRules, names []string) error {
	for _, name := range names {
		if err := policy.EnvReserved(name, false).Err(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if policy.EnvProtected(name) {
			return &api.Error{
				Status: http.StatusForbidden, Type: "PermissionError",
				Msg: "Environment variable " + name + " is protected", NoEndpoint: true,
			}
		}
	}
	for _, name := range names {
		if err := rules.Permits(name).Err(); err != nil {
			return err
		}
	}
	return nil
}
