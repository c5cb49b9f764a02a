package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Call is one admitted request. It is used by one goroutine unless a method
// says otherwise.
type Call struct {
	R        *http.Request
	Endpoint *Endpoint
	Identity policy.Identity
	Policy   *policy.Policy // the one the call was judged by, to its end
	Rule     *policy.Rule   // the effective rule of the id it was judged as
	Query    Query

	gate   *Gate
	w      *answer
	known  bool // the caller's identity is known
	leave  []func()
	body   *bodyReader
	cached []byte // a small body, already read
	text   []byte // a decoded body
	late   *lateBody
	paths  []string
	denied string
	inside string // code of a refusal inside an answer that is a success
	audit  policy.AuditMode

	// Of a call of another dialect.
	door  string
	began time.Time
}

// enter admits the call as endpoint id: enabled, scopes, rate, and a slot,
// taken now or only looked for. A Rule is set for the first id entered.
func (c *Call) enter(id string, takeSlot bool) error {
	rule := c.Policy.Rule(id)
	if rule == nil {
		return policy.Decision{Code: policy.EndpointDisabled, Endpoint: id, Rule: "unknown"}.Err()
	}
	if c.Rule == nil {
		c.Rule, c.audit = rule, rule.Audit
	}
	if !c.Endpoint.Anonymous {
		if d := c.Policy.Decide(c.Identity, id); !d.OK() {
			return d.Err()
		}
		if n, ok := rule.Int("rate_per_minute"); ok {
			if d := c.gate.Limiter.Take(c.Identity.ID, id, n); !d.OK() {
				return d.Err()
			}
		}
		if takeSlot {
			return c.slot(rule)
		}
		if n, ok := rule.Int("max_concurrency"); ok {
			return c.gate.Limiter.Free(c.Identity.ID, id, n).Err()
		}
	}
	return nil
}

// slot takes a concurrency slot of the rule's endpoint until the call is done.
func (c *Call) slot(rule *policy.Rule) error {
	n, ok := rule.Int("max_concurrency")
	if !ok || c.Endpoint.Anonymous {
		return nil
	}
	leave, d := c.gate.Limiter.Enter(c.Identity.ID, rule.Row.Name, n)
	if !d.OK() {
		return d.Err()
	}
	c.leave = append(c.leave, leave)
	return nil
}

// Also admits the call as a second endpoint, for calls that need both: it must
// be enabled, its scopes held, and its rate and concurrency are spent too. The
// rule returned is that endpoint's.
func (c *Call) Also(id string) (*policy.Rule, error) {
	if err := c.enter(id, true); err != nil {
		return nil, err
	}
	return c.Policy.Rule(id), nil
}

// Guard judges and pins paths under a rule; the zero rule is the call's own.
func (c *Call) Guard(rule *policy.Rule) *guardfs.Guard {
	if rule == nil {
		rule = c.Rule
	}
	return c.gate.Files.Guard(rule.Paths, c.Policy.BaseDir(), c.saw)
}

// GuardIn is Guard with another base directory, for a dialect with a boundary
// of its own where no rule names roots; shared memory (/dev/shm) counts as
// files there.
func (c *Call) GuardIn(rule *policy.Rule, base string) *guardfs.Guard {
	return c.gate.Files.Guard(rule.Paths.WithSharedMemory(), base, c.saw)
}

// saw notes a judged path for the audit line.
func (c *Call) saw(path string, _ policy.Op, d policy.Decision) {
	const most, longest = 8, 512
	if len(path) > longest {
		path = path[:longest]
	}
	switch {
	case !d.OK():
		c.denied = path
	case len(c.paths) < most:
		c.paths = append(c.paths, path)
	}
}

// Note adds a name to those of the audit line: what the call was about where
// that is no path, such as an address.
func (c *Call) Note(name string) { c.saw(name, policy.Read, policy.Allow()) }

// Refused notes for audit that a part of the call was refused though the call
// as a whole is answered: who asks for many things at once must not go unseen.
// Errors that are no refusals of the policy are not noted.
func (c *Call) Refused(err error) {
	if policy.IsDenied(err) {
		c.inside = CodeOf(err)
	}
}

// Stopping is closed when the server begins to stop; streams then end.
func (c *Call) Stopping() <-chan struct{} { return c.gate.Stopping }

// Log is the server's log, with the facts of this call.
func (c *Call) Log() *slog.Logger {
	return c.gate.Log.With("endpoint", c.Endpoint.ID(), "request_id", requestID(c.R.Context()))
}

// RequestID names the request in answers and logs.
func (c *Call) RequestID() string { return requestID(c.R.Context()) }

// Param is a path parameter, decoded.
func (c *Call) Param(name string) string { return pathParam(c.R, name) }

// MaxUpload is the most bytes one upload may have under a rule.
func (c *Call) MaxUpload(rule *policy.Rule) int64 {
	if n, ok := rule.Int("max_bytes"); ok {
		return n
	}
	return c.gate.MaxUpload()
}

// bodyLimit is the most bytes this call's body may have. An upload inside
// JSON may be as large as its content limit makes it in base64, one inside
// gzip or a form a little larger than its content; the content itself is
// counted where it is unwrapped.
func (c *Call) bodyLimit() int64 {
	if c.Endpoint.body == rawBody {
		limit := c.MaxUpload(c.Rule)
		if c.wrapped() && limit < math.MaxInt64/2 {
			limit += limit/64 + 1<<20
		}
		return limit
	}
	if n, ok := c.Rule.Int("max_request_bytes"); ok {
		return n
	}
	if c.Endpoint.body == streamedBody {
		return c.MaxUpload(c.Rule)/3*4 + smallBody
	}
	return defaultBody
}

