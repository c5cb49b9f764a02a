package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
)

// Limits of a request's head that the HTTP library does not check itself.
const (
	maxLine    = 64 << 10 // request line, or one header line
	maxHeaders = 100
)

// methods are the verbs rows may have, in the order Allow lists them.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete}

// Mount puts every row of the table that is an HTTP route behind the gate.
// Virtual rows are left to the listeners that serve them.
func Mount(table []Endpoint, gate *Gate) http.Handler {
	mux := chi.NewMux()
	for i := range table {
		if ep := &table[i]; !ep.Virtual {
			gate.route(mux, ep, ep.Method)
		}
	}
	return gate.front(mux)
}

// MountUpgrade serves one upgrading endpoint on the given paths of a listener
// of its own.
func MountUpgrade(ep Endpoint, gate *Gate, paths ...string) http.Handler {
	mux := chi.NewMux()
	for _, p := range paths {
		e := ep
		e.Path = p
		gate.route(mux, &e, http.MethodGet)
	}
	return gate.front(mux)
}

func (g *Gate) route(mux *chi.Mux, ep *Endpoint, method string) {
	h := func(w http.ResponseWriter, r *http.Request) { g.handle(ep, w.(*answer), r) }
	mux.MethodFunc(method, ep.Path, h)
	if method == http.MethodGet && !ep.upgrade {
		mux.MethodFunc(http.MethodHead, ep.Path, h)
	}
}

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID gives the request its id, the caller's own where that will do.
func withRequestID(h http.Header, r *http.Request) *http.Request {
	id := r.Header.Get("X-Request-Id")
	if id == "" || !validRequestID.MatchString(id) {
		id = rand.Text()
	}
	h.Set("X-Request-Id", id)
	return r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
}

var validRequestID = lazyregexp.New(`^[A-Za-z0-9._-]{1,128}$`)

// front does what comes before any row: request id, bounds of the head,
// panics, and the path in the form rows are matched by.
func (g *Gate) front(mux *chi.Mux) http.Handler {
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) { g.unrouted(mux, w.(*answer), r) })
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { g.unrouted(mux, w.(*answer), r) })
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := newAnswer(rw)
		r = withRequestID(w.Header(), r)
		if r.Body != nil && r.Body != http.NoBody {
			w.body = &bodyReader{src: r.Body, rc: w.rc, stall: g.BodyTimeout}
		} else {
			w.body = &bodyReader{src: http.NoBody, rc: w.rc, eof: true}
		}
		if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
			// The library drops a Content-Length beside chunked coding, and in
			// HTTP/1.0 it passes over chunked coding without a trace; what
			// follows on such a connection cannot be trusted.
			w.Header().Set("Connection", "close")
		}
		defer g.contain(w, r)
		if e := headError(r); e != nil {
			writeError(w, r, "", e)
			return
		}
		rctx := chi.NewRouteContext()
		rctx.RoutePath = routePath(r.URL)
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, rctx))) //nolint:contextcheck // it is the request's own, with a value more
	})
}

// contain keeps a panic of a handler from the peer's eyes and from the server.
func (g *Gate) contain(w *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // a sentinel, compared as net/http does
		panic(p)
	}
	g.Log.Error("panic", "request_id", requestID(r.Context()), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	writeError(w, r, "", fmt.Errorf("panic: %v", p))
}

func headError(r *http.Request) *Error {
	if len(r.Method)+len(r.RequestURI)+len(" HTTP/1.1")+1 > maxLine {
		return Errorf(http.StatusRequestURITooLong, "ValueError", "uri_too_long", "The request line is too long")
	}
	n := 0
	for name, values := range r.Header {
		n += len(values)
		for _, v := range values {
			if len(name)+len(v) > maxLine {
				return Errorf(http.StatusRequestHeaderFieldsTooLarge, "ValueError", "header_too_large", "A header is too long")
			}
		}
	}
	if n > maxHeaders {
		return Errorf(http.StatusRequestHeaderFieldsTooLarge, "ValueError", "too_many_headers", "Too many headers")
	}
	return nil
}

