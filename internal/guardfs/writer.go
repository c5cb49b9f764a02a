package guardfs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Writer is a file being written. It is not safe for concurrent use.
type Writer struct {
	p    place // holds the directory of the file
	opt  CreateOptions
	made *madeDirs
	hash hash.Hash

	way     way
	stage   *os.File // the unfinished file
	parked  *inode   // which file that was, when it is closed for a while
	tmp     string   // its name in the directory; "" when it has none
	target  *os.File // what is written in place
	created bool     // target was made for this write

	undoable bool         // what Commit does must be undoable, until release
	undo     func() error // brings back what was there before Commit
	old      *os.File     // the content undo brings back

	n    int64
	err  error // sticky
	done bool
}

// Path is the resolved path of the file.
func (w *Writer) Path() string { return w.p.path }

// Bytes is how many bytes have been written so far.
func (w *Writer) Bytes() int64 { return w.n }

// Write adds bytes. After the first error every call returns it.
func (w *Writer) Write(b []byte) (int, error) {
	switch {
	case w.err != nil:
		return 0, w.err
	case w.done || w.parked != nil:
		return 0, os.ErrClosed
	case w.opt.Max > 0 && w.n+int64(len(b)) > w.opt.Max:
		w.err = &TooLargeError{w.opt.Max}
		return 0, w.err
	}
	var n int
	if w.way == direct {
		n, w.err = w.writeDirect(b)
	} else {
		n, w.err = w.stage.Write(b)
	}
	w.n += int64(n)
	_, _ = w.hash.Write(b[:n])
	if pe, ok := errors.AsType[*fs.PathError](w.err); ok {
		w.err = pathError("write", w.p.path, pe.Err) // the file may have another name yet
	}
	return n, w.err
}

// Abort gives the write up: what was there before stays, no unfinished file
// and no directory made for it is left. After Commit it does nothing, so it
// can be deferred.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.release(false)
}

// release closes everything.
func (w *Writer) release(keep bool) {
	if w.stage != nil {
		_ = w.stage.Close()
	}
	if w.tmp != "" {
		_ = unix.Unlinkat(w.p.dir, w.tmp, 0)
		w.named()
	}
	if w.target != nil {
		_ = w.target.Close()
	}
	if w.old != nil {
		_ = w.old.Close()
	}
	if w.way == direct {
		w.p.g.fs.turns.leave(w.p.path, w)
	}
	w.made.finish(keep || w.created)
	w.p.close()
}

// named notes that the unfinished file has its name no longer.
func (w *Writer) named() {
	w.p.g.fs.temps.Delete(w.tmp)
	w.tmp = ""
}

// Commit makes the written bytes the content of the file, on the disk, and
// ends the Writer. On an error everything is as after Abort. The context is
// looked at before the first lasting step only.
func (w *Writer) Commit(ctx context.Context) (Result, error) {
	if w.done {
		return Result{}, os.ErrClosed
	}
	w.done = true
	res, err := w.commit(ctx)
	w.release(err == nil)
	return res, err
}

func (w *Writer) commit(ctx context.Context) (Result, error) {
	if err := cmp.Or(w.err, ctx.Err()); err != nil {
		return Result{}, err
	}
	defer w.p.g.fs.locks.lock(w.p.path)()
	return w.take()
}

// take is the work of Commit, with the lock of the path held.
func (w *Writer) take() (res Result, err error) {
	res = Result{Bytes: w.n, SHA256: hex.EncodeToString(w.hash.Sum(nil))}
	if err := w.unpark(); err != nil {
		return res, unmoved(writing("open", w.p.path, err))
	}
	wrong := w.opt.SHA256 != "" && w.opt.SHA256 != res.SHA256
	switch {
	case w.way == direct:
		res.Created = w.created
		res.Info, err = w.takeDirect(wrong)
	case wrong:
		err = ErrChecksum
	case w.way == byRename:
		res.Info, res.Created, err = w.rename()
	default:
		res.Info, res.Created, err = w.inPlace()
	}
	return res, unmoved(writing("write", w.p.path, err))
}

// rename gives the unfinished file its name.
func (w *Writer) rename() (info Info, created bool, err error) {
	p := &w.p
	p.look()
	if p.why != nil && !errors.Is(p.why, unix.ENOENT) {
		return Info{}, false, p.why
	}
	if err := p.replaceable(&w.opt); err != nil {
		return Info{}, false, err
	}
	var old *unix.Stat_t
	if p.why == nil {
		old = &p.st
		if w.opt.Append {
			w.way = byAppend // it has come meanwhile
		} else if err := w.takeOwner(); err != nil {
			return Info{}, false, err
		}
		if w.way != byRename {
			if err := w.openTarget(); err != nil {
				return Info{}, false, err
			}
			info, err = w.copyIn()
			return info, false, err
		}
		copyAttrs(p.dir, p.name, int(w.stage.Fd()))
	}
	if info, err = w.finish(w.stage, old); err != nil {
		return Info{}, false, err
	}
	if err := w.stage.Close(); err != nil {
		return Info{}, false, err
	}
	letForksPass()
	if old != nil {
		return info, false, w.renameTo(info)
	}
	if err = w.renameFree(info); errors.Is(err, unix.EEXIST) {
		return info, false, w.renameOver(info)
	}
	return info, true, err
}

