package endpoints

import (
	"context"
	"net/http"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) core() []api.Endpoint {
	return []api.Endpoint{
		api.Unary(api.Row{
			Name: "health", Method: "GET", Path: "/health", Group: "core",
			Summary: "Tell that the server lives.", Anonymous: true,
		}, health),
		api.Unary(api.Row{
			Name: "ready", As: "health", Method: "GET", Path: "/ready", Group: "core",
			Summary: "Tell whether every part of the server is up.", Anonymous: true,
		}, s.ready),
		api.Unary(api.Row{
			Name: "capabilities", Method: "GET", Path: "/capabilities", Group: "core",
			Summary: "List what this caller may do.", Scopes: []string{"core:read"},
		}, s.capabilities),
		api.Unary(api.Row{
			Name: "capabilities_check", Method: "POST", Path: "/capabilities/check", Group: "core",
			Summary: "Ask whether a call would be allowed.", Scopes: []string{"core:read"},
		}, s.check),
	}
}

type healthOut struct {
	Status string `json:"status"`
}

func health(context.Context, *api.Call, struct{}) (healthOut, error) {
	return healthOut{"ok"}, nil
}

type readyOut struct {
	Commands string `json:"commands" doc:"ready or degraded"`
	PTY      string `json:"pty" doc:"listening, off or failed"`
}

func (o readyOut) Status() int {
	if o.Commands != "ready" || o.PTY == "failed" {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

func (s *Server) ready(context.Context, *api.Call, struct{}) (readyOut, error) {
	out := readyOut{Commands: "ready", PTY: "off"}
	if s.Ready != nil {
		out.Commands, out.PTY = s.Ready()
	}
	return out, nil
}

type capabilitiesIn struct {
	Endpoint string `query:"endpoint" doc:"Show only this endpoint's entry."`
}

func (s *Server) capabilities(_ context.Context, c *api.Call, in capabilitiesIn) (api.Body, error) {
	return s.caps.Answer(c, in.Endpoint)
}

type checkIn struct {
	Endpoint api.Field[string]   `json:"endpoint" doc:"The endpoint id to ask about."`
	Path     api.Field[string]   `json:"path" doc:"A path the call would name."`
	Paths    api.Field[[]string] `json:"paths" doc:"Further paths."`
	Op       api.Field[string]   `json:"op" doc:"read, write, delete or exec; the endpoint's own by default."`
}

// checkOut is the answer to one question of what policy would say.
type checkOut struct {
	Endpoint string  `json:"endpoint"`
	Allowed  bool    `json:"allowed"`
	Code     *string `json:"code"`
	Reason   *string `json:"reason"`
	Rule     *ruleOf `json:"rule,omitempty"`
}

// ruleOf is shown as its text, or as null when there is none to name.
type ruleOf struct{ name string }

func (r ruleOf) MarshalJSON() ([]byte, error) {
	if r.name == "" {
		return []byte("null"), nil
	}
	return api.AppendText(nil, r.name), nil
}

func (s *Server) check(_ context.Context, c *api.Call, in checkIn) (checkOut, error) {
	id, err := in.Endpoint.Want("endpoint")
	if err != nil || id == "" {
		return checkOut{}, api.Invalidf("Missing or invalid 'endpoint'")
	}
	path, err := in.Path.Optional("path", "")
	if err != nil {
		return checkOut{}, err
	}
	paths, err := in.Paths.Optional("paths", nil)
	if err != nil {
		return checkOut{}, err
	}
	opName, err := in.Op.Optional("op", "")
	if err != nil {
		return checkOut{}, err
	}
	if in.Path.State == api.Good {
		paths = append([]string{path}, paths...)
	}
	d := c.Policy.Decide(c.Identity, id)
	if d.OK() {
		rule := c.Policy.Rule(id)
		op := rule.Row.Op
		if in.Op.State == api.Good {
			var ok bool
			if op, ok = policy.ParseOp(opName); !ok {
				return checkOut{}, api.Invalidf("Invalid 'op'")
			}
		}
		for _, p := range paths {
			if d = judgePath(c, rule, p, op); !d.OK() {
				d.Rule = ""
				break
			}
		}
	} else if _, ok := policy.ParseOp(opName); !ok && in.Op.State == api.Good {
		return checkOut{}, api.Invalidf("Invalid 'op'")
	}
	return decisionOut(id, d), nil
}

// decisionOut renders a decision as /capabilities/check shows it.
func decisionOut(id string, d policy.Decision) checkOut {
	out := checkOut{Endpoint: id, Allowed: d.OK()}
	if d.OK() {
		return out
	}
	code := string(d.Code)
	d.Endpoint = id
	reason := api.Public(d.Err())
	out.Code, out.Reason = &code, &reason
	switch d.Code {
	case policy.EndpointDisabled, policy.MissingScope:
		out.Rule = &ruleOf{d.Rule}
	}
	if d.Code == policy.MissingScope {
		out.Rule = &ruleOf{}
	}
	return out
}

// judgePath asks what the call itself would ask about one path.
func judgePath(c *api.Call, rule *policy.Rule, path string, op policy.Op) policy.Decision {
	real, err := c.Guard(rule).Check(path, op)
	if err != nil {
		return refusal(err)
	}
	if rule.Row.Name == "files_upload_stream" && op == policy.Write {
		return extensionDecision(rule, real)
	}
	return policy.Allow()
}
