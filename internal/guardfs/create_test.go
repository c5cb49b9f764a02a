package guardfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestCreate(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		gd := g.guard()
		res, err := put(gd, "a/b/c", "hello", CreateOptions{SHA256: hashOf("hello")})
		if err != nil || !res.Created || res.Bytes != 5 || res.SHA256 != hashOf("hello") || res.Info.Path != g.in("a", "b", "c") {
			t.Errorf("%+v, %v", res, err)
		}
		i, err := gd.Stat("a/b/c", true)
		if err != nil || i.ETag() != res.Info.ETag() || i.Mode != 0o666&^g.fs.umask {
			t.Errorf("%+v, tag %s, %v", i, res.Info.ETag(), err)
		}
		res, err = put(gd, "a/b/c", "", CreateOptions{})
		if err != nil || res.Created || res.Info.Size != 0 || read(t, g.in("a", "b", "c")) != "" || res.Info.ETag() == i.ETag() {
			t.Errorf("an empty file over it: %+v, %v", res, err)
		}
		link(t, "a/b/c", g.in("l"))
		link(t, "late", g.in("dangling"))
		link(t, "loop", g.in("loop"))
		if res, err = put(gd, "l", "via", CreateOptions{}); err != nil || res.Info.Path != g.in("a", "b", "c") {
			t.Errorf("through a link: %+v, %v", res, err)
		}
		if res, err = put(gd, "dangling", "late", CreateOptions{}); err != nil || res.Info.Path != g.in("late") || !res.Created {
			t.Errorf("through a dangling link: %+v, %v", res, err)
		}
		for name, want := range map[string]any{
			"a": ErrIsDirectory, ".": ErrIsDirectory, "late/x": ErrNotDirectory, "late/x/y": ErrNotDirectory, "loop": policy.SymlinkDenied,
			"loop/x": policy.SymlinkDenied, strings.Repeat("n", 300): policy.InvalidPath, "n/" + strings.Repeat("n", 256) + "/x": policy.InvalidPath,
		} {
			_, err := put(gd, name, "x", CreateOptions{})
			wantErr(t, name, err, want)
		}
		_, err = put(gd, "no/parents", "x", CreateOptions{NoParents: true})
		wantErr(t, "without parents", err, fs.ErrNotExist)
		_, err = put(gd, "late", "x", CreateOptions{NoOverwrite: true})
		wantErr(t, "NoOverwrite", err, policy.FileExists)
		g.wantTree(g.base, "a/", "a/b/", "a/b/c=via", "late=late", "l -> a/b/c", "dangling -> late", "loop -> loop")
	})
}

func TestAGivenUpWriteLeavesNothing(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("old"), "old")
		gd := g.guard()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, name := range []string{"new", "x/y/new", "old"} {
			for what, end := range map[string]func(*Writer) error{
				"aborted":      func(w *Writer) error { w.Abort(); w.Abort(); return fs.ErrClosed },
				"disconnected": func(w *Writer) error { _, err := w.Commit(ctx); return err },
				"too large": func(w *Writer) error {
					if _, err := w.Write([]byte("more than ten bytes")); err == nil {
						t.Error("too many bytes were taken")
					}
					_, err := w.Commit(t.Context())
					return err
				},
				"wrong sum": func(w *Writer) error { _, err := w.Commit(t.Context()); return err },
			} {
				w, err := gd.Create(name, CreateOptions{Max: 10, SHA256: hashOf("else")})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte("content")); err != nil {
					t.Error(err)
				}
				if err := end(w); err == nil {
					t.Errorf("%s: no error", what)
				} else if big, ok := errors.AsType[*TooLargeError](err); ok != (what == "too large") || ok && big.Limit != 10 {
					t.Errorf("%s: %v", what, err)
				} else if errors.Is(err, ErrChecksum) != (what == "wrong sum") && what != "aborted" {
					t.Errorf("%s: %v", what, err)
				}
				if _, err := w.Write([]byte("x")); err == nil {
					t.Errorf("%s: written after the end", what)
				}
				g.wantTree(g.base, "old=old")
			}
		}
	})
}

