package api

import (
	"net/http"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Greet begins a request of any dialect: it gets an id, which goes out as
// X-Request-Id, and its head is held to the bounds of all listeners. The
// request returned is the one to go on with.
func Greet(w http.ResponseWriter, r *http.Request) (*http.Request, *Error) {
	r = withRequestID(w.Header(), r)
	closeAfter(w.Header(), r)
	return r, headError(r)
}

// Arrive begins a call of another dialect than that of [Mount]: it names the
// caller and refuses foreign web pages. id is what the call seems to be about,
// for the audit line of a refusal. identify, if not nil, names the caller
// instead of [Gate.Identify]; what it says of ByToken counts for the origin.
//
// The call is never nil and must be ended by [Call.Leave]. Before anything is
// done for it, it must be admitted by [Call.Enter].
func (g *Gate) Arrive(r *http.Request, door, id string, identify func(*policy.Policy) (policy.Identity, error)) (*Call, error) {
	p := g.Policy()
	c := &Call{R: r, Policy: p, gate: g, door: door, began: time.Now()}
	c.judgeAs(id)
	var err error
	if identify == nil {
		c.Identity, err = g.Identify(r.Context(), p, r, false)
	} else {
		c.Identity, err = identify(p)
	}
	if err != nil {
		return c, err
	}
	c.known = true
	return c, g.checkOrigin(c.Identity, r)
}

// judgeAs makes the call one of the endpoint id.
func (c *Call) judgeAs(id string) {
	row := Row{Name: id}
	if rule := c.Policy.Rule(id); rule != nil {
		row = rule.Row
	}
	c.Endpoint = &Endpoint{Row: row}
}

// Enter admits an arrived call as the endpoint id, whose rule becomes the
// call's own: enabled, scopes, rate, and a concurrency slot that is held until
// the call leaves. Further endpoints that the call needs are entered by
// [Call.Also].
func (c *Call) Enter(id string) error {
	c.judgeAs(id)
	return c.enter(id, true)
}

// Leave ends an arrived call: it gives back what the call holds and writes its
// audit line. code is the machine's word for a failure, "" when there was none
// or there is no word.
func (c *Call) Leave(status int, code string) {
	c.done()
	c.gate.Audit.write(c, status, code, time.Since(c.began))
}
