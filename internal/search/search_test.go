package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// field is a directory to search in.
type field struct {
	t    testing.TB
	base string
	fs   *guardfs.FS
}

func newField(t testing.TB) *field {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &field{t, base, guardfs.New(func() string { return base }, base)}
	t.Cleanup(func() { _ = f.fs.Close() })
	return f
}

// write makes files; a text that begins with "-> " makes a link.
func (f *field) write(files map[string]string) {
	f.t.Helper()
	for name, text := range files {
		p := filepath.Join(f.base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			f.t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, p)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(p, 0o755)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *field) guard(rules *policy.PathRules) *guardfs.Guard { return f.fs.Guard(rules, "", nil) }

// query has the defaults of a call.
func query(pattern string) Query {
	return Query{Path: ".", Name: Compile(pattern, false), Depth: 100, Max: 1000, Timeout: time.Minute}
}

func (f *field) content(text string, o ExpressionOptions) *Content {
	f.t.Helper()
	x, err := CompileExpression(text, o)
	if err != nil {
		f.t.Fatal(err)
	}
	return &Content{Expression: x, Guard: f.guard(nil), MaxMatches: 100, MaxSize: 10 << 20}
}

// run returns the paths of hits, relative and in order.
func (f *field) run(q Query) ([]string, Summary) {
	f.t.Helper()
	names := []string{}
	sum, err := Run(f.t.Context(), f.guard(nil), q, func(h Hit) bool {
		rel, _ := filepath.Rel(f.base, h.Info.Path)
		names = append(names, rel)
		return true
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return names, sum
}

func (f *field) want(what string, q Query, want ...string) {
	f.t.Helper()
	got, _ := f.run(q)
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, got); d != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestNamesAreFoundLevelByLevel(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{
		"b.py": "", "a/x/z.py": "", "a/y.py": "", "c/y.py": "", "c/.h.py": "", ".hid/q.py": "", "B.PY": "", "dir.py/": "", "l.py": "-> a/y.py",
		"dl.py": "-> a", "gone.py": "-> nowhere", "outside.py": "-> /etc/passwd", "loop.py": "-> loop.py",
	})
	f.want("order", query("*.py"), "b.py", "gone.py", "l.py", "loop.py", ".hid/q.py", "a/y.py", "c/.h.py", "c/y.py", "a/x/z.py")

	q := query("*.py")
	q.NoHidden = true
	f.want("hidden", q, "b.py", "gone.py", "l.py", "loop.py", "a/y.py", "c/y.py", "a/x/z.py")
	q.Exclude = []Pattern{Compile("x", false), Compile("c/*", false), Compile("g*", false)}
	f.want("exclude", q, "b.py", "l.py", "loop.py", "a/y.py")
	q = query("")
	q.Name = Compile("b.P?", true)
	f.want("ignore case", q, "B.PY", "b.py")
	q = query("*")
	q.Type = Directories
	f.want("directories", q, ".hid", "a", "c", "dir.py", "a/x")
	q.Type, q.Depth = Any, 1
	f.want("any", q, ".hid", "B.PY", "a", "b.py", "c", "dir.py", "gone.py", "l.py", "loop.py")
	q.Depth = 0
	f.want("no depth", q)
}

func TestMaxTellsWhetherThereIsMore(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"a": "", "b": "", "c": ""})
	for _, c := range []struct {
		max, hits int
		truncated bool
	}{{2, 2, true}, {3, 3, false}, {4, 3, false}, {0, 0, false}, {-1, 0, false}} {
		q := query("*")
		q.Max = c.max
		got, sum := f.run(q)
		if len(got) != c.hits || sum.Truncated != c.truncated {
			t.Errorf("max %d: %d hits, truncated %v", c.max, len(got), sum.Truncated)
		}
	}
}

func TestWhatIsNoDirectoryIsNotFound(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"f": ""})
	for _, max := range []int{0, 10} {
		for _, path := range []string{"f", "none", "f/x"} {
			q := query("*")
			q.Path, q.Max = path, max
			if _, err := Run(t.Context(), f.guard(nil), q, func(Hit) bool { return true }); !os.IsNotExist(err) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

func TestDeniedEntriesAreInvisible(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"a.pem": "needle", "secret/b": "needle", "ok": "needle", "l": "-> a.pem"})
	rules := policy.NewPathRules(nil, []string{"**/*.pem", "**/secret"}, false, false, false)
	for _, q := range []Query{query("*"), {Path: ".", Name: Compile("*", false), Depth: 9, Max: 9, Timeout: time.Minute, Content: f.content("needle", ExpressionOptions{})}} {
		var got []string
		if _, err := Run(t.Context(), f.guard(rules), q, func(h Hit) bool { got = append(got, h.Info.Name); return true }); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, []string{"ok"}) {
			t.Errorf("found %q", got)
		}
	}
}