// routePath is the path rows are matched by: one leading slash, none at the
// end, each segment decoded once and encoded again in one way, so that an
// escaped slash never splits a segment.
func routePath(u *url.URL) string {
	path := strings.Trim(u.EscapedPath(), "/")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || !utf8.ValidString(plain) || s == "" && path != "" {
			return "//" // matches no row
		}
		segments[i] = url.PathEscape(plain)
	}
	return "/" + strings.Join(segments, "/")
}

func pathParam(r *http.Request, name string) string {
	v := chi.URLParam(r, name)
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

// unrouted answers what no row serves: 404, 405, or OPTIONS.
func (g *Gate) unrouted(mux *chi.Mux, w *answer, r *http.Request) {
	path := chi.RouteContext(r.Context()).RoutePath
	var allow []string
	for _, m := range methods {
		if mux.Match(chi.NewRouteContext(), m, path) {
			allow = append(allow, m)
		}
	}
	switch {
	case len(allow) == 0:
		writeError(w, r, "", Errorf(http.StatusNotFound, "ValueError", "", "Not found: %s", shownPath(r.URL)))
		return
	case r.Method != http.MethodOptions:
		w.Header().Set("Allow", strings.Join(append(allow, http.MethodOptions), ", "))
		writeError(w, r, "", Errorf(http.StatusMethodNotAllowed, "ValueError", "method_not_allowed", "Method %s is not allowed", r.Method))
		return
	}
	h := w.Header()
	h.Set("Allow", strings.Join(append(allow, http.MethodOptions), ", "))
	if g.AllowOrigin(h, r) {
		h.Set("Access-Control-Allow-Methods", strings.Join(allow, ", "))
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Access-Token, X-Request-Id")
		h.Set("Access-Control-Max-Age", "600")
	}
	w.settle(r, func() { w.WriteHeader(http.StatusNoContent) })
}

// AllowOrigin adds to h what lets a listed origin read the answer; false when
// the request comes from none.
func (g *Gate) AllowOrigin(h http.Header, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || !g.Origins.has(origin) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	return true
}

// shownPath is the path as asked, without slashes at the end.
func shownPath(u *url.URL) string {
	p := "/" + strings.Trim(u.EscapedPath(), "/")
	return strings.ToValidUTF8(p, "\uFFFD")
}

// handle serves one request of a row, from the door to the audit line.
func (g *Gate) handle(ep *Endpoint, w *answer, r *http.Request) {
	started := time.Now()
	g.AllowOrigin(w.Header(), r)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	call, err := g.Admit(ep, w, r)
	defer call.done()
	defer func() { g.Audit.write(call, w.status, w.code, time.Since(started)) }() //nolint:contextcheck // a call has its request's
	switch {
	case err != nil:
	case r.Method == http.MethodHead && (ep.Streaming || ep.drains):
		// The head of a stream, without starting or consuming anything.
		if ep.Streaming {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		w.WriteHeader(http.StatusOK)
		return
	default:
		err = ep.serve(ctx, call)
	}
	if err != nil {
		if w.lost && w.begun() || errors.Is(err, context.Canceled) && r.Context().Err() != nil {
			// Who left has no failure to be told of, nor have we.
			if !w.begun() {
				w.status = clientGone
			}
			panic(http.ErrAbortHandler)
		}
		g.report(ctx, call, err)
		writeError(w, r, ep.ID(), err)
	}
}

// clientGone is the status that audit lines give a call whose peer left before
// there was an answer; nobody receives it.
const clientGone = 499

// report logs the failures that are ours. Refusals and mistakes of callers are
// for audit, and what a handler answers without a cause, such as a command that
// ran out of time, is an outcome.
func (g *Gate) report(ctx context.Context, c *Call, err error) {
	e := problem(err)
	if e.Status < http.StatusInternalServerError || e.Err == nil || ctx.Err() != nil {
		return
	}
	c.Log().ErrorContext(ctx, "request failed", "status", e.Status, "code", e.Code, "err", e.Err)
}