// renameOver handles a name that was free a moment ago and is not any more.
func (w *Writer) renameOver(info Info) error {
	p := &w.p
	if p.look(); p.why != nil || w.opt.Append {
		return errMoved
	}
	if err := p.replaceable(&w.opt); err != nil {
		return err
	}
	return w.renameTo(info)
}

// renameNew renames only if the new name is free.
func renameNew(fromDir int, from string, toDir int, to string) error {
	err := unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// A file system without that flag. A link is as good for a file; a
	// directory never replaces anything but an empty directory.
	err = unix.Linkat(fromDir, from, toDir, to, 0)
	switch {
	case err == nil:
		return unix.Unlinkat(fromDir, from, 0)
	case errors.Is(err, unix.EEXIST):
		return err
	}
	var st unix.Stat_t
	if lstatAt(toDir, to, &st) == nil {
		return unix.EEXIST
	}
	return unix.Renameat(fromDir, from, toDir, to)
}

// inPlace writes to the target as it is now, which may be another file than
// when the write began, or none.
func (w *Writer) inPlace() (info Info, created bool, err error) {
	p := &w.p
	var held unix.Stat_t
	if err := unix.Fstat(int(w.target.Fd()), &held); err != nil {
		return Info{}, false, err
	}
	p.look()
	if p.why != nil || p.st.Ino != held.Ino || p.st.Dev != held.Dev {
		_ = w.target.Close()
		w.target = nil
		switch {
		case w.tmp != "":
			w.way = byRename
			return w.rename()
		case p.why != nil:
			return Info{}, false, p.why
		}
		if err := p.replaceable(&w.opt); err != nil {
			return Info{}, false, err
		}
		if err := w.openTarget(); err != nil {
			return Info{}, false, err
		}
	}
	info, err = w.copyIn()
	return info, false, err
}

// copyIn puts the content of the unfinished file into the target, in place or
// behind what is there.
func (w *Writer) copyIn() (Info, error) {
	var st unix.Stat_t
	fd := int(w.target.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, err
	}
	if w.opt.If != nil {
		if err := w.opt.If(true, newInfo(w.p.path, &st)); err != nil {
			return Info{}, err
		}
	}
	if w.undoable {
		if err := w.keepContent(&st); err != nil {
			return Info{}, err
		}
	}
	end := w.n
	if w.way == byAppend {
		end += st.Size
	}
	// Room is asked for first: an old content half overwritten helps nobody.
	if end > st.Size {
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, st.Size, end-st.Size)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
			return Info{}, err
		}
	}
	if _, err := w.stage.Seek(0, io.SeekStart); err != nil {
		return Info{}, err
	}
	if _, err := io.Copy(w.target, w.stage); err != nil {
		return Info{}, err
	}
	if w.way == byCopy {
		if err := w.target.Truncate(w.n); err != nil {
			return Info{}, err
		}
	}
	return w.finish(w.target, &st)
}

// finish sets what a finished file has besides its bytes and syncs it. old is
// what it replaces, nil for a new file.
func (w *Writer) finish(f *os.File, old *unix.Stat_t) (Info, error) {
	fd := int(f.Fd())
	if w.way == byRename || w.opt.Mode != nil {
		if err := unix.Fchmod(fd, w.newMode(old)); err != nil {
			return Info{}, err
		}
	}
	if !w.opt.Mtime.IsZero() {
		when := unix.NsecToTimespec(w.opt.Mtime.UnixNano())
		if err := w.setTimes(when, when); err != nil {
			return Info{}, err
		}
	} else if old != nil {
		if err := w.tellApart(fd, old); err != nil {
			return Info{}, err
		}
	}
	if err := syncFile(fd); err != nil {
		return Info{}, err
	}
	return fileInfo(f, w.p.path)
}

// clockTick is more than the time for which the kernel gives files the same
// time of modification.
const clockTick = 10 * time.Millisecond

// tellApart makes the time of modification later than that of the old content:
// two writes within one tick of the kernel's clock would have the same time,
// and so the same tag where size and inode are equal too.
func (w *Writer) tellApart(fd int, old *unix.Stat_t) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if behind := old.Mtim.Nano() - st.Mtim.Nano(); behind < 0 || behind > int64(clockTick) {
		return nil
	}
	err := w.setTimes(unix.Timespec{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(old.Mtim.Nano()+1))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil // another owner's file, written in place
	}
	return err
}

// setTimes sets times of access and modification of the file being finished.
func (w *Writer) setTimes(access, modified unix.Timespec) error {
	name := w.p.name
	if w.way == byRename {
		name = w.tmp
	}
	return unix.UtimesNanoAt(w.p.dir, name, []unix.Timespec{access, modified}, unix.AT_SYMLINK_NOFOLLOW)
}

// syncFile is fsync where the file system has it.
func syncFile(fd int) error {
	for {
		err := unix.Fsync(fd)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
			return nil // a file system that cannot
		default:
			return err
		}
	}
}
