package guardfs

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copier copies one entry with everything below it to a name nobody sees yet.
type copier struct {
	fs *FS

	preserve bool // owner, times and extended attributes, not the mode only
	special  bool // FIFOs, sockets and devices too; else they are left out
	leaving  bool // the source will be removed: find out now whether it can be

	files int
	bytes int64

	final string           // the path the copy will have, to be told
	tmp   string           // its name until then
	top   int              // pinned directory the copies are below
	at    int              // pinned directory of the last copy, -1: none
	atRel string           // its path below top
	first map[inode]string // first copy of a file with several names
}

type inode struct{ dev, ino uint64 }

// stage copies what is at src beside final and returns the name it has there.
func (c *copier) stage(ctx context.Context, src, final *place) (tmp string, err error) {
	tmp = tmpPrefix + rand.Text()
	c.fs.temps.Store(tmp, nil)
	c.final, c.tmp = final.path, tmp
	c.top, c.at, c.first = final.dir, -1, map[inode]string{}
	defer c.leaveDir()
	if err = c.all(ctx, src, tmp); err != nil {
		c.drop(ctx, src.g, final.dir, tmp)
		return "", writing("copy", src.path, err)
	}
	return tmp, nil
}

// drop removes what a copy left under a name nobody sees.
func (c *copier) drop(ctx context.Context, g *Guard, dir int, tmp string) {
	g.removeAll(ctx, dir, tmp)
	c.fs.temps.Delete(tmp)
}

// all copies the entry at src as name in top.
func (c *copier) all(ctx context.Context, src *place, name string) error {
	up, _ := split(src.path)
	d := &Dir{g: src.g, fd: src.dir, path: up, raw: true}
	if c.leaving {
		if err := removableFrom(src.dir); err != nil {
			return err
		}
	}
	e := &Entry{dir: d, name: src.name}
	if err := e.look(); err != nil {
		return failure("copy", e.Path(), err)
	}
	if !sameEntry(&e.st, &src.st) {
		return errMoved // it is not what was judged
	}
	if err := c.looked(ctx, e, "", name); err != nil || src.kind() != Directory {
		return err
	}
	root, err := src.openRaw()
	if err != nil {
		return err
	}
	w := &walker{top: root, opt: WalkOptions{raw: true}}
	defer w.close()
	var unread error
	w.opt.Failed = func(_ string, err error) { unread = err }
	w.opt.Enter = func(d *Dir) error {
		if c.leaving {
			return removableFrom(d.fd)
		}
		return nil
	}
	w.visit = func(e *Entry) error {
		if unread != nil {
			return unread
		}
		return c.one(ctx, e, join(name, e.dir.rel), e.name)
	}
	w.opt.leave = func(e *Entry) error {
		if e.kind == Directory && unread == nil {
			return c.close(e, join(name, e.dir.rel), e.name)
		}
		return unread
	}
	if err := w.run(ctx); err != nil {
		return err
	}
	if unread != nil {
		return unread
	}
	return c.close(e, "", name)
}