func TestDirectoriesOfAFailedWriteStayWhenTheyAreUsed(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	w, err := g.guard().Create("a/b/c/f", CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, g.in("a", "other"), "x")
	w.Abort()
	g.wantTree(g.base, "a/", "a/other=x")
}

func TestTheSizeLimitIsExact(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	if _, err := put(g.guard(), "f", "12345", CreateOptions{Max: 5}); err != nil {
		t.Error(err)
	}
	_, err := put(g.guard(), "g", "123456", CreateOptions{Max: 5})
	if big, ok := errors.AsType[*TooLargeError](err); !ok || big.Limit != 5 {
		t.Error(err)
	}
}

func TestNamesAreJudgedBeforeAnythingIsMade(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	mine := errors.New("mine")
	fifo(t, g.in("p.sh"))
	for _, name := range []string{"new/x.sh", "p.sh"} {
		var asked string
		_, err := g.guard().Create(name, CreateOptions{Judge: func(real string) error { asked = real; return mine }})
		wantErr(t, name, err, mine)
		if asked != g.in(name) {
			t.Errorf("asked about %q", asked)
		}
	}
	g.wantTree(g.base, "p.sh ?")
}

func TestConditionsAreAskedBeforeAndAtTheEnd(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("f"), "1")
	i, err := g.guard().Stat("f", true)
	if err != nil {
		t.Fatal(err)
	}
	mine := errors.New("precondition failed")
	match := func(exists bool, now Info) error {
		if !exists || now.ETag() != i.ETag() {
			return mine
		}
		return nil
	}
	w, err := g.guard().Create("f", CreateOptions{If: match})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put(g.guard(), "f", "between", CreateOptions{If: match}); err != nil {
		t.Error(err)
	}
	_, err = w.Commit(t.Context())
	wantErr(t, "overtaken", err, mine)
	_, err = g.guard().Create("f", CreateOptions{If: match})
	wantErr(t, "at the beginning", err, mine)
	_, err = g.guard().Create("none", CreateOptions{If: match})
	wantErr(t, "nothing there", err, mine)
	g.wantTree(g.base, "f=between")
}

func TestReplacingKeepsModeOwnerAndAttributes(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		p := write(t, g.in("f"), "old content")
		if os.Geteuid() == 0 {
			if err := os.Chown(p, 12, 34); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(p, 0o604); err != nil {
			t.Fatal(err)
		}
		attrs := unix.Setxattr(p, "user.note", []byte("kept"), 0) == nil
		before, err := g.guard().Stat("f", true)
		if err != nil {
			t.Fatal(err)
		}
		res, err := put(g.guard(), "f", "s", CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		after, err := g.guard().Stat("f", true)
		if err != nil || after.Mode != 0o604 || after.UID != before.UID || after.GID != before.GID || after.Inode == before.Inode {
			t.Errorf("before %+v, after %+v, %v", before, after, err)
		}
		if res.Info.ETag() != after.ETag() {
			t.Errorf("tag %s, now %s", res.Info.ETag(), after.ETag())
		}
		if attrs {
			buf := make([]byte, 16)
			if n, err := unix.Getxattr(p, "user.note", buf); err != nil || string(buf[:n]) != "kept" {
				t.Errorf("attribute %q, %v", buf[:max(n, 0)], err)
			}
		}
		if err := os.Chmod(p, 0o755|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		mode := uint32(0o700)
		when := time.Unix(1_500_000_000, 5000)
		if _, err := put(g.guard(), "f", "s", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if i, _ := g.guard().Stat("f", true); i.Mode != 0o755 {
			t.Errorf("other content inherited mode %o", i.Mode)
		}
		if _, err := put(g.guard(), "f", "s", CreateOptions{Mode: &mode, Mtime: when}); err != nil {
			t.Fatal(err)
		}
		if i, _ := g.guard().Stat("f", true); i.Mode != mode || i.Mtime != when.UnixNano() {
			t.Errorf("asked for %o and %v: %+v", mode, when, i)
		}
	})
}

// TestAnUploadedProgramRunsAtOnce: "text file busy" when other commands start
// meanwhile. The wait for forks makes it rare, whoever starts programs tries again.
