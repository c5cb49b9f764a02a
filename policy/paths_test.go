package policy

import (
	"path"
	"strings"
	"testing"
)

func base(allow ...string) []Root {
	var roots []Root
	for _, a := range allow {
		roots = append(roots, Root{a, a})
	}
	return roots
}

func deny(patterns ...string) *PathRules { return NewPathRules(nil, patterns, false, false, false) }

func TestDenyPatterns(t *testing.T) {
	r := deny("*.pem", ".env", "/base/a/b", "**/.ssh", "sub/secret", "[x]yz", "A?", "[!k]qq", "slash/", "**/c/app.cfg", "/base/g/*/end")
	for _, p := range []string{
		"x.pem", "x.pem/y", "q/x.pem", ".env", "sub/.env", "x/.env/y", "a/b", "a/b/c", ".ssh", ".ssh/id", "z/.ssh/k",
		"sub/secret", "sub/secret/d", "y/sub/secret", "a/sub/secret/x", "xyz", "Ab", "zqq", "slash", "q/slash/f",
		"c/app.cfg", "d/c/app.cfg/e", "g/x/end", "g/x/y/end/z",
	} {
		if d := r.Decide("/base/"+p, "/base/"+p, base("/base"), Read); d.Code != PathDenied {
			t.Errorf("%s: %q, want it denied", p, d.Code)
		}
	}
	for _, p := range []string{
		"X.PEM", ".envx", "a/bc", "a", "xsub/secret", "a/xsub/secret", "q/ab", "kqq", "sub", "ayz", "slashx",
		"xc/app.cfg", "c/app.cfgx", "g/end", "g/x/endx", "z/base/a/b",
	} {
		if d := r.Decide("/base/"+p, "/base/"+p, base("/base"), Delete); !d.OK() {
			t.Errorf("%s: %q, want it allowed", p, d.Code)
		}
	}
	// Both the resolved and the cleaned path count.
	for _, c := range [][2]string{{"/base/alias", "/base/k.pem"}, {"/base/k.pem", "/base/plain"}} {
		if d := r.Decide(c[0], c[1], base("/base"), Read); d.Code != PathDenied {
			t.Errorf("%v: %q, want it denied", c, d.Code)
		}
	}
}

func TestDenyPatternsAreReadAsPaths(t *testing.T) {
	for _, c := range []struct{ pattern, denied string }{
		{"/base//a/./b", "/base/a/b/c"},
		{"/base/a/", "/base/a"},
		{"sub//secret", "/base/sub/secret"},
		{"./secret", "/base/x/secret"},
		{"**//x", "/base/x"},
		{"**/**/x", "/base/q/x"},
		{"**/", "/base/q"},
		{"[a/]x/y", "/base/ax/y"},
	} {
		if d := deny(c.pattern).Decide(c.denied, c.denied, base("/base"), Read); d.Code != PathDenied {
			t.Errorf("%q does not deny %s", c.pattern, c.denied)
		}
	}
}

func TestDenyRootDeniesEverything(t *testing.T) {
	for _, p := range []string{"/", "//", "/./", "/*", "/**/"} {
		r := deny(p)
		if d := r.Decide("/base/x", "/base/x", base("/base"), Read); d.Code != PathDenied {
			t.Errorf("deny %q: %q", p, d.Code)
		}
		if !r.DeniesEntry("/base", "x") {
			t.Errorf("deny %q lets an entry through", p)
		}
	}
	if d := deny("").Decide("/base/x", "/base/x", base("/base"), Read); !d.OK() {
		t.Errorf(`deny "" denies: %q`, d.Code)
	}
}

func TestDecideOrder(t *testing.T) {
	all := NewPathRules(nil, []string{"no"}, true, true, false)
	for _, c := range []struct {
		clean, real string
		op          Op
		want        Code
	}{
		{"/base/no", "/etc/no", Write, PathNotAllowed},
		{"/base/l/no", "/base/no", Write, SymlinkDenied},
		{"/base/no", "/base/no", Write, PathDenied},
		{"/base/a", "/base/a", Write, ReadOnlyPath},
		{"/base/a", "/base/a", Delete, ReadOnlyPath},
		{"/base/a", "/base/a", Read, Allowed},
		{"/base/a", "/base/a", Exec, Allowed},
		{"/base", "/base", Read, Allowed},
		{"/basex", "/basex", Read, PathNotAllowed},
		{"/", "/", Read, PathNotAllowed},
	} {
		if d := all.Decide(c.clean, c.real, base("/base"), c.op); d.Code != c.want {
			t.Errorf("%s → %s, %v: %q, want %q", c.clean, c.real, c.op, d.Code, c.want)
		}
	}
	if d := all.Decide("/base", "/base", nil, Read); d.Code != PathNotAllowed {
		t.Errorf("no roots at all: %q", d.Code)
	}
}

