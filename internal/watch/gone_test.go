package watch

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// told reads to the end, which must be ErrGone.
func told(t *testing.T, l *Listener) []string {
	t.Helper()
	events, err := all(t, l)
	if !errors.Is(err, ErrGone) {
		t.Fatalf("end: %v, want ErrGone", err)
	}
	var got []string
	for _, e := range events {
		got = append(got, text(e))
	}
	return got
}

func TestTheEndOfTheRoot(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(d string) error
		raw  []string
	}{
		{
			"removed", func(d string) error { return os.RemoveAll(d + "/up/w") },
			[]string{"remove s/f", "remove s/", "remove a", "remove ./"},
		},
		{"moved", func(d string) error { return os.Rename(d+"/up/w", d+"/z") }, []string{"rename ./"}},
		// The kernel says nothing of this to the root.
		{"moved with the directory above", func(d string) error { return os.Rename(d+"/up", d+"/z") }, []string{"remove ./"}},
		{"replaced", func(d string) error {
			return errors.Join(os.Mkdir(d+"/new", 0o755), os.RemoveAll(d+"/up/w"), os.Rename(d+"/new", d+"/up/w"))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := t.TempDir()
			must(t, os.MkdirAll(d+"/up/w/s", 0o755))
			write(t, d+"/up/w/a", "")
			write(t, d+"/up/w/s/f", "")
			h := newHub(t)
			l := listen(t, h, d+"/up/w", Options{Recursive: true})
			raw := listen(t, h, d+"/up/w", Options{Recursive: true, Raw: true})
			poll := listenPolled(t, d+"/up/w")
			must(t, c.end(d))
			for _, l := range []*Listener{l, poll} {
				got := state{"a": false, "s": true, "s/f": false}
				events, err := all(t, l)
				if e := got.replay(events); !errors.Is(err, ErrGone) || e != nil || len(got) > 0 {
					t.Errorf("end %v, replay %v, left %v", err, e, got)
				}
			}
			got := told(t, raw)
			if c.raw == nil {
				return
			}
			if last := len(c.raw) - 1; len(got) != len(c.raw) || got[last] != c.raw[last] {
				t.Fatalf("raw: %q", got)
			}
			slices.Sort(got) // which of s and a goes first is the remover's choice
			slices.Sort(c.raw)
			equal(t, got, c.raw...)
		})
	}
}

func listenPolled(t *testing.T, dir string) *Listener {
	h := newHub(t)
	noInotify(h)
	return listen(t, h, dir, Options{Recursive: true, Interval: 1})
}

// TestTheEndIsToldThoughSomeoneIsStillInside: while a shell stands in the
// removed directory the kernel keeps its own word back.
func TestTheEndIsToldThoughSomeoneIsStillInside(t *testing.T) {
	d := t.TempDir() + "/w"
	must(t, os.Mkdir(d, 0o755))
	inside, err := os.Open(d)
	must(t, err)
	defer inside.Close()
	l := listen(t, newHub(t), d, Options{})
	must(t, os.Remove(d))
	equal(t, told(t, l))
}

func TestUnmountedRootAndSubdirectory(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/m/sub", 0o755))
	write(t, d+"/m/under", "")
	mount := func(at string) {
		if err := unix.Mount("none", at, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	mount(d + "/m")
	write(t, d+"/m/f", "")
	h := newHub(t)
	root := listen(t, h, d+"/m", Options{Recursive: true})
	above := listen(t, h, d, Options{Recursive: true})
	write(t, d+"/m/g", "")
	await(t, root, "created g")
	await(t, above, "created m/g")
	// A look may have the mount open for a moment.
	until(t, "unmount", func() bool { return unix.Unmount(d+"/m", 0) == nil })
	equal(t, told(t, root), "deleted g", "deleted f")
	got := await(t, above, "created m/under", "created m/sub/")
	equal(t, got, "deleted m/g", "deleted m/f", "modified m/", "created m/sub/", "created m/under")
	write(t, d+"/m/sub/x", "")
	await(t, above, "created m/sub/x")
}
