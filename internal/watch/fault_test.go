package watch

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file replaced by a rename was missed when size and times were equal.
func TestAFileReplacedByRenameIsModified(t *testing.T) {
	for _, opt := range []Options{{}, {Recursive: true}, {Renames: true}} {
		got := one(t, opt, func(d string) {
			write(t, d+"/f", "aaaa")
			write(t, d+"/.other", "bbbb")
			fi, err := os.Stat(d + "/f")
			must(t, err, os.Chtimes(d+"/.other", fi.ModTime(), fi.ModTime()))
		}, func(d string) { must(t, os.Rename(d+"/.other", d+"/f")) })
		equal(t, got, "deleted .other", "modified f")
	}
}

// A file that was created and removed between two looks was missed.
func TestAShortLivedFileIsCreatedAndDeleted(t *testing.T) {
	equal(t, one(t, Options{}, nil, func(d string) {
		write(t, d+"/g", "")
		must(t, os.Remove(d+"/g"))
	}), "created g", "deleted g")
}

// A look at the first 5000 entries told of deletions that never were.
func TestALargeFolderTellsOnlyWhatChanged(t *testing.T) {
	got := one(t, Options{Recursive: true}, func(d string) {
		must(t, os.Mkdir(d+"/large", 0o755))
		for i := range 5100 {
			write(t, fmt.Sprintf("%s/large/f%04d", d, i), "")
		}
	}, func(d string) {
		write(t, d+"/large/zz", "")
		write(t, d+"/large/f4711", "changed")
	})
	equal(t, got, "created large/zz", "modified large/f4711")
}

// The removal of the watched directory went unnoticed until the time was over.
func TestARemovedWatchedDirectoryEndsTheStream(t *testing.T) {
	d := t.TempDir() + "/w"
	must(t, os.Mkdir(d, 0o755))
	write(t, d+"/f", "")
	l := listen(t, newHub(t), d, Options{Recursive: true})
	must(t, os.RemoveAll(d))
	equal(t, told(t, l), "deleted f")
}

// "No space left on device" ended the watch when the kernel had no more handles.
func TestWatchHandlesRunningOutIsAnOverflowNotAnError(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/a/b/c", 0o755))
	h := newHub(t)
	h.limit = 1
	l := listen(t, h, d, Options{Recursive: true, Interval: time.Millisecond})
	write(t, d+"/a/b/c/f", "")
	equal(t, await(t, l, "created a/b/c/f"), "overflow watches", "created a/b/c/f")
}

// A directory exchanged with a link to one outside, in a tight loop, must not
// lead the watch outside.
func TestAnExchangedLinkNeverLeadsOutside(t *testing.T) {
	d, out := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(out+"/deep", 0o755), os.Mkdir(d+"/x", 0o755), os.Symlink(out, d+"/l"))
	write(t, out+"/outside", "")
	write(t, d+"/x/inside", "")
	var stop atomic.Bool
	done := make(chan int)
	go func() {
		n := 0
		for !stop.Load() {
			if unix.Renameat2(unix.AT_FDCWD, d+"/x", unix.AT_FDCWD, d+"/l", unix.RENAME_EXCHANGE) == nil {
				n++
			}
			_ = os.WriteFile(fmt.Sprintf("%s/outside%d", out, n%8), nil, 0o644)
		}
		done <- n
	}()
	h := newHub(t)
	h.inbox = 256 // so that rescans are part of it
	var seen int
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		l := listen(t, h, d, Options{Recursive: true, Queue: 16})
		for range 20 {
			events, err := l.Next(t.Context())
			must(t, err)
			for _, e := range events {
				seen++
				if strings.Contains(text(e), "outside") || strings.Contains(text(e), "deep") {
					t.Errorf("outside was told: %s", text(e))
				}
			}
		}
		l.Close()
	}
	stop.Store(true)
	if n := <-done; n == 0 || seen == 0 {
		t.Skipf("no race: %d exchanges, %d events", n, seen)
	}
}
