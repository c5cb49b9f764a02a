package registry

import (
	"context"
	"encoding/json"
	"time"
)

// Route is a route that Python code adds.
type Route struct {
	ID        string // unique among these
	Method    string
	Pattern   string // with {param} segments
	Group     string
	Summary   string
	Scopes    []string
	Anonymous bool // needs no credential
	Streaming bool

	serve func(context.Context, Request) (*Response, error)
}

// Serve calls the route's handler. A failure is a [*Failure]; when ctx ends
// first, it is the error of ctx. It is safe for concurrent use.
func (r Route) Serve(ctx context.Context, q Request) (*Response, error) { return r.serve(ctx, q) }

// Request is what a route's handler is told.
type Request struct {
	Method    string              `json:"method"`
	Path      string              `json:"path"`
	Query     map[string][]string `json:"query"`
	Headers   map[string]string   `json:"headers"`
	Body      json.RawMessage     `json:"body"` // a JSON object
	Params    map[string]string   `json:"path_params"`
	Identity  string              `json:"identity"`
	Scopes    []string            `json:"scopes"`
	RequestID string              `json:"request_id"`

	Timeout time.Duration `json:"-"` // 0 is none
}

// Response is what it answers.
type Response struct {
	Status  int
	Headers map[string]string
	Body    []byte  // one JSON value, unless it is a stream
	Stream  *Stream // nil unless it is one; to be closed
}

func (p *python) route(r pythonRoute) Route {
	return Route{
		ID: r.ID, Method: r.Method, Pattern: r.Pattern, Group: r.Group, Summary: r.Summary, Scopes: r.Scopes,
		Anonymous: !r.AuthRequired, Streaming: r.Streaming,
		serve: func(ctx context.Context, q Request) (*Response, error) { return p.serveRoute(ctx, r.ID, q) },
	}
}

func (p *python) serveRoute(ctx context.Context, route string, q Request) (*Response, error) {
	stream := newStream()
	m, err := p.ask(ctx, func(id uint64, w *worker) []byte {
		at, ok := w.routes[route]
		if !ok {
			at = -1 // the files have changed; the worker answers 404
		}
		return encodeMessage(struct {
			Op      string  `json:"op"`
			ID      uint64  `json:"id"`
			Route   int     `json:"route"`
			Request Request `json:"request"`
		}{"route", id, at, q})
	}, q.Timeout, stream)
	if err != nil {
		return nil, err
	}
	if m.failed {
		return nil, failureOf(m)
	}
	out := &Response{Status: m.status, Body: m.body}
	if len(m.headers) > 0 {
		if err := json.Unmarshal(m.headers, &out.Headers); err != nil {
			return nil, &Failure{Status: 500, Type: "InternalError", Text: "The response has bad headers", Err: err}
		}
	}
	if m.op == "head" {
		out.Body, out.Stream = nil, stream
	}
	return out, nil
}
