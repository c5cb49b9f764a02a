package proc

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultPath is where programs are looked for when there is no PATH.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// LookPath finds the executable that name means to a program with the given
// PATH and working directory. A name with a slash is a path, relative to dir;
// any other is looked for in the folders of path, of which relative ones, and
// the empty one, are relative to dir. An empty path means DefaultPath. dir
// must be absolute.
//
// The answer is absolute, but not cleaned and not free of links. Errors are
// [*StartError] with ErrNotFound or ErrNotExecutable; that a file is no
// program is only found by starting it.
func LookPath(name, path, dir string) (string, error) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return "", &StartError{Path: name, Kind: ErrNotFound}
	}
	if strings.Contains(name, "/") {
		full := at(dir, name)
		if err := executable(full); err != nil {
			return "", &StartError{Path: name, Kind: programError(err), Err: err}
		}
		return full, nil
	}
	if path == "" {
		path = DefaultPath
	}
	out := &StartError{Path: name, Kind: ErrNotFound}
	for folder := range strings.SplitSeq(path, ":") {
		full := at(dir, folder)
		full = strings.TrimSuffix(full, "/") + "/" + name
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if errors.Is(programError(err), ErrNotExecutable) {
			out.Kind, out.Err = ErrNotExecutable, err // as execvp: go on, but remember
		}
	}
	return "", out
}

func at(dir, name string) string {
	switch {
	case strings.HasPrefix(name, "/"):
		return name
	case name == "":
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case fi.IsDir():
		return unix.EISDIR
	case !fi.Mode().IsRegular():
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}
