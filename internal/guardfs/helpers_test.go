package guardfs

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.nofailfile", "true") // the seed in the output is enough
	os.Exit(m.Run())
}

// ground is a base directory with something beside it that must stay untouched.
type ground struct {
	t        *testing.T
	fs       *FS
	base     string
	outside  string
	walkOnly bool
}

// onBoth runs a test with openat2 and with the walk that replaces it.
func onBoth(t *testing.T, test func(*ground)) {
	t.Helper()
	for _, walkOnly := range []bool{false, true} {
		name := "openat2"
		if walkOnly {
			name = "walk"
		}
		t.Run(name, func(t *testing.T) {
			if !walkOnly && !haveOpenat2() {
				t.Skip("no openat2 here")
			}
			test(newGround(t, t.TempDir(), walkOnly))
		})
	}
}

// newGround lays out base and outside in dir and checks at the end that no
// descriptor and no unfinished file is left.
func newGround(t *testing.T, dir string, walkOnly bool) *ground {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t: t, base: filepath.Join(dir, "base"), outside: filepath.Join(dir, "outside"), walkOnly: walkOnly}
	mkdirs(t, g.base, g.outside)
	held := descriptors(t)
	g.fs = New(func() string { return g.base }, "/")
	g.fs.walkOnly = walkOnly
	t.Cleanup(func() {
		if err := g.fs.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		runtime.GC() // files that are still referenced stay open
		if now := descriptors(t); len(now) > len(held) {
			t.Errorf("descriptors left open: %v, before: %v", now, held)
		}
		g.fs.temps.Range(func(name, _ any) bool {
			t.Errorf("%v still counts as being written", name)
			return true
		})
		if left := unfinished(t, dir); len(left) > 0 {
			t.Errorf("unfinished files left: %v", left)
		}
	})
	return g
}

func descriptors(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/proc/") && !strings.HasPrefix(to, "/dev/null") {
			out = append(out, to)
		}
	}
	return out
}

func unfinished(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && isTemp(d.Name()) {
			left = append(left, p)
		}
		return nil
	})
	return left
}

func (g *ground) guard(rules ...*policy.PathRules) *Guard {
	if len(rules) == 0 {
		return g.fs.Guard(nil, "", nil)
	}
	return g.fs.Guard(rules[0], "", nil)
}

// in is a path in the base directory.
func (g *ground) in(parts ...string) string {
	return filepath.Join(append([]string{g.base}, parts...)...)
}

func (g *ground) out(parts ...string) string {
	return filepath.Join(append([]string{g.outside}, parts...)...)
}

func mkdirs(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, p, text string) string {
	t.Helper()
	mkdirs(t, filepath.Dir(p))
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func link(t *testing.T, text, p string) string {
	t.Helper()
	mkdirs(t, filepath.Dir(p))
	if err := os.Symlink(text, p); err != nil {
		t.Fatal(err)
	}
	return p
}

func fifo(t *testing.T, p string) {
	t.Helper()
	if err := unix.Mkfifo(p, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, p string) string {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// tree lists everything below dir: links with their text, files with content.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case rel == ".":
		case d.IsDir():
			out = append(out, rel+"/")
		case d.Type()&fs.ModeSymlink != 0:
			text, _ := os.Readlink(p)
			out = append(out, rel+" -> "+text)
		case d.Type().IsRegular():
			out = append(out, rel+"="+read(t, p))
		default:
			out = append(out, rel+" ?")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *ground) wantTree(dir string, want ...string) {
	g.t.Helper()
	got := tree(g.t, dir)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		g.t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

// put writes a file through the guard.
func put(gd *Guard, name, text string, opt CreateOptions) (Result, error) {
	w, err := gd.Create(name, opt)
	if err != nil {
		return Result{}, err
	}
	defer w.Abort()
	if _, err := w.Write([]byte(text)); err != nil {
		return Result{}, err
	}
	return w.Commit(context.Background())
}

// wantErr checks an error: a policy.Code, an error for errors.Is, or nil.
func wantErr(t *testing.T, what string, err error, want any) {
	t.Helper()
	switch want := want.(type) {
	case nil:
		if err != nil {
			t.Errorf("%s: %v, want no error", what, err)
		}
	case policy.Code:
		if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != want {
			t.Errorf("%s: %v, want refusal %s", what, err, want)
		}
	case error:
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

// asNobody runs f on a thread without any privilege; permission bits mean
// nothing to root.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with us
		const nobody = 65534
		_, _, e1 := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_, _, e2 := unix.RawSyscall(unix.SYS_SETRESGID, nobody, nobody, nobody)
		_, _, e3 := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if e1 != 0 || e2 != 0 || e3 != 0 {
			t.Errorf("cannot give up privileges: %v %v %v", e1, e2, e3)
			return
		}
		f()
	}()
	<-done
}

// open up lets nobody in.
func chown(t *testing.T, paths ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, p := range paths {
		if err := os.Lchown(p, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
}

// reachable makes the directories above p searchable for nobody.
func reachable(t *testing.T, p string) {
	t.Helper()
	for d := filepath.Dir(p); strings.HasPrefix(d, os.TempDir()) && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