// The content of a file is shown only if the second view permits it too.
func TestContentNeedsTheSecondView(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"a.key": "needle", "deep/b.key": "needle", "ok": "needle", "l": "-> a.key", "m": "-> ok"})
	if err := os.Link(filepath.Join(f.base, "ok"), filepath.Join(f.base, "twin")); err != nil {
		t.Fatal(err)
	}
	q := query("*")
	q.Content = f.content("needle", ExpressionOptions{})
	f.want("all", q, "a.key", "l", "m", "ok", "twin", "deep/b.key")
	q.Content.Guard = f.guard(policy.NewPathRules(nil, []string{"**/*.key"}, false, false, false))
	f.want("denied", q, "m", "ok", "twin")
	q.Content.Guard = f.guard(policy.NewPathRules(nil, nil, false, true, false))
	f.want("no links", q, "a.key", "ok", "twin", "deep/b.key")
	q.Content.Guard = f.guard(policy.NewPathRules(nil, nil, false, false, true))
	f.want("no hard links", q, "a.key", "l", "deep/b.key")
	q.Content.Guard = f.guard(policy.NewPathRules([]string{filepath.Join(f.base, "deep")}, nil, false, false, false))
	f.want("another root", q, "deep/b.key")
	q.Content.MaxSize = 3
	f.want("size", q)
}

func TestAFIFODoesNotHoldUpTheSearch(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"a": "needle"})
	mkfifo(t, filepath.Join(f.base, "p"))
	q := query("*")
	f.want("names", q, "a", "p")
	q.Content = f.content("needle", ExpressionOptions{})
	f.want("content", q, "a")
}

func TestSearchEndsWithItsTimeAndItsCaller(t *testing.T) {
	f := newField(t)
	files := map[string]string{}
	for i := range 300 {
		files[fmt.Sprintf("d%d/f", i)] = strings.Repeat("abc", 5000)
	}
	f.write(files)
	q := query("*")
	q.Content = f.content("[a-z]+x", ExpressionOptions{})
	q.Timeout = 1
	got, sum := f.run(q)
	if !sum.TimedOut || len(got) != 0 {
		t.Errorf("%d hits, %+v", len(got), sum)
	}
	ctx, cancel := context.WithCancel(t.Context())
	q.Timeout, q.Content = time.Minute, f.content("a", ExpressionOptions{})
	_, err := Run(ctx, f.guard(nil), q, func(Hit) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
}

// One line of a long file must not hold a search beyond its time.
func TestALongLineCanBeLeft(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{"f": strings.Repeat("a", 8<<20) + "b"})
	q := query("*")
	q.Content = f.content("(a?){500}b{1,400}c", ExpressionOptions{})
	q.Timeout = 50 * time.Millisecond
	done := make(chan Summary, 1)
	go func() { _, sum := f.run(q); done <- sum }()
	select {
	case sum := <-done:
		if !sum.TimedOut {
			t.Errorf("%+v", sum)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("does not end")
	}
}

func TestOrderDoesNotDependOnTheScanners(t *testing.T) {
	f := newField(t)
	files := map[string]string{}
	var want []string
	for i := range 400 {
		name := fmt.Sprintf("f%03d", i)
		files[name] = strings.Repeat("x\n", i%7*3000) + "needle"
		want = append(want, name)
	}
	f.write(files)
	q := query("*")
	q.Content = f.content("needle", ExpressionOptions{})
	f.want("order", q, want...)
	q.Max = 17
	got, sum := f.run(q)
	if !slices.Equal(got, want[:17]) || !sum.Truncated || sum.Files != 18 {
		t.Errorf("%d hits, %+v", len(got), sum)
	}
}

func TestGitIgnore(t *testing.T) {
	f := newField(t)
	f.write(map[string]string{
		".git/config": "", ".gitignore": "*.log\n/build/\n!keep.log\ndocs/**/*.tmp\n",
		"a.log": "", "keep.log": "", "build/x": "", "sub/build/x": "", "sub/.gitignore": "!b.log\nlocal\n", "sub/b.log": "", "sub/c.log": "", "sub/local": "",
		"sub/deep/er/local": "", "docs/a.tmp": "", "docs/x/y/b.tmp": "", "local": "",
	})
	q := query("*")
	q.GitIgnore = true
	f.want("from the top", q, ".gitignore", "keep.log", "local", "sub/.gitignore", "sub/b.log", "sub/build/x")
	q.Path = "sub/deep"
	f.want("from within", q)
	q.Path = "docs"
	f.want("rules from above", q)
	q.GitIgnore = false
	f.want("without", q, "docs/a.tmp", "docs/x/y/b.tmp")
}
