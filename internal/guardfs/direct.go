package guardfs

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// turns tell which writer goes on with a file in place: the one that came
// last. An older one may belong to a client that has gone without a word; its
// bytes must not get between those of the client that goes on.
type turns struct {
	mu sync.Mutex
	of map[string]*Writer
}

func (t *turns) take(path string, w *Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]*Writer{}
	}
	t.of[path] = w
}

func (t *turns) has(path string, w *Writer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[path] == w
}

func (t *turns) leave(path string, w *Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[path] == w {
		delete(t.of, path)
	}
}

// openDirect holds the file itself, or makes it, to go on with it.
func (w *Writer) openDirect(exists bool) error {
	w.way = direct
	p := &w.p
	defer p.g.fs.locks.lock(p.path)()
	at := *w.opt.Offset
	switch {
	case !exists && at != 0:
		return &OffsetError{0}
	case !exists:
		fd, err := openAt(p.dir, p.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, w.newMode(nil))
		if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
			return errMoved
		}
		if err != nil {
			return err
		}
		w.target, w.created = os.NewFile(uintptr(fd), p.path), true
	case p.st.Size != at:
		return &OffsetError{p.st.Size}
	default:
		if err := w.openTarget(); err != nil {
			return err
		}
		if p.st.Size != at {
			return &OffsetError{p.st.Size}
		}
		if w.opt.If != nil { // once more, as the lock is held only now
			if err := w.opt.If(true, newInfo(p.path, &p.st)); err != nil {
				return err
			}
		}
	}
	p.g.fs.turns.take(p.path, w)
	return nil
}

// writeDirect adds bytes to the file itself.
func (w *Writer) writeDirect(b []byte) (int, error) {
	defer w.p.g.fs.locks.lock(w.p.path)()
	if err := w.myTurn(); err != nil {
		return 0, err
	}
	return w.target.WriteAt(b, *w.opt.Offset+w.n)
}

// myTurn tells with nil that the file is as this writer has left it.
func (w *Writer) myTurn() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.target.Fd()), &st); err != nil {
		return pathError("stat", w.p.path, err)
	}
	if st.Size != *w.opt.Offset+w.n || !w.p.g.fs.turns.has(w.p.path, w) {
		return &OffsetError{st.Size}
	}
	return nil
}

// takeDirect ends a direct write. Bytes that proved wrong are taken away again.
func (w *Writer) takeDirect(wrong bool) (Info, error) {
	if err := w.myTurn(); err != nil {
		return Info{}, err
	}
	if wrong {
		_ = w.target.Truncate(*w.opt.Offset)
		if w.created {
			_ = unix.Unlinkat(w.p.dir, w.p.name, 0)
			w.created = false
		}
		return Info{}, ErrChecksum
	}
	info, err := w.finish(w.target, nil)
	if err != nil {
		return Info{}, err
	}
	switch w.p.look(); {
	case w.p.why != nil:
		return Info{}, &OffsetError{0} // removed meanwhile
	case w.p.st.Ino != info.Inode || uint64(w.p.st.Dev) != info.Dev:
		return Info{}, &OffsetError{w.p.st.Size} // replaced meanwhile
	}
	return info, nil
}
