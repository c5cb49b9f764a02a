package envd

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// sandboxVariable tells programs what kind of place they are in.
const (
	sandboxVariable = "E2B_SANDBOX"
	sandboxValue    = "false" // no virtual machine of E2B's
)

// initState is what /init has set. Its parts are replaced, never changed.
type initState struct {
	vars     map[string]string
	token    string
	identity policy.Identity // of who shows the token
	user     string
	workdir  string
	newest   time.Time
}

func (s *Server) settings() initState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.init
}

// initRequest is the body of /init. Members that are not here are E2B's own
// business and ignored.
type initRequest struct {
	EnvVars     map[string]string
	AccessToken *string
	Timestamp   *time.Time
	User        *string
	Workdir     *string
}

const maxInitBody = 10 << 20

// serveInit sets up the sandbox for its owner. Before there is any token
// whoever may set variables may set one; it then guards this listener.
func (s *Server) serveInit(w http.ResponseWriter, r *http.Request) {
	c, err := s.Gate.Arrive(r, door, "envd_init", s.initCaller(r))
	status := http.StatusNoContent
	defer func() { c.Leave(status, codeOf(err)) }()
	if err == nil {
		err = c.Enter("envd_init")
	}
	var in initRequest
	if err == nil {
		in, err = readInit(w, r, c)
	}
	if err == nil {
		err = s.applyInit(c, r, in)
	}
	if err != nil {
		status = s.fail(w, err)
		return
	}
	w.Header().Set("X-Envd-Version", Version)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// initCaller is who calls /init. The token that /init itself has set is shown
// in the body, which is looked at later.
func (s *Server) initCaller(r *http.Request) func(*policy.Policy) (policy.Identity, error) {
	return func(p *policy.Policy) (policy.Identity, error) {
		if set := s.settings(); set.token != "" && !p.HasTokens() {
			who := set.identity
			who.ByToken = len(api.Tokens(r)) > 0 && sameToken(api.Tokens(r)[0], set.token) // a web page shows none
			return who, nil
		}
		return s.Gate.Identify(r.Context(), p, r, false)
	}
}

func readInit(w http.ResponseWriter, r *http.Request, c *api.Call) (in initRequest, err error) {
	most := int64(maxInitBody)
	if n, ok := c.Rule.Int("max_request_bytes"); ok {
		most = n
	}
	return in, readObject(w, r, most, map[string]any{
		"envVars": &in.EnvVars, "accessToken": &in.AccessToken, "timestamp": &in.Timestamp,
		"defaultUser": &in.User, "defaultWorkdir": &in.Workdir,
	})
}

// readObject reads a body of at most most bytes to its announced end and then
// the members that have a place in into; an empty body has none. A body that
// breaks off is refused even where what came of it makes sense.
func readObject(w http.ResponseWriter, r *http.Request, most int64, into map[string]any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return api.TooLarge(most, "Request body too large; limit is %d", most)
	}
	if err != nil {
		return &connect.Error{Code: connect.InvalidArgument, Msg: "the body ended early", Err: err}
	}
	if len(text) == 0 {
		return nil
	}
	notObject := connect.Errorf(connect.InvalidArgument, "the body is not a JSON object of %s", r.URL.Path)
	var members map[string]json.RawMessage // names are told apart by case, as everywhere
	if err := json.Unmarshal(text, &members); err != nil || members == nil || !utf8.Valid(text) {
		return notObject
	}
	for name, to := range into {
		if raw, ok := members[name]; ok && json.Unmarshal(raw, to) != nil {
			return notObject
		}
	}
	return nil
}

// applyInit judges all that is asked for and then sets it in one step.
func (s *Server) applyInit(c *api.Call, r *http.Request, in initRequest) error {
	set := s.settings()
	wrong := connect.Errorf(connect.Unauthenticated, "access token validation failed")
	switch {
	case c.Policy.HasTokens():
		if in.AccessToken != nil && !slices.ContainsFunc(api.Tokens(r), func(t string) bool { return sameToken(t, *in.AccessToken) }) {
			return wrong
		}
		in.AccessToken = nil
	case set.token != "":
		if in.AccessToken == nil || !sameToken(*in.AccessToken, set.token) {
			s.Gate.Slow(r.Context(), r)
			return wrong
		}
	}
	vars, err := judgeVars(c, in.EnvVars)
	if err != nil {
		return err
	}
	if in.User != nil && *in.User != "" {
		if _, err := launch.LookupUser(*in.User); errors.Is(err, launch.ErrUnknownUser) {
			return connect.Errorf(connect.InvalidArgument, "invalid username: '%s'", *in.User)
		} else if err != nil {
			return err
		}
	}
	if in.Workdir != nil && *in.Workdir != "" && (*in.Workdir)[0] != '/' {
		return connect.Errorf(connect.InvalidArgument, "defaultWorkdir must be absolute")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Timestamp != nil {
		if in.Timestamp.Before(s.init.newest) {
			return nil // overtaken by a later one
		}
		s.init.newest = *in.Timestamp
	}
	if in.AccessToken != nil && *in.AccessToken != "" {
		if s.init.token != "" && !sameToken(s.init.token, *in.AccessToken) {
			return wrong // somebody was faster
		}
		if s.init.token == "" {
			// No more power than whoever has set it.
			s.init.identity = policy.Identity{ID: initIdentity, Scopes: c.Identity.Scopes, ByToken: true}
			s.init.token = *in.AccessToken
		}
	}
	if in.EnvVars != nil {
		s.init.vars = vars
	}
	if in.User != nil {
		s.init.user = *in.User
	}
	if in.Workdir != nil {
		s.init.workdir = *in.Workdir
	}
	return nil
}

// judgeVars judges variables as POST /env does.
func judgeVars(c *api.Call, vars map[string]string) (map[string]string, error) {
	vars = maps.Clone(vars)
	delete(vars, sandboxVariable)
	rules := policy.EnvRules{}
	if rule := c.Policy.Rule("env_set"); rule != nil {
		allow, _ := rule.Strings("allow_vars")
		deny, _ := rule.Strings("deny_vars")
		rules = policy.NewEnvRules(allow, deny, nil, c.Policy.SecretEnv)
	}
	const longest = 131_071
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		err := policy.EnvSyntax(name, vars[name]).Err()
		if err == nil && len(name)+1+len(vars[name]) > longest {
			err = policy.Refuse(policy.EnvInvalid, "An environment variable is too long").Err()
		}
		if err == nil {
			err = policy.EnvReserved(name, false).Err()
		}
		if err == nil && policy.EnvProtected(name) {
			err = policy.Refuse(policy.EnvVarNotAllowed, "Environment variable "+name+" is protected").Err()
		}
		if err == nil {
			err = rules.Permits(name).Err()
		}
		if err != nil {
			return nil, err
		}
	}
	return vars, nil
}
