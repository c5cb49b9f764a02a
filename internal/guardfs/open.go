package guardfs

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Stat describes what name leads to or, without follow, the link itself.
//
// When there is nothing, the error is ENOENT, or EACCES where a directory may
// not be searched, and Info still has the resolved Name and Path.
func (g *Guard) Stat(name string, follow bool) (Info, error) {
	m := target
	if !follow {
		m = itself
	}
	var info Info
	err := g.at(name, policy.Read, m, func(p *place) error {
		info = newInfo(p.path, &unix.Stat_t{})
		info.Kind = ""
		if p.why != nil {
			return missing("stat", p.path, p.why)
		}
		if err := p.allowsLinks(); err != nil {
			return err
		}
		info = newInfo(p.path, &p.st)
		switch {
		case info.Kind == Symlink:
			text, err := readLinkAt(p.dir, p.name)
			if err != nil {
				return errMoved
			}
			info.Target = text
		case p.via && follow:
			info.Target = g.linkText(p.clean)
		}
		return nil
	})
	return info, err
}

// linkText is the text of the link a clean name itself is; "" when it is none
// or its own place may not be seen.
func (g *Guard) linkText(clean string) string {
	p, err := g.take(clean, policy.Read, itself)
	if err != nil {
		return ""
	}
	defer p.close()
	if !p.isLink() {
		return ""
	}
	text, _ := readLinkAt(p.dir, p.name)
	return text
}

// allowsLinks refuses a file with several names where the rules say so: one of
// the others may be denied or outside.
func (p *place) allowsLinks() error { return p.g.allowsLinks(&p.st) }

func (g *Guard) allowsLinks(st *unix.Stat_t) error {
	if g.rules.DenyHardlinks && st.Nlink > 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return refuse(policy.PathDenied, "File has several hard links")
	}
	return nil
}

// Open opens a regular file for reading; the caller closes it. It never waits
// for a FIFO. Size, tag and content belong together: Info is of the open file.
// Anything that is no regular file is [ErrNotRegular] or [ErrIsDirectory].
func (g *Guard) Open(name string) (*os.File, Info, error) {
	var file *os.File
	var info Info
	err := g.at(name, policy.Read, target, func(p *place) error {
		if p.why != nil {
			return missing("open", p.path, p.why)
		}
		var err error
		file, info, err = p.g.openFile(p.dir, p.name, p.path, &p.st)
		return err
	})
	return file, info, err
}

// openFile opens the regular file name of dir, whose last look was st.
func (g *Guard) openFile(dir int, name, path string, st *unix.Stat_t) (*os.File, Info, error) {
	if err := mustBeFile(path, st); err != nil {
		return nil, Info{}, err
	}
	fd, err := openAt(dir, name, reading, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return nil, Info{}, errMoved
	case err != nil:
		return nil, Info{}, missing("open", path, err)
	}
	if err = unix.Fstat(fd, st); err == nil {
		err = mustBeFile(path, st)
	}
	if err == nil {
		err = g.allowsLinks(st)
	}
	if err == nil && isKernelFS(fd) {
		err = errSystemTree()
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, Info{}, failure("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), newInfo(path, st), nil
}

func mustBeFile(path string, st *unix.Stat_t) error {
	switch kindOf(st.Mode) {
	case File:
		return nil
	case Directory:
		return pathError("open", path, ErrIsDirectory)
	case Symlink:
		return errMoved
	}
	return pathError("open", path, ErrNotRegular)
}

// Dir opens a directory to work in, such as the working directory of a
// program, and returns its resolved path. The caller closes it; it may not be
// readable.
func (g *Guard) Dir(name string, op policy.Op) (*os.File, string, error) {
	var dir *os.File
	var real string
	err := g.at(name, op, target, func(p *place) error {
		real = p.path
		fd, err := p.openDir(asDir)
		if err == nil {
			dir = os.NewFile(uintptr(fd), p.path)
		}
		return err
	})
	return dir, real, err
}

// openDir opens the directory the place holds. What is no directory is
// ErrNotDirectory.
func (p *place) openDir(flags int) (int, error) {
	if p.why != nil {
		return -1, missing("open", p.path, p.why)
	}
	if p.kind() != Directory {
		return -1, pathError("open", p.path, ErrNotDirectory)
	}
	fd, err := openAt(p.dir, p.name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return -1, errMoved
	case err != nil:
		return -1, failure("open", p.path, err)
	}
	if isKernelFS(fd) {
		_ = unix.Close(fd)
		return -1, errSystemTree()
	}
	return fd, nil
}

// fdPath names an open file by its descriptor, for calls that take only paths.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
