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

func (s *Server) check(_ context.Context, c *api.Call, in checkIn) (Verdict, error) {
	id, err := in.Endpoint.Want("endpoint")
	if err != nil || id == "" {
		return Verdict{}, api.Invalidf("Missing or invalid 'endpoint'")
	}
	path, err := in.Path.Optional("path", "")
	if err != nil {
		return Verdict{}, err
	}
	paths, err := in.Paths.Optional("paths", nil)
	if err != nil {
		return Verdict{}, err
	}
	opName, err := in.Op.Optional("op", "")
	if err != nil {
		return Verdict{}, err
	}
	q := Question{Endpoint: id, Paths: paths}
	if in.Path.State == api.Good {
		q.Paths = append([]string{path}, paths...)
	}
	if in.Op.State == api.Good {
		op, ok := policy.ParseOp(opName)
		if !ok {
			return Verdict{}, api.Invalidf("Invalid 'op'")
		}
		q.Op = &op
	}
	return ask(c.Policy, c.Identity, q, c.Guard), nil
}
