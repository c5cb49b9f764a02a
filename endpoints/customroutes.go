package endpoints

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// customRoutes are the rows of routes that template code adds. Those that a row
// of ours serves already are left out: ours come first.
func (s *Server) customRoutes(table []api.Endpoint) []api.Endpoint {
	var out []api.Endpoint
	names, places := map[string]bool{}, map[string]bool{}
	for _, ep := range table {
		names[ep.Name] = true
	}
	for _, r := range s.Commands.Routes() {
		path := routePattern(r.Pattern)
		place := r.Method + " " + placeOf(path)
		if places[place] || slices.ContainsFunc(table, func(ep api.Endpoint) bool { return serves(ep, r.Method, path) }) {
			continue
		}
		name := r.ID
		if names[name] {
			name = r.Method + " " + r.Pattern
		}
		places[place], names[name] = true, true
		out = append(out, s.customRoute(api.Row{
			Name: name, Method: r.Method, Path: path, Group: r.Group, Summary: r.Summary,
			Scopes: r.Scopes, Anonymous: r.Anonymous, Streaming: r.Streaming, Mutates: r.Method != http.MethodGet,
		}, r))
	}
	return out
}

// routePattern is a pattern in the form rows have and requests are matched by.
func routePattern(pattern string) string {
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	for i, p := range parts {
		if !strings.HasPrefix(p, "{") {
			parts[i] = url.PathEscape(p)
		}
	}
	return "/" + strings.Join(parts, "/")
}

// placeOf is a pattern without the names of its parameters.
func placeOf(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

// serves tells whether a row takes all requests that a pattern would.
func serves(ep api.Endpoint, method, path string) bool {
	if ep.Virtual || ep.Method != method {
		return false
	}
	ours, theirs := strings.Split(ep.Path, "/"), strings.Split(path, "/")
	if len(ours) != len(theirs) {
		return false
	}
	for i, p := range ours {
		if !strings.HasPrefix(p, "{") && p != theirs[i] {
			return false
		}
	}
	return true
}

func (s *Server) customRoute(row api.Row, r registry.Route) api.Endpoint {
	serve := func(ctx context.Context, c *api.Call, _ struct{}) (api.Body, error) {
		q := registry.Request{
			Method: c.R.Method, Path: "/" + strings.Trim(c.R.URL.Path, "/"), Query: map[string][]string{}, Headers: routeHeaders(c),
			Body: c.Object(), Params: map[string]string{}, Identity: c.Identity.ID, Scopes: append([]string{}, c.Identity.Scopes...),
			RequestID: c.RequestID(),
		}
		for k, v := range c.Query {
			q.Query[k] = []string{v}
		}
		for part := range strings.SplitSeq(row.Path, "/") {
			if strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}") {
				q.Params[part[1:len(part)-1]] = c.Param(part[1 : len(part)-1])
			}
		}
		if c.R.Method == http.MethodHead {
			q.Method = http.MethodGet
		}
		response, err := r.Serve(ctx, q)
		if err != nil {
			return nil, commandError(err)
		}
		return &routeAnswer{r: response, stopping: c.Stopping()}, nil
	}
	return api.Unary(row, serve)
}

// routeHeaders are the headers of a request as template code sees them. A
// token that let the caller in is not for it.
func routeHeaders(c *api.Call) map[string]string {
	out := map[string]string{}
	for name, values := range c.R.Header {
		if c.Identity.ByToken && (name == "Authorization" || name == "X-Access-Token") {
			continue
		}
		out[name] = strings.Join(values, ", ")
	}
	if c.R.Host != "" {
		out["Host"] = c.R.Host
	}
	return out
}

// routeAnswer is what template code answers, as it is.
type routeAnswer struct {
	r        *registry.Response
	stopping <-chan struct{}
}

// Status implements [api.Statuser].
func (a *routeAnswer) Status() int {
	if a.r.Status < 200 || a.r.Status > 599 {
		return http.StatusInternalServerError
	}
	return a.r.Status
}

// Header implements [api.Body].
func (a *routeAnswer) Header(h http.Header) {
	kind := "application/json; charset=utf-8"
	if a.r.Stream != nil {
		kind = "text/event-stream"
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
	}
	h.Set("Content-Type", kind)
	for name, value := range a.r.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Transfer-Encoding", "Connection", "Date", "X-Request-Id": // ours to say
		default:
			h.Set(name, value)
		}
	}
	if a.r.Stream == nil && a.hasBody() {
		h.Set("Content-Length", strconv.Itoa(len(a.r.Body)))
	}
}

func (a *routeAnswer) hasBody() bool {
	return a.Status() != http.StatusNoContent && a.Status() != http.StatusNotModified
}

// pingEvery is the longest silence on a stream of events.
const pingEvery = 15 * time.Second

// Send implements [api.Body].
func (a *routeAnswer) Send(ctx context.Context, w io.Writer) error {
	if a.r.Stream == nil {
		if !a.hasBody() {
			return nil
		}
		_, err := w.Write(a.r.Body)
		return err
	}
	ctx, cancel := until(ctx, a.stopping)
	defer cancel()
	flush := func() error { return w.(interface{ Flush() error }).Flush() }
	err := flush()
	whole := true // what was sent ends an event
	for err == nil {
		var piece []byte
		wait, stop := context.WithTimeout(ctx, pingEvery)
		piece, err = a.r.Stream.Next(wait)
		stop()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if err = nil; !whole {
				continue
			}
			piece = []byte(": ping\n\n")
		case errors.Is(err, io.EOF), err != nil && stopping(a.stopping):
			return nil // a stream that the server ends has an end too
		case err != nil:
			return err
		case len(piece) > 0:
			whole = bytes.HasSuffix(piece, []byte("\n\n"))
		}
		if _, err = w.Write(piece); err == nil {
			err = flush()
		}
	}
	return err
}

func stopping(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Close implements [io.Closer].
func (a *routeAnswer) Close() error {
	if a.r.Stream != nil {
		a.r.Stream.Close()
	}
	return nil
}
