package watch

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// sight is what is open during one pass over the tree.
type sight struct {
	root int   // -1: cannot be seen
	node *node // the directory open as at
	at   int
}

// task is a directory to be scanned.
type task struct {
	node *node
	from *source
}

// pass runs f with the root open, if it is still the one that was watched; f
// finds nothing otherwise.
func (t *tree) pass(f func()) error {
	t.sight = sight{root: -1}
	fd, err := openRoot(t.name)
	if err == nil {
		var id identity
		if id, err = identityOf(fd); err == nil && id != t.root.id {
			err = unix.ENOENT
		}
		if err == nil {
			t.sight.root = fd
		}
		defer unix.Close(fd)
	}
	switch {
	case err == nil:
	case absent(err):
		t.gone = true
	default:
		t.again = true
	}
	f()
	if t.sight.node != nil {
		_ = unix.Close(t.sight.at)
	}
	t.sight = sight{root: -1}
	return err
}

// at is a descriptor of the directory n for looking at its entries, open until
// the pass ends or another directory is asked for.
func (t *tree) at(n *node, dir string) (int, bool) {
	if t.sight.root < 0 || n == t.root {
		return t.sight.root, t.sight.root >= 0
	}
	if t.sight.node == n {
		return t.sight.at, true
	}
	if t.sight.node != nil {
		_ = unix.Close(t.sight.at)
		t.sight.node = nil
	}
	fd, err := t.open(n, dir, unix.O_PATH)
	if err != nil {
		if !absent(err) && !errors.Is(err, unix.EACCES) {
			t.again = true
		}
		return -1, false
	}
	t.sight.node, t.sight.at = n, fd
	return fd, true
}

// open opens the directory n, and no other that has taken its place.
func (t *tree) open(n *node, dir string, flags int) (int, error) {
	if t.sight.root < 0 {
		return -1, unix.ENOENT
	}
	fd, err := openBelow(t.sight.root, dir, flags)
	if err != nil {
		return -1, err
	}
	id, err := identityOf(fd)
	if err == nil && id != n.id {
		err = unix.ENOENT
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// run scans what is on the list, and what that brings up.
func (t *tree) run() {
	for i := 0; i < len(t.work) && !t.stopped(); i++ {
		k := t.work[i]
		t.work[i] = task{}
		_ = t.scan(k) // noted where it matters
	}
	t.work = t.work[:0]
	if cap(t.work) > 1024 {
		t.work = nil
	}
}

// rescan looks at the whole tree.
func (t *tree) rescan() {
	t.again = false
	t.deep = true
	t.work = append(t.work[:0], task{t.root, nil})
	t.run()
	t.deep = false
}

// scan brings the model of one directory up to date. It arms the watch first,
// so that what the listing misses is told by an event.
func (t *tree) scan(k task) error {
	n := k.node
	if n.off {
		return nil
	}
	dir := n.path()
	fd, err := t.open(n, dir, unix.O_RDONLY)
	if err != nil {
		if !absent(err) && !errors.Is(err, unix.EACCES) {
			t.blind[n] = struct{}{}
		}
		return err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	if n.parent != nil && n.id.dev != n.parent.id.dev && kernelOwn(fd) {
		return nil
	}
	t.watch(n, fd)
	names, err := f.Readdirnames(-1)
	if err != nil {
		if !absent(err) {
			t.blind[n] = struct{}{}
		}
		return err
	}
	slices.Sort(names)
	t.match(n, dir, fd, names, k.from)
	return nil
}

// match compares a listing with the model.
func (t *tree) match(n *node, dir string, fd int, names []string, from *source) {
	fresh := len(n.names) == 0 && len(n.subs) == 0
	here := names[:0]
	for _, name := range names {
		l, err := lookAt(fd, name)
		if absent(err) {
			continue
		}
		if err != nil {
			l = gone(false)
		} else if fresh && !t.mute {
			l.print |= found
		}
		here = append(here, name)
		t.see(n, dir, name, l, from.below(name))
		if t.dead {
			return
		}
	}
	if fresh {
		return
	}
	var missing []string
	for name := range n.names {
		if _, ok := slices.BinarySearch(here, name); !ok {
			missing = append(missing, name)
		}
	}
	for name := range n.subs { // entered, but not reported
		if _, ok := slices.BinarySearch(here, name); !ok && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range missing {
		t.vanish(n, dir, name)
	}
}

// watch arms the kernel's watch of a directory, or notes that it has none.
func (t *tree) watch(n *node, fd int) {
	if n.wd != 0 || t.in == nil {
		return
	}
	if !t.short {
		wd, err := t.in.subscribe(t.box, fd, "")
		if err == nil {
			t.places.add(n, wd)
			delete(t.blind, n)
			return
		}
		t.short = errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM)
	}
	t.blind[n] = struct{}{}
	if t.short && !t.said {
		t.said = true
		t.overflow(WatchesOut)
	}
}

func (t *tree) stopped() bool {
	select {
	case <-t.stop:
		t.dead = true
	default:
	}
	return t.dead
}
