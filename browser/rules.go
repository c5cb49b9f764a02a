package browser

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// judged is the endpoint whose rule holds for every address of the browser.
const judged = "browser_navigate"

// lookupTime bounds the resolving of one name.
const lookupTime = 5 * time.Second

// Resolver finds the addresses of a name. [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Rules judge addresses. They are safe for concurrent use and do not change.
type Rules struct {
	allow, deny   []policy.Glob
	allows, denys []string      // the patterns they were made of
	begins        []policy.Glob // what addresses can begin with that are allowed
	restricted    bool          // allow was given, be it empty
	blockPrivate  bool
	allowLoopback bool
}

// NewRules reads the rules from the parameters of a policy rule.
func NewRules(rule *policy.Rule) *Rules {
	allow, restricted := rule.Strings("url_allow")
	deny, _ := rule.Strings("url_deny")
	r := &Rules{restricted: restricted}
	for _, p := range deny {
		p = lowered(p)
		r.deny, r.denys = append(r.deny, policy.CompileGlob(p)), append(r.denys, p)
	}
	for _, p := range allow {
		p = lowered(p)
		r.allow, r.allows = append(r.allow, policy.CompileGlob(p)), append(r.allows, p)
		r.begins = append(r.begins, beginnings(p)...)
	}
	r.blockPrivate, _ = rule.Bool("block_private_networks")
	r.allowLoopback, _ = rule.Bool("allow_loopback")
	return r
}

// beginnings are what matches that a pattern's matches can begin with.
func beginnings(pattern string) []policy.Glob {
	out := []policy.Glob{policy.CompileGlob(pattern)}
	for i := range pattern {
		out = append(out, policy.CompileGlob(pattern[:i]))
	}
	return out
}

// lowered is a pattern with scheme and host in lower case, as the addresses are
// that it is compared with.
func lowered(pattern string) string {
	scheme, rest, ok := strings.Cut(pattern, "://")
	if !ok {
		return pattern
	}
	host, path, slash := strings.Cut(rest, "/")
	pattern = strings.ToLower(scheme) + "://" + strings.ToLower(host)
	if slash {
		pattern += "/" + path
	}
	return pattern
}

// byURL tells whether whole addresses matter, not only hosts.
func (r *Rules) byURL() bool { return r.restricted || len(r.deny) > 0 }

func refuse(code policy.Code, text string) error {
	d := policy.Refuse(code, text)
	d.Endpoint = judged
	return d.Err()
}

// Judge decides about an address that a caller wants to open, in the order of
// the contract. A nil error permits; the others are [*policy.Denied].
func (r *Rules) Judge(ctx context.Context, names Resolver, text string) error {
	u, err := ParseURL(text)
	web := err == nil && (u.Scheme == "http" || u.Scheme == "https")
	if r.byURL() || r.blockPrivate {
		if !web {
			return refuse(policy.URLNotAllowed, "The address is not one of an http or https page")
		}
		if err := r.byPattern(u, text); err != nil {
			return err
		}
		if err := r.private(ctx, names, u); err != nil {
			return err
		}
	}
	if !web || strings.ContainsFunc(text, blank) {
		why := "not an absolute http or https address"
		if err != nil {
			why = err.Error()
		}
		return refuse(policy.URLInvalid, "Invalid URL: "+why)
	}
	return r.literal(u)
}

func blank(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }

// admit decides about an address that the browser itself asks for, but for
// what its name resolves to, which the proxy looks at when it dials.
func (r *Rules) admit(u URL) error {
	if err := r.byPattern(u, ""); err != nil {
		return err
	}
	return r.literal(u)
}

// resolved decides about what a name was resolved to.
func (r *Rules) resolved(addrs []netip.Addr) error {
	if !r.blockPrivate {
		return nil
	}
	if slices.ContainsFunc(addrs, local) {
		return refuse(policy.URLNotAllowed, "Private networks are blocked by policy")
	}
	return nil
}

// byPattern holds an address against the patterns; deny wins. raw is the text
// it was given as, which deny patterns see too.
func (r *Rules) byPattern(u URL, raw string) error {
	forms := spellings(u)
	for _, g := range r.deny {
		if raw != "" && g.Match(raw) || matchesAny(g, forms) || matchesAny(g, plain(forms)) {
			return refuse(policy.URLNotAllowed, "The address is denied by policy")
		}
	}
	if !r.restricted {
		return nil
	}
	for _, g := range r.allow {
		if matchesAny(g, forms) {
			return nil
		}
	}
	return refuse(policy.URLNotAllowed, "The address is not among those allowed by policy")
}

