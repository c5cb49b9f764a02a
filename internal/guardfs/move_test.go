package guardfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMovingALinkMovesTheLink(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("tgt", "f"), "1")
		link(t, "tgt", g.in("lnk2"))
		link(t, "gone", g.in("dangling"))
		gd := g.guard()
		res, err := gd.Move(t.Context(), "lnk2", "lnk3", MoveOptions{})
		if err != nil || res.Source != g.in("lnk2") || res.Path != g.in("lnk3") {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := gd.Move(t.Context(), "dangling", "d2", MoveOptions{}); err != nil {
			t.Error(err)
		}
		_, err = gd.Move(t.Context(), "lnk3", "tgt", MoveOptions{}) // into the directory it names
		wantErr(t, "a link into its target", err, nil)
		link(t, "tgt/f", g.in("lf"))
		_, err = gd.Move(t.Context(), "lf", "tgt/f", MoveOptions{})
		wantErr(t, "a link onto its target", err, ErrInvalidMove)
		if res, err := gd.Move(t.Context(), "tgt/f", "lf", MoveOptions{}); err != nil || res.Path != g.in("tgt", "f") {
			t.Errorf("a file onto a link to itself: %+v, %v", res, err)
		}
		g.wantTree(g.base, "tgt/", "tgt/f=1", "tgt/lnk3 -> tgt", "d2 -> gone", "lf -> tgt/f")
	})
}

func TestMove(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		gd := g.guard()
		move := func(src, dst, path string, want any) {
			t.Helper()
			res, err := gd.Move(t.Context(), src, dst, MoveOptions{})
			wantErr(t, src+" → "+dst, err, want)
			if want == nil && res.Path != g.in(path) {
				t.Errorf("%s → %s ended at %q", src, dst, res.Path)
			}
		}
		write(t, g.in("a"), "1")
		move("a", "x/y/b", "x/y/b", nil) // parents are made
		write(t, g.in("c"), "2")
		move("c", "x/y/b", "x/y/b", nil) // a file is replaced
		mkdirs(t, g.in("d"))
		write(t, g.in("t", "g"), "3")
		move("x/y/b", "d", "d/b", nil) // into a directory
		move("t", "d", "d/t", nil)
		move("d/t", "d", "d/t", nil) // where it is already
		move("d/b", "d/b", "d/b", nil)
		g.wantTree(g.base, "x/", "x/y/", "d/", "d/b=2", "d/t/", "d/t/g=3")

		write(t, g.in("file"), "f")
		write(t, g.in("e", "d", "h"), "4")
		move("d", "d/in", "", ErrInvalidMove)
		move("d", "d/in/deep", "", ErrInvalidMove)
		move("d", "file", "", ErrNotDirectory)
		move("d", "e", "", ErrAlreadyExists)
		move("file", "file/x", "", ErrNotDirectory)
		move("none", "n", "", fs.ErrNotExist)
		move("file", strings.Repeat("n", 300), "", policy.InvalidPath)
		move("file", tmpPrefix+"x", "", policy.InvalidPath)
		move(".", "e", "", policy.PathDenied)
		move(g.out("f"), "n", "", policy.PathNotAllowed)
		move("none", g.out("f"), "", policy.PathNotAllowed)
		if exists(g.in("n")) || exists(g.in("d", "in")) {
			t.Error("a refused move left something")
		}
		link(t, "d/b", g.in("lb"))
		move("file", "lb", "d/b", nil) // a link to a file: the target is replaced
		if read(t, g.in("d", "b")) != "f" {
			t.Error("the target of the link was not replaced")
		}
		if text, err := os.Readlink(g.in("lb")); err != nil || text != "d/b" {
			t.Errorf("the link is %q, %v", text, err)
		}
		if err := os.Link(g.in("d", "b"), g.in("twin")); err != nil {
			t.Fatal(err)
		}
		move("twin", "d/b", "d/b", nil) // two names of one file
		if exists(g.in("twin")) || read(t, g.in("d", "b")) != "f" {
			t.Error("two names of one file: both or none are left")
		}
	})
}

func TestMoveSaysWhichSideIsRefused(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("f"), "x")
	_, err := g.guard().Move(t.Context(), "/etc/passwd", "x", MoveOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), "source: ") {
		t.Errorf("source: %v", err)
	}
	_, err = g.guard().Move(t.Context(), "f", "/etc/x", MoveOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), "destination: ") {
		t.Errorf("destination: %v", err)
	}
}

