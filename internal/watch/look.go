package watch

import (
	"errors"
	"hash/maphash"
	"io/fs"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// identity is what a directory is known by as long as its inode lives.
type identity struct{ dev, ino uint64 }

// print stands for size, time of change and inode of an entry. Equal prints:
// nothing to report.
type print uint64

// The low bits of a print are flags.
const (
	isDir print = 1 << iota
	// found: seen in a directory that had itself just appeared, so the
	// kernel's word of it may still be on its way.
	found
)

func (p print) dir() bool { return p&isDir != 0 }

func (p print) same(q print) bool { return p&^found == q&^found }

var seed = maphash.MakeSeed()

// look is what was found under a name.
type look struct {
	typ fs.FileMode // type bits
	print
	identity
}

func lookOf(st *unix.Stat_t) look {
	l := look{typ: typeOf(st.Mode), identity: identity{uint64(st.Dev), st.Ino}}
	h := maphash.Comparable(seed, [4]int64{st.Size, st.Mtim.Sec, st.Mtim.Nsec, int64(st.Ino)})
	l.print = print(h) &^ (isDir | found)
	if l.typ.IsDir() {
		l.print |= isDir
	}
	return l
}

// gone is the look of something that was there for a moment only.
func gone(dir bool) look {
	if dir {
		return look{typ: fs.ModeDir | fs.ModeIrregular, print: isDir}
	}
	return look{typ: fs.ModeIrregular}
}

func typeOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	}
	return 0
}

// lookAt describes an entry of the directory open as at; a link is itself.
func lookAt(at int, name string) (look, error) {
	var st unix.Stat_t
	err := again(func() error {
		return unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	})
	if err != nil {
		return look{}, err
	}
	return lookOf(&st), nil
}

func identityOf(fd int) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return identity{}, err
	}
	return identity{uint64(st.Dev), st.Ino}, nil
}

const dirFlags = unix.O_DIRECTORY | unix.O_CLOEXEC

// openRoot opens the absolute path name; whether it is the directory meant is
// for the caller to compare, so links on the way do no harm.
func openRoot(name string) (int, error) {
	at := unix.AT_FDCWD
	for {
		head, rest := cutPath(name)
		fd, err := openAt(at, head, unix.O_PATH|dirFlags)
		if at != unix.AT_FDCWD {
			_ = unix.Close(at)
		}
		if err != nil || rest == "" {
			return fd, err
		}
		at, name = fd, rest
	}
}

// cutPath splits off as much as one system call takes.
func cutPath(name string) (head, rest string) {
	const most = unix.PathMax - 1
	if len(name) <= most {
		return name, ""
	}
	i := strings.LastIndexByte(name[:most], '/')
	if i <= 0 {
		return name, ""
	}
	return name[:i], strings.TrimLeft(name[i:], "/")
}

// noOpenat2 remembers that the kernel, or a filter before it, has no openat2.
var noOpenat2 atomic.Bool

// openBelow opens the directory rel, a path without "..", below root. No
// component may be a link.
func openBelow(root int, rel string, flags int) (int, error) {
	flags |= dirFlags
	if len(rel) < unix.PathMax && !noOpenat2.Load() {
		how := unix.OpenHow{
			Flags:   uint64(flags),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		}
		fd := -1
		err := again(func() (err error) { fd, err = unix.Openat2(root, rel, &how); return err })
		if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
		if errors.Is(err, unix.ENOSYS) {
			noOpenat2.Store(true)
		}
	}
	return stepBelow(root, rel, flags)
}

// stepBelow is openBelow, one component at a time.
func stepBelow(root int, rel string, flags int) (int, error) {
	at := root
	for {
		name, rest, more := strings.Cut(rel, "/")
		how := flags
		if more {
			how = unix.O_PATH | dirFlags
		}
		fd, err := openAt(at, name, how|unix.O_NOFOLLOW)
		if at != root {
			_ = unix.Close(at)
		}
		if err != nil || !more {
			return fd, err
		}
		at, rel = fd, rest
	}
}

func openAt(at int, name string, flags int) (fd int, err error) {
	err = again(func() (err error) { fd, err = unix.Openat(at, name, flags, 0); return err })
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// again repeats what a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// absent says that err means "no such directory here" and not "cannot look".
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ESTALE) || errors.Is(err, unix.EXDEV)
}

// kernelOwn says whether fd is on a file system that the kernel makes up: vast,
// and without events.
func kernelOwn(fd int) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC:
		return true
	}
	return false
}
