package envd

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// attributePrefix is where the metadata of a file lies among its extended
// attributes.
const attributePrefix = "user.e2b."

// describer makes entries.
type describer struct {
	c    *call
	g    *guardfs.Guard // for what links lead to; quiet
	dir  *guardfs.Dir   // the directory of the entries, if it is open anyway
	list []byte
}

func (d *describer) close() {}

// entry describes what info is about. full is its path as the caller sees it;
// name, if not "", is its name in d.dir.
func (d *describer) entry(info guardfs.Info, full, name string) *entryInfo {
	files := d.c.s.Gate.Files
	e := &entryInfo{
		Name: path.Base(full), Path: shownPath(full), Size: info.Size, Mode: info.Mode & 0o777,
		Permissions: modeOf(info).String(), Owner: files.Owner(info.UID), Group: files.Group(info.GID),
		ModifiedTime: info.Modified(), Type: typeOf(info.Kind),
	}
	e.Name = shownPath(e.Name)
	if info.Kind != guardfs.Symlink {
		e.Metadata = d.metadata(info, name)
		return e
	}
	e.IsSymlink = true
	target := shownPath(full)
	e.Type = typeSymlink
	// What policy hides looks like nothing, and a link to it like a dead one.
	if leads, err := d.g.Stat(info.Path, true); err == nil {
		target = shownPath(leads.Path)
		e.Type, e.Mode = typeOf(leads.Kind), leads.Mode&0o777
	}
	e.SymlinkTarget = &target
	return e
}

func typeOf(k guardfs.Kind) fileType {
	switch k {
	case guardfs.File:
		return typeFile
	case guardfs.Directory:
		return typeDirectory
	}
	return typeUnspecified
}

// modeOf is the mode whose text is shown.
func modeOf(info guardfs.Info) fs.FileMode {
	m := fs.FileMode(info.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{unix.S_ISUID: fs.ModeSetuid, unix.S_ISGID: fs.ModeSetgid, unix.S_ISVTX: fs.ModeSticky} {
		if info.Mode&bit != 0 {
			m |= flag
		}
	}
	switch info.Kind {
	case guardfs.Directory:
		m |= fs.ModeDir
	case guardfs.Symlink:
		m |= fs.ModeSymlink
	case guardfs.FIFO:
		m |= fs.ModeNamedPipe
	case guardfs.Socket:
		m |= fs.ModeSocket
	case guardfs.Device:
		m |= fs.ModeDevice
	}
	return m
}

// metadata is what callers have stored with a file. What cannot be read is
// none.
func (d *describer) metadata(info guardfs.Info, name string) map[string]string {
	if info.Kind != guardfs.File && info.Kind != guardfs.Directory {
		return nil
	}
	if d.dir != nil && name != "" {
		// By the open directory; the last component is not followed.
		at := "/proc/self/fd/" + strconv.Itoa(d.dir.Fd()) + "/" + name
		return d.attributes(
			func(list []byte) (int, error) { return unix.Llistxattr(at, list) },
			func(key string, value []byte) (int, error) { return unix.Lgetxattr(at, key, value) },
		)
	}
	if info.Kind != guardfs.File {
		return nil
	}
	f, _, err := d.g.Open(info.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	return d.ofFile(f)
}

func (d *describer) ofFile(f *os.File) map[string]string {
	fd := int(f.Fd())
	return d.attributes(
		func(list []byte) (int, error) { return unix.Flistxattr(fd, list) },
		func(key string, value []byte) (int, error) { return unix.Fgetxattr(fd, key, value) },
	)
}

func (d *describer) attributes(list func([]byte) (int, error), get func(string, []byte) (int, error)) map[string]string {
	if d.list == nil {
		d.list = make([]byte, 64<<10)
	}
	n, err := list(d.list)
	if err != nil || n == 0 {
		return nil
	}
	var out map[string]string
	var value []byte
	for raw := range bytes.SplitSeq(d.list[:n], []byte{0}) {
		key, ours := strings.CutPrefix(string(raw), attributePrefix)
		if !ours || key == "" {
			continue
		}
		if value == nil {
			value = make([]byte, 64<<10)
		}
		m, err := get(string(raw), value)
		if err != nil {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = strings.ToValidUTF8(string(value[:m]), "\uFFFD")
	}
	return out
}
