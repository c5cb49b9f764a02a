package guardfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMkdir(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		gd := g.guard()
		for _, existed := range []bool{false, true} {
			real, was, err := gd.Mkdir("a/b/c", MkdirOptions{})
			if err != nil || real != g.in("a", "b", "c") || was != existed {
				t.Errorf("Mkdir: %q, %v, %v", real, was, err)
			}
		}
		link(t, "a", g.in("l"))
		link(t, "late", g.in("dangling"))
		link(t, "loop", g.in("loop"))
		link(t, g.outside, g.in("out"))
		write(t, g.in("f"), "keep")
		if real, was, err := gd.Mkdir("l", MkdirOptions{}); err != nil || !was || real != g.in("a") {
			t.Errorf("a link to a directory: %q, %v, %v", real, was, err)
		}
		if real, was, err := gd.Mkdir("dangling/x", MkdirOptions{}); err != nil || was || real != g.in("late", "x") {
			t.Errorf("through a dangling link: %q, %v, %v", real, was, err)
		}
		if _, was, err := gd.Mkdir(".", MkdirOptions{}); err != nil || !was {
			t.Errorf("the root: %v, %v", was, err)
		}
		mode := uint32(0o2711)
		if _, _, err := gd.Mkdir("m/n", MkdirOptions{Mode: &mode}); err != nil {
			t.Error(err)
		}
		if i, err := gd.Stat("m/n", true); err != nil || i.Mode != mode {
			t.Errorf("mode %o, %v", i.Mode, err)
		}
		for name, want := range map[string]any{
			"f": ErrAlreadyExists, "f/x": ErrNotDirectory, "f/x/y": ErrNotDirectory, strings.Repeat("n", 300): policy.InvalidPath,
			"x/" + strings.Repeat("n", 300) + "/y": policy.InvalidPath, "loop": policy.SymlinkDenied, "out/x": policy.PathNotAllowed,
		} {
			_, _, err := gd.Mkdir(name, MkdirOptions{})
			wantErr(t, name, err, want)
		}
		_, _, err := gd.Mkdir("no/parents", MkdirOptions{NoParents: true})
		wantErr(t, "without parents", err, fs.ErrNotExist)
		if read(t, g.in("f")) != "keep" || exists(g.in("no")) || exists(g.in("x")) {
			t.Error("a refused call left something")
		}
		g.wantTree(g.outside)
	})
}

// TestDeletingALinkLeavesItsTarget is fault 18.
func TestDeletingALinkLeavesItsTarget(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("tgt", "f"), "1")
		write(t, g.out("victim"), "v")
		links := map[string]string{"lnk": "tgt", "lf": "tgt/f", "dangling": "gone", "self": "self"}
		for name, text := range links {
			link(t, text, g.in(name))
		}
		link(t, g.out("victim"), g.in("out"))
		gd := g.guard()
		for name := range links {
			real, err := gd.Delete(t.Context(), name, DeleteOptions{})
			if err != nil || real != g.in(name) || exists(g.in(name)) {
				t.Errorf("%s: %q, %v", name, real, err)
			}
		}
		_, err := gd.Delete(t.Context(), "out", DeleteOptions{})
		wantErr(t, "a link that leads outside", err, policy.PathNotAllowed)
		if _, err := gd.Delete(t.Context(), "out", DeleteOptions{NoFollow: true}); err != nil {
			t.Errorf("with NoFollow: %v", err)
		}
		g.wantTree(g.base, "tgt/", "tgt/f=1")
		g.wantTree(g.outside, "victim=v")
	})
}