func TestOutsideLinksAreNoOracle(t *testing.T) {
	r := deny()
	back := r.Decide("/outside/back", "/base/x", base("/base"), Read)
	none := r.Decide("/outside/none", "/outside/none", base("/base"), Read)
	if back != none || back.Code != PathNotAllowed {
		t.Errorf("a link back inside answers %+v, nothing %+v", back, none)
	}
}

func TestSystemTreesAreAlwaysDenied(t *testing.T) {
	var zero PathRules
	for _, c := range [][2]string{
		{"/proc", "/proc"},
		{"/proc/self/environ", "/proc/self/environ"},
		{"/sys/kernel", "/sys/kernel"},
		{"/dev/null", "/dev/null"},
		{"/home/p", "/proc/self"},
		{"/dev/fd/3", "/home/x"},
	} {
		if d := zero.Decide(c[0], c[1], base("/"), Read); d.Code != PathDenied {
			t.Errorf("%v: %q", c, d.Code)
		}
	}
	for _, p := range []string{"/", "/etc/proc", "/procx", "/home"} {
		if d := zero.Decide(p, p, base("/"), Read); !d.OK() {
			t.Errorf("%s: %q", p, d.Code)
		}
	}
	if !zero.DeniesEntry("/", "proc") || zero.DeniesEntry("/home", "proc") || zero.DeniesEntry("/", "home") {
		t.Error("a walk sees the system trees wrongly")
	}
}

func TestSymlinksNever(t *testing.T) {
	r := NewPathRules(nil, nil, false, true, false)
	roots := []Root{{"/alias", "/base"}, {"/base/in/link", "/base/d"}}
	for _, c := range []struct {
		clean, real string
		want        Code
	}{
		{"/base/ld", "/base/d", SymlinkDenied},
		{"/alias/ld/f", "/base/d/f", SymlinkDenied},
		{"/alias/dangling", "/base/nothing", SymlinkDenied},
		{"/alias", "/base", Allowed},
		{"/base", "/base", Allowed},
		{"/alias/d/f", "/base/d/f", Allowed},
		{"/base/in/link/f", "/base/d/f", Allowed}, // the link is in the root's own name
		{"/base/in/link", "/base/d", Allowed},
		{"/base/out", "/etc", PathNotAllowed},
	} {
		if d := r.Decide(c.clean, c.real, roots, Read); d.Code != c.want {
			t.Errorf("%s → %s: %q, want %q", c.clean, c.real, d.Code, c.want)
		}
	}
	whole := []Root{{"/", "/"}}
	if d := r.Decide("/bin/ls", "/usr/bin/ls", whole, Read); d.Code != SymlinkDenied {
		t.Errorf("a link below /: %q", d.Code)
	}
	if d := r.Decide("/usr/bin/ls", "/usr/bin/ls", whole, Read); !d.OK() {
		t.Errorf("no link below /: %q", d.Code)
	}
}

// A deny list that was not compiled must not be lost.
func TestRulesWrittenAsALiteralStillDeny(t *testing.T) {
	r := &PathRules{Deny: []string{"*.pem"}}
	if d := r.Decide("/base/x.pem", "/base/x.pem", base("/base"), Read); d.Code != PathDenied {
		t.Errorf("%q", d.Code)
	}
	if !r.DeniesEntry("/base", "x.pem") || !r.HasDeny() {
		t.Error("a walk does not see the deny list")
	}
}

func TestFoldedRulesDenyOtherSpellings(t *testing.T) {
	r := deny("*.pem", "Sub/Secret", "/base/A/b")
	for _, p := range []string{"/base/X.PEM", "/base/sub/SECRET/x", "/base/a/B"} {
		if d := r.Decide(p, p, base("/base"), Read); !d.OK() {
			t.Errorf("%s: %q though case counts", p, d.Code)
		}
		if d := r.Folded().Decide(p, p, base("/base"), Read); d.Code != PathDenied {
			t.Errorf("%s: %q though case does not count", p, d.Code)
		}
		if !r.Folded().DeniesEntry(path.Dir(p), path.Base(p)) && !strings.HasSuffix(p, "/x") {
			t.Errorf("%s: a walk lets it through", p)
		}
	}
}

func TestRoots(t *testing.T) {
	r := Roots{{"/alias", "/base/one"}, {"/base/two", "/base/two"}}
	for p, want := range map[string][3]bool{ // contained, a root, holds a root
		"/base/one":   {true, true, true},
		"/base/one/x": {true, false, false},
		"/base/onex":  {false, false, false},
		"/alias":      {false, true, true},
		"/base":       {false, false, true},
		"/":           {false, false, true},
		"/base/two":   {true, true, true},
	} {
		if got := [3]bool{r.Contains(p), r.IsRoot(p), r.HoldsRoot(p)}; got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}
	}
	if root, ok := r.Of("/base/two/x"); !ok || root != r[1] {
		t.Errorf("Of: %v %v", root, ok)
	}
	if _, ok := r.Of("/etc"); ok {
		t.Error("Of finds a root for /etc")
	}
}

