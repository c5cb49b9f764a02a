package policy

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"", []string{""}, []string{"a"}},
		{"abc", []string{"abc"}, []string{"ABC", "abcd", "ab", "xabc"}},
		{"*", []string{"", "a", "a/b", "\xff"}, nil},
		{"**", []string{"", "a/b"}, nil},
		{"*.pem", []string{"x.pem", ".pem", "a/b.pem"}, []string{"x.pemx", "X.PEM"}},
		{"a*b", []string{"ab", "a/b", "axxb", "abab"}, []string{"a", "b", "ba", "abx"}},
		{"a*a", []string{"aa", "aba"}, []string{"a"}},
		{"*a*b*", []string{"ab", "xaxbx"}, []string{"ba"}},
		{"a**b", []string{"ab", "a//b"}, []string{"a"}},
		{"?", []string{"a", "/", "é", "\xff", "\U0001F600"}, []string{"", "ab", "e\u0301", "\xc3\xa9\xa9"}},
		{"?*?", []string{"ab", "abc", "éé"}, []string{"a", "é"}},
		{"*??", []string{"ab", "xyz"}, []string{"a"}},
		{"A?", []string{"Ab"}, []string{"A", "ab"}},
		{"[x]yz", []string{"xyz"}, []string{"ayz", "[x]yz"}},
		{"[!k]qq", []string{"zqq", "éqq"}, []string{"kqq", "qq"}},
		{"[^a]", []string{"^", "a"}, []string{"b"}},
		{"[a-cx]", []string{"a", "b", "c", "x"}, []string{"d", "-"}},
		{"[a-]", []string{"a", "-"}, []string{"b"}},
		{"[-a]", []string{"a", "-"}, []string{"b"}},
		{"[c-a]", nil, []string{"a", "b", "c", "-"}},
		{"[!c-a]", []string{"a"}, []string{""}},
		{"[]]", []string{"]"}, []string{"[]]"}},
		{"[!]]", []string{"a"}, []string{"]"}},
		{"[]a]", []string{"]", "a"}, []string{"[]a]"}},
		{"[", []string{"["}, []string{""}},
		{"[]", []string{"[]"}, []string{""}},
		{"[!]", []string{"[!]"}, []string{"x"}},
		{"a[b", []string{"a[b"}, []string{"ab"}},
		{"[é-ü]", []string{"ö"}, []string{"o", "\xc3"}},
		{"[*?]", []string{"*", "?"}, []string{"a"}},
		{`\*`, []string{`\`, `\a`}, []string{"*"}},
		{"{a,b}", []string{"{a,b}"}, []string{"a"}},
		{"é", []string{"\u00e9"}, []string{"e\u0301"}},
		{"*\xa9", []string{"\xa9", "x\xa9"}, []string{"é"}},
		{"\xc3*", []string{"\xc3", "\xc3x"}, []string{"é"}},
		{"/usr/bin/*", []string{"/usr/bin/ls", "/usr/bin/x/y"}, []string{"/usr/bin", "/usr/binx"}},
	} {
		g := CompileGlob(c.pattern)
		for _, s := range c.yes {
			if !g.Match(s) {
				t.Errorf("%q does not match %q", c.pattern, s)
			}
		}
		for _, s := range c.no {
			if g.Match(s) {
				t.Errorf("%q matches %q", c.pattern, s)
			}
		}
	}
	if zero := (Glob{}); !zero.Match("") || zero.Match("a") {
		t.Error("the zero Glob matches other than the empty string")
	}
}

// What makes backtracking matchers run for years must be over at once.
func TestManyStarsAreFast(t *testing.T) {
	long := strings.Repeat("a", 1<<16)
	for _, pattern := range []string{
		strings.Repeat("a*", 200) + "b",
		strings.Repeat("*a", 200) + "b",
		strings.Repeat("*?a", 200) + "b",
		strings.Repeat("[a]*", 200) + "b",
		"/" + strings.Repeat("*[!b]", 200) + "b",
	} {
		g := CompileGlob(pattern)
		start := time.Now()
		if g.Match(long) || g.matchAncestor(strings.Repeat("/a", 1<<15)) {
			t.Errorf("%.20q matches", pattern)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%.20q took %v", pattern, d)
		}
	}
}

func TestGlobWithoutCase(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*.PEM", "x.pem", true},
		{".ssh", ".SSH", true},
		{"STRASSE", "straße", false},
		{"[A-C]x", "bX", true},
		{"[!k]q", "Kq", false},
		{"É", "é", true},
		{"k", "\u212a", true}, // the Kelvin sign
		{"a", "b", false},
		{"\xff", "\xff", true},
	} {
		if got := compileGlob(c.pattern, true).Match(fold(c.s)); got != c.want {
			t.Errorf("%q folded against %q: %v", c.pattern, c.s, got)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{
		{"*.pem", "x.pem"},
		{"a*b*c", "aXbXc"},
		{"[!a-c]?", "zé"},
		{"[]-a]*", "_"},
		{"*\xa9", "é"},
		{"/a/*/b", "/a/x/b/c"},
		{"**a**", "bab"},
		{"[", "["},
		{"?\xc3?", "a\xc3\xa9"},
		{"*[!/]", "/a/b"},
		{"*/b", "/a/b/c"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 200 || len(s) > 200 {
			return
		}
		g := CompileGlob(pattern)
		if got, want := g.Match(s), slowGlob(pattern, s); got != want {
			t.Errorf("Match(%q, %q) = %v", pattern, s, got)
		}
		want := false
		for i := 0; i <= len(s); i++ {
			want = want || (i == len(s) || s[i] == '/') && slowGlob(pattern, s[:i])
		}
		if got := g.matchAncestor(s); got != want {
			t.Errorf("matchAncestor(%q, %q) = %v", pattern, s, got)
		}
	})
}

// slowGlob is the definition: try everything, remember what failed.
func slowGlob(pattern, s string) bool {
	p, text := slowChars(pattern), slowChars(s)
	failed := map[[2]int]bool{}
	var match func(i, j int) bool
	match = func(i, j int) bool {
		if failed[[2]int{i, j}] {
			return false
		}
		ok := false
		switch {
		case i == len(p):
			ok = j == len(text)
		case p[i] == "*":
			ok = match(i+1, j) || j < len(text) && match(i, j+1)
		case j == len(text):
		case p[i] == "?":
			ok = match(i+1, j+1)
		default:
			if in, next := slowSet(p, i, text[j]); next > i {
				ok = in && match(next, j+1)
			} else {
				ok = p[i] == text[j] && match(i+1, j+1)
			}
		}
		if !ok {
			failed[[2]int{i, j}] = true
		}
		return ok
	}
	return match(0, 0)
}

func slowChars(s string) (chars []string) {
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		chars = append(chars, s[:n])
		s = s[n:]
	}
	return chars
}

// slowSet tells whether c is in the set that begins at p[i], and where the
// pattern goes on; next is i when no set begins there.
func slowSet(p []string, i int, c string) (in bool, next int) {
	if p[i] != "[" {
		return false, i
	}
	start, negated := i+1, false
	if start < len(p) && p[start] == "!" {
		start, negated = start+1, true
	}
	end := start + 1
	for end < len(p) && p[end] != "]" {
		end++
	}
	if end >= len(p) {
		return false, i
	}
	for k := start; k < end; k++ {
		if k+2 < end && p[k+1] == "-" {
			in = in || slowOrder(p[k]) <= slowOrder(c) && slowOrder(c) <= slowOrder(p[k+2])
			k += 2
		} else {
			in = in || p[k] == c
		}
	}
	return in != negated, end + 1
}

// slowOrder puts bytes outside UTF-8 above all characters.
func slowOrder(c string) int {
	if r, n := utf8.DecodeRuneInString(c); r != utf8.RuneError || n > 1 {
		return int(r)
	}
	return 1<<24 + int(c[0])
}
