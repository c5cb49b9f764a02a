package search

import (
	"bytes"
	"strings"
)

const (
	ignoreName = ".gitignore"
	ignoreSize = 256 << 10 // bytes of one file that count
)

// ignoreRule is one line of an ignore file.
type ignoreRule struct {
	keep    bool // begins with !
	dirOnly bool // ends with /
	// A rule with a slash that is not at its end is held against the path from
	// the file's directory; "**" is any number of directories. Others, with one
	// part, are held against the name.
	parts  []wildcard
	onPath bool
}

// parseIgnore reads an ignore file. What means nothing is left out.
func parseIgnore(text []byte) []ignoreRule {
	var rules []ignoreRule
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if r, ok := parseIgnoreLine(strings.TrimSuffix(string(line), "\r")); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

func parseIgnoreLine(line string) (r ignoreRule, ok bool) {
	if strings.HasPrefix(line, "#") {
		return r, false
	}
	line = trimSpaces(line)
	line, r.keep = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.onPath = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" || endsInEscape(line) {
		return r, false
	}
	if !r.onPath {
		r.parts = []wildcard{newWildcard(line)}
		return r, true
	}
	for part := range strings.SplitSeq(line, "/") {
		if endsInEscape(part) { // an escaped slash is a slash
			part = part[:len(part)-1]
		}
		if w := newWildcard(part); w.kind != deep || len(r.parts) == 0 || r.parts[len(r.parts)-1].kind != deep {
			r.parts = append(r.parts, w)
		}
	}
	return r, true
}

// trimSpaces removes spaces at the end, but not one behind a backslash.
func trimSpaces(line string) string {
	for strings.HasSuffix(line, " ") && !endsInEscape(line[:len(line)-1]) {
		line = line[:len(line)-1]
	}
	return line
}

// endsInEscape tells whether the last backslash has nothing to escape.
func endsInEscape(s string) bool {
	n := len(s) - len(strings.TrimRight(s, `\`))
	return n%2 == 1
}

// matches tells whether the rule speaks of an entry: its path from the file's
// directory, and whether it is a directory itself.
func (r *ignoreRule) matches(rel, name string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	if !r.onPath {
		return r.parts[0].match(name)
	}
	return matchComponents(r.parts, rel, func(w wildcard) bool { return w.kind == deep }, wildcard.match)
}

// ignoreFile is a file with rules and the one that holds where it says nothing.
type ignoreFile struct {
	above *ignoreFile
	dir   string // absolute, where it lies
	rules []ignoreRule
}

// ignores tells whether an entry is to be left out. path is absolute and lies
// below the directories of f and of all files above it.
func (f *ignoreFile) ignores(path, name string, dir bool) bool {
	for ; f != nil; f = f.above {
		rel := strings.TrimPrefix(path[len(f.dir):], "/")
		for i := len(f.rules) - 1; i >= 0; i-- {
			if f.rules[i].matches(rel, name, dir) {
				return !f.rules[i].keep
			}
		}
	}
	return false
}
