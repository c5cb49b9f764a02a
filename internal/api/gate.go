package api

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Gate is the one door: every request of every listener and dialect is let in
// by [Gate.Admit] or by the same steps in two parts, [Gate.Arrive] and
// [Call.Enter], where what a call is about lies in its message.
// Its fields are set before use and never change.
type Gate struct {
	Policy  func() *policy.Policy // the one in force now
	Limiter *policy.Limiter
	Brake   *policy.GuessBrake
	Files   *guardfs.FS
	Audit   *Audit
	Log     *slog.Logger

	Origins Allowlist // foreign origins that may call without a token
	Hosts   Allowlist // dotted Host names that browsers may use

	MaxUpload   func() int64  // bytes of one upload when no rule says otherwise
	BodyTimeout time.Duration // longest stall of a request body

	// Stopping is closed when the server begins to stop: streams end.
	Stopping <-chan struct{}
}

// defaultBody is the most a JSON body may have when no rule says otherwise.
const defaultBody = 10 << 20

// smallBody is announced by a caller whose slot is taken only once the body is
// there, so that who never sends it keeps nobody out.
const smallBody = 64 << 10

// Admit lets one request in, or says why not. It reads top to bottom in the
// order the contract gives; done gives back what the call holds and must be
// called when the answer is out.
func (g *Gate) Admit(ep *Endpoint, w *answer, r *http.Request) (c *Call, err error) {
	p := g.Policy()
	c = &Call{R: r, Endpoint: ep, Policy: p, gate: g, w: w}
	var twice string
	c.Query, twice = parseQuery(r.URL.RawQuery)

	if !ep.Anonymous {
		if c.Identity, err = g.Identify(r.Context(), p, r, ep.upgrade); err != nil {
			return c, err
		}
		c.known = true
		if err = g.checkOrigin(c.Identity, r); err != nil {
			return c, err
		}
	}
	long := r.ContentLength < 0 || r.ContentLength > smallBody
	if err = c.enter(ep.ID(), ep.body == noBody || long); err != nil {
		return c, err
	}
	if twice != "" {
		return c, &Error{Status: http.StatusBadRequest, Type: "ValueError", Code: "duplicate_parameter", Msg: "Query parameter '" + strings.ToValidUTF8(twice, "\uFFFD") + "' was given more than once"}
	}
	if ep.body == noBody {
		return c, c.ignoreBody()
	}
	if err = c.openBody(); err != nil {
		return c, err
	}
	if !long {
		if ep.body == rawBody && r.ContentLength > 0 {
			c.late = &lateBody{c: c}
			return c, nil
		}
		if err = c.preread(); err != nil {
			return c, err
		}
		return c, c.slot(c.Rule)
	}
	return c, nil
}

// Identify names the caller of a request, after a pause when its address
// keeps guessing.
func (g *Gate) Identify(ctx context.Context, p *policy.Policy, r *http.Request, queryToken bool) (policy.Identity, error) {
	who, d := p.Authenticate(credentials(r, queryToken))
	if d.Code == policy.Unauthorized && p.HasTokens() {
		g.Slow(ctx, r)
	}
	return who, d.Err()
}

// Slow notes that the caller's address gave a wrong token, and holds it up when
// it keeps guessing.
func (g *Gate) Slow(ctx context.Context, r *http.Request) {
	addr, _, _ := net.SplitHostPort(r.RemoteAddr)
	wait := g.Brake.Failed(addr)
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-g.Stopping:
	}
}

// Tokens are what a request shows, those of its Authorization header first.
func Tokens(r *http.Request) []string {
	c := credentials(r, false)
	return append(c.Bearer, c.Access...)
}

func credentials(r *http.Request, queryToken bool) policy.Credentials {
	var c policy.Credentials
	for _, v := range r.Header.Values("Authorization") {
		if scheme, token, ok := strings.Cut(strings.TrimSpace(v), " "); ok && strings.EqualFold(scheme, "bearer") {
			if token = strings.TrimSpace(token); token != "" {
				c.Bearer = append(c.Bearer, token)
			}
		}
	}
	for _, v := range r.Header.Values("X-Access-Token") {
		if v = strings.TrimSpace(v); v != "" {
			c.Access = append(c.Access, v)
		}
	}
	if queryToken && len(r.Header.Values("Authorization")) == 0 && len(r.Header.Values("X-Access-Token")) == 0 {
		q, _ := parseQuery(r.URL.RawQuery)
		c.Query = q["token"]
	}
	return c
}

// Allowlist is a set of names; "*" stands for all and "*.example.org" for
// every name below it.
type Allowlist []string

func (a Allowlist) has(name string) bool {
	name = strings.ToLower(name)
	for _, item := range a {
		item = strings.ToLower(item)
		if item == "*" || item == name {
			return true
		}
		if suffix, ok := strings.CutPrefix(item, "*"); ok && strings.HasPrefix(suffix, ".") && strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// checkOrigin refuses calls that a web page makes without a token: any page
// the sandbox's own browser visits could otherwise run commands here.
func (g *Gate) checkOrigin(who policy.Identity, r *http.Request) error {
	if who.ByToken {
		return nil
	}
	h := r.Header
	if origins, has := h["Origin"]; has {
		for _, o := range origins {
			if !g.Origins.has(o) {
				return policy.Refuse(policy.OriginNotAllowed, "").Err()
			}
		}
	} else if strings.EqualFold(h.Get("Sec-Fetch-Site"), "cross-site") && !g.Origins.has("*") {
		return policy.Refuse(policy.OriginNotAllowed, "").Err()
	}
	if fromBrowser(h) && dotted(r.Host) && !g.Hosts.has(hostname(r.Host)) {
		return policy.Refuse(policy.HostNotAllowed, "").Err()
	}
	return nil
}

func fromBrowser(h http.Header) bool {
	if h.Get("Referer") != "" || strings.Contains(h.Get("User-Agent"), "Mozilla/") {
		return true
	}
	for name := range h {
		if strings.HasPrefix(name, "Sec-Fetch-") {
			return true
		}
	}
	return false
}

func hostname(hostport string) string {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// dotted tells whether a Host could be a public name that was rebound to us.
func dotted(hostport string) bool {
	host := strings.ToLower(hostname(hostport))
	if net.ParseIP(host) != nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return false
	}
	return strings.Contains(host, ".")
}
