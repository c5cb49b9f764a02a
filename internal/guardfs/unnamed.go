package guardfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNoTemp is that no directory takes a file for bytes that are only passing
// through. It is the server's trouble, not a file that the caller named.
var ErrNoTemp = errors.New("no directory takes temporary files")

// Unnamed makes a file without a name, for bytes that are too many for memory
// and needed for one call only: in the temporary directory or, where that is
// missing or takes no files, in a root of the guard. The error is [ErrNoTemp],
// or ENOSPC where only room was wanting. The caller closes the file.
func (g *Guard) Unnamed() (*os.File, error) {
	full := false
	for _, dir := range append([]string{os.TempDir()}, g.lex...) {
		f, err := unnamedIn(dir)
		if err == nil {
			return f, nil
		}
		full = full || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	}
	if full {
		return nil, unix.ENOSPC
	}
	return nil, ErrNoTemp
}

func unnamedIn(dir string) (*os.File, error) {
	if fd, err := openAt(unix.AT_FDCWD, dir, unix.O_TMPFILE|unix.O_RDWR, 0o600); err == nil {
		return os.NewFile(uintptr(fd), "unnamed"), nil
	}
	// A file system that cannot do that: for a moment it has a name.
	f, err := os.CreateTemp(dir, tmpPrefix+"*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name())
	return f, nil
}
