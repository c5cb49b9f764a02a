package guardfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// visited walks and returns the relative paths in order.
func visited(t *testing.T, gd *Guard, name string, opt WalkOptions) ([]string, WalkResult) {
	t.Helper()
	var got []string
	res, err := gd.Walk(t.Context(), name, opt, func(e *Entry) error {
		got = append(got, e.Rel())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, res
}

func wantOrder(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestWalk(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		for _, f := range []string{"b", "a/2", "a/1/x", "a/1/y/z", "Z", "é", ".h/i", "a.b"} {
			write(t, g.in("top", f), "x")
		}
		mkdirs(t, g.in("top", "empty"))
		link(t, "a", g.in("top", "dl"))
		gd := g.guard()
		got, res := visited(t, gd, "top", WalkOptions{})
		wantOrder(t, "all", got, ".h", ".h/i", "Z", "a", "a/1", "a/1/x", "a/1/y", "a/1/y/z", "a/2", "a.b", "b", "dl", "empty", "é")
		if res.Path != g.in("top") || res.Truncated || res.Next != "" {
			t.Errorf("result %+v", res)
		}
		got, _ = visited(t, gd, "top", WalkOptions{Depth: 2, NoHidden: true})
		wantOrder(t, "two levels", got, "Z", "a", "a/1", "a/2", "a.b", "b", "dl", "empty", "é")
		got, _ = visited(t, gd, "top", WalkOptions{Breadth: true})
		wantOrder(t, "level by level", got, ".h", "Z", "a", "a.b", "b", "dl", "empty", "é", ".h/i", "a/1", "a/2", "a/1/x", "a/1/y", "a/1/y/z")
		got, res = visited(t, gd, "top/dl", WalkOptions{Max: -1})
		if len(got) != 0 || !res.Truncated || res.Next != "" || res.Path != g.in("top", "a") {
			t.Errorf("no entries: %q, %+v", got, res)
		}
		got, res = visited(t, gd, "top/empty", WalkOptions{Max: -1})
		if len(got) != 0 || res.Truncated {
			t.Errorf("nothing there: %q, %+v", got, res)
		}
		var order []string
		_, err := gd.Walk(t.Context(), "top/a", WalkOptions{Enter: func(d *Dir) error {
			order = append(order, "in "+d.Rel())
			if d.Rel() == "1/y" {
				return fs.SkipDir
			}
			return nil
		}}, func(e *Entry) error {
			order = append(order, fmt.Sprint(e.Rel(), e.Depth(), e.Kind()))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		wantOrder(t, "with Enter", order, "in ", "11directory", "in 1", "1/x2file", "1/y2directory", "in 1/y", "21file")
		for _, name := range []string{"top/b", "none", "top/b/x"} {
			_, err := gd.Walk(t.Context(), name, WalkOptions{}, nil)
			wantErr(t, name, err, fs.ErrNotExist)
		}
	})
}

func TestWalkCanBeLeftAndStopped(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("a", "x"), "")
	write(t, g.in("b", "y"), "")
	write(t, g.in("c"), "")
	stop := func(at string, with error) ([]string, error) {
		var got []string
		_, err := g.guard().Walk(t.Context(), ".", WalkOptions{}, func(e *Entry) error {
			got = append(got, e.Rel())
			if e.Rel() == at {
				return with
			}
			return nil
		})
		return got, err
	}
	got, err := stop("a", fs.SkipDir)
	wantOrder(t, "SkipDir", got, "a", "b", "b/y", "c")
	wantErr(t, "SkipDir", err, nil)
	got, err = stop("b", fs.SkipAll)
	wantOrder(t, "SkipAll", got, "a", "a/x", "b")
	wantErr(t, "SkipAll", err, nil)
	mine := errors.New("mine")
	_, err = stop("a/x", mine)
	wantErr(t, "an error", err, mine)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err = g.guard().Walk(ctx, ".", WalkOptions{}, func(*Entry) error { n++; cancel(); return nil })
	wantErr(t, "a caller that went away", err, context.Canceled)
	if n != 1 {
		t.Errorf("%d entries after the caller went away", n)
	}
}

func TestWalkLeavesOutWhatTheRulesRefuse(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		for _, f := range []string{"k.pem", "a/k.pem", "secret/x", "a/.env", "a/ok", "pem/ok"} {
			write(t, g.in(f), "x")
		}
		link(t, "k.pem", g.in("l"))
		link(t, g.outside, g.in("out"))
		link(t, g.out("none"), g.in("out2"))
		link(t, "a/ok", g.in("in"))
		link(t, "gone", g.in("dangling"))
		link(t, "loop", g.in("loop"))
		gd := g.guard(policy.NewPathRules(nil, []string{"*.pem", "secret/", "**/.env"}, false, false, false))
		got, _ := visited(t, gd, ".", WalkOptions{})
		wantOrder(t, "walk", got, "a", "a/ok", "dangling", "in", "loop", "pem", "pem/ok")
		d, err := gd.OpenDir("a")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for name, ok := range map[string]bool{"ok": true, "k.pem": false, ".env": false, "none": false, "..": false, "ok/": false, "": false} {
			if _, err := d.Lookup(name); (err == nil) != ok {
				t.Errorf("Lookup(%q): %v", name, err)
			}
		}
		// Patterns that name the root by its link hold for its entries too.
		alias := link(t, g.base, g.out("alias"))
		gd = g.fs.Guard(policy.NewPathRules(nil, []string{alias + "/a/ok"}, false, false, false), alias, nil)
		got, _ = visited(t, gd, alias+"/a", WalkOptions{})
		wantOrder(t, "under the other name", got, ".env", "k.pem")
	})
}