func TestMoveCannotPlantADeniedFile(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		mkdirs(t, g.in("conf"), g.in("up"))
		write(t, g.in("tmp", "app.cfg"), "x")
		write(t, g.in("src", "sub", "app.cfg"), "x")
		gd := g.guard(policy.NewPathRules(nil, []string{"**/conf/app.cfg", "**/conf2/sub/app.cfg"}, false, false, false))
		_, err := gd.Move(t.Context(), "tmp/app.cfg", "conf", MoveOptions{})
		wantErr(t, "into the directory", err, policy.PathDenied)
		_, err = gd.Move(t.Context(), "src", "conf2", MoveOptions{})
		wantErr(t, "a tree around it", err, policy.PathDenied)
		_, err = Copy(t.Context(), gd, "src", gd, "conf2", CopyOptions{})
		wantErr(t, "a copy of a tree around it", err, policy.PathDenied)
		if exists(g.in("conf", "app.cfg")) || exists(g.in("conf2")) {
			t.Error("planted")
		}
	})
}

func TestMoveAsksAboutTheFinalName(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("a.txt"), "1")
	write(t, g.in("b.txt"), "2")
	mkdirs(t, g.in("d"))
	mine := errors.New("mine")
	var asked []string
	opt := MoveOptions{Final: func(real string, src Info, taken bool) error {
		asked = append(asked, real)
		if taken != (real == g.in("b.txt")) || src.Path != g.in("a.txt") {
			t.Errorf("%s: taken %v, source %s", real, taken, src.Path)
		}
		return mine
	}}
	for _, dst := range []string{"a.exe", "b.txt", "d", "new/x"} {
		_, err := g.guard().Move(t.Context(), "a.txt", dst, opt)
		wantErr(t, dst, err, mine)
	}
	wantOrder(t, "asked", asked, g.in("a.exe"), g.in("b.txt"), g.in("d", "a.txt"), g.in("new", "x"))
	_, err := g.guard().Move(t.Context(), "a.txt", "b.txt", MoveOptions{NoOverwrite: true})
	wantErr(t, "NoOverwrite", err, policy.FileExists)
	g.wantTree(g.base, "a.txt=1", "b.txt=2", "d/")
}

func TestAMoveFromAReadOnlyDirectoryLeavesNothing(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	reachable(t, g.base)
	write(t, g.in("d", "f"), "1")
	chown(t, g.base, g.in("d"), g.in("d", "f"))
	if err := os.Chmod(g.in("d"), 0o555); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		_, err := g.guard().Move(t.Context(), "d/f", "new/g", MoveOptions{})
		wantErr(t, "Move", err, fs.ErrPermission)
	})
	g.wantTree(g.base, "d/", "d/f=1")
}

func (g *ground) otherFS(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "guardfs")
	if err != nil {
		t.Skipf("no second file system: %v", err)
	}
	t.Cleanup(func() {
		if left := unfinished(t, dir); len(left) > 0 {
			t.Errorf("unfinished files left: %v", left)
		}
		_ = os.RemoveAll(dir)
	})
	var a, b unix.Stat_t
	if unix.Stat(dir, &a) != nil || unix.Stat(g.base, &b) != nil || a.Dev == b.Dev {
		t.Skip("no second file system")
	}
	return dir
}

func TestMoveBetweenFileSystems(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		far := g.otherFS(t)
		// /dev is closed to the rules, so it is looked at through a mount.
		mkdirs(t, g.in("far"))
		if err := unix.Mount(far, g.in("far"), "", unix.MS_BIND, ""); err != nil {
			t.Skipf("cannot mount: %v", err)
		}
		defer func() { _ = unix.Unmount(g.in("far"), unix.MNT_DETACH) }()
		write(t, g.in("t", "f"), "1")
		write(t, g.in("t", "s", "big"), strings.Repeat("x", 3<<20))
		if err := os.Truncate(g.in("t", "s", "big"), 1<<33); err != nil { // 8 GiB of hole
			t.Fatal(err)
		}
		if err := os.Link(g.in("t", "f"), g.in("t", "twin")); err != nil {
			t.Fatal(err)
		}
		link(t, "f", g.in("t", "l"))
		fifo(t, g.in("t", "p"))
		if err := os.Chmod(g.in("t", "f"), 0o604); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(1_600_000_000, 123_456_789)
		for _, p := range []string{"t/f", "t/s", "t"} {
			if err := os.Chtimes(g.in(p), when, when); err != nil {
				t.Fatal(err)
			}
		}
		gd := g.guard()
		if res, err := gd.Move(t.Context(), "t", "far", MoveOptions{}); err != nil || res.Path != g.in("far", "t") {
			t.Fatalf("%+v, %v", res, err)
		}
		if exists(g.in("t")) {
			t.Error("the source is still there")
		}
		for _, p := range []string{"far/t/f", "far/t/s", "far/t"} {
			if i, err := gd.Stat(p, true); err != nil || i.Mtime != when.UnixNano() {
				t.Errorf("%s: %+v, %v", p, i, err)
			}
		}
		i, err := gd.Stat("far/t/f", true)
		if err != nil || i.Mode != 0o604 || i.Nlink != 2 || read(t, g.in("far", "t", "twin")) != "1" {
			t.Errorf("f: %+v, %v", i, err)
		}
		if i, err := gd.Stat("far/t/p", true); err != nil || i.Kind != FIFO {
			t.Errorf("p: %+v, %v", i, err)
		}
		if i, err := gd.Stat("far/t/l", false); err != nil || i.Target != "f" {
			t.Errorf("l: %+v, %v", i, err)
		}
		if i, err := gd.Stat("far/t/s/big", true); err != nil || i.Size != 1<<33 {
			t.Errorf("big: %+v, %v", i, err)
		}
		write(t, g.in("n"), "new")
		write(t, g.in("far", "o"), "old")
		if _, err := gd.Move(t.Context(), "n", "far/o", MoveOptions{}); err != nil || read(t, g.in("far", "o")) != "new" || exists(g.in("n")) {
			t.Errorf("over a file: %v", err)
		}
	})
}

