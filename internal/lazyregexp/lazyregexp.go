// Package lazyregexp has regular expressions that are compiled at their first
// use. The server has dozens of which one start needs few, and compiling them
// all would take longer than the rest of the start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression. Its methods are those of [regexp.Regexp] and
// safe together; the first one panics when the expression is malformed.
type Regexp func() *regexp.Regexp

// New makes a Regexp without looking at the expression.
func New(expression string) Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// MatchString tells whether s has a match.
func (r Regexp) MatchString(s string) bool { return r().MatchString(s) }

// FindStringSubmatch is the leftmost match of s and those of its groups.
func (r Regexp) FindStringSubmatch(s string) []string { return r().FindStringSubmatch(s) }

// FindAllStringSubmatch is the first n matches of s, all if n is negative.
func (r Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r().FindAllStringSubmatch(s, n)
}

// ReplaceAllStringFunc replaces each match of s by what replace makes of it.
func (r Regexp) ReplaceAllStringFunc(s string, replace func(string) string) string {
	return r().ReplaceAllStringFunc(s, replace)
}
