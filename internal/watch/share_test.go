package watch

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// kernel counts this process's inotify descriptors and their watches, and all
// its descriptors.
func kernel(t testing.TB) (instances, watches, all int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, fd := range fds {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil {
			continue // the listing's own
		}
		all++
		if to == "anon_inode:inotify" {
			info, err := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
			must(t, err)
			instances++
			watches += bytes.Count(info, []byte("inotify wd:"))
		}
	}
	return instances, watches, all
}

func TestListenersShareWatchesAndLeaveNothing(t *testing.T) {
	d := t.TempDir()
	const dirs = 40
	for i := range dirs {
		must(t, os.Mkdir(fmt.Sprintf("%s/d%d", d, i), 0o755))
	}
	h := newHub(t)
	_, _, before := kernel(t)
	first := listen(t, h, d, Options{Recursive: true})
	instances, one, open := kernel(t)
	if instances != 1 || one != dirs+2 { // the root and the directory above it
		t.Fatalf("%d instances, %d watches", instances, one)
	}
	var rest []*Listener
	for i := range 20 {
		rest = append(rest, listen(t, h, d, Options{Recursive: i%2 == 0, Raw: i%3 == 0}))
	}
	until(t, "no look is going on", func() bool { _, _, n := kernel(t); return n == open })
	if instances, watches, _ := kernel(t); instances != 1 || watches != one {
		t.Fatalf("with 21 listeners: %d instances, %d watches, want 1, %d", instances, watches, one)
	}
	write(t, d+"/d3/f", "")
	for i, l := range rest {
		if i%2 == 0 && i%3 != 0 {
			await(t, l, "created d3/f")
		}
	}
	first.Close()
	if _, watches, _ := kernel(t); watches != one {
		t.Fatalf("after one of them left: %d watches, want %d", watches, one)
	}
	for i, l := range rest {
		if i%2 == 0 {
			l.Close()
		}
	}
	if _, watches, _ := kernel(t); watches != 2 {
		t.Fatalf("with flat listeners only: %d watches, want 2", watches)
	}
	for _, l := range rest {
		l.Close()
	}
	if instances, _, open := kernel(t); instances != 0 || open > before {
		t.Fatalf("in the end: %d instances, %d descriptors of %d", instances, open, before)
	}
}

// TestRemovedAndMovedDirectoriesFreeTheirWatches while another listener keeps
// the instance open.
func TestRemovedAndMovedDirectoriesFreeTheirWatches(t *testing.T) {
	d, out := t.TempDir(), t.TempDir()
	h := newHub(t)
	l := listen(t, h, d, Options{Recursive: true})
	_, empty, _ := kernel(t)
	must(t, os.MkdirAll(d+"/a/b", 0o755), os.MkdirAll(d+"/m/n", 0o755), os.MkdirAll(d+"/x/y", 0o755))
	await(t, l, "created a/b/", "created m/n/", "created x/y/")
	must(t, os.RemoveAll(d+"/a"), os.Rename(d+"/m", out+"/m"), os.Rename(d+"/x", d+"/z"))
	await(t, l, "created z/y/ from x/y")
	until(t, "two watches more than with the empty tree", func() bool {
		_, watches, _ := kernel(t)
		return watches == empty+2
	})
}

func TestTwoTreesInOneAnother(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/a/b", 0o755))
	h := newHub(t)
	outer := listen(t, h, d, Options{Recursive: true})
	inner := listen(t, h, d+"/a/b", Options{Recursive: true})
	write(t, d+"/a/b/f", "")
	await(t, outer, "created a/b/f")
	await(t, inner, "created f")
	must(t, os.Rename(d+"/a/b", d+"/c"))
	await(t, outer, "created c/f from a/b/f")
	if got := told(t, inner); got[len(got)-1] != "deleted f" {
		t.Errorf("%q", got)
	}
	write(t, d+"/c/g", "")
	await(t, outer, "created c/g")
}

// TestNothingFromBeforeIsTold: a watch that others hold may have old news.
func TestNothingFromBeforeIsTold(t *testing.T) {
	d := t.TempDir()
	h := newHub(t)
	listen(t, h, d, Options{Recursive: true})
	for i := range 50 {
		write(t, d+"/brief", "")
		must(t, os.Remove(d+"/brief"))
		l := listen(t, h, d, Options{Recursive: true})
		if got := rest(t, l); len(got) > 0 {
			t.Fatalf("round %d: %q", i, got)
		}
		l.Close()
	}
}

// TestNoDescriptorStaysInTheTree so that it can be unmounted and removed.
func TestNoDescriptorStaysInTheTree(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/a/b", 0o755))
	l := listen(t, newHub(t), d, Options{Recursive: true})
	write(t, d+"/a/b/f", "")
	await(t, l, "created a/b/f")
	until(t, "nothing open", func() bool {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, fd := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, d) {
				return false
			}
		}
		return true
	})
}