// TestMovingALinkMovesTheLink is fault 18.
func TestDelete(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.out("victim"), "v")
		write(t, g.in("keep", "f"), "k")
		write(t, g.in("d", "e", "f"), "1")
		link(t, g.outside, g.in("d", "out"))
		link(t, g.in("keep"), g.in("d", "e", "in"))
		fifo(t, g.in("d", "p"))
		gd := g.guard()
		_, err := gd.Delete(t.Context(), "d", DeleteOptions{Flat: true})
		wantErr(t, "flat", err, ErrNotEmpty)
		if real, err := gd.Delete(t.Context(), "d/", DeleteOptions{}); err != nil || real != g.in("d") {
			t.Errorf("%q, %v", real, err)
		}
		_, err = gd.Delete(t.Context(), "d", DeleteOptions{})
		wantErr(t, "nothing", err, fs.ErrNotExist)
		_, err = gd.Delete(t.Context(), "keep/f/x", DeleteOptions{})
		wantErr(t, "below a file", err, fs.ErrNotExist)
		for _, root := range []string{".", g.base, g.base + "/"} {
			_, err = gd.Delete(t.Context(), root, DeleteOptions{})
			wantErr(t, "the root", err, policy.PathDenied)
		}
		mkdirs(t, g.in("empty"))
		if _, err := gd.Delete(t.Context(), "empty", DeleteOptions{Flat: true}); err != nil {
			t.Error(err)
		}
		g.wantTree(g.base, "keep/", "keep/f=k")
		g.wantTree(g.outside, "victim=v")
	})
}

func TestADirectoryThatHoldsAnotherRootIsProtected(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	mkdirs(t, g.in("a", "x", "b"), g.in("a", "y"))
	link(t, "y", g.in("a", "l"))
	gd := g.guard(policy.NewPathRules([]string{g.in("a"), g.in("a", "x", "b"), g.in("a", "l", "z")}, nil, false, false, false))
	for _, name := range []string{"x", "x/b", ".", "l", g.in("a", "y")} {
		_, err := gd.Delete(t.Context(), name, DeleteOptions{})
		_, moveErr := gd.Move(t.Context(), name, "new", MoveOptions{})
		if name == g.in("a", "y") { // the root y/z is not there yet
			mkdirs(t, g.in("a", "y", "z"))
		}
		wantErr(t, "delete "+name, err, policy.PathDenied)
		wantErr(t, "move "+name, moveErr, policy.PathDenied)
	}
}

func TestATreeWithDeniedEntriesIsProtected(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("a", "b", "k.pem"), "k")
		write(t, g.in("a", "ok"), "o")
		write(t, g.in("c", "ok"), "o")
		gd := g.guard(policy.NewPathRules(nil, []string{"*.pem"}, false, false, false))
		_, err := gd.Delete(t.Context(), "a", DeleteOptions{})
		wantErr(t, "delete", err, policy.PathDenied)
		_, err = gd.Move(t.Context(), "a", "z", MoveOptions{})
		wantErr(t, "move", err, policy.PathDenied)
		_, _, err = gd.Chmod(t.Context(), "a", 0o700, true)
		wantErr(t, "chmod", err, policy.PathDenied)
		_, err = Copy(t.Context(), gd, "a", gd, "z", CopyOptions{})
		wantErr(t, "copy", err, policy.PathDenied)
		_, err = gd.Move(t.Context(), "a/ok", "n.pem", MoveOptions{})
		wantErr(t, "move to a denied name", err, policy.PathDenied)
		if _, err := gd.Delete(t.Context(), "c", DeleteOptions{}); err != nil {
			t.Error(err)
		}
		g.wantTree(g.base, "a/", "a/b/", "a/b/k.pem=k", "a/ok=o")
	})
}

func TestADirectoryThatCannotBeEmptiedTellsHowFarItGot(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		reachable(t, g.base)
		for _, f := range []string{"d/a", "d/b", "d/shut/c", "d/z"} {
			write(t, g.in(f), "x")
		}
		mkdirs(t, g.in("e", "unreadable"))
		chown(t, g.base, g.in("d"), g.in("d", "a"), g.in("d", "b"), g.in("d", "shut"), g.in("d", "z"), g.in("e"), g.in("e", "unreadable"))
		for _, p := range []string{g.in("d", "shut"), g.in("e", "unreadable")} {
			if err := os.Chmod(p, 0o100); err != nil {
				t.Fatal(err)
			}
		}
		asNobody(t, func() {
			_, err := g.guard().Delete(t.Context(), "d", DeleteOptions{})
			part, ok := errors.AsType[*PartialError](err)
			if !ok || part.Deleted != 2 || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%+v, %v", part, err)
			}
			if _, err := g.guard().Delete(t.Context(), "e", DeleteOptions{}); err != nil {
				t.Errorf("an unreadable directory that is empty: %v", err)
			}
		})
		if !exists(g.in("d", "shut", "c")) || exists(g.in("e")) {
			t.Error("removed the wrong things")
		}
	})
}