func TestListingIsContinuedToTheEnd(t *testing.T) {
	onBoth(t, func(g *ground) {
		rapid.Check(g.t, func(t *rapid.T) {
			dir, err := os.MkdirTemp(g.base, "t")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			part := rapid.SampledFrom([]string{"a", "b", "a.b", "ab", "\xff", "A", "a\nb"})
			for range rapid.IntRange(0, 12).Draw(t, "files") {
				p := dir + "/" + strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "path"), "/")
				if rapid.Bool().Draw(t, "dir") {
					_ = os.MkdirAll(p, 0o755)
				} else if os.MkdirAll(p[:strings.LastIndexByte(p, '/')], 0o755) == nil {
					_ = os.WriteFile(p, nil, 0o600)
				}
			}
			depth := rapid.IntRange(0, 4).Draw(t, "depth")
			whole, err := g.guard().List(t.Context(), dir, WalkOptions{Depth: depth})
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for _, e := range whole.Entries {
				want = append(want, e.Path)
			}
			opt := WalkOptions{Depth: depth, Max: rapid.IntRange(1, 5).Draw(t, "max")}
			for {
				l, err := g.guard().List(t.Context(), dir, opt)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range l.Entries {
					got = append(got, e.Path)
				}
				if !l.Truncated {
					break
				}
				if len(l.Entries) != opt.Max || l.Next == "" {
					t.Fatalf("%d entries, next %q", len(l.Entries), l.Next)
				}
				opt.After = l.Next
			}
			if !slices.Equal(got, want) {
				t.Fatalf("in pieces %q, at once %q", got, want)
			}
		})
	})
}

func TestListingGoesOnWhereAnEntryHasGone(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	for _, f := range []string{"a", "b/1", "b/2", "c"} {
		write(t, g.in("d", f), "x")
	}
	l, err := g.guard().List(t.Context(), "d", WalkOptions{Max: 3})
	if err != nil || l.Entries[2].Path != g.in("d", "b", "1") {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := os.RemoveAll(g.in("d", "b")); err != nil {
		t.Fatal(err)
	}
	l, err = g.guard().List(t.Context(), "d", WalkOptions{After: l.Next})
	if err != nil || len(l.Entries) != 1 || l.Entries[0].Name != "c" {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"!", "Li4", cursor("a/../b"), cursor("/"), cursor("a//b")} {
		_, err := g.guard().List(t.Context(), "d", WalkOptions{After: bad})
		wantErr(t, bad, err, ErrBadCursor)
	}
}

func TestLargeDirectoriesAreReadInPieces(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	for i := range 700 {
		write(t, g.in("d", fmt.Sprintf("f%03d", (i*37)%700)), "")
	}
	d, err := g.guard().OpenDir("d")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var got []string
	for after, more := "", true; more; {
		var es []*Entry
		if es, more, err = d.Entries(after, 13); err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			after = e.Name()
			got = append(got, after)
		}
	}
	if len(got) != 700 || !slices.IsSorted(got) {
		t.Errorf("%d names, sorted %v", len(got), slices.IsSorted(got))
	}
}

