package guardfs

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestStat(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("d", "f"), "12345")
		if err := os.Chmod(g.in("d", "f"), 0o640|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_700_000_000, 250_000_000)
		if err := os.Chtimes(g.in("d", "f"), when, when); err != nil {
			t.Fatal(err)
		}
		link(t, "d/f", g.in("l"))
		link(t, "gone", g.in("dangling"))
		link(t, "loop", g.in("loop"))
		gd := g.guard()

		i, err := gd.Stat("l", true)
		if err != nil || i.Path != g.in("d", "f") || i.Name != "f" || i.Kind != File || i.Size != 5 || i.Target != "d/f" {
			t.Errorf("l: %+v, %v", i, err)
		}
		if i.Mode != 0o4640 || i.Permissions() != "640" || i.Mtime != when.UnixNano() || i.Nlink != 1 || i.Inode == 0 {
			t.Errorf("f: %+v", i)
		}
		if i, err = gd.Stat("l", false); err != nil || i.Path != g.in("l") || i.Kind != Symlink || i.Target != "d/f" || i.Size != 3 {
			t.Errorf("l itself: %+v, %v", i, err)
		}
		if i, err = gd.Stat("dangling", false); err != nil || i.Kind != Symlink || i.Target != "gone" {
			t.Errorf("dangling itself: %+v, %v", i, err)
		}
		if i, err = gd.Stat("d/", true); err != nil || !i.IsDir() || i.Target != "" {
			t.Errorf("d: %+v, %v", i, err)
		}
		for name, path := range map[string]string{
			"none": g.in("none"), "dangling": g.in("gone"), "loop": g.in("loop"), "d/f/x/y": g.in("d", "f", "x", "y"),
			"none/x": g.in("none", "x"), strings.Repeat("n", 300): g.in(strings.Repeat("n", 300)), "l/x": g.in("d", "f", "x"),
		} {
			i, err := gd.Stat(name, true)
			if !errors.Is(err, fs.ErrNotExist) || i.Path != path || i.Name == "" {
				t.Errorf("%s: %+v, %v; want not to exist as %s", name, i, err, path)
			}
		}
	})
}

func TestTagChangesWithTimeSizeAndInode(t *testing.T) {
	i := Info{Mtime: 1, Size: 2, Inode: 3}
	seen := map[string]bool{i.ETag(): true}
	for _, c := range []Info{{Mtime: 2, Size: 2, Inode: 3}, {Mtime: 1, Size: 3, Inode: 3}, {Mtime: 1, Size: 2, Inode: 4}, {Mtime: -1, Size: 2, Inode: 3}} {
		if tag := c.ETag(); seen[tag] || !strings.HasPrefix(tag, `"`) || !strings.HasSuffix(tag, `"`) {
			t.Errorf("tag %s of %+v", tag, c)
		} else {
			seen[tag] = true
		}
	}
}

func TestUnsearchableParent(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		reachable(t, g.base)
		write(t, g.in("shut", "f"), "x")
		chown(t, g.in("shut"), g.in("shut", "f"))
		if err := os.Chmod(g.in("shut"), 0o600); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			i, err := g.guard().Stat("shut/f", true)
			if !errors.Is(err, fs.ErrPermission) || i.Path != g.in("shut", "f") {
				t.Errorf("Stat: %+v, %v", i, err)
			}
			_, _, err = g.guard().Open("shut/f")
			wantErr(t, "Open", err, fs.ErrPermission)
		})
		if err := os.Chmod(g.in("shut"), 0o300); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			if _, err := put(g.guard(), "shut/new", "x", CreateOptions{}); err != nil {
				t.Errorf("a directory that cannot be read can be written: %v", err)
			}
			l, err := g.guard().List(t.Context(), ".", WalkOptions{})
			if err != nil || len(l.Entries) != 1 || len(l.Errors) != 1 || !errors.Is(l.Errors[0].Err, fs.ErrPermission) {
				t.Errorf("List: %+v, %v", l, err)
			}
			l, err = g.guard().List(t.Context(), "shut", WalkOptions{})
			if err != nil || len(l.Entries) != 0 || len(l.Errors) != 1 {
				t.Errorf("List of the unreadable directory: %+v, %v", l, err)
			}
		})
		if err := os.Chmod(g.in("shut"), 0o755); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOpen(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("d", "f"), "text")
		link(t, g.in("d"), g.in("l"))
		f, i, err := g.guard().Open("l/f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if err != nil || string(b) != "text" || i.Path != g.in("d", "f") || i.Size != 4 {
			t.Errorf("read %q, %+v, %v", b, i, err)
		}
		_, _, err = g.guard().Open("d")
		wantErr(t, "a directory", err, ErrIsDirectory)
		_, _, err = g.guard().Open("none")
		wantErr(t, "nothing", err, fs.ErrNotExist)
		_, _, err = g.guard().Open("d/f/x")
		wantErr(t, "below a file", err, fs.ErrNotExist)
	})
}