// A tree that was closed by mistake could not be opened again: what is in a
// directory was to be changed first, and could not be seen.
func TestAClosedTreeCanBeOpenedAgain(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		reachable(t, g.base)
		write(t, g.in("d", "shut", "deep", "f"), "x")
		write(t, g.in("d", "g"), "x")
		all := []string{g.in("d", "shut", "deep", "f"), g.in("d", "shut", "deep"), g.in("d", "shut"), g.in("d", "g"), g.in("d")}
		chown(t, append(all, g.base)...)
		asNobody(t, func() {
			for _, mode := range []uint32{0, 0o755, 0o700, 0o200, 0o755} {
				if _, n, err := g.guard().Chmod(t.Context(), "d", mode, true); err != nil || n != len(all) {
					t.Errorf("to %o: %d changed, %v", mode, n, err)
				}
			}
		})
		for _, p := range all {
			if st, err := os.Stat(p); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("%s: %v, %v", p, st, err)
			}
		}
	})
}

func TestDeleteStopsWhenTheCallerGoesAway(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("d", "f"), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.guard().Delete(ctx, "d", DeleteOptions{})
	wantErr(t, "Delete", err, context.Canceled)
	if !exists(g.in("d", "f")) {
		t.Error("went on")
	}
}

// otherFS is a directory on another file system than the base.
func TestCopy(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("d", "f"), "1")
		write(t, g.in("d", "s", "g"), "22")
		write(t, g.out("secret"), "s")
		mkdirs(t, g.in("d", "empty"), g.in("into"))
		link(t, "f", g.in("d", "l"))
		link(t, g.out("secret"), g.in("d", "out"))
		fifo(t, g.in("d", "p"))
		if err := os.Chmod(g.in("d", "f"), 0o640|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		gd := g.guard()
		res, err := Copy(t.Context(), gd, "d", gd, "n/e", CopyOptions{})
		if err != nil || res.Files != 4 || res.Bytes != 3 || res.Path != g.in("n", "e") {
			t.Errorf("%+v, %v", res, err)
		}
		g.wantTree(g.in("n", "e"), "f=1", "s/", "s/g=22", "empty/", "l -> f", "out -> "+g.out("secret"))
		if i, err := gd.Stat("n/e/f", true); err != nil || i.Mode != 0o640 {
			t.Errorf("f has mode %o, %v", i.Mode, err)
		}
		if res, err = Copy(t.Context(), gd, "d/f", gd, "into", CopyOptions{}); err != nil || res.Path != g.in("into", "f") {
			t.Errorf("%+v, %v", res, err)
		}
		write(t, g.in("d", "f"), "changed")
		if _, err = Copy(t.Context(), gd, "d/f", gd, "into", CopyOptions{}); err != nil || read(t, g.in("into", "f")) != "changed" {
			t.Errorf("over a file: %v", err)
		}
		for _, c := range []struct {
			src, dst string
			opt      CopyOptions
			want     any
		}{
			{"d", "d/in", CopyOptions{}, ErrInvalidMove},
			{"d", "d", CopyOptions{}, ErrInvalidMove},
			{"d", "into/f", CopyOptions{}, ErrNotDirectory},
			{"d", "n/flat", CopyOptions{Flat: true}, ErrIsDirectory},
			{"d/p", "n/p", CopyOptions{}, ErrNotRegular},
			{"none", "x", CopyOptions{}, fs.ErrNotExist},
			{"d/f", "into/f", CopyOptions{NoOverwrite: true}, policy.FileExists},
			{"d/out", "x", CopyOptions{}, policy.PathNotAllowed},
			{"d/f", g.out("x"), CopyOptions{}, policy.PathNotAllowed},
			{"d/f", "d/f/x", CopyOptions{}, ErrNotDirectory},
		} {
			_, err := Copy(t.Context(), gd, c.src, gd, c.dst, c.opt)
			wantErr(t, c.src+" → "+c.dst, err, c.want)
		}
		var each []string
		_, err = Copy(t.Context(), gd, "d", gd, "each", CopyOptions{Each: func(real string, _ Info) error {
			each = append(each, real)
			return nil
		}})
		wantErr(t, "with Each", err, nil)
		wantOrder(t, "Each", each, g.in("each", "f"), g.in("each", "l"), g.in("each", "out"), g.in("each", "s", "g"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = Copy(ctx, gd, "d", gd, "late", CopyOptions{})
		wantErr(t, "a caller that went away", err, context.Canceled)
		if exists(g.in("late")) || exists(g.in("d", "in")) {
			t.Error("a failed copy left something")
		}
	})
}

