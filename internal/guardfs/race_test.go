package guardfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const inside, secret = "inside", "SECRET outside"

// tally counts how the calls of one kind ended.
type tally struct{ done, refused, missing int }

// race is a base directory in which a directory and a file are exchanged with
// links to outside ones all the time.
type race struct {
	*ground
	gd    *Guard
	calls map[string]*tally
	total int
}

// TestWhileADirectoryIsExchangedWithALinkNothingOutsideIsTouched: others could
// read, make, remove and move files outside by exchanging x with a link to an
// outside directory between the check of a name and its use.
func TestWhileADirectoryIsExchangedWithALinkNothingOutsideIsTouched(t *testing.T) {
	calls := map[bool]int{false: 100_000, true: 20_000} // with openat2, and with the walk
	for walkOnly, n := range calls {
		if testing.Short() || raceDetector {
			n /= 10
		}
		name := map[bool]string{false: "openat2", true: "walk"}[walkOnly]
		t.Run(name, func(t *testing.T) {
			if !walkOnly && !haveOpenat2() {
				t.Skip("no openat2 here")
			}
			dir := t.TempDir()
			if unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m") == nil { // where syncing costs nothing
				t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			}
			runRace(t, dir, walkOnly, n)
		})
	}
}

func runRace(t *testing.T, dir string, walkOnly bool, n int) {
	g := newGround(t, dir, walkOnly)
	write(t, g.in("x", "f"), inside)
	write(t, g.in("y", "f"), inside)
	write(t, g.in("z", "f"), inside)
	write(t, g.out("f"), secret)
	write(t, g.out("victim"), secret)
	mkdirs(t, g.out("dir"))
	link(t, g.outside, g.in("evil"))
	link(t, g.out("f"), g.in("y", "evil"))
	link(t, g.out("f"), g.in("z", "evil"))
	before := outsideFacts(t, g)

	r := &race{ground: g, gd: g.guard(), calls: map[string]*tally{}}
	exchanged := map[string]string{g.in("x"): g.in("evil"), g.in("y", "f"): g.in("y", "evil"), g.in("z", "f"): g.in("z", "evil")}
	var swaps atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if i%64 == 0 {
				renewLink(g)
			}
			for good, evil := range exchanged {
				if err := unix.Renameat2(unix.AT_FDCWD, good, unix.AT_FDCWD, evil, unix.RENAME_EXCHANGE); err == nil {
					swaps.Add(1)
				}
			}
		}
	})
	for i := 0; (r.total < n || r.total < 20*n && !r.bothWays()) && !t.Failed(); i++ {
		r.round(i)
	}
	close(stop)
	wg.Wait()

	if after := outsideFacts(t, g); after != before {
		t.Errorf("outside was touched:\nbefore %s\nafter  %s", before, after)
	}
	t.Logf("%d exchanges beside %d calls", swaps.Load(), r.total)
	if swaps.Load() < int64(n/100) {
		t.Errorf("only %d exchanges: nothing was tried", swaps.Load())
	}
	for name, c := range r.calls {
		t.Logf("%-12s %+v", name, *c)
		if !c.bothWays(name) {
			t.Errorf("%s: %+v; some must succeed and some be refused, or nothing was tried", name, *c)
		}
	}
}

// bothWays tells whether calls of each kind were refused, and others succeeded
// where they may.
func (r *race) bothWays() bool {
	for name, c := range r.calls {
		if !c.bothWays(name) {
			return false
		}
	}
	return true
}

func (c *tally) bothWays(name string) bool {
	return c.refused > 0 && (c.done > 0 || strings.HasSuffix(name, "!"))
}

// outsideFacts are what must not change outside, reading apart.
func outsideFacts(t *testing.T, g *ground) string {
	t.Helper()
	var b strings.Builder
	for _, p := range []string{g.outside, g.out("f"), g.out("victim"), g.out("dir")} {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			fmt.Fprintf(&b, "%s: %v; ", p, err)
			continue
		}
		fmt.Fprintf(&b, "%s: inode %d mode %o links %d size %d mtime %d ctime %d; ", p, st.Ino, st.Mode, st.Nlink, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	}
	return b.String() + strings.Join(tree(t, g.outside), " ")
}

// count notes how a call ended. A name that ends in ! stands for a call that
// can only succeed outside.
func (r *race) count(name string, err error) {
	r.t.Helper()
	r.total++
	c := r.calls[name]
	if c == nil {
		c = &tally{}
		r.calls[name] = c
	}
	d, denied := errors.AsType[*policy.Denied](err)
	switch {
	case err == nil:
		c.done++
		if strings.HasSuffix(name, "!") {
			r.t.Errorf("%s: succeeded", name)
		}
	case denied && (d.Code == policy.PathNotAllowed || d.Code == policy.SymlinkDenied):
		c.refused++
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrAlreadyExists), errors.Is(err, ErrInvalidMove):
		c.missing++
	default:
		r.t.Errorf("%s: %v", name, err)
	}
}

