package guardfs

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestResolve(t *testing.T) {
	links := map[string]string{
		"/l": "d", "/abs": "/d/e", "/up": "../../d", "/d/back": "..", "/d/self": ".",
		"/loop": "loop", "/ping": "pong", "/pong": "ping", "/grow": "grow/x", "/d/in": "../loop/y",
		"/far": "none/../d/e", "/slash": "//d///e/", "/chain1": "chain2/e", "/chain2": "l",
	}
	for _, c := range []struct {
		in, want string
		loop     bool
	}{
		{"/", "/", false},
		{"/plain/x", "/plain/x", false},
		{"/l", "/d", false},
		{"/l/x", "/d/x", false},
		{"/abs/x", "/d/e/x", false},
		{"/up/x", "/d/x", false},
		{"/d/back/x", "/x", false},
		{"/d/back/d/back/l", "/d", false},
		{"/d/self/self/self", "/d", false},
		{"/loop", "/loop", true},
		{"/loop/a/b", "/loop/a/b", true},
		{"/ping/x", "/ping/x", true},
		{"/grow", "/grow/x", true},
		{"/d/in/z", "/loop/y/z", true},
		{"/far", "/d/e", false},
		{"/slash/f", "/d/e/f", false},
		{"/chain1/f", "/d/e/f", false},
	} {
		got, loop := resolve(c.in, inMap(links))
		if got != c.want || loop != c.loop {
			t.Errorf("resolve(%q) = %q, %v; want %q, %v", c.in, got, loop, c.want, c.loop)
		}
	}
}

func TestManyLinksAreGivenUpAsALoop(t *testing.T) {
	// l0 is twice l1, which is twice l2, …: 2^40 links without a loop.
	links := map[string]string{}
	for i := range 40 {
		n := "/l" + string(rune('A'+i))
		m := "l" + string(rune('A'+i+1))
		links[n] = m + "/.././" + m
	}
	if _, loop := resolve("/lA", inMap(links)); !loop {
		t.Error("not given up")
	}
}

func inMap(links map[string]string) func(string) (string, bool) {
	return func(p string) (string, bool) { text, ok := links[p]; return text, ok }
}

// slowly is the definition: put the text of the first link in its place and
// begin again, until there is none.
func slowly(p string, link func(string) (string, bool)) (string, bool) {
	for range maxLinks + 1 {
		done, rest, found := "/", strings.Split(p, "/"), false
		for i, name := range rest {
			switch name {
			case "", ".":
				continue
			case "..":
				done = path.Dir(done)
				continue
			}
			next := path.Join(done, name)
			text, ok := link(next)
			if !ok {
				done = next
				continue
			}
			if !strings.HasPrefix(text, "/") {
				text = done + "/" + text
			}
			p, found = text+"/"+strings.Join(rest[i+1:], "/"), true
			break
		}
		if !found {
			return done, false
		}
	}
	return "", true
}

func checkResolve(t interface{ Errorf(string, ...any) }, p string, links map[string]string) {
	got, loop := resolve(p, inMap(links))
	want, wantLoop := slowly(p, inMap(links))
	if loop != wantLoop || !loop && got != want {
		t.Errorf("resolve(%q) = %q, %v; want %q, %v; links %q", p, got, loop, want, wantLoop, links)
	}
	if !path.IsAbs(got) || path.Clean(got) != got {
		t.Errorf("resolve(%q) = %q, which is not absolute and clean", p, got)
	}
}

func TestResolveAgainstItsDefinition(t *testing.T) {
	name := rapid.StringMatching(`/?((a|b|c|\.\.|\.)/){0,3}(a|b|c|\.\.)/?`)
	rapid.Check(t, func(t *rapid.T) {
		links := map[string]string{}
		for range rapid.IntRange(0, 8).Draw(t, "links") {
			at := path.Clean("/" + name.Draw(t, "at"))
			if at != "/" {
				links[at] = name.Draw(t, "text")
			}
		}
		checkResolve(t, path.Clean("/"+name.Draw(t, "path")), links)
	})
}

func FuzzResolve(f *testing.F) {
	f.Add("/l/x", "/l\nd\n/d\n/e")
	f.Add("/loop", "/loop\nloop")
	f.Add("/a/b/c", "/a\n..\n/b\n../../c")
	f.Add("/x", "/x\n")
	f.Fuzz(func(t *testing.T, p, text string) {
		if len(text) > 4096 || len(p) > 4096 {
			return
		}
		links := map[string]string{}
		parts := strings.Split(text, "\n")
		for i := 0; i+1 < len(parts); i += 2 {
			if at := path.Clean("/" + parts[i]); at != "/" && parts[i+1] != "" {
				links[at] = parts[i+1]
			}
		}
		checkResolve(t, path.Clean("/"+p), links)
	})
}

// TestNamesLeadWhereTheKernelSaysTheyLead compares whole calls, on both ways
// through the kernel, with the plain answer of the standard library.
func TestNamesLeadWhereTheKernelSaysTheyLead(t *testing.T) {
	onBoth(t, func(g *ground) {
		mkdirs(t, g.in("a", "b"), g.in("c"), g.out("d"))
		names := []string{"a", "b", "c", "f", "l", "m", "..", "."}
		rapid.Check(g.t, func(t *rapid.T) {
			dir, err := os.MkdirTemp(g.base, "t")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			some := func(label string) string {
				return strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, label), "/")
			}
			for range rapid.IntRange(0, 6).Draw(t, "entries") {
				at := filepath.Join(dir, filepath.Clean("/"+some("at")))
				_ = os.MkdirAll(filepath.Dir(at), 0o755)
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					_ = os.MkdirAll(at, 0o755)
				case 1:
					_ = os.WriteFile(at, []byte(at), 0o600)
				case 2:
					_ = os.Symlink(some("text"), at)
				case 3:
					to := rapid.SampledFrom([]string{dir, g.base, g.outside, g.outside + "/none", "/"}).Draw(t, "to")
					_ = os.Symlink(to+"/"+some("below"), at)
				}
			}
			name := filepath.Clean(dir + "/" + some("name"))
			info, err := g.guard().Stat(name, true)
			real, loop := slowly(name, readLink)
			if kernel, err := filepath.EvalSymlinks(name); err == nil && kernel != real {
				t.Fatalf("%s leads to %s, the definition says %s", name, kernel, real)
			}
			want, lstatErr := os.Lstat(real)
			switch {
			case loop:
				if !policy.IsDenied(err) && !errors.Is(err, os.ErrNotExist) {
					t.Fatalf("%s is a loop, got %+v, %v", name, info, err)
				}
			case !within(g.base, name) || !within(g.base, real):
				if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != policy.PathNotAllowed {
					t.Fatalf("%s leads to %s: %v", name, real, err)
				}
			case lstatErr != nil:
				if !errors.Is(err, os.ErrNotExist) || info.Path != real {
					t.Fatalf("%s leads to %s, which is not there, got %+v, %v", name, real, info, err)
				}
			case err != nil || info.Path != real || info.IsDir() != want.IsDir():
				t.Fatalf("%s leads to %s, got %+v, %v", name, real, info, err)
			}
		})
	})
}
