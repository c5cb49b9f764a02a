package search

import (
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// at is an entry that is only a path.
type atPath string

func (a atPath) Name() string { return path.Base(string(a)) }
func (a atPath) Rel() string  { return string(a) }

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"*.py", "a/b.py", true},
		{"*.py", "a/b.PY", false},
		{"[x].txt", "[x].txt", false},
		{"[[]x].txt", "[x].txt", true},
		{"*", "a\nb", true},
		{"**", "a/.x", true},
		{"a**b", "axb", true},
		{"{a,b}", "a", false},
		{`\a`, `\a`, true},
		{"", "a", false},
		{"src/**/*.py", "src/a.py", true},
		{"src/**/*.py", "src/x/y/a.py", true},
		{"src/**/*.py", "x/src/a.py", false},
		{"src/*.py", "src/x/a.py", false},
		{"/src/*.py", "src/a.py", true},
		{"src/**", "src/a", true},
		{"src/**", "src", false},
		{"src/", "src", true},
		{"src/", "a/src", false},
		{"**/x", "x", true},
		{"**/x", "a/b/x", true},
		{"**/**/x", "x", true},
		{"a/**/b/**/c", "a/b/c", true},
		{"a/**/b/**/c", "a/x/b/b/y/c", true},
		{"a/**/b/**/c", "a/x/c", false},
		{"a/?/c", "a/é/c", true},
		{"a//b", "a/b", false},
		{"/", "a", false},
	} {
		if got := Compile(c.pattern, false).Matches(atPath(c.path)); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.path, got)
		}
	}
	if !Compile("S/É*.Py", true).Matches(atPath("s/éx.pY")) {
		t.Error("without case")
	}
	if (Pattern{}).Matches(atPath("a")) {
		t.Error("the zero pattern matches")
	}
}

// slowPath is what a path pattern means, by trying everything.
func slowPath(pattern, names []string) bool {
	if len(pattern) == 0 {
		return len(names) == 0
	}
	if pattern[0] == "**" {
		if len(pattern) == 1 {
			return len(names) > 0
		}
		for i := range len(names) + 1 {
			if slowPath(pattern[1:], names[i:]) {
				return true
			}
		}
		return false
	}
	return len(names) > 0 && policy.CompileGlob(pattern[0]).Match(names[0]) && slowPath(pattern[1:], names[1:])
}

func TestPathPatternsMeanWhatTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"**", "*", "a", "b", "?", "ab", "a*"}), 2, 6).Draw(t, "pattern")
		names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "c"}), 1, 7).Draw(t, "path")
		got := Compile(strings.Join(parts, "/"), false).Matches(atPath(strings.Join(names, "/")))
		if want := slowPath(parts, names); got != want {
			t.Errorf("%q on %q: %v, want %v", parts, names, got, want)
		}
	})
}