// soon fails the test when f does not come back: it waits for a FIFO.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s waits for ever", what)
	}
}

// TestFifoBlocksNobody is fault 17: a FIFO held a worker for ever.
func TestFifoBlocksNobody(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		mkdirs(t, g.in("d"))
		fifo(t, g.in("d", "p"))
		write(t, g.in("d", "f"), "x")
		sock, err := net.Listen("unix", g.in("d", "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		gd := g.guard()
		soon(t, "reading", func() {
			_, _, err := gd.Open("d/p")
			wantErr(t, "Open", err, ErrNotRegular)
			_, _, err = gd.Open("d/s")
			wantErr(t, "Open a socket", err, ErrNotRegular)
		})
		soon(t, "writing", func() {
			zero := int64(0)
			for _, opt := range []CreateOptions{{}, {NoOverwrite: true}, {Append: true}, {Offset: &zero}} {
				_, err := put(gd, "d/p", "x", opt)
				wantErr(t, "Create", err, ErrNotRegular)
			}
		})
		soon(t, "walking", func() {
			_, err := gd.Walk(t.Context(), "d", WalkOptions{}, func(e *Entry) error {
				f, _, err := e.Open()
				if err == nil {
					return f.Close()
				}
				wantErr(t, e.Name(), err, ErrNotRegular)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			_, err = gd.OpenDir("d/p")
			wantErr(t, "OpenDir", err, fs.ErrNotExist)
			_, _, err = gd.Dir("d/p", policy.Exec)
			wantErr(t, "Dir", err, ErrNotDirectory)
		})
		soon(t, "the rest", func() {
			if i, err := gd.Stat("d/p", true); err != nil || i.Kind != FIFO {
				t.Errorf("Stat: %+v, %v", i, err)
			}
			if _, err := Copy(t.Context(), gd, "d", gd, "copy", CopyOptions{}); err != nil {
				t.Errorf("Copy: %v", err)
			}
			if _, err := gd.Delete(t.Context(), "d/p", DeleteOptions{}); err != nil {
				t.Errorf("Delete: %v", err)
			}
		})
		g.wantTree(g.in("copy"), "f=x")
	})
}

func TestDevicesAreNotOpened(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	if err := unix.Mknod(g.in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("cannot make a device: %v", err)
	}
	_, _, err := g.guard().Open("null")
	wantErr(t, "Open", err, ErrNotRegular)
	_, err = put(g.guard(), "null", "x", CreateOptions{})
	wantErr(t, "Create", err, ErrNotRegular)
}

func TestDirIsAPlaceToWorkIn(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		mkdirs(t, g.in("d"))
		link(t, "d", g.in("l"))
		link(t, g.outside, g.in("out"))
		d, real, err := g.guard().Dir("l", policy.Exec)
		if err != nil || real != g.in("d") {
			t.Fatalf("Dir: %q, %v", real, err)
		}
		defer d.Close()
		if err := os.Rename(g.in("d"), g.in("moved")); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(fdPath(int(d.Fd()))); err != nil || got != g.in("moved") {
			t.Errorf("the descriptor leads to %q, %v", got, err)
		}
		_, _, err = g.guard().Dir("out", policy.Exec)
		wantErr(t, "outside", err, policy.PathNotAllowed)
		_, _, err = g.guard().Dir("none", policy.Exec)
		wantErr(t, "nothing", err, fs.ErrNotExist)
	})
}

func TestOwnersHaveNames(t *testing.T) {
	names := parseNames(strings.NewReader("root:x:0:0::/root:/bin/sh\n# note\nbad\n:x:7:\nother:x:0:0\nme:x:1000:\nbig:x:99999999999:\n"))
	if len(names) != 2 || names[0] != "root" || names[1000] != "me" {
		t.Errorf("names: %v", names)
	}
	g := newGround(t, t.TempDir(), false)
	if got := g.fs.Owner(4294967294); got != "4294967294" {
		t.Errorf("a user without a name is %q", got)
	}
	table := nameTable{file: write(t, g.in("users"), "a:x:5:\n")}
	if got := table.name(5); got != "a" {
		t.Errorf("5 is %q", got)
	}
	write(t, g.in("users"), "bcd:x:5:\n")
	table.next = time.Time{}
	if got := table.name(5); got != "bcd" {
		t.Errorf("after a change 5 is %q", got)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("root:x:0:0\n")
	f.Add("::\n:::\na:b:c:d")
	f.Fuzz(func(t *testing.T, s string) {
		for id, name := range parseNames(strings.NewReader(s)) {
			if name == "" || strings.ContainsAny(name, ":\n") {
				t.Errorf("%d is %q", id, name)
			}
		}
	})
}
