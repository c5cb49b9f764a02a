package guardfs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// CommitAll commits several writers of one FS in their order, as a whole: when
// one fails, everything is as after Abort of all of them, and failed is its
// index. All are ended. A reader may for a moment see some files old and some
// new, but each of them whole. Writers with an Offset cannot take part.
func CommitAll(ctx context.Context, writers []*Writer) (results []Result, failed int, err error) {
	if len(writers) == 0 {
		return nil, 0, nil
	}
	paths := make([]string, len(writers))
	for i, w := range writers {
		paths[i] = w.p.path
	}
	defer writers[0].p.g.fs.locks.lockAll(paths)()
	results = make([]Result, len(writers))
	for i, w := range writers {
		switch {
		case w.done:
			err = os.ErrClosed
		case w.way == direct:
			err = errors.ErrUnsupported
		default:
			err = w.err
		}
		if i == 0 {
			err = cmp.Or(err, ctx.Err())
		}
		if w.undoable = true; err == nil {
			results[i], err = w.take()
		}
		if failed = i; err != nil {
			break
		}
	}
	if err != nil {
		results = nil
		for i := failed; i >= 0; i-- {
			if undo := writers[i].undo; undo != nil {
				err = errors.Join(err, undo())
			}
		}
	}
	// From the last to the first, so that directories made for them are empty.
	for _, w := range slices.Backward(writers) {
		if !w.done {
			w.done = true
			w.release(err == nil)
		}
	}
	return results, failed, err
}

// renameFree gives the unfinished file a name that is free, else EEXIST.
func (w *Writer) renameFree(info Info) error {
	p := &w.p
	if err := renameNew(p.dir, w.tmp, p.dir, p.name); err != nil {
		return err
	}
	w.named()
	if w.undoable {
		w.undo = func() error {
			if p.look(); p.why != nil || p.st.Ino != info.Inode || uint64(p.st.Dev) != info.Dev {
				return nil // somebody else's by now
			}
			return failure("remove", p.path, unix.Unlinkat(p.dir, p.name, 0))
		}
	}
	return nil
}

// renameTo gives the unfinished file a name that is taken. When that may have
// to be undone, what had the name gets the unfinished one until release.
func (w *Writer) renameTo(info Info) error {
	p := &w.p
	if !w.undoable {
		err := unix.Renameat(p.dir, w.tmp, p.dir, p.name)
		if err == nil {
			w.named()
		}
		return err
	}
	err := unix.Renameat2(p.dir, w.tmp, p.dir, p.name, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.ENOENT):
		return w.renameFree(info)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		err = w.renameAside()
	}
	if err != nil {
		return err
	}
	w.undo = func() error {
		err := unix.Renameat(p.dir, w.tmp, p.dir, p.name)
		if err == nil {
			w.named()
		}
		return failure("rename", p.path, err)
	}
	return nil
}

// renameAside does what an exchange of names does, on file systems that have
// none.
func (w *Writer) renameAside() error {
	p := &w.p
	aside := tmpPrefix + rand.Text()
	p.g.fs.temps.Store(aside, nil)
	err := unix.Linkat(p.dir, p.name, p.dir, aside, 0)
	if err == nil {
		if err = unix.Renameat(p.dir, w.tmp, p.dir, p.name); err == nil {
			w.named()
			w.tmp = aside
			return nil
		}
		_ = unix.Unlinkat(p.dir, aside, 0)
	}
	p.g.fs.temps.Delete(aside)
	return err
}

// keepContent makes a write in place undoable.
func (w *Writer) keepContent(st *unix.Stat_t) error {
	restore := func() error { return nil }
	if w.way == byCopy {
		if err := w.copyAside(st); err != nil {
			return err
		}
		restore = func() error {
			_, err := w.old.Seek(0, io.SeekStart)
			if err == nil {
				_, err = w.target.Seek(0, io.SeekStart)
			}
			if err == nil {
				_, err = io.Copy(w.target, w.old)
			}
			return err
		}
	}
	w.undo = func() error {
		err := errors.Join(restore(), w.target.Truncate(st.Size))
		if w.opt.Mode != nil {
			err = errors.Join(err, unix.Fchmod(int(w.target.Fd()), st.Mode&0o7777))
		}
		return errors.Join(err, w.setTimes(st.Atim, st.Mtim))
	}
	return nil
}

// copyAside keeps the content of the target in a file without a name.
func (w *Writer) copyAside(st *unix.Stat_t) error {
	fd, err := openAt(w.p.dir, w.p.name, reading, 0)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(fd), w.p.path)
	defer in.Close()
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return err
	}
	if now.Ino != st.Ino || now.Dev != st.Dev {
		return errMoved
	}
	if w.old, err = os.CreateTemp("", "unfinished-*"); err != nil {
		return err
	}
	_ = os.Remove(w.old.Name())
	_, err = io.Copy(w.old, in)
	return err
}
