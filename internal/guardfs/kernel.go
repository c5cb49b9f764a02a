package guardfs

import (
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// resolveFlags let the kernel walk a path only where it holds no link at all
// and stays below its start.
const resolveFlags = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// asDir pins a directory without needing the right to read it.
const asDir = unix.O_PATH | unix.O_DIRECTORY

// reading opens something that may turn out to be a FIFO or a device.
const reading = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK

// haveOpenat2 asks the kernel once: old ones lack the call, and containers
// may forbid it.
var haveOpenat2 = sync.OnceValue(func() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolveFlags})
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)
	}
	_ = unix.Close(fd)
	return true
})

// descend opens the directory rel below the directory fd. rel is clean and
// relative; ELOOP says that a component, the last included, is a link.
func (f *FS) descend(fd int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	if f.walkOnly || len(rel) >= unix.PathMax {
		return walkDown(fd, rel, flags)
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolveFlags}
	for {
		got, err := unix.Openat2(fd, rel, &how)
		switch {
		case err == nil:
			return got, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EAGAIN): // changed while the kernel walked
			return -1, unix.ELOOP
		default:
			return -1, err
		}
	}
}

// walkDown is descend for kernels without openat2: one component at a time,
// each held while the next is opened.
func walkDown(fd int, rel string, flags int) (int, error) {
	cur := fd
	for {
		name, rest, more := strings.Cut(rel, "/")
		mode := asDir
		if !more {
			mode = flags
		}
		next, err := openAt(cur, name, mode|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOTDIR) && !isOther(cur, name) {
			err = unix.ELOOP
		}
		if cur != fd {
			_ = unix.Close(cur)
		}
		if err != nil || !more {
			return next, err
		}
		cur, rel = next, rest
	}
}

// openAt is openat with close-on-exec, repeated when a signal came.
func openAt(fd int, name string, flags int, perm uint32) (int, error) {
	for {
		got, err := unix.Openat(fd, name, flags|unix.O_CLOEXEC, perm)
		if err == nil {
			return got, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return -1, err
		}
	}
}

func lstatAt(fd int, name string, st *unix.Stat_t) error {
	for {
		if err := unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func isLink(fd int, name string) bool {
	var st unix.Stat_t
	return lstatAt(fd, name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// isOther tells whether name is neither a directory nor a link, which explains
// ENOTDIR. Where it is one of them by now, it was a link a moment ago.
func isOther(fd int, name string) bool {
	var st unix.Stat_t
	if lstatAt(fd, name, &st) != nil {
		return false
	}
	kind := kindOf(st.Mode)
	return kind != Directory && kind != Symlink
}

// readLinkAt returns the text of a link; targets are at most a page long.
func readLinkAt(fd int, name string) (string, error) {
	var buf [unix.PathMax]byte
	for {
		n, err := unix.Readlinkat(fd, name, buf[:])
		if err == nil {
			return string(buf[:n]), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return "", err
		}
	}
}

// readLinkOf returns the text of the very link that st describes; errMoved when
// something else has that name by now.
func readLinkOf(dir int, name string, st *unix.Stat_t) (string, error) {
	fd, err := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return "", err
	}
	if !sameEntry(&now, st) || kindOf(now.Mode) != Symlink {
		return "", errMoved
	}
	return readLinkAt(fd, "")
}

func sameEntry(a, b *unix.Stat_t) bool {
	return a.Ino == b.Ino && a.Dev == b.Dev && a.Mode&unix.S_IFMT == b.Mode&unix.S_IFMT
}

// isKernelFS tells whether fd is in a file system that shows the kernel and
// other processes, mounted inside a root.
func isKernelFS(fd int) bool {
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(fd, &st)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && (st.Type == unix.PROC_SUPER_MAGIC || st.Type == unix.SYSFS_MAGIC)
	}
}

// foldsCase tells whether a directory takes names that differ by case for one.
func foldsCase(fd int) bool {
	const caseFold = 0x40000000 // FS_CASEFOLD_FL
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	return err == nil && flags&caseFold != 0
}

// chmodAt changes the mode of name itself, never of what a link leads to.
func chmodAt(fd int, name string, mode uint32) error {
	err := unix.Fchmodat(fd, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if isLink(fd, name) {
		return unix.ELOOP
	}
	got, err := openAt(fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(got)
	var st unix.Stat_t
	if err := unix.Fstat(got, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod(fdPath(got), mode)
}