func FuzzPathDecide(f *testing.F) {
	f.Add("/base/a", "/base/b", "/base", "/r", "*.pem\na/b", "c", uint8(7))
	f.Add("/alias/x.pem", "/base/x.pem", "/alias", "/base", "/base/*/x\n.env", "x", uint8(1))
	f.Add("/b/s/c", "/b/s/c", "/b", "/b", "s/?\n[!a]/c", "q", uint8(0))
	f.Add("/b", "/b", "/", "/", "/\n", "proc", uint8(4))
	f.Fuzz(func(t *testing.T, clean, real, lexical, realRoot, patterns, name string, bits uint8) {
		clean, real, lexical, realRoot = path.Clean("/"+clean), path.Clean("/"+real), path.Clean("/"+lexical), path.Clean("/"+realRoot)
		list := strings.Split(patterns, "\n")
		if len(clean)+len(real)+len(patterns) > 150 || len(list) > 4 {
			return
		}
		for _, p := range list {
			if p != strings.TrimRight(p, "/") || p != path.Clean(p) {
				return // spelled otherwise: tested by a table
			}
		}
		roots := []Root{{lexical, realRoot}, {"/base", "/base"}}
		r := NewPathRules(nil, list, bits&1 != 0, bits&2 != 0, false)
		op := Op(bits >> 2 & 3)
		got := r.Decide(clean, real, roots, op).Code
		if want := slowDecide(r, clean, real, roots, op); got != want {
			t.Errorf("Decide(%q, %q, %v, %v) = %q, want %q; deny %q", clean, real, roots, op, got, want, list)
		}
		name = strings.ReplaceAll(name, "/", "")
		if name == "" || name == "." || name == ".." || slowDenied(list, real) {
			return
		}
		entry := path.Join(real, name)
		if got, want := r.DeniesEntry(real, name), slowDenied(list, entry); got != want {
			t.Errorf("DeniesEntry(%q, %q) = %v, deny %q", real, name, got, list)
		}
	})
}

// slowDecide is section by section what the rules say.
func slowDecide(r *PathRules, clean, real string, roots []Root, op Op) Code {
	named, inside, linkFree := false, false, false
	for _, root := range roots {
		for _, dir := range slowAncestors(clean) {
			named = named || dir == root.Lexical || dir == root.Real
		}
		for _, dir := range slowAncestors(real) {
			if dir != root.Real {
				continue
			}
			inside = true
			rel := strings.TrimPrefix(real, root.Real)
			linkFree = linkFree || clean == path.Join(root.Real, rel) || clean == path.Join(root.Lexical, rel)
		}
	}
	switch {
	case !named, !inside:
		return PathNotAllowed
	case r.SymlinksNever && !linkFree:
		return SymlinkDenied
	case slowDenied(r.Deny, clean), slowDenied(r.Deny, real):
		return PathDenied
	case r.ReadOnly && (op == Write || op == Delete):
		return ReadOnlyPath
	}
	return Allowed
}

func slowAncestors(p string) (dirs []string) {
	for ; p != "/"; p = path.Dir(p) {
		dirs = append(dirs, p)
	}
	return append(dirs, "/")
}

func slowDenied(patterns []string, p string) bool {
	for _, dir := range slowAncestors(p) {
		if dir == "/proc" || dir == "/sys" || dir == "/dev" {
			return true
		}
		for _, pattern := range patterns {
			for strings.HasPrefix(pattern, "**/") {
				pattern = pattern[3:]
			}
			switch {
			case pattern == "" || pattern == "/":
				if pattern == "/" {
					return true
				}
			case !strings.Contains(pattern, "/"):
				if dir != "/" && slowGlob(pattern, path.Base(dir)) {
					return true
				}
			case strings.HasPrefix(pattern, "/"):
				if slowGlob(pattern, dir) {
					return true
				}
			default:
				for i := range len(dir) {
					if dir[i] == '/' && slowGlob(pattern, dir[i+1:]) {
						return true
					}
				}
			}
		}
	}
	return false
}

func BenchmarkDeniesEntry(b *testing.B) {
	r := deny("**/.ssh", "**/.env", "**/.env.*", "**/*.pem", "**/id_rsa*", "**/id_ed25519*", "/base/a/b", "sub/secret")
	b.ReportAllocs()
	for b.Loop() {
		if r.DeniesEntry("/base/some/where", "file_0123.txt") {
			b.Fatal("denied")
		}
	}
}
