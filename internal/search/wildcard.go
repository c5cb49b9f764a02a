package search

import "strings"

// wildcard is one component of an ignore rule: `*` any run, `?` any byte,
// `[…]` one byte of a set, with `!` or `^` outside it; a backslash takes the
// next byte as it is. Bytes, not characters, are compared.
type wildcard struct {
	kind wildKind
	text string
}

type wildKind uint8

const (
	general wildKind = iota
	literal          // no wildcard in it
	suffix           // one star and then a literal
	deep             // "**" alone
)

func newWildcard(s string) wildcard {
	rest, starred := strings.CutPrefix(s, "*")
	switch {
	case s == "**":
		return wildcard{deep, s}
	case strings.ContainsAny(rest, `*?[\`):
		return wildcard{general, s}
	case starred:
		return wildcard{suffix, rest}
	}
	return wildcard{literal, s}
}

func (w wildcard) match(s string) bool {
	switch w.kind {
	case literal:
		return s == w.text
	case suffix:
		return strings.HasSuffix(s, w.text)
	case deep:
		return true
	}
	return matchWild(w.text, s)
}

// matchWild goes back to the last star only, so it takes at most about
// len(p)·len(s) steps.
func matchWild(p, s string) bool {
	starP, starS := -1, 0
	i, j := 0, 0
	for j < len(s) || i < len(p) {
		if i < len(p) && p[i] == '*' {
			i++
			starP, starS = i, j
			continue
		}
		if j < len(s) {
			if n := takeOne(p[i:], s[j]); n > 0 {
				i, j = i+n, j+1
				continue
			}
		}
		if starP < 0 || starS >= len(s) {
			return false
		}
		starS++
		i, j = starP, starS
	}
	return true
}

// takeOne matches one byte and returns how much of the pattern that took; 0
// when it does not match.
func takeOne(p string, c byte) int {
	switch {
	case p == "":
		return 0
	case p[0] == '?':
		return 1
	case p[0] == '[':
		in, n := inSet(p[1:], c)
		if n == 0 || !in {
			return 0
		}
		return n + 1
	case p[0] == '\\' && len(p) > 1:
		if p[1] == c {
			return 2
		}
		return 0
	case p[0] == c:
		return 1
	}
	return 0
}

// inSet reads a set behind its [ and tells whether c is in it; n is 0 for a set
// that no ] closes, which matches nothing.
func inSet(p string, c byte) (in bool, n int) {
	i, negated := 0, false
	if p != "" && (p[0] == '!' || p[0] == '^') {
		negated, i = true, 1
	}
	for first := true; ; first = false {
		if i >= len(p) {
			return false, 0
		}
		if p[i] == ']' && !first {
			return in != negated, i + 1
		}
		if p[i] == '[' && i+1 < len(p) && p[i+1] == ':' {
			if end := strings.Index(p[i+2:], ":]"); end >= 0 {
				in = in || inClass(p[i+2:i+2+end], c)
				i += 2 + end + 2
				continue
			}
		}
		lo, next, ok := setByte(p, i)
		if !ok {
			return false, 0
		}
		i = next
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			if hi, i, ok = setByte(p, i+1); !ok {
				return false, 0
			}
		}
		in = in || lo <= c && c <= hi
	}
}

func setByte(p string, i int) (c byte, next int, ok bool) {
	if p[i] == '\\' {
		i++
	}
	if i >= len(p) {
		return 0, 0, false
	}
	return p[i], i + 1, true
}

func inClass(class string, c byte) bool {
	lower, upper, digit := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9'
	switch class {
	case "alnum":
		return lower || upper || digit
	case "alpha":
		return lower || upper
	case "blank":
		return c == ' ' || c == '\t'
	case "cntrl":
		return c < ' ' || c == 0x7f
	case "digit":
		return digit
	case "graph":
		return c > ' ' && c < 0x7f
	case "lower":
		return lower
	case "print":
		return c >= ' ' && c < 0x7f
	case "punct":
		return c > ' ' && c < 0x7f && !lower && !upper && !digit
	case "space":
		return c == ' ' || c >= '\t' && c <= '\r'
	case "upper":
		return upper
	case "xdigit":
		return digit || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
	}
	return false
}
