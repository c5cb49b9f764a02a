package guardfs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoTemp is that no directory takes a file for bytes that are only passing
// through. It is the server's trouble, not a file that the caller named.
var ErrNoTemp = errors.New("no directory takes temporary files")

// Unnamed is a file without a name. It is not safe for concurrent use.
type Unnamed struct {
	*os.File
	n    int64    // bytes written
	rest []string // directories not tried yet
}

// Unnamed makes a file without a name, for bytes that are too many for memory
// and needed for one call only: in the temporary directory or, where that is
// missing, takes no files or gets full, in a root of the guard. The error is
// [ErrNoTemp], or ENOSPC where only room was wanting. The caller closes the file.
func (g *Guard) Unnamed() (*Unnamed, error) {
	u := &Unnamed{rest: append([]string{os.TempDir()}, g.lex...)}
	full := false
	for {
		err := u.next()
		switch {
		case err == nil:
			return u, nil
		case errors.Is(err, ErrNoTemp) && full:
			return nil, unix.ENOSPC
		case errors.Is(err, ErrNoTemp):
			return nil, err
		}
		full = full || isFull(err)
	}
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// next makes the file in the next directory, with all that was written so far.
func (u *Unnamed) next() error {
	if len(u.rest) == 0 {
		return ErrNoTemp
	}
	f, err := unnamedIn(u.rest[0])
	u.rest = u.rest[1:]
	if err == nil && u.n > 0 {
		_, err = io.Copy(f, io.NewSectionReader(u.File, 0, u.n))
	}
	if err != nil {
		if f != nil {
			_ = f.Close()
		}
		return err
	}
	if u.File != nil {
		_ = u.Close()
	}
	u.File = f
	return nil
}

// Write adds bytes, in another directory when there is no room any more.
func (u *Unnamed) Write(p []byte) (done int, err error) {
	for {
		n, err := u.File.Write(p[done:])
		done, u.n = done+n, u.n+int64(n)
		if err == nil || !isFull(err) {
			return done, err
		}
		for moved := false; !moved; {
			switch e := u.next(); {
			case errors.Is(e, ErrNoTemp):
				return done, err
			default:
				moved = e == nil
			}
		}
	}
}

// ReadFrom would pass Write by.
func (u *Unnamed) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{u}, r)
}

func unnamedIn(dir string) (*os.File, error) {
	if fd, err := openAt(unix.AT_FDCWD, dir, unix.O_TMPFILE|unix.O_RDWR, 0o600); err == nil {
		return os.NewFile(uintptr(fd), "a temporary file in "+dir), nil
	}
	// A file system that cannot do that: for a moment it has a name.
	f, err := os.CreateTemp(dir, tmpPrefix+"*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return f, nil
}
