package guardfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

func TestHardLinkedFilesAreWrittenInPlace(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("f"), "a long old content")
		if err := os.Link(g.in("f"), g.in("twin")); err != nil {
			t.Fatal(err)
		}
		_, err := put(g.guard(), "f", "x", CreateOptions{SHA256: hashOf("y")})
		wantErr(t, "a wrong sum", err, ErrChecksum)
		if read(t, g.in("twin")) != "a long old content" {
			t.Error("a failed write changed the file")
		}
		res, err := put(g.guard(), "f", "new", CreateOptions{})
		if err != nil || res.Created || res.Info.Size != 3 || res.Info.Nlink != 2 {
			t.Errorf("%+v, %v", res, err)
		}
		g.wantTree(g.base, "f=new", "twin=new")
	})
}

func TestAFileInAReadOnlyDirectoryIsWrittenInPlace(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	reachable(t, g.base)
	write(t, g.in("d", "f"), "old")
	write(t, g.in("d", "theirs"), "old")
	chown(t, g.in("d", "f"), g.in("d"))
	if err := os.Chmod(g.in("d"), 0o555); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		if res, err := put(g.guard(), "d/f", "new", CreateOptions{}); err != nil || res.Created {
			t.Errorf("%+v, %v", res, err)
		}
		_, err := put(g.guard(), "d/new", "x", CreateOptions{})
		wantErr(t, "a new file", err, fs.ErrPermission)
		if os.Geteuid() != 0 {
			return
		}
		_, err = put(g.guard(), "d/theirs", "x", CreateOptions{})
		wantErr(t, "a file of another user", err, fs.ErrPermission)
	})
	g.wantTree(g.base, "d/", "d/f=new", "d/theirs=old")
}

func TestAFileOfAnotherUserKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs two users")
	}
	g := newGround(t, t.TempDir(), false)
	reachable(t, g.base)
	chown(t, g.base)
	write(t, g.in("f"), "old")
	if err := os.Chmod(g.in("f"), 0o666); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		if _, err := put(g.guard(), "f", "new", CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	if i, err := g.guard().Stat("f", true); err != nil || i.UID != 0 || read(t, g.in("f")) != "new" {
		t.Errorf("%+v, %v", i, err)
	}
}

func TestAppend(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		if res, err := put(g.guard(), "log", "one ", CreateOptions{Append: true}); err != nil || !res.Created {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := put(g.guard(), "log", "two", CreateOptions{Append: true}); err != nil || res.Created || res.Bytes != 3 || res.Info.Size != 7 {
			t.Errorf("%+v, %v", res, err)
		}
		w, err := g.guard().Create("fresh", CreateOptions{Append: true})
		if err != nil {
			t.Fatal(err)
		}
		write(t, g.in("fresh"), "first ") // it comes while we write
		_, _ = w.Write([]byte("second"))
		if res, err := w.Commit(t.Context()); err != nil || res.Created {
			t.Errorf("%+v, %v", res, err)
		}
		g.wantTree(g.base, "log=one two", "fresh=first second")
	})
}

