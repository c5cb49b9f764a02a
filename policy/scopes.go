package policy

import "strings"

// validScope tells whether s is "*", "ns:*", "ns:name" or a bare name.
func validScope(s string) bool {
	if s == "*" {
		return true
	}
	space, name, colon := strings.Cut(s, ":")
	if !colon {
		return wordOf(s, "_.-")
	}
	return wordOf(space, "_") && (name == "*" || wordOf(name, "_:.-"))
}

// wordOf tells whether s is a lower-case letter followed by lower-case
// letters, digits and the characters of more.
func wordOf(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z':
		case i > 0 && (c >= '0' && c <= '9' || strings.IndexByte(more, c) >= 0):
		default:
			return false
		}
	}
	return s != ""
}

// holds tells whether one of the held scopes covers the needed one.
func holds(held []string, need string) bool {
	space, _, colon := strings.Cut(need, ":")
	for _, s := range held {
		if s == need || s == "*" {
			return true
		}
		if colon && len(s) == len(space)+2 && s[:len(space)] == space && s[len(space):] == ":*" {
			return true
		}
	}
	return false
}