func TestVeryDeepTrees(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		const depth = 1500 // deeper than any path can be long, and than descriptors last
		mkdirs(t, g.in("deep"))
		fd, err := unix.Open(g.in("deep"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range depth {
			if err := unix.Mkdirat(fd, "dir", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkdirat(fd, "e", 0o755); err != nil {
				t.Fatal(err)
			}
			next, err := unix.Openat(fd, "dir", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			_ = unix.Close(fd)
			if err != nil {
				t.Fatal(err)
			}
			fd = next
		}
		_ = unix.Close(fd)
		most := 0
		n := 0
		_, err = g.guard().Walk(t.Context(), "deep", WalkOptions{Failed: func(_ string, err error) { t.Error(err) }}, func(*Entry) error {
			if n++; n%100 == 0 {
				most = max(most, len(descriptors(t)))
			}
			return nil
		})
		if err != nil || n != 2*depth || most > 100 {
			t.Errorf("%d entries, %d descriptors, %v", n, most, err)
		}
		if _, err := g.guard().Delete(t.Context(), "deep", DeleteOptions{}); err != nil || exists(g.in("deep")) {
			t.Errorf("Delete: %v", err)
		}
	})
}

func TestUnfinishedFilesAreHiddenAndSweptWhenOld(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	fresh, old, oldDir := g.in("d", tmpPrefix+"fresh"), g.in("d", tmpPrefix+"old"), g.in("d", tmpPrefix+"dir")
	write(t, fresh, "x")
	write(t, old, "x")
	write(t, oldDir+"/f", "x")
	long := time.Now().Add(-2 * time.Hour)
	for _, p := range []string{old, oldDir} {
		if err := os.Chtimes(p, long, long); err != nil {
			t.Fatal(err)
		}
	}
	ro := g.guard(policy.NewPathRules(nil, nil, true, false, false))
	if got, _ := visited(t, ro, ".", WalkOptions{}); !slices.Equal(got, []string{"d"}) || !exists(old) {
		t.Errorf("read-only rules: %q, swept %v", got, !exists(old))
	}
	if got, _ := visited(t, g.guard(), ".", WalkOptions{}); !slices.Equal(got, []string{"d"}) {
		t.Errorf("seen: %q", got)
	}
	if !exists(fresh) || exists(old) || exists(oldDir) {
		t.Errorf("fresh %v, old %v %v", exists(fresh), exists(old), exists(oldDir))
	}
	for _, name := range []string{"d/" + tmpPrefix + "x", tmpPrefix + "d/x"} {
		_, err := put(g.guard(), name, "x", CreateOptions{})
		wantErr(t, "Create "+name, err, policy.InvalidPath)
		_, _, err = g.guard().Mkdir(name, MkdirOptions{})
		wantErr(t, "Mkdir "+name, err, policy.InvalidPath)
	}
	if err := os.Remove(fresh); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkStat(b *testing.B) {
	dir := b.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0o600); err != nil {
		b.Fatal(err)
	}
	f := New(func() string { return dir }, "/")
	defer f.Close()
	for b.Loop() {
		if _, err := f.Guard(nil, "", nil).Stat(dir+"/f", true); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkList20000(b *testing.B) {
	dir := b.TempDir()
	for i := range 200 {
		d := fmt.Sprintf("%s/d%d", dir, i)
		if err := os.Mkdir(d, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/f%d", d, j), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	f := New(func() string { return dir }, "/")
	defer f.Close()
	for b.Loop() {
		l, err := f.Guard(nil, "", nil).List(b.Context(), dir, WalkOptions{})
		if err != nil || len(l.Entries) != 20200 {
			b.Fatal(len(l.Entries), err)
		}
	}
}

// TestATreeTooDeepToNameDoesNotFillTheMemory: the paths of the directories of
// one branch two thousand levels deep took half a gigabyte, and a minute.
func TestATreeTooDeepToNameDoesNotFillTheMemory(t *testing.T) {
	onBoth(t, func(g *ground) {
		const levels, name = 3000, "ddddddddddddddddddddddddddddddddddddddddddddddddddd"
		mkdirs(t, g.in("deep"))
		fd, err := unix.Open(g.in("deep"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		for i := 0; i < levels && err == nil; i++ {
			var below int
			if err = unix.Mkdirat(fd, name, 0o700); err == nil {
				below, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			}
			_ = unix.Close(fd)
			fd = below
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		gd := g.guard()

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		seen, refused := 0, 0
		if _, err = gd.Walk(t.Context(), "deep", WalkOptions{Failed: func(string, error) { refused++ }}, func(*Entry) error {
			seen++
			return nil
		}); err != nil || seen < 200 || seen > 250 || refused != 1 {
			t.Errorf("walk: %d seen, %d not read, %v", seen, refused, err)
		}
		if _, err := Copy(t.Context(), gd, "deep", gd, "copy", CopyOptions{}); !errors.Is(err, unix.ENAMETOOLONG) && !policy.IsDenied(err) {
			t.Errorf("copy: %v", err)
		}
		if _, _, err := gd.Chmod(t.Context(), "deep", 0o700, true); !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("chmod: %v", err)
		}
		if _, err := gd.Delete(t.Context(), "deep", DeleteOptions{}); err != nil {
			t.Errorf("delete: %v", err)
		}
		if _, err := os.Lstat(g.in("deep")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what is left: %v", err)
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
			t.Errorf("%d MiB allocated", used>>20)
		}
	})
}