func TestAppendsDoNotMix(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	const n, size = 8, 100_000
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := put(g.guard(), "log", strings.Repeat(string(rune('a'+i)), size), CreateOptions{Append: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text := read(t, g.in("log"))
	changes := 0
	for i := 1; i < len(text); i++ {
		if text[i] != text[i-1] {
			changes++
		}
	}
	if len(text) != n*size || changes != n-1 {
		t.Errorf("%d bytes in %d runs", len(text), changes+1)
	}
}

func TestGoingOnWithAFile(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		at := func(n int64) CreateOptions { return CreateOptions{Offset: &n} }
		w, err := g.guard().Create("d/f", at(0))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("12345"))
		w.Abort() // the connection was cut
		if read(t, g.in("d", "f")) != "12345" {
			t.Error("what had arrived is lost")
		}
		for _, off := range []int64{0, 4, 6} {
			_, err = put(g.guard(), "d/f", "x", at(off))
			if e, ok := errors.AsType[*OffsetError](err); !ok || e.Size != 5 {
				t.Errorf("at %d: %v", off, err)
			}
		}
		_, err = put(g.guard(), "d/none", "x", at(3))
		if e, ok := errors.AsType[*OffsetError](err); !ok || e.Size != 0 {
			t.Errorf("nothing there: %v", err)
		}
		if res, err := put(g.guard(), "d/f", "678", at(5)); err != nil || res.Info.Size != 8 || res.Bytes != 3 {
			t.Errorf("%+v, %v", res, err)
		}
		opt := at(8)
		opt.SHA256 = hashOf("else")
		_, err = put(g.guard(), "d/f", "9", opt)
		wantErr(t, "a wrong sum", err, ErrChecksum)
		opt = at(0)
		opt.SHA256 = hashOf("else")
		_, err = put(g.guard(), "d/g", "9", opt)
		wantErr(t, "a wrong sum of a new file", err, ErrChecksum)
		g.wantTree(g.base, "d/", "d/f=12345678")
	})
}

func TestOfTwoWritersWithoutOverwritingOneWins(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		for round := range 50 {
			name := fmt.Sprintf("d%d/f", round)
			var won atomic.Int32
			var winner atomic.Value
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					text := strings.Repeat(string(rune('a'+i)), 1000)
					_, err := put(g.guard(), name, text, CreateOptions{NoOverwrite: true})
					if err == nil {
						won.Add(1)
						winner.Store(text)
						return
					}
					wantErr(t, name, err, policy.FileExists)
				})
			}
			wg.Wait()
			if won.Load() != 1 || read(t, g.in(name)) != winner.Load() {
				t.Fatalf("%d writers won, the file begins with %.3s", won.Load(), read(t, g.in(name)))
			}
		}
	})
}

func TestReadersSeeTheOldOrTheNewContent(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	const size = 1 << 20
	write(t, g.in("f"), strings.Repeat("A", size))
	done := make(chan struct{})
	var looks int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			b, err := os.ReadFile(g.in("f"))
			if err != nil || len(b) != size || strings.Count(string(b), string(b[:1])) != size {
				t.Errorf("%d bytes, %v", len(b), err)
				return
			}
			looks++
		}
	})
	for _, c := range "BCDEFGH" {
		if _, err := put(g.guard(), "f", strings.Repeat(string(c), size), CreateOptions{}); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	if looks == 0 {
		t.Error("nobody looked")
	}
}

// TestAnUploadedProgramRunsAtOnce: "text file busy" when other commands start
// meanwhile. The wait for forks makes it rare, whoever starts programs tries again.
func TestAnUploadedProgramRunsAtOnce(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = exec.Command("/bin/true").Run()
			}
		}
	})
	mode := uint32(0o755)
	busy, n := 0, 100
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		if _, err := put(g.guard(), name, string(program), CreateOptions{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		if err := exec.Command(g.in(name)).Run(); errors.Is(err, syscall.ETXTBSY) {
			busy++
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(g.in(name)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if busy > n/20 {
		t.Errorf("%d of %d were busy", busy, n)
	}
}

func TestAFullDiskLeavesTheOldFile(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	mkdirs(t, g.in("small"))
	if err := unix.Mount("tmpfs", g.in("small"), "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	defer func() { _ = unix.Unmount(g.in("small"), unix.MNT_DETACH) }()
	write(t, g.in("small", "f"), "old")
	write(t, g.in("small", "h"), "old")
	if err := os.Link(g.in("small", "h"), g.in("small", "twin")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"small/f", "small/h", "small/new"} {
		_, err := put(g.guard(), name, strings.Repeat("x", 1<<20), CreateOptions{})
		wantErr(t, name, err, unix.ENOSPC)
	}
	g.wantTree(g.in("small"), "f=old", "h=old", "twin=old")
}
