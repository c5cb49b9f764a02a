package search

import (
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Pattern is a compiled pattern for entries of a tree. One without a slash is
// held against names, one with a slash against paths relative to the start,
// where ** spans directories, none included. The zero Pattern matches nothing.
// It is safe for concurrent use.
type Pattern struct {
	name  matcher
	parts []matcher // of a path pattern; nil stands for **
}

// matcher is a pattern of one component.
type matcher interface{ Match(s string) bool }

// Compile compiles a pattern. Every string is one; see [policy.Glob] for what
// may be in a component.
func Compile(pattern string, ignoreCase bool) Pattern {
	if !strings.Contains(pattern, "/") {
		return Pattern{name: component(pattern, ignoreCase)}
	}
	var p Pattern
	for part := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		if part != "**" {
			p.parts = append(p.parts, component(part, ignoreCase))
		} else if n := len(p.parts); n == 0 || p.parts[n-1] != nil {
			p.parts = append(p.parts, nil)
		}
	}
	if n := len(p.parts); p.parts[n-1] == nil { // directories alone are nothing: something is in them
		p.parts = append(p.parts, component("*", false))
	}
	return p
}

func component(pattern string, ignoreCase bool) matcher {
	if ignoreCase {
		return policy.CompileFoldedGlob(pattern)
	}
	return policy.CompileGlob(pattern)
}

// entry is what patterns look at. Its path is made only where one asks for it.
type entry interface {
	Name() string
	Rel() string
}

// Matches tells whether the pattern matches an entry.
func (p Pattern) Matches(e entry) bool {
	if p.parts == nil {
		return p.name != nil && p.name.Match(e.Name())
	}
	return matchComponents(p.parts, e.Rel(), func(m matcher) bool { return m == nil }, matcher.Match)
}

// matchComponents holds parts against the components of a path. A deep part
// takes any number of them, and at least one at the end. When another part
// fails, the last deep one before it takes one component more, so the work is
// at most parts times components.
func matchComponents[P any](parts []P, rel string, deep func(P) bool, match func(P, string) bool) bool {
	i, star, resume := 0, -1, ""
	for rest := rel; rest != ""; {
		if i < len(parts) && deep(parts[i]) {
			if i == len(parts)-1 {
				return true // something is left, and it is inside
			}
			star, resume = i, rest
			i++
			continue
		}
		name, next, _ := strings.Cut(rest, "/")
		switch {
		case i < len(parts) && match(parts[i], name):
			i, rest = i+1, next
		case star >= 0:
			_, resume, _ = strings.Cut(resume, "/")
			i, rest = star+1, resume
		default:
			return false
		}
	}
	return i == len(parts)
}

// MatchesAny tells whether one of the patterns matches an entry.
func MatchesAny(patterns []Pattern, e entry) bool {
	for _, p := range patterns {
		if p.Matches(e) {
			return true
		}
	}
	return false
}
