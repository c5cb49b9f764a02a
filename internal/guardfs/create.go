package guardfs

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// CreateOptions say how a file is written. The zero value makes a file with
// its parents, or replaces the content of one.
type CreateOptions struct {
	NoOverwrite bool      // an existing file is refused with policy.FileExists
	NoParents   bool      // a missing parent is an error
	Mode        *uint32   // permission bits; nil: as before, or 0666 less the umask
	Mtime       time.Time // time of modification; zero: now
	SHA256      string    // lower-case hex the content must have, else ErrChecksum; "" for any
	Max         int64     // most bytes, else *TooLargeError; 0: no bound

	// Append adds to the end of an existing file.
	Append bool
	// Offset, if not nil, goes on with a file in place: it must be the present
	// size, else *OffsetError. What has been written stays when the write is
	// given up, so that it can be continued. An earlier write that goes on with
	// the same file and has not ended, perhaps because its client is gone and
	// nobody knows yet, gets an *OffsetError from now on.
	Offset *int64

	// Judge, if not nil, is asked about the resolved path once the path rules
	// have admitted it and before anything is known of what exists: for rules
	// about names. Its error is returned as it is.
	Judge func(real string) error
	// If, if not nil, is asked about what the write would replace, before the
	// first byte and again before it takes effect; info is zero when there is
	// nothing. Its error is returned as it is.
	If func(exists bool, info Info) error
}

// Result tells what a finished write has done.
type Result struct {
	Info    Info   // of the file as written
	Bytes   int64  // bytes of this write
	SHA256  string // lower-case hex of the bytes of this write
	Created bool   // there was no file before
}

// Create begins to write a file. Nothing is made or changed before the rules
// have decided, and readers see the old content or the new, never a mix: the
// bytes go to an unfinished file in the same directory, and Commit renames it.
//
// The content is put in place on Commit instead, which keeps the inode, when
// the target has several hard links or another owner that cannot be given, or
// when its directory cannot be written.
//
// A target that is a directory or no regular file is refused at once, without
// waiting. The caller must end the Writer by Commit or Abort.
func (g *Guard) Create(name string, opt CreateOptions) (*Writer, error) {
	var w *Writer
	err := g.at(name, policy.Write, target, func(p *place) error {
		var err error
		w, err = p.create(opt)
		return err
	})
	return w, err
}

func (p *place) create(opt CreateOptions) (*Writer, error) {
	if opt.Judge != nil {
		if err := opt.Judge(p.path); err != nil {
			return nil, err
		}
	}
	if err := p.replaceable(&opt); err != nil {
		return nil, err
	}
	made, err := p.prepare(opt.NoParents)
	if err != nil {
		return nil, err
	}
	w := &Writer{p: *p, opt: opt, made: made, hash: sha256.New()}
	p.dir = -1 // the writer's now
	if err = w.open(); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// replaceable refuses a target that may not be written.
func (p *place) replaceable(opt *CreateOptions) error {
	exists := p.why == nil
	if exists {
		switch p.kind() {
		case Directory:
			return pathError("create", p.path, ErrIsDirectory)
		case Symlink:
			return errMoved
		case File:
		default:
			return pathError("create", p.path, ErrNotRegular)
		}
		if err := p.allowsLinks(); err != nil {
			return err
		}
		if opt.NoOverwrite {
			return errFileExists()
		}
		if err := p.writable(); err != nil {
			return err
		}
	}
	if opt.If == nil {
		return nil
	}
	if !exists {
		return opt.If(false, Info{})
	}
	return opt.If(true, newInfo(p.path, &p.st))
}

// writable refuses a file that the system does not let us write. Its directory
// alone would let us replace it, but whoever took the right to write away meant
// the content.
func (p *place) writable() error {
	err := unix.Faccessat(p.dir, p.name, unix.W_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
		return pathError("create", p.path, err)
	}
	return nil // what else may be wrong is seen when it is written
}

// way is how a writer gets its bytes into the file.
type way uint8

const (
	byRename way = iota // an unfinished file takes the name
	byCopy              // the finished content is copied over the old
	byAppend            // the finished content is copied behind the old
	direct              // bytes go to the file at once
)

// open makes what the bytes are written to.
func (w *Writer) open() error {
	p, exists := &w.p, w.p.why == nil
	if w.opt.Offset != nil {
		return writing("create", p.path, w.openDirect(exists))
	}
	switch {
	case exists && w.opt.Append:
		w.way = byAppend
	case exists && p.st.Nlink > 1:
		w.way = byCopy
	}
	err := w.openStage()
	if err != nil && exists && cannotMake(err) {
		if w.way == byRename {
			w.way = byCopy
		}
		if w.stage, err = w.openElsewhere(err); err != nil {
			return writing("create", p.path, err)
		}
	}
	if err == nil && exists && w.way == byRename {
		err = w.takeOwner()
	}
	if err == nil && w.way != byRename {
		err = w.openTarget()
	}
	return writing("create", p.path, err)
}

// cannotMake tells that a directory takes no new files, for whatever reason.
func cannotMake(err error) bool {
	return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)
}

// openStage makes the unfinished file beside the target.
func (w *Writer) openStage() error {
	name := tmpPrefix + rand.Text()
	w.p.g.fs.temps.Store(name, nil)
	fd, err := openAt(w.p.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		w.p.g.fs.temps.Delete(name)
		if errors.Is(err, unix.ENOENT) {
			return errMoved // the directory was removed
		}
		return err
	}
	w.tmp, w.stage = name, os.NewFile(uintptr(fd), w.p.path)
	return nil
}

// openElsewhere makes an unfinished file without a name, outside of a directory
// that takes none because of why.
func (w *Writer) openElsewhere(why error) (*os.File, error) {
	u, err := w.p.g.Unnamed()
	switch {
	case errors.Is(err, ErrNoTemp):
		return nil, why
	case err != nil:
		return nil, err
	}
	return u.File, nil
}

// takeOwner gives the unfinished file the owner of what it will replace. Where
// that is not allowed the content is copied instead.
func (w *Writer) takeOwner() error {
	var st unix.Stat_t
	fd := int(w.stage.Fd())
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	old := &w.p.st
	if st.Uid == old.Uid && st.Gid == old.Gid {
		return nil
	}
	err := unix.Fchown(fd, int(old.Uid), int(old.Gid))
	if errors.Is(err, unix.EPERM) {
		w.way, err = byCopy, nil
	}
	return err
}

// openTarget holds the file that will be written in place.
func (w *Writer) openTarget() error {
	flags := unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if w.way == byAppend {
		flags |= unix.O_APPEND
	}
	fd, err := openAt(w.p.dir, w.p.name, flags, 0)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOENT):
		return errMoved
	case err != nil:
		return err
	}
	w.target = os.NewFile(uintptr(fd), w.p.path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != w.p.st.Ino || st.Dev != w.p.st.Dev {
		return errMoved
	}
	if isKernelFS(fd) {
		return errSystemTree()
	}
	w.p.st = st
	return w.p.g.allowsLinks(&st)
}

// newMode is the mode the file shall have; old is nil for a new one. Set-id
// bits do not outlive the content they were given to.
func (w *Writer) newMode(old *unix.Stat_t) uint32 {
	switch {
	case w.opt.Mode != nil:
		return *w.opt.Mode & 0o7777
	case old != nil:
		return old.Mode & 0o1777
	}
	return 0o666 &^ w.p.g.fs.umask
}