// round makes one call of each kind.
func (r *race) round(i int) {
	ctx, t := r.t.Context(), r.t
	k := i % 8
	info, err := r.gd.Stat("x/f", true)
	if err == nil && info.Size != int64(len(inside)) {
		t.Errorf("stat shows the outside file: %+v", info)
	}
	r.count("stat", err)
	_, err = r.gd.Stat("x/victim", true)
	r.count("stat!", err)
	for _, name := range []string{"x/f", "y/f"} {
		f, _, err := r.gd.Open(name)
		if err == nil {
			b, _ := io.ReadAll(f)
			if string(b) != inside {
				t.Errorf("read %q from %s", b, name)
			}
			_ = f.Close()
		}
		r.count("read "+name, err)
	}
	_, err = r.gd.Walk(ctx, "x", WalkOptions{}, r.noVictim)
	r.count("list", err)
	if i%50 == 0 { // the whole base: the link is left out, or the directory entered
		if _, err := r.gd.Walk(ctx, ".", WalkOptions{}, r.noVictim); err != nil {
			t.Error(err)
		}
	}
	_, err = put(r.gd, fmt.Sprintf("x/n%d", k), "new", CreateOptions{})
	r.count("write", err)
	_, err = put(r.gd, "z/f", "new", CreateOptions{})
	r.count("write z/f", err)
	_, err = put(r.gd, fmt.Sprintf("x/a%d", k), "n", CreateOptions{Append: true, NoOverwrite: true})
	if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != policy.FileExists {
		r.count("append", err)
	}
	_, err = r.gd.Delete(ctx, fmt.Sprintf("x/a%d", k), DeleteOptions{})
	r.count("delete", err)
	_, err = r.gd.Delete(ctx, "x/victim", DeleteOptions{})
	r.count("delete!", err)
	_, _, err = r.gd.Mkdir(fmt.Sprintf("x/m%d/sub/sub", k), MkdirOptions{})
	r.count("mkdir", err)
	_, err = r.gd.Delete(ctx, fmt.Sprintf("x/m%d", k), DeleteOptions{})
	r.count("delete tree", err)
	_, err = r.gd.Move(ctx, fmt.Sprintf("x/n%d", k), "moved", MoveOptions{})
	r.count("move out", err)
	_, err = put(r.gd, "src", "new", CreateOptions{})
	if err != nil {
		t.Error(err)
	}
	_, err = r.gd.Move(ctx, "src", fmt.Sprintf("x/v%d", k), MoveOptions{})
	r.count("move in", err)
	_, err = r.gd.Move(ctx, "x/victim", "got", MoveOptions{})
	r.count("move out!", err)
	_, _, err = r.gd.Chmod(ctx, "x/f", 0o600+uint32(k), false)
	r.count("chmod", err)
	if i%8 == 0 { // what was a link when it was looked at is none when it is read
		_, err = Copy(ctx, r.gd, "x", r.gd, "whole", CopyOptions{})
		r.count("copy tree", err)
		if text, err := os.Readlink(r.in("whole")); err == nil {
			t.Errorf("a link to %s was copied; it leads outside", text)
		}
		if _, err = r.gd.Delete(ctx, "whole", DeleteOptions{}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	_, err = Copy(ctx, r.gd, "x/f", r.gd, "copied", CopyOptions{})
	r.count("copy out", err)
	if b, err := os.ReadFile(r.in("copied")); err == nil && string(b) != inside {
		t.Errorf("copied %q", b)
	}
	d, real, err := r.gd.Dir("x", policy.Exec)
	if err == nil {
		if got, _ := os.Readlink(fdPath(int(d.Fd()))); within(r.outside, got) {
			t.Errorf("to work in %s would be to work in %s", real, got)
		}
		_ = d.Close()
	}
	r.count("work in", err)
	_, err = r.gd.Link("x/victim", "got")
	r.count("link!", err)
}

// renewLink puts the link beside z/f back when a write has taken its place: it
// was exchanged once more right before the new file was given its name.
func renewLink(g *ground) {
	for _, p := range []string{g.in("z", "f"), g.in("z", "evil")} {
		if fi, err := os.Lstat(p); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return
		}
	}
	_ = os.Remove(g.in("z", "evil"))
	_ = os.Symlink(g.out("f"), g.in("z", "evil"))
}

func (r *race) noVictim(e *Entry) error {
	if e.Name() == "victim" {
		r.t.Errorf("listed %s", e.Path())
	}
	if e.Name() != "f" {
		return nil
	}
	f, _, err := e.Open()
	if err != nil {
		return nil
	}
	defer f.Close()
	if b, _ := io.ReadAll(f); string(b) == secret {
		r.t.Errorf("read %s through a walk", e.Path())
	}
	return nil
}
