package guardfs

import (
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

// chmod 444 kept no file from being overwritten: an upload put another in its
// place, while the same bytes appended were refused.
func TestAWriteProtectedFileIsNotReplaced(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		reachable(t, g.base)
		write(t, g.in("f"), "kept")
		write(t, g.in("theirs"), "kept")
		write(t, g.in("new"), "other")
		chown(t, g.base, g.in("f"))
		if err := os.Chmod(g.in("f"), 0o444); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			at := int64(4)
			for what, opt := range map[string]CreateOptions{"replaced": {}, "appended to": {Append: true}, "continued": {Offset: &at}} {
				_, err := put(g.guard(), "f", "x", opt)
				wantErr(t, what, err, fs.ErrPermission)
			}
			_, err := Copy(t.Context(), g.guard(), "new", g.guard(), "f", CopyOptions{})
			wantErr(t, "copied over", err, fs.ErrPermission)
			if os.Geteuid() == 0 {
				_, err = put(g.guard(), "theirs", "x", CreateOptions{})
				wantErr(t, "of another user", err, fs.ErrPermission)
			}
			w, err := g.guard().Create("late", CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := os.WriteFile(g.in("late"), []byte("kept"), 0o444); err != nil {
				t.Error(err)
			}
			_, _ = w.Write([]byte("x"))
			_, err = w.Commit(t.Context())
			wantErr(t, "protected meanwhile", err, fs.ErrPermission)
		})
		g.wantTree(g.base, "f=kept", "theirs=kept", "new=other", "late=kept")
	})
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

// What is appended, or written in place, must not go to a file that has lost
// its name meanwhile.
func TestWritingInPlaceToAFileThatIsReplaced(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("log"), "old ")
		write(t, g.in("gone"), "old ")
		write(t, g.in("linked"), "old")
		if err := os.Link(g.in("linked"), g.in("twin")); err != nil {
			t.Fatal(err)
		}
		late := []*Writer{
			g.staged("log", "late", CreateOptions{Append: true}), g.staged("gone", "late", CreateOptions{Append: true}), g.staged("linked", "late", CreateOptions{}),
		}
		if _, err := put(g.guard(), "log", "new ", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"gone", "linked"} {
			if err := os.Remove(g.in(name)); err != nil {
				t.Fatal(err)
			}
		}
		write(t, g.in("linked"), "new")
		for i, w := range late {
			if res, err := w.Commit(t.Context()); err != nil || res.Created != (i == 1) {
				t.Errorf("%d: %+v, %v", i, res, err)
			}
		}
		g.wantTree(g.base, "log=new late", "gone=late", "linked=late", "twin=old")
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
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		if _, err := put(g.guard(), name, string(program), CreateOptions{Mode: &mode}); err != nil {
			t.Fatal(err)
		}
		// A child that was forked while the file was open holds it until its
		// own exec, a moment that whoever starts programs has to bear.
		err := exec.Command(g.in(name)).Run()
		for deadline := time.Now().Add(10 * time.Second); errors.Is(err, syscall.ETXTBSY) && time.Now().Before(deadline); {
			err = exec.Command(g.in(name)).Run()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(g.in(name)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
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