func TestCopyJudgesEachSideByItsOwnRules(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("r", "f"), "1")
	mkdirs(t, g.in("w"))
	from := g.guard(policy.NewPathRules([]string{g.in("r")}, nil, false, false, false))
	to := g.guard(policy.NewPathRules([]string{g.in("w")}, []string{"*.pem"}, false, false, false))
	if _, err := Copy(t.Context(), from, "f", to, "f", CopyOptions{}); err != nil || read(t, g.in("w", "f")) != "1" {
		t.Error(err)
	}
	_, err := Copy(t.Context(), from, "f", to, "f.pem", CopyOptions{})
	wantErr(t, "a denied destination", err, policy.PathDenied)
	_, err = Copy(t.Context(), to, g.in("w", "f"), from, g.in("w", "g"), CopyOptions{})
	wantErr(t, "a destination outside", err, policy.PathNotAllowed)
}

func TestChmod(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("d", "f"), "1")
		write(t, g.out("f"), "1")
		link(t, g.out("f"), g.in("d", "out"))
		link(t, "d/f", g.in("l"))
		gd := g.guard()
		if real, n, err := gd.Chmod(t.Context(), "l", 0o600, false); err != nil || n != 1 || real != g.in("d", "f") {
			t.Errorf("%q, %d, %v", real, n, err)
		}
		if _, n, err := gd.Chmod(t.Context(), "l", 0o600, false); err != nil || n != 0 {
			t.Errorf("again: %d, %v", n, err)
		}
		if _, n, err := gd.Chmod(t.Context(), "d", 0o711, true); err != nil || n != 2 {
			t.Errorf("recursive: %d, %v", n, err)
		}
		if i, err := os.Stat(g.out("f")); err != nil || i.Mode().Perm() != 0o644 {
			t.Errorf("outside: %v, %v", i, err)
		}
		_, _, err := gd.Chmod(t.Context(), "none", 0o600, false)
		wantErr(t, "nothing", err, fs.ErrNotExist)
	})
}

func TestMakeLinks(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("f"), "1")
		write(t, g.out("f"), "1")
		link(t, g.outside, g.in("out"))
		gd := g.guard()
		if real, err := gd.Symlink("../f", "n/l"); err != nil || real != g.in("n", "l") || read(t, real) != "1" {
			t.Errorf("%q, %v", real, err)
		}
		if real, err := gd.Link("n/l", "n/twin"); err != nil || read(t, real) != "1" {
			t.Errorf("%q, %v", real, err)
		}
		_, err := gd.Symlink("x", "f")
		wantErr(t, "a taken name", err, ErrAlreadyExists)
		_, err = gd.Symlink("x", "n/l")
		wantErr(t, "a taken link", err, ErrAlreadyExists)
		_, err = gd.Link("f", "n/l")
		wantErr(t, "a taken link", err, ErrAlreadyExists)
		_, err = gd.Symlink("x", "out/l")
		wantErr(t, "outside", err, policy.PathNotAllowed)
		_, err = gd.Link("out/f", "stolen")
		wantErr(t, "a file outside", err, policy.PathNotAllowed)
		_, err = gd.Link("n", "dir")
		wantErr(t, "a directory", err, ErrIsDirectory)
		g.wantTree(g.outside, "f=1")
	})
}

func TestErrnosPassThrough(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EACCES, unix.EIO} {
		err := writing("write", "/p", errno)
		pe, ok := errors.AsType[*fs.PathError](err)
		if !ok || pe.Path != "/p" || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}