func TestAMoveBetweenFileSystemsThatCannotRemoveItsSourceLeavesNothing(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	far := g.otherFS(t)
	mkdirs(t, g.in("far"))
	if err := unix.Mount(far, g.in("far"), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	defer func() { _ = unix.Unmount(g.in("far"), unix.MNT_DETACH) }()
	reachable(t, g.base)
	write(t, g.in("d", "f"), "1")
	write(t, g.in("ok", "shut", "f"), "1")
	write(t, g.in("far", "old"), "old")
	chown(t, g.base, g.in("d"), g.in("d", "f"), g.in("ok"), g.in("ok", "shut"), g.in("far"), g.in("far", "old"))
	for _, p := range []string{g.in("d"), g.in("ok", "shut")} {
		if err := os.Chmod(p, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	asNobody(t, func() {
		for src, dst := range map[string]string{"d/f": "far/new", "ok": "far/tree"} {
			_, err := g.guard().Move(t.Context(), src, dst, MoveOptions{})
			wantErr(t, src, err, fs.ErrPermission)
		}
		_, err := g.guard().Move(t.Context(), "d/f", "far/old", MoveOptions{})
		wantErr(t, "over a file", err, fs.ErrPermission)
	})
	g.wantTree(g.base, "d/", "d/f=1", "ok/", "ok/shut/", "ok/shut/f=1", "far/", "far/old=old")
}

// "Permission denied: d/f" for a file that everybody may read: it was the other
// side that could not be written.
func TestTheSideThatFailedIsNamed(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		reachable(t, g.base)
		write(t, g.in("d", "f"), "1")
		write(t, g.in("shut", "f"), "1")
		mkdirs(t, g.in("closed"))
		if err := os.Symlink("f", g.in("d", "l")); err != nil {
			t.Fatal(err)
		}
		chown(t, g.base, g.in("d"), g.in("d", "f"), g.in("shut"), g.in("shut", "f"), g.in("closed"))
		for p, mode := range map[string]os.FileMode{"closed": 0o555, "shut": 0o555, "shut/f": 0} {
			if err := os.Chmod(g.in(p), mode); err != nil {
				t.Fatal(err)
			}
		}
		move := func(src, dst string) error {
			_, err := g.guard().Move(t.Context(), src, dst, MoveOptions{})
			return err
		}
		duplicate := func(src, dst string) error {
			_, err := Copy(t.Context(), g.guard(), src, g.guard(), dst, CopyOptions{})
			return err
		}
		asNobody(t, func() {
			for _, c := range []struct {
				do             func(src, dst string) error
				src, dst, says string
			}{
				{duplicate, "d", "closed/e", "closed/e"},
				{duplicate, "d/f", "closed/f", "closed/f"},
				{duplicate, "d/l", "closed/l", "closed/l"},
				{duplicate, "shut/f", "g", "shut/f"},
				{duplicate, "shut", "e", "shut/f"},
				{move, "d/f", "closed/f", "closed/f"},
				{move, "d", "closed", "closed/d"},
				{move, "shut/f", "g", "shut/f"},
			} {
				err := c.do(c.src, c.dst)
				pe, ok := errors.AsType[*fs.PathError](err)
				if !ok || !errors.Is(err, fs.ErrPermission) || pe.Path != g.in(c.says) {
					t.Errorf("%s to %s: %v, want %s to be named", c.src, c.dst, err, c.says)
				}
			}
		})
	})
}