func matchesAny(g policy.Glob, forms []string) bool {
	return slices.ContainsFunc(forms, g.Match)
}

// spellings are the ways to write an address that mean the same: with and
// without the slash of an empty path, and a WebSocket as the page it is part
// of. A final dot of the host is no difference.
func spellings(u URL) []string {
	if !strings.HasPrefix(u.Host, "[") {
		u.Host = u.name()
	}
	forms := []string{u.String()}
	if http, ok := map[string]string{"ws": "http", "wss": "https"}[u.Scheme]; ok {
		u.Scheme = http
		forms = append(forms, u.String())
	}
	if u.Path == "/" {
		for _, f := range forms {
			forms = append(forms, strings.TrimSuffix(f, "/"))
		}
	}
	return forms
}

// plain are the forms with needless escapes undone: servers take %61 for a.
func plain(forms []string) []string {
	out := make([]string, 0, len(forms))
	for _, f := range forms {
		if strings.Contains(f, "%") {
			out = append(out, unescape(f))
		}
	}
	return out
}

// tunnel decides about a connection of which only host and port are known, and
// not yet what it is for.
func (r *Rules) tunnel(u URL) error {
	plain := u
	plain.Scheme = "http"
	err := r.host(u)
	if err != nil && r.host(plain) == nil {
		err = nil
	}
	if err != nil {
		return err
	}
	return r.literal(u)
}

// secure decides about a connection whose content nobody can see. Its requests
// are judged inside the browser, but for those of WebSockets.
func (r *Rules) secure(u URL) error {
	return r.host(u)
}

// host refuses a host of which no address could be allowed.
func (r *Rules) host(u URL) error {
	if !strings.HasPrefix(u.Host, "[") {
		u.Host = u.name()
	}
	root, other := roots(u)
	for _, g := range r.deny {
		if g.Match(root) && g.Match(other) {
			return refuse(policy.URLNotAllowed, "The host is denied by policy")
		}
	}
	if !r.restricted || matchesAnyOf(r.begins, root) {
		return nil
	}
	return refuse(policy.URLNotAllowed, "The host is not among those allowed by policy")
}

// roots are the shortest address of a host and one that stands for all others.
func roots(u URL) (root, other string) {
	root = u.origin() + "/"
	return root, root + "\x00/\x00?\x00"
}

// narrower tells whether these rules may deny an address of a host that the
// older ones admitted. It may be wrong, on the side of caution.
func (r *Rules) narrower(older *Rules, u URL) bool {
	if !strings.HasPrefix(u.Host, "[") {
		u.Host = u.name()
	}
	root, other := roots(u)
	touches := func(pattern string) bool { return matchesAnyOf(beginnings(pattern), root) }
	for _, p := range r.denys {
		if !slices.Contains(older.denys, p) && touches(p) {
			return true
		}
	}
	if !r.restricted || slices.ContainsFunc(r.allow, func(g policy.Glob) bool { return g.Match(root) && g.Match(other) }) {
		return false
	}
	return !older.restricted || slices.ContainsFunc(older.allows, func(p string) bool {
		return !slices.Contains(r.allows, p) && touches(p)
	})
}

func matchesAnyOf(patterns []policy.Glob, s string) bool {
	return slices.ContainsFunc(patterns, func(g policy.Glob) bool { return g.Match(s) })
}

// private refuses a host any of whose addresses is not a public one. A name
// that does not resolve passes: it cannot be reached either.
func (r *Rules) private(ctx context.Context, names Resolver, u URL) error {
	if !r.blockPrivate {
		return nil
	}
	name := u.name()
	if localName(name) {
		return r.resolved([]netip.Addr{netip.IPv6Loopback()})
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return r.resolved([]netip.Addr{addr})
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	addrs, err := names.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil // what cannot be found cannot be reached
	}
	return r.resolved(addrs)
}

// literal refuses hosts that are local by how they are written.
func (r *Rules) literal(u URL) error {
	name := u.name()
	addr, err := netip.ParseAddr(name)
	switch {
	case localName(name), err == nil && loopback(addr):
		if r.allowLoopback {
			return nil
		}
	case err != nil, !local(addr):
		return nil
	}
	return refuse(policy.URLDenied, "Local and private addresses are refused")
}
