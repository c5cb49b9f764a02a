package policy

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// authSpec is the auth object as written.
type authSpec struct {
	tokens         []tokenSpec
	allowAnonymous *bool
	anonymous      []string // anonymous_scopes; nil when absent
}

// tokenSpec is one token. Exactly one of env, digest and file is set.
type tokenSpec struct {
	id        string
	scopes    []string
	env       string
	digest    []byte
	file      string
	notBefore time.Time // zero: always
	expires   time.Time // zero: never
	where     string
	at        *node
}

// anonymousID names every caller without a token.
const anonymousID = "anonymous"

var (
	authKeys  = []string{"tokens", "allow_anonymous", "anonymous_scopes"}
	tokenKeys = []string{"id", "scopes", "token_env", "token_sha256", "token_file", "not_before", "expires_at"}
)

func (d *decoder) auth(n *node, where string) authSpec {
	var a authSpec
	d.object(n, where, authKeys, func(key, where string, v *node) {
		switch key {
		case "tokens":
			a.tokens = d.tokens(v, where)
		case "allow_anonymous":
			if on, ok := d.boolean(v, where); ok {
				a.allowAnonymous = &on
			}
		case "anonymous_scopes":
			a.anonymous = d.scopes(v, where)
		}
	})
	// Rates, processes and terminals belong to an id, so it must not be shared
	// with callers that need no token.
	for _, t := range a.tokens {
		if t.id == anonymousID && a.allowAnonymous != nil && *a.allowAnonymous {
			d.fail(t.at, t.where+".id", "'%s' is the id of callers without a token, which allow_anonymous lets in", anonymousID)
		}
	}
	return a
}

func (d *decoder) tokens(n *node, where string) []tokenSpec {
	if n.kind != listNode {
		d.fail(n, where, "expected a list, got %s", n.what())
		return nil
	}
	var out []tokenSpec
	seen := map[string]bool{}
	for i, item := range n.items {
		t := d.token(item, index(where, i))
		if t.id != "" && seen[t.id] {
			d.fail(item.get("id"), index(where, i)+".id", "the id '%s' is used by another token", shorten(t.id))
		}
		seen[t.id] = true
		out = append(out, t)
	}
	return out
}

func (d *decoder) token(n *node, where string) tokenSpec {
	t := tokenSpec{where: where, at: n}
	sources := 0
	d.object(n, where, tokenKeys, func(key, where string, v *node) {
		if strings.HasPrefix(key, "token_") {
			sources++
		}
		switch key {
		case "id":
			t.id = d.nonEmpty(v, where)
		case "scopes":
			t.scopes = d.scopes(v, where)
		case "token_env":
			if t.env = d.nonEmpty(v, where); strings.ContainsAny(t.env, "=\x00") {
				d.fail(v, where, "is not the name of a variable")
			}
		case "token_sha256":
			t.digest = d.digest(v, where)
		case "token_file":
			t.file = d.absolute(v, where)
		case "not_before":
			t.notBefore = d.instant(v, where)
		case "expires_at":
			t.expires = d.instant(v, where)
		}
	})
	if n.kind != objectNode {
		return t
	}
	for _, key := range []string{"id", "scopes"} {
		if n.get(key) == nil {
			d.fail(n, member(where, key), "is missing")
		}
	}
	if sources != 1 {
		d.fail(n, where, "needs exactly one of token_env, token_sha256 and token_file")
	}
	return t
}

func (d *decoder) nonEmpty(n *node, where string) string {
	s, ok := d.str(n, where)
	if ok && s == "" {
		d.fail(n, where, "must not be empty")
	}
	return s
}

// digest reads 64 hex digits and leaves them in lower case. What was written
// is not repeated in the error: it may be a token put in the wrong place.
func (d *decoder) digest(n *node, where string) []byte {
	s, ok := d.str(n, where)
	if !ok {
		return nil
	}
	sum, err := parseDigest(s)
	if err != nil {
		d.fail(n, where, "%v", err)
		return nil
	}
	n.s = strings.ToLower(s)
	return sum
}

func parseDigest(s string) ([]byte, error) {
	sum, err := hex.DecodeString(s)
	if err != nil || len(sum) != 32 {
		return nil, fmt.Errorf("expected the 64 hex digits of a SHA-256 sum")
	}
	return sum, nil
}

func (d *decoder) instant(n *node, where string) time.Time {
	s, ok := d.str(n, where)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		d.fail(n, where, "expected a time such as '2030-01-31T12:00:00Z'")
	}
	return t
}
