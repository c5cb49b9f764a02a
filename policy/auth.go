package policy

import (
	"crypto/sha256"
	"crypto/subtle"
	"slices"
	"strings"
	"time"
)

// Identity is an authenticated caller. The zero Identity is nobody and holds
// no scope.
type Identity struct {
	ID     string
	Scopes []string // sorted
	// ByToken is false for the anonymous identity.
	ByToken bool
}

// Holds tells whether the identity has scope, directly or by a wildcard.
// Everyone who is somebody has "core:read".
func (i Identity) Holds(scope string) bool {
	if i.ID == "" {
		return false
	}
	return scope == "core:read" || holds(i.Scopes, scope)
}

// Credentials are what a caller presented, already cut out of its headers.
type Credentials struct {
	Bearer []string // tokens of Authorization: Bearer headers, in order
	Access []string // values of X-Access-Token headers, in order
	Query  string   // token of the query, where a door takes one
}

// authenticator knows who holds which token. It keeps digests, never tokens.
type authenticator struct {
	tokens    []tokenRule
	anonymous *Identity // nil when callers without a token are refused
	env       []string  // variables tokens were read from
	now       func() time.Time
}

type tokenRule struct {
	who       Identity
	digests   [][32]byte // several for a token_file with several lines
	notBefore time.Time
	expires   time.Time
}

func newAuthenticator(spec authSpec, o *Options) (authenticator, error) {
	a := authenticator{now: o.Now}
	if a.now == nil {
		a.now = time.Now
	}
	for _, t := range spec.tokens {
		rule := tokenRule{
			who:       Identity{ID: t.id, Scopes: sortedScopes(t.scopes), ByToken: true},
			notBefore: t.notBefore, expires: t.expires,
		}
		digests, err := t.digests(o)
		if err != nil {
			return a, err
		}
		rule.digests = digests
		a.tokens = append(a.tokens, rule)
		if t.env != "" {
			a.env = append(a.env, t.env)
		}
	}
	allowed := len(a.tokens) == 0 // the default: open without tokens, closed with
	if spec.allowAnonymous != nil {
		allowed = *spec.allowAnonymous
	}
	if allowed {
		who := anonymous(spec)
		a.anonymous = &who
	}
	return a, nil
}

func anonymous(spec authSpec) Identity {
	scopes := spec.anonymous
	if scopes == nil {
		scopes = []string{"*"}
	}
	return Identity{ID: anonymousID, Scopes: sortedScopes(scopes)}
}

func sortedScopes(scopes []string) []string {
	out := slices.Sorted(slices.Values(scopes))
	if out == nil {
		out = []string{}
	}
	return slices.Compact(out)
}

// digests reads the token from where the document says it is.
func (t *tokenSpec) digests(o *Options) ([][32]byte, error) {
	switch {
	case t.env != "":
		value := ""
		if o.Getenv != nil {
			value = o.Getenv(t.env)
		}
		if value == "" {
			return nil, configErrorf(t.at, t.where+".token_env", "the variable %s is not set", shorten(t.env))
		}
		return [][32]byte{sha256.Sum256([]byte(value))}, nil
	case t.file != "":
		return t.fileDigests(o)
	}
	return [][32]byte{[32]byte(t.digest)}, nil
}

// fileDigests reads a token_file: one SHA-256 sum in hex on each line, so that
// the old and the new token can both be valid while it is rotated. Empty lines
// and those that start with "#" do not count. Its text is never repeated.
func (t *tokenSpec) fileDigests(o *Options) ([][32]byte, error) {
	where := t.where + ".token_file"
	if o.ReadFile == nil {
		return nil, configErrorf(t.at, where, "files cannot be read here")
	}
	data, err := o.ReadFile(t.file)
	if err != nil {
		return nil, configErrorf(t.at, where, "%v", err)
	}
	const most = 64
	var out [][32]byte
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		sum, err := parseDigest(line)
		if err != nil {
			return nil, configErrorf(t.at, where, "line %d of %s: %v", n, shorten(t.file), err)
		}
		out = append(out, [32]byte(sum))
	}
	if len(out) == 0 || len(out) > most {
		return nil, configErrorf(t.at, where, "%s has %d sums; expected 1 to %d", shorten(t.file), len(out), most)
	}
	return out, nil
}

// Authenticate names the caller. Bearer tokens count before access tokens, and
// the query only without either; the first that fits wins. Without configured
// tokens what a caller presents is not looked at: gateways send their own.
//
// The decision is Allowed, Unauthorized or AmbiguousCredentials.
func (p *Policy) Authenticate(c Credentials) (Identity, Decision) {
	a := &p.auth
	if len(a.tokens) == 0 {
		return a.withoutToken()
	}
	bearer, access := presented(c.Bearer), presented(c.Access)
	if len(access) > 0 && slices.ContainsFunc(access, func(t string) bool { return t != access[0] }) {
		return Identity{}, Refuse(AmbiguousCredentials, "Two different X-Access-Token headers")
	}
	candidates := bearer
	if len(access) > 0 {
		candidates = append(candidates, access[0])
	}
	if len(candidates) == 0 && c.Query != "" {
		candidates = append(candidates, c.Query)
	}
	if len(candidates) == 0 {
		return a.withoutToken()
	}
	for _, token := range candidates {
		if who, ok := a.find(token); ok {
			return who, Allow()
		}
	}
	return Identity{}, unauthorized()
}

func unauthorized() Decision { return Refuse(Unauthorized, "unauthorized") }

// presented drops the empty ones, in a copy that may be appended to.
func presented(tokens []string) []string {
	var out []string
	for _, t := range tokens {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	return out
}

func (a *authenticator) withoutToken() (Identity, Decision) {
	if a.anonymous == nil {
		return Identity{}, unauthorized()
	}
	return *a.anonymous, Allow()
}

// find compares a token with all digests, in the same time whether and where
// one fits. Tokens that have expired or are not valid yet fit nothing.
func (a *authenticator) find(token string) (Identity, bool) {
	sum := sha256.Sum256([]byte(token))
	now := a.now()
	found := -1
	for i := range a.tokens {
		t := &a.tokens[i]
		fits := 0
		for _, d := range t.digests {
			fits |= subtle.ConstantTimeCompare(sum[:], d[:])
		}
		if !t.valid(now) {
			fits = 0
		}
		first := subtle.ConstantTimeEq(int32(found), -1)
		found = subtle.ConstantTimeSelect(fits&first, i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return a.tokens[found].who, true
}

func (t *tokenRule) valid(now time.Time) bool {
	return !now.Before(t.notBefore) && (t.expires.IsZero() || now.Before(t.expires))
}

// SecretEnv tells whether a variable of that name may hold a secret of the
// server: every ABX_SERVER_ name in any case, and those tokens are read from.
func (p *Policy) SecretEnv(name string) bool {
	const prefix = "ABX_SERVER_"
	if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
		return true
	}
	return slices.Contains(p.auth.env, name)
}
