package guardfs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Mistakes of callers that the system has no single errno for. They come
// wrapped in a [*fs.PathError] that names the resolved path.
var (
	ErrNotRegular    = errors.New("not a regular file")
	ErrIsDirectory   = errors.New("is a directory")
	ErrNotDirectory  = errors.New("not a directory")
	ErrAlreadyExists = errors.New("already exists")
	ErrNotEmpty      = errors.New("directory not empty")
	ErrInvalidMove   = errors.New("cannot be moved into itself")
	ErrChecksum      = errors.New("checksum mismatch")
	// ErrBadCursor is a WalkOptions.After that no walk has given out.
	ErrBadCursor = errors.New("not a continuation of a listing")
)

// TooLargeError tells that more bytes were written than allowed.
type TooLargeError struct{ Limit int64 }

func (e *TooLargeError) Error() string { return fmt.Sprintf("more than %d bytes", e.Limit) }

// OffsetError tells that a write was to begin elsewhere than at the end.
type OffsetError struct{ Size int64 } // present size of the file

func (e *OffsetError) Error() string { return fmt.Sprintf("the file has %d bytes", e.Size) }

// PartialError tells how much of a tree was removed before Err stopped it.
type PartialError struct {
	Deleted int
	Err     error
}

func (e *PartialError) Error() string { return e.Err.Error() }
func (e *PartialError) Unwrap() error { return e.Err }

// errMoved says that the file system changed between looking and acting:
// nothing was done, look again.
var errMoved = errors.New("changed meanwhile")

// looks is how often a name is looked at before it is given up as being
// changed on purpose.
const looks = 16

func refuse(code policy.Code, text string) error { return policy.Refuse(code, text).Err() }

func errSwapped() error {
	return refuse(policy.SymlinkDenied, "Path leads through a symbolic link that is being changed")
}

func errPathDenied() error { return refuse(policy.PathDenied, "Path is denied by policy") }

func errFileExists() error { return refuse(policy.FileExists, "File already exists") }

func errSystemTree() error {
	return refuse(policy.PathDenied, "Path is in a file system of the kernel")
}

func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// missing turns everything that means "no such thing" to a reader into
// ENOENT, and leaves the rest.
func missing(op, path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		err = unix.ENOENT
	}
	return failure(op, path, err)
}

// ours are the errors above that come wrapped.
var ours = []error{ErrNotRegular, ErrIsDirectory, ErrNotDirectory, ErrAlreadyExists, ErrNotEmpty, ErrInvalidMove, ErrChecksum}

// failure names the path of an errno or of one of our errors. Errors that have
// a path already, refusals and errors of callbacks pass as they are.
func failure(op, path string, err error) error {
	if _, named := errors.AsType[*fs.PathError](err); named {
		return err
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return pathError(op, path, errno)
	}
	if slices.Contains(ours, err) {
		return pathError(op, path, err)
	}
	return err
}

// unmoved is for steps that cannot be begun again because bytes were taken.
func unmoved(err error) error {
	if errors.Is(err, errMoved) {
		return errSwapped()
	}
	return err
}

// writing wraps what stopped a change.
func writing(op, path string, err error) error {
	switch {
	case errors.Is(err, unix.ENOTDIR):
		err = ErrNotDirectory
	case errors.Is(err, unix.EISDIR):
		err = ErrIsDirectory
	case errors.Is(err, unix.ENAMETOOLONG):
		return refuse(policy.InvalidPath, "A component of the path is too long")
	case errors.Is(err, unix.ELOOP):
		return errMoved
	}
	return failure(op, path, err)
}
