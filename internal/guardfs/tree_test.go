package guardfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// treeIn opens the tree d of a fresh base directory, beside which "out" has a file.
func treeIn(t *testing.T, rules *policy.PathRules) (tree *Tree, base string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := New(func() string { return base }, base)
	t.Cleanup(func() { _ = f.Close() })
	for _, dir := range []string{"d/sub", "out"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "out/f"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if tree, err = f.Guard(rules, "", nil).Tree("d"); err != nil {
		t.Fatal(err)
	}
	if err := tree.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tree.Close() })
	return tree, base
}

func fill(t *Tree, rel, text string, keep bool) error {
	f, err := t.Create(rel, keep)
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte(text)); err != nil {
		f.Abort()
		return err
	}
	return f.Commit(nil, time.Time{})
}

func noTemps(t *testing.T, base string) {
	t.Helper()
	_ = filepath.WalkDir(base, func(p string, _ fs.DirEntry, _ error) error {
		if isTemp(filepath.Base(p)) {
			t.Errorf("left behind: %s", p)
		}
		return nil
	})
}

func TestTreeWritesNothingOutside(t *testing.T) {
	tree, base := treeIn(t, nil)
	for name, text := range map[string]string{"up": "../out", "abs": filepath.Join(base, "out"), "sub/far": "../../out", "loop": "loop", "in": "sub", "file": "../out/f", "abyss": "../out/none"} {
		if err := os.Symlink(text, filepath.Join(base, "d", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"up/x", "abs/x", "sub/far/x", "loop/x", "in/far/x", "file/x", "abyss/x", "up/n/x"} {
		if err := fill(tree, name, "new", false); !errors.Is(err, ErrEscapes) {
			t.Errorf("file %s: %v", name, err)
		}
		if err := tree.Mkdir(name); !errors.Is(err, ErrEscapes) {
			t.Errorf("directory %s: %v", name, err)
		}
		if err := tree.Symlink("y", name, false); !errors.Is(err, ErrEscapes) {
			t.Errorf("link %s: %v", name, err)
		}
		if err := tree.Link(name, "twin", false); !errors.Is(err, ErrEscapes) {
			t.Errorf("twin of %s: %v", name, err)
		}
	}
	if err := tree.Mkdir("up"); !errors.Is(err, ErrEscapes) {
		t.Errorf("directory up: %v", err)
	}
	if err := fill(tree, "in/x", "new", false); err != nil {
		t.Errorf("through a link that stays inside: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(base, "d/sub/x")); string(text) != "new" {
		t.Errorf("through a link: %q", text)
	}
	// A link at the end is replaced, not written through.
	if err := fill(tree, "file", "new", false); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(filepath.Join(base, "out/f")); string(text) != "old" {
		t.Errorf("written through a link: %q", text)
	}
	if names, _ := os.ReadDir(filepath.Join(base, "out")); len(names) != 1 {
		t.Errorf("outside there is %v", names)
	}
	noTemps(t, base)
}

func TestTreeReplacesOnlyWhatItMay(t *testing.T) {
	tree, base := treeIn(t, nil)
	if err := unix.Mkfifo(filepath.Join(base, "d/p"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func(rel string) error
	}{
		{"file", func(rel string) error { return fill(tree, rel, "1", false) }},
		{"link", func(rel string) error { return tree.Symlink("a", rel, false) }},
		{"twin", func(rel string) error { return tree.Link("a", rel, false) }},
	} {
		if err := fill(tree, "a", "a", false); err != nil {
			t.Fatal(err)
		}
		if err := c.do("sub"); !errors.Is(err, ErrIsDirectory) {
			t.Errorf("%s over a directory: %v", c.name, err)
		}
		if err := c.do("p"); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s over a FIFO: %v", c.name, err)
		}
		if err := c.do("a/b"); !errors.Is(err, ErrNotDirectory) {
			t.Errorf("%s below a file: %v", c.name, err)
		}
		for range 2 { // the second time it is there already
			if err := c.do("n"); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	if err := tree.Mkdir("a"); !errors.Is(err, ErrAlreadyExists) {
		t.Errorf("directory over a file: %v", err)
	}
	for name, err := range map[string]error{
		"file": fill(tree, "n", "2", true), "link": tree.Symlink("a", "n", true), "twin": tree.Link("a", "n", true),
	} {
		if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != policy.FileExists {
			t.Errorf("keep, %s: %v", name, err)
		}
	}
	if err := tree.Link("none", "m", false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("twin of nothing: %v", err)
	}
	noTemps(t, base)
}

func TestTreeKeepsTheRules(t *testing.T) {
	tree, base := treeIn(t, policy.NewPathRules(nil, []string{"**/*.pem", "**/secret"}, false, false, false))
	if err := os.WriteFile(filepath.Join(base, "d/k.pem"), []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"file": fill(tree, "x.pem", "1", false), "below": fill(tree, "secret/x", "1", false), "directory": tree.Mkdir("secret"),
		"link": tree.Symlink("a", "l.pem", false), "twin of a denied file": tree.Link("k.pem", "k", false),
	} {
		if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != policy.PathDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, code := range map[string]policy.Code{".abx-tmp-x": policy.InvalidPath, "a\x00b": policy.InvalidPath} {
		if d, ok := errors.AsType[*policy.Denied](fill(tree, name, "1", false)); !ok || d.Code != code {
			t.Errorf("%q: %v", name, d)
		}
	}
	if _, err := os.Lstat(filepath.Join(base, "d/secret")); err == nil {
		t.Error("made a denied directory")
	}
}

func TestTreeLeads(t *testing.T) {
	tree, _ := treeIn(t, nil)
	planned := map[string]string{"a/up": "..", "a/b": "."}
	links := func(rel string) (string, bool) { text, ok := planned[rel]; return text, ok }
	for _, c := range []struct {
		at, text string
		ok       bool
	}{
		{"l", "x", true},
		{"l", "sub/../x", true},
		{"l", ".", true},
		{"l", "..", false},
		{"l", "../d", true},
		{"l", "../d/..", false},
		{"sub/l", "../x", true},
		{"sub/l", "../..", false},
		{"l", "none/../..", false},
		{"l", "/", false},
		{"l", "/etc", false},
		{"l", tree.Path() + "/x", true},
		{"l", "", false},
		{"l", "a\x00", false},
		{"l", "a/up/x", true},
		{"l", "a/up/../x", false},
		{"l", "a/b/../x", true},
		{"l", "a/b/../../x", false},
	} {
		if err := tree.Leads(c.at, c.text, links); (err == nil) != c.ok {
			t.Errorf("%s -> %s: %v", c.at, c.text, err)
		}
	}
}

// The destination and a directory in it are exchanged with links to another
// one all the time; not one file may come there.
func TestTreeWhileDirectoriesAreExchanged(t *testing.T) {
	tree, base := treeIn(t, nil)
	d := filepath.Join(base, "d")
	if err := os.Symlink("../out", filepath.Join(d, "evil")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("out", filepath.Join(base, "evil")); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(base, "d/sub"), unix.AT_FDCWD, filepath.Join(base, "d/evil"), unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, d, unix.AT_FDCWD, filepath.Join(base, "evil"), unix.RENAME_EXCHANGE)
		}
	}()
	written := 0
	for i := range 3000 {
		name := "sub/f"
		if i%3 == 0 {
			name = "sub/new/f"
		}
		if fill(tree, name, "new", false) == nil {
			written++
		}
		_ = tree.Mkdir("sub/dir")
		_ = tree.Symlink("f", "sub/l", false)
		_ = tree.Link("sub/f", "sub/twin", false)
		tree.forget()
	}
	close(stop)
	<-done
	if written == 0 {
		t.Error("nothing was written at all")
	}
	names, err := os.ReadDir(filepath.Join(base, "out"))
	if err != nil || len(names) != 1 {
		t.Errorf("outside there is %v, %v", names, err)
	}
	if text, _ := os.ReadFile(filepath.Join(base, "out/f")); string(text) != "old" {
		t.Errorf("outside was written: %q", text)
	}
}
