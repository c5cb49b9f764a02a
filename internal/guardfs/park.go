package guardfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lot is where writers of one call wait for their Commit, holding as few
// descriptors as they can: unfinished files are closed, and all files of one
// directory share what holds it. It and its writers are for one goroutine.
// There is nothing to close: the last of the writers to end takes it all along.
type Lot struct{ dirs map[inode]*sharedDir }

// sharedDir is a pinned directory of several places.
type sharedDir struct {
	lot  *Lot
	key  inode
	fd   int
	refs int
}

func (s *sharedDir) leave() {
	if s.refs--; s.refs == 0 {
		_ = unix.Close(s.fd)
		delete(s.lot.dirs, s.key)
	}
}

// Park lets a writer wait. More can still be done with it, Commit above all.
func (l *Lot) Park(w *Writer) {
	if w.done || w.way == direct {
		return
	}
	l.share(&w.p)
	var st unix.Stat_t
	if w.tmp == "" || w.stage == nil || unix.Fstat(int(w.stage.Fd()), &st) != nil || int(st.Uid) != os.Geteuid() {
		return // it would not be found, or not be opened, again
	}
	if err := w.stage.Close(); err != nil && w.err == nil {
		w.err = err
	}
	w.stage, w.parked = nil, &inode{uint64(st.Dev), st.Ino}
}

// share gives up the place's own descriptor for one of the same directory.
func (l *Lot) share(p *place) {
	var st unix.Stat_t
	if p.shared != nil || p.dir < 0 || unix.Fstat(p.dir, &st) != nil {
		return
	}
	if l.dirs == nil {
		l.dirs = map[inode]*sharedDir{}
	}
	key := inode{uint64(st.Dev), st.Ino}
	s := l.dirs[key]
	if s == nil {
		s = &sharedDir{lot: l, key: key, fd: p.dir}
		l.dirs[key] = s
	} else {
		_ = unix.Close(p.dir)
	}
	s.refs++
	p.dir, p.shared = s.fd, s
}

// unpark opens the unfinished file of a parked writer again, and no other that
// has got its name.
func (w *Writer) unpark() error {
	if w.parked == nil {
		return nil
	}
	fd, err := openAt(w.p.dir, w.tmp, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return errMoved
	case err != nil:
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || (inode{uint64(st.Dev), st.Ino}) != *w.parked {
		_ = unix.Close(fd)
		return errMoved
	}
	w.stage, w.parked = os.NewFile(uintptr(fd), w.p.path), nil
	return nil
}
