package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Row is an entry of the endpoint table.
type Row = policy.Row

// bodyKind says how a request's body is taken.
type bodyKind uint8

const (
	noBody       bodyKind = iota // ignored (GET, WS)
	jsonBody                     // one JSON object, read into memory
	streamedBody                 // one JSON object, read by the handler as it arrives
	rawBody                      // bytes, read by the handler
)

// Endpoint is a [Row] with its handler and the two types it speaks. Make one
// with [Unary], [Streaming], [Either], [Transfer], [Raw] or [Upgrade].
type Endpoint struct {
	Row
	In, Out reflect.Type
	body    bodyKind
	upgrade bool
	drains  bool
	serve   func(context.Context, *Call) error
}

// Draining marks an endpoint whose GET consumes what it shows, so that HEAD
// must not run it.
func (e Endpoint) Draining() Endpoint { e.drains = true; return e }

func declare[In, Out any](row Row, body bodyKind) Endpoint {
	if row.Method == http.MethodGet || row.Virtual {
		body = noBody
	}
	return Endpoint{Row: row, In: reflect.TypeFor[In](), Out: reflect.TypeFor[Out](), body: body}
}

// Unary declares an endpoint that reads one In and answers one Out. Fields of
// In are filled by their tags: `query:"name"`, `path:"name"`, `json:"name"`
// (of type [Field]). Out is encoded as JSON, unless it is a [Body].
func Unary[In, Out any](row Row, h func(context.Context, *Call, In) (Out, error)) Endpoint {
	e := declare[In, Out](row, jsonBody)
	e.serve = func(ctx context.Context, c *Call) error {
		var in In
		if err := c.decode(&in); err != nil {
			return err
		}
		out, err := h(ctx, c, in)
		if err != nil {
			return err
		}
		return c.reply(ctx, out)
	}
	return e
}

// Transfer is like [Unary] for a JSON body too large for memory: the handler
// reads it with [Call.Members]. In documents the body; its query and path
// fields are filled.
func Transfer[In, Out any](row Row, h func(context.Context, *Call, In) (Out, error)) Endpoint {
	return unread(declare[In, Out](row, streamedBody), h)
}

// Raw is like [Unary] for a body of any bytes: the handler reads it from
// [Call.Body], bounded by max_bytes.
func Raw[In, Out any](row Row, h func(context.Context, *Call, In) (Out, error)) Endpoint {
	return unread(declare[In, Out](row, rawBody), h)
}

func unread[In, Out any](e Endpoint, h func(context.Context, *Call, In) (Out, error)) Endpoint {
	e.serve = func(ctx context.Context, c *Call) error {
		var in In
		if err := c.fill(&in, nil); err != nil {
			return err
		}
		out, err := h(ctx, c, in)
		if err != nil {
			return err
		}
		return c.reply(ctx, out)
	}
	return e
}

// Streaming declares an endpoint that answers server-sent events. An error
// before the first event is an ordinary answer, later it is the stream's
// "error" event.
func Streaming[In any](row Row, h func(context.Context, *Call, In, *Events) error) Endpoint {
	e := declare[In, struct{}](row, jsonBody)
	e.Streaming = true
	e.serve = func(ctx context.Context, c *Call) error {
		var in In
		if err := c.decode(&in); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ev := newEvents(c.w, c.R, cancel)
		return ev.finish(h(ctx, c, in, ev))
	}
	return e
}

// Either declares an endpoint that answers one Out or, to callers who ask for
// it, server-sent events. A handler that has started the stream has chosen it,
// and its Out is dropped; one that is asked by HEAD starts none.
func Either[In, Out any](row Row, h func(context.Context, *Call, In, *Events) (Out, error)) Endpoint {
	e := declare[In, Out](row, jsonBody)
	e.serve = func(ctx context.Context, c *Call) error {
		var in In
		if err := c.decode(&in); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ev := newEvents(c.w, c.R, cancel)
		out, err := h(ctx, c, in, ev)
		if err != nil || ev.begun() {
			return ev.finish(err)
		}
		return c.reply(ctx, out)
	}
	return e
}

// Upgrade declares an endpoint that takes the connection over, such as a
// WebSocket. An error returned before that is an ordinary answer. These
// endpoints also take a token in the query, which browsers cannot send
// otherwise.
func Upgrade[In any](row Row, h func(ctx context.Context, c *Call, in In, w http.ResponseWriter) error) Endpoint {
	e := declare[In, struct{}](row, noBody)
	e.Streaming, e.upgrade = true, true
	e.serve = func(ctx context.Context, c *Call) error {
		var in In
		if err := c.fill(&in, nil); err != nil {
			return err
		}
		return h(ctx, c, in, c.w)
	}
	return e
}

// Elsewhere declares an endpoint that another dialect's listener serves: it is
// governed and listed here.
func Elsewhere(row Row) Endpoint {
	row.Virtual = true
	return declare[struct{}, struct{}](row, noBody)
}

// Rows are the rows of a table, which is what a policy is compiled against.
func Rows(table []Endpoint) []policy.Row {
	rows := make([]policy.Row, len(table))
	for i := range table {
		rows[i] = table[i].Row
	}
	return rows
}

// TakesJSON tells whether the endpoint reads a JSON object from the body.
func (e Endpoint) TakesJSON() bool { return e.body == jsonBody || e.body == streamedBody }