// wrapped tells whether a raw body is not the content itself.
func (c *Call) wrapped() bool {
	kind, _, _ := strings.Cut(c.R.Header.Get("Content-Type"), ";")
	return strings.EqualFold(c.R.Header.Get("Content-Encoding"), "gzip") || strings.EqualFold(strings.TrimSpace(kind), "multipart/form-data")
}

// openBody checks what the head says about the body and makes it readable.
func (c *Call) openBody() error {
	if enc := strings.Join(c.R.Header.Values("Content-Encoding"), ","); enc != "" && !strings.EqualFold(enc, "identity") &&
		(c.Endpoint.body != rawBody || !strings.EqualFold(enc, "gzip")) {
		return &Error{Status: http.StatusUnsupportedMediaType, Type: "ValueError", Code: "unsupported_encoding", Msg: "Content-Encoding is not supported"}
	}
	limit := c.bodyLimit()
	tooBig := TooLarge(limit, "Request body too large; limit is %d", limit)
	if c.R.ContentLength > limit {
		tooBig.Msg = "Request body too large (" + strconv.FormatInt(c.R.ContentLength, 10) + " bytes); limit is " + strconv.FormatInt(limit, 10)
		return tooBig
	}
	c.body = c.w.body
	c.body.left, c.body.tooBig = limit, tooBig
	return nil
}

// ignoreBody reads a body away that the endpoint has no use for: until its end
// was seen the library does not watch for a peer that leaves. Only one that is
// longer than what is thrown away after an early answer is refused.
func (c *Call) ignoreBody() error {
	if c.w.body.ended() {
		return nil
	}
	c.w.body.left, c.w.body.tooBig = drainBytes, TooLarge(drainBytes, "Request body too large; limit is %d", drainBytes)
	if c.R.ContentLength > drainBytes {
		return c.w.body.tooBig
	}
	_, err := io.Copy(io.Discard, c.w.body)
	return err
}

func (c *Call) preread() error {
	if c.R.ContentLength == 0 {
		return nil
	}
	text := make([]byte, 0, c.R.ContentLength)
	buf := bytes.NewBuffer(text)
	_, err := buf.ReadFrom(c.body)
	c.cached = buf.Bytes()
	return err
}

// lateBody is a small raw body. Nothing is asked of the peer before the handler
// reads, which it does once it has decided; only then, and with the whole body
// there, a slot is taken.
type lateBody struct {
	c    *Call
	text *bytes.Reader
	err  error
}

// Read implements [io.Reader].
func (b *lateBody) Read(p []byte) (int, error) {
	if b.text == nil && b.err == nil {
		if b.err = b.c.preread(); b.err == nil {
			b.err = b.c.slot(b.c.Rule)
		}
		b.text = bytes.NewReader(b.c.cached)
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Read(p)
}

// Body is the request's body, bounded; reading past its limit gives the 413.
// A peer that waits for a word before it sends the body gets it with the first
// read.
func (c *Call) Body() io.Reader {
	if c.late != nil {
		return c.late
	}
	if c.cached != nil || c.R.ContentLength == 0 {
		return bytes.NewReader(c.cached)
	}
	return c.body
}

// Object is the text of a JSON body that the endpoint has read as a whole: one
// object, checked, without byte order mark; "{}" for an empty body. It must not
// be changed.
func (c *Call) Object() []byte {
	text := bytes.TrimPrefix(c.text, []byte("\ufeff"))
	if len(text) == 0 {
		return []byte("{}")
	}
	return text
}

// Values are all members of [Call.Object], decoded as [Field] values of type
// any are.
func (c *Call) Values() (map[string]any, error) { return members(c.Object(), nil) }

// done gives back what the call holds.
func (c *Call) done() {
	for _, leave := range c.leave {
		leave()
	}
	c.leave = nil
}

// Body is an answer that writes itself instead of being encoded as JSON. One
// that is an [io.Closer] is closed when the call is done, sent or not.
type Body interface {
	// Header sets the answer's headers, Content-Type and, where it is known,
	// Content-Length.
	Header(h http.Header)
	// Send writes the body. An error tears the connection, so that nobody
	// takes half an answer for a whole one.
	Send(ctx context.Context, w io.Writer) error
}

// Statuser is an answer with a success status other than 200.
type Statuser interface{ Status() int }

// reply sends a handler's result.
func (c *Call) reply(ctx context.Context, out any) error {
	status := http.StatusOK
	if s, ok := out.(Statuser); ok {
		status = s.Status()
	}
	if composed, ok := out.(Composed); ok {
		out = composed.Compose()
	}
	if held, ok := out.(io.Closer); ok {
		defer held.Close()
	}
	b, ok := out.(Body)
	if !ok {
		text, err := encode(out)
		if err != nil {
			return err
		}
		c.w.json(status, text, c.R)
		return nil
	}
	b.Header(c.w.Header())
	var err error
	c.w.settle(c.R, func() {
		c.w.WriteHeader(status)
		if c.R.Method != http.MethodHead && status != http.StatusNotModified {
			err = b.Send(ctx, c.w)
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		c.Log().Debug("answer cut", "err", err)
	}
	return err
}
