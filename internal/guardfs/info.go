package guardfs

import (
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what an entry is.
type Kind string

// The kinds, by the names answers use.
const (
	File      Kind = "file"
	Directory Kind = "directory"
	Symlink   Kind = "symlink"
	FIFO      Kind = "fifo"
	Socket    Kind = "socket"
	Device    Kind = "device"
)

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// Info are the facts about one entry, all from one look.
type Info struct {
	Name string // last component
	Path string // absolute, all links before it resolved
	Kind Kind
	Size int64  // of a link: the length of its text
	Mode uint32 // permission bits with setuid, setgid and sticky

	UID, GID   uint32
	Nlink      uint64
	Inode, Dev uint64

	// Nanoseconds since 1970; of times too far away for that, the furthest.
	Mtime, Atime, Ctime int64
	far                 int64 // how many seconds Mtime falls short

	// Target is the text of the link: of the entry itself when it is one, and
	// from Stat that followed a link, of the link that was named.
	Target string
}

func newInfo(path string, st *unix.Stat_t) Info {
	dir, name := split(path)
	if name == "." {
		name = dir
	}
	return Info{
		Name: name, Path: path, Kind: kindOf(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777,
		UID: st.Uid, GID: st.Gid, Nlink: uint64(st.Nlink), Inode: st.Ino, Dev: uint64(st.Dev),
		Mtime: nanos(st.Mtim), Atime: nanos(st.Atim), Ctime: nanos(st.Ctim),
		far: st.Mtim.Sec - clampSeconds(st.Mtim.Sec),
	}
}

// clampSeconds is the second nearest to s that has nanoseconds in an int64:
// anybody may give a file a time beyond the years 1677 to 2262.
func clampSeconds(s int64) int64 {
	const most int64 = math.MaxInt64/1_000_000_000 - 1
	return min(max(s, -most), most)
}

func nanos(t unix.Timespec) int64 { return clampSeconds(t.Sec)*1e9 + t.Nsec }

// IsDir tells whether the entry is a directory.
func (i Info) IsDir() bool { return i.Kind == Directory }

// Modified is Mtime as a time in UTC.
func (i Info) Modified() time.Time { return time.Unix(0, i.Mtime).UTC() }

// Permissions are the last three octal digits of the mode, such as "644".
func (i Info) Permissions() string {
	m := i.Mode & 0o777
	return string([]byte{'0' + byte(m>>6), '0' + byte(m>>3&7), '0' + byte(m&7)})
}

// ETag is a strong entity tag, quotes included: it changes whenever time of
// modification, size or inode does.
func (i Info) ETag() string {
	return `"` + strconv.FormatInt(i.Mtime+i.far, 36) + "-" + strconv.FormatInt(i.Size, 36) + "-" + strconv.FormatUint(i.Inode, 36) + `"`
}

// fileInfo are the facts about an open file.
func fileInfo(f *os.File, path string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Info{}, pathError("stat", path, err)
	}
	return newInfo(path, &st), nil
}
