package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// JSON is the normalised document: version always there, groups as an object,
// sizes as integers, digests in lower case, keys sorted, everything else as
// written. Parsing it gives a document of the same revision.
func (d *Document) JSON() []byte {
	return appendJSON(nil, d.normalised(), true)
}

func (d *Document) normalised() *node {
	if d.root.get("version") != nil {
		return d.root
	}
	return d.root.with("version", &node{kind: intNode, i: 1})
}

// configured tells whether the document says anything.
func (d *Document) configured() bool {
	return slices.ContainsFunc(d.root.keys, func(k string) bool { return k != "version" })
}

// withServerToken returns the document with the token of ABX_SERVER_TOKEN in
// the place where an administrator would have written it.
func (d *Document) withServerToken() *Document {
	token := &node{kind: objectNode}
	token = token.with("id", stringValue("server"))
	token = token.with("scopes", listOf("*"))
	token = token.with("token_env", stringValue(serverTokenEnv))
	auth := d.root.get("auth")
	if auth == nil {
		auth = &node{kind: objectNode}
	}
	c := *d
	c.root = d.root.with("auth", auth.with("tokens", &node{kind: listNode, items: []*node{token}}))
	c.auth.tokens = []tokenSpec{{id: "server", scopes: []string{"*"}, env: serverTokenEnv, where: "policy.auth.tokens[0]"}}
	return &c
}

// revision identifies the document together with the groups the environment
// and the template's code switch. Those two count only when there are any, so
// that plain documents have the revision other servers give them.
func (d *Document) revision(env []string, code map[string]bool) string {
	n := d.normalised()
	if len(env) > 0 {
		sorted := slices.Compact(slices.Sorted(slices.Values(env)))
		n = n.with("env_groups", listOf(sorted...))
	}
	if len(code) > 0 {
		groups := &node{kind: objectNode}
		for _, name := range sortedKeys(code) {
			groups = groups.with(name, boolValue(code[name]))
		}
		n = n.with("code_groups", groups)
	}
	sum := sha256.Sum256(appendJSON(nil, n, true))
	return hex.EncodeToString(sum[:])[:16]
}

// appendJSON appends compact JSON in ASCII. With sorted keys it is the bytes
// the published server hashes.
func appendJSON(b []byte, n *node, sorted bool) []byte {
	switch n.kind {
	case nullNode:
		return append(b, "null"...)
	case boolNode:
		return strconv.AppendBool(b, n.b)
	case intNode:
		return strconv.AppendInt(b, n.i, 10)
	case floatNode:
		return appendFloat(b, n.f)
	case stringNode:
		return appendString(b, n.s)
	case listNode:
		b = append(b, '[')
		for i, item := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item, sorted)
		}
		return append(b, ']')
	}
	order := make([]int, len(n.keys))
	for i := range order {
		order[i] = i
	}
	// The bytes of UTF-8 sort like the code points they stand for.
	if sorted {
		slices.SortFunc(order, func(x, y int) int { return strings.Compare(n.keys[x], n.keys[y]) })
	}
	b = append(b, '{')
	for i, k := range order {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, n.keys[k]), ':')
		b = appendJSON(b, n.items[k], sorted)
	}
	return append(b, '}')
}

// appendFloat writes the shortest text that keeps the value and shows that it
// is no integer: 2.0, 1.5, 1e+16, 1e-05.
func appendFloat(b []byte, f float64) []byte {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	from := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	if !slices.Contains(b[from:], '.') {
		b = append(b, ".0"...)
	}
	return b
}

var shortEscapes = [0x7f]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r < 0x7f && shortEscapes[r] != "":
			b = append(b, shortEscapes[r]...)
		case r >= ' ' && r <= '~':
			b = append(b, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}
