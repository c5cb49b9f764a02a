package watch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestQueueOverflowIsSaidAndRepaired lets the kernel's queue overflow in truth:
// the reader is held up while more happens than it holds.
func TestQueueOverflowIsSaidAndRepaired(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	must(t, err)
	var most int
	if _, err := fmt.Sscan(string(text), &most); err != nil || most > 100_000 {
		t.Skipf("a queue of %q events", text)
	}
	d := t.TempDir()
	must(t, os.Mkdir(d+"/keep", 0o755))
	write(t, d+"/going", "")
	write(t, d+"/changing", "")
	h := newHub(t)
	l := listen(t, h, d, Options{Recursive: true})
	h.in.reading.Lock()
	for range most/2 + 1 { // not merged: each differs from the one before
		write(t, d+"/noise", "")
		must(t, os.Remove(d+"/noise"))
	}
	must(t, os.Remove(d+"/going"), os.Truncate(d+"/changing", 7), os.MkdirAll(d+"/keep/new/deep", 0o755))
	h.in.reading.Unlock()
	got := await(t, l, "overflow queue", "deleted going", "modified changing", "created keep/new/", "created keep/new/deep/")
	write(t, d+"/keep/new/deep/f", "")
	got = append(got, await(t, l, "created keep/new/deep/f")...)
	got = append(got, rest(t, l)...)
	if n := len(slices.DeleteFunc(got, func(s string) bool { return strings.HasSuffix(s, " noise") })); n != 6 {
		t.Errorf("%d events besides the noise, want 6: %q", n, got)
	}
}

// TestASlowReaderHearsOfItsLossAndDisturbsNobody lets one reader of two stop
// reading.
func TestASlowReaderHearsOfItsLossAndDisturbsNobody(t *testing.T) {
	d := t.TempDir()
	h := newHub(t)
	h.inbox = 64
	slow := listen(t, h, d, Options{Recursive: true, Queue: 16})
	h.inbox = inboxSize
	fast := listen(t, h, d, Options{Recursive: true})
	var want []string
	for i := range 500 {
		name := fmt.Sprintf("d%d", i)
		must(t, os.Mkdir(d+"/"+name, 0o755))
		want = append(want, "created "+name+"/")
	}
	equal(t, await(t, fast, want...), want...)
	got := follow(t, slow)
	slow.Finish()
	events := <-got
	s := state{}
	must(t, s.replay(events))
	sameState(t, s, stateOf(t, d))
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == Overflow && e.Reason == QueueLost }) {
		t.Error("nothing was said of the loss")
	}
}

// TestExhaustedWatchesAreSaidAndPolled gives three watches: root, the one above
// the root, and one directory.
func TestExhaustedWatchesAreSaidAndPolled(t *testing.T) {
	d := t.TempDir()
	must(t, os.Mkdir(d+"/a", 0o755), os.Mkdir(d+"/b", 0o755))
	h := newHub(t)
	h.limit = 3
	l := listen(t, h, d, Options{Recursive: true, Interval: time.Millisecond})
	equal(t, await(t, l, "overflow watches"), "overflow watches")
	write(t, d+"/b/f", "")
	await(t, l, "created b/f")
	must(t, os.MkdirAll(d+"/b/c/d", 0o755))
	write(t, d+"/b/c/d/g", "")
	await(t, l, "created b/c/d/g")
	write(t, d+"/b/f", "longer")
	await(t, l, "modified b/f")
	must(t, os.RemoveAll(d+"/b"))
	await(t, l, "deleted b/c/d/g", "deleted b/c/d/", "deleted b/c/", "deleted b/f", "deleted b/")
	// Now there is one watch to spare again, and no second overflow to tell.
	must(t, os.Remove(d+"/a"), os.Mkdir(d+"/e", 0o755))
	await(t, l, "created e/")
	write(t, d+"/e/f", "")
	must(t, os.Remove(d+"/e/f"))
	got := await(t, l, "created e/f", "deleted e/f")
	if slices.Contains(got, "overflow watches") {
		t.Error("overflow without cause")
	}
}

func TestExhaustionAfterArmingIsSaid(t *testing.T) {
	d := t.TempDir()
	h := newHub(t)
	h.limit = 3
	l := listen(t, h, d, Options{Recursive: true, Interval: time.Millisecond})
	must(t, os.MkdirAll(d+"/a/b/c", 0o755))
	write(t, d+"/a/b/c/f", "")
	got := await(t, l, "created a/b/c/f")
	if n := len(slices.DeleteFunc(got, func(s string) bool { return s != "overflow watches" })); n != 1 {
		t.Errorf("overflow told %d times", n)
	}
}

// TestPollingWithoutInotify stands for a user who has no instance left.
func TestPollingWithoutInotify(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/s", 0o755))
	write(t, d+"/s/old", "")
	h := newHub(t)
	h.init = func() (int, error) { return -1, unix.EMFILE }
	l := listen(t, h, d, Options{Recursive: true, Interval: time.Millisecond})
	write(t, d+"/s/new", "")
	await(t, l, "created s/new")
	write(t, d+"/s/old", "longer")
	await(t, l, "modified s/old")
	must(t, os.Rename(d+"/s", d+"/z"))
	await(t, l, "deleted s/old", "deleted s/new", "deleted s/", "created z/", "created z/new", "created z/old")
	must(t, os.Remove(d+"/z/new"))
	equal(t, rest(t, l), "deleted z/new")
}

// TestUnreadableDirectoriesAreEntries needs a user who may not read all.
func TestUnreadableDirectoriesAreEntries(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	d := t.TempDir()
	must(t, os.Mkdir(d+"/s", 0))
	l := listen(t, newHub(t), d, Options{Recursive: true})
	must(t, os.Chmod(d+"/s", 0o755))
	write(t, d+"/s/f", "")
	await(t, l, "created s/f")
}

// TestTheLimitIsTheKernelsError keeps the injected limit like the real one.
func TestTheLimitIsTheKernelsError(t *testing.T) {
	in, err := newInstance(1, New().init)
	must(t, err)
	defer in.close()
	box := newInbox(1)
	for i, want := range []error{nil, unix.ENOSPC} {
		f, err := os.Open(t.TempDir())
		must(t, err)
		if _, err := in.subscribe(box, int(f.Fd()), ""); !errors.Is(err, want) {
			t.Errorf("watch %d: %v, want %v", i, err, want)
		}
		must(t, f.Close())
	}
}