// removableFrom tells whether entries of a directory may be removed.
func removableFrom(dir int) error {
	return unix.Faccessat(dir, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// enter pins the directory rel of the copy.
func (c *copier) enter(rel string) error {
	if c.at >= 0 && c.atRel == rel {
		return nil
	}
	c.leaveDir()
	fd, err := c.fs.descend(c.top, rel, asDir)
	if err != nil {
		return err
	}
	c.at, c.atRel = fd, rel
	return nil
}

func (c *copier) leaveDir() {
	if c.at >= 0 {
		_ = unix.Close(c.at)
		c.at = -1
	}
}

// one copies a single entry as name in the directory rel; a directory is made
// empty, and open until close.
func (c *copier) one(ctx context.Context, e *Entry, rel, name string) error {
	if err := e.look(); err != nil {
		return failure("copy", e.Path(), err)
	}
	return c.looked(ctx, e, rel, name)
}

// looked is one for an entry that has been looked at.
func (c *copier) looked(ctx context.Context, e *Entry, rel, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.enter(rel); err != nil {
		return err
	}
	key := inode{uint64(e.st.Dev), e.st.Ino}
	if e.kind != Directory && e.st.Nlink > 1 {
		if done, err := c.linkFirst(key, name); done || err != nil {
			return err
		}
	}
	var err error
	switch e.kind {
	case Directory:
		return c.making(rel, name, unix.Mkdirat(c.at, name, 0o700))
	case File:
		err = c.file(ctx, e, rel, name)
	case Symlink:
		err = c.symlink(e, rel, name)
	default:
		if !c.special {
			return nil
		}
		if err = c.making(rel, name, unix.Mknodat(c.at, name, e.st.Mode, int(e.st.Rdev))); err == nil {
			err = c.facts(e, name)
		}
	}
	if err != nil {
		return failure("copy", e.Path(), err)
	}
	c.files++
	if e.st.Nlink > 1 {
		c.first[key] = join(rel, name)
	}
	return nil
}

// linkFirst makes name a link to the copy of the same file, if there is one.
func (c *copier) linkFirst(key inode, name string) (bool, error) {
	first, ok := c.first[key]
	if !ok {
		return false, nil
	}
	dir, was := split("/" + first)
	fd, err := c.fs.descend(c.top, dir[1:], asDir)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.Linkat(fd, was, c.at, name, 0); err != nil {
		return false, err
	}
	c.files++
	return true, nil
}

// close gives a directory its mode and times, once everything is in it.
func (c *copier) close(e *Entry, rel, name string) error {
	if err := c.enter(rel); err != nil {
		return err
	}
	if !e.seen {
		return nil
	}
	return failure("copy", e.Path(), c.facts(e, name))
}

// making names what could not be made by the path it would have had: the source
// is not to blame.
func (c *copier) making(rel, name string, err error) error {
	return failure("copy", c.made(rel, name), err)
}

// made is the path that name in the directory rel will have.
func (c *copier) made(rel, name string) string {
	return c.final + strings.TrimPrefix(join(rel, name), c.tmp)
}

func (c *copier) symlink(e *Entry, rel, name string) error {
	text, err := readLinkOf(e.dir.fd, e.name, &e.st)
	if err != nil {
		return err
	}
	if err := unix.Symlinkat(text, c.at, name); err != nil {
		return c.making(rel, name, err)
	}
	return c.facts(e, name)
}

// file copies content and facts of a regular file.
func (c *copier) file(ctx context.Context, e *Entry, rel, name string) error {
	in, info, err := e.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	fd, err := openAt(c.at, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return c.making(rel, name, err)
	}
	out := os.NewFile(uintptr(fd), c.made(rel, name))
	err = copyContent(ctx, out, in, info.Size)
	if err == nil && c.preserve {
		copyAttrs(e.dir.fd, e.name, fd)
	}
	if end := out.Close(); err == nil {
		err = end
	}
	if err == nil {
		err = c.facts(e, name)
	}
	c.bytes += info.Size
	return err
}

// facts gives a copy the mode and, where they are kept, owner and times of e.
func (c *copier) facts(e *Entry, name string) error {
	mode := e.st.Mode & 0o1777
	if c.preserve {
		err := unix.Fchownat(c.at, name, int(e.st.Uid), int(e.st.Gid), unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && c.leaving {
			mode = e.st.Mode & 0o7777
		}
	}
	if e.kind != Symlink {
		if err := chmodAt(c.at, name, mode); err != nil {
			return err
		}
	}
	if !c.preserve {
		return nil
	}
	return unix.UtimesNanoAt(c.at, name, []unix.Timespec{e.st.Atim, e.st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

// copyChunk is how much is copied between two looks at the context.
const copyChunk = 8 << 20

// copyContent copies size bytes, sharing blocks or leaving holes where the file
// systems can.
func copyContent(ctx context.Context, out, in *os.File, size int64) error {
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) == nil {
		return nil
	}
	for at := int64(0); at < size; {
		from, to := dataRange(in, at, size)
		if from >= size {
			break
		}
		for at = from; at < to; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := copyPiece(out, in, at, min(to-at, copyChunk))
			if err != nil {
				return err
			}
			if n == 0 { // it has become shorter
				return nil
			}
			at += n
		}
	}
	return out.Truncate(size)
}

func copyPiece(out, in *os.File, at, n int64) (int64, error) {
	if _, err := in.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	if _, err := out.Seek(at, io.SeekStart); err != nil {
		return 0, err
	}
	done, err := io.CopyN(out, in, n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return done, err
}

// dataRange finds the next bytes of a file that are no hole.
func dataRange(f *os.File, at, size int64) (from, to int64) {
	from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size
	}
	if err != nil {
		return at, size
	}
	to, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
	if err != nil {
		return from, size
	}
	return from, min(to, size)
}
