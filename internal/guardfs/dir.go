package guardfs

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Dir is an opened directory that the rules admit. Names in it are judged one
// by one; those the rules refuse, links that lead outside and unfinished files
// do not exist for its callers. A Dir is not safe for concurrent use and holds
// one descriptor until Close.
type Dir struct {
	g      *Guard
	fd     int
	path   string
	clean  string // as the call named it; deny patterns see both
	rel    string // below the start of a walk
	depth  int
	raw    bool          // nothing is left out
	deep   bool          // directories beyond maxWalk are entered too
	beyond bool          // it is one: path, clean and rel are those of one above
	roots  *policy.Roots // resolved when the first link is met; shared in a walk
}

// OpenDir opens a directory to read. What is none is reported as not existing.
func (g *Guard) OpenDir(name string) (*Dir, error) {
	var d *Dir
	err := g.at(name, policy.Read, target, func(p *place) error {
		var err error
		d, err = p.open()
		if errors.Is(err, ErrNotDirectory) {
			err = pathError("open", p.path, unix.ENOENT)
		}
		return err
	})
	return d, err
}

// open opens the directory of the place to read.
func (p *place) open() (*Dir, error) {
	fd, err := p.openDir(unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &Dir{g: p.g, fd: fd, path: p.path, clean: p.clean, roots: new(policy.Roots)}, nil
}

// Close gives the descriptor back. Closing twice is fine.
func (d *Dir) Close() error {
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return unix.Close(fd)
}

// Path is the resolved absolute path.
func (d *Dir) Path() string { return d.path }

// Rel is the path below the start of the walk; "" for the start itself.
func (d *Dir) Rel() string { return d.rel }

// Depth is 0 for the start of a walk, 1 for the directories in it.
func (d *Dir) Depth() int { return d.depth }

// Fd is the descriptor, valid until Close. The Dir keeps it.
func (d *Dir) Fd() int { return d.fd }

// Info describes the directory itself.
func (d *Dir) Info() (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return Info{}, pathError("stat", d.path, err)
	}
	return newInfo(d.path, &st), nil
}

// Lookup finds one entry. What the rules refuse does not exist. The entry is
// valid as long as the Dir is open.
func (d *Dir) Lookup(name string) (*Entry, error) {
	e := &Entry{dir: d, name: name}
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return nil, pathError("stat", join(d.path, name), unix.ENOENT)
	}
	if err := e.look(); err != nil {
		return nil, missing("stat", e.Path(), err)
	}
	if !d.admits(e) {
		return nil, pathError("stat", e.Path(), unix.ENOENT)
	}
	return e, nil
}

// admits tells whether an entry may be seen.
func (d *Dir) admits(e *Entry) bool {
	switch {
	case d.raw:
		return true
	case isTemp(e.name), d.denies(e.name):
		return false
	case e.kind == "" && e.look() != nil:
		return false
	case e.kind == Symlink:
		return d.admitsLink(e.name)
	case e.kind == File && d.g.rules.DenyHardlinks:
		return (e.seen || e.look() == nil) && d.g.allowsLinks(&e.st) == nil
	}
	return true
}

// denies asks the deny patterns about an entry, under both names of the directory.
func (d *Dir) denies(name string) bool {
	return d.g.rules.DeniesEntry(d.path, name) || d.clean != d.path && d.g.rules.DeniesEntry(d.clean, name)
}

// admitsLink judges where a link leads.
func (d *Dir) admitsLink(name string) bool {
	if d.g.rules.SymlinksNever {
		return false
	}
	if *d.roots == nil {
		*d.roots = d.g.roots()
	}
	own := join(d.path, name)
	real, _ := resolve(own, readLink)
	return d.g.decide(own, real, *d.roots, policy.Read).OK()
}

// sweepAfter is how long an unfinished file may rest before it counts as left
// behind by a server that was stopped.
const sweepAfter = time.Hour

// sweep removes an unfinished file that nobody works on any more.
func (d *Dir) sweep(ctx context.Context, e *Entry) {
	if d.g.rules.ReadOnly || e.look() != nil || e.kind != File && e.kind != Directory {
		return
	}
	if _, ours := d.g.fs.temps.Load(e.name); ours || time.Since(time.Unix(0, e.st.Mtim.Nano())) < sweepAfter {
		return
	}
	d.g.removeAll(ctx, d.fd, e.name)
}

// child opens a directory in d.
func (d *Dir) child(name string) (*Dir, error) {
	fd, err := openAt(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, missing("open", join(d.path, name), err)
	}
	if isKernelFS(fd) {
		_ = unix.Close(fd)
		return nil, errSystemTree()
	}
	c := *d
	c.fd, c.depth = fd, d.depth+1
	if c.beyond = d.beyond || d.deep && tooLong(d.path, name); c.beyond {
		return &c, nil
	}
	c.path, c.clean = join(d.path, name), join(d.clean, name)
	if d.clean == d.path {
		c.clean = c.path // one text for both
	}
	c.rel = c.path[len(c.path)-len(join(d.rel, name)):]
	return &c, nil
}

// maxWalk is the longest path of a directory that a walk enters, well beyond
// what a call can name. Anybody can make a tree so deep that the paths of one
// branch fill the memory.
const maxWalk = 3 * maxPath

func tooLong(dir, name string) bool { return len(dir)+1+len(name) > maxWalk }

// tooDeep tells whether the directory the entry is has a path too long to name.
func (e *Entry) tooDeep() bool { return tooLong(e.dir.path, e.name) }

// Entry is one name in a directory. It is valid as long as the directory is
// open; in a walk, until the callback returns.
type Entry struct {
	dir  *Dir
	name string
	kind Kind // "" when the directory did not tell
	seen bool // st holds
	st   unix.Stat_t
}

// Name is the last component.
func (e *Entry) Name() string { return e.name }

// Dir is the directory of the entry. It stays the walk's.
func (e *Entry) Dir() *Dir { return e.dir }

// Path is absolute, with all links before the last component resolved.
func (e *Entry) Path() string { return join(e.dir.path, e.name) }

// Rel is the path below the start of the walk.
func (e *Entry) Rel() string { return join(e.dir.rel, e.name) }

// Depth is 1 for the entries of the directory that is walked.
func (e *Entry) Depth() int { return e.dir.depth + 1 }

// Kind is what the directory says about the entry; no look at it is needed.
func (e *Entry) Kind() Kind { return e.kind }

func (e *Entry) look() error {
	if err := lstatAt(e.dir.fd, e.name, &e.st); err != nil {
		return err
	}
	e.seen, e.kind = true, kindOf(e.st.Mode)
	return nil
}

// Info describes the entry, a link as a link.
func (e *Entry) Info() (Info, error) {
	if !e.seen {
		if err := e.look(); err != nil {
			return Info{}, missing("stat", e.Path(), err)
		}
	}
	info := newInfo(e.Path(), &e.st)
	if info.Kind == Symlink {
		info.Target, _ = e.Readlink()
	}
	return info, nil
}

// Readlink is the text of a link.
func (e *Entry) Readlink() (string, error) {
	text, err := readLinkAt(e.dir.fd, e.name)
	return text, missing("readlink", e.Path(), err)
}

// Open opens the entry for reading if it is a regular file; see [Guard.Open].
// The caller closes it.
func (e *Entry) Open() (*os.File, Info, error) {
	if err := e.look(); err != nil {
		return nil, Info{}, missing("open", e.Path(), err)
	}
	f, info, err := e.dir.g.openFile(e.dir.fd, e.name, e.Path(), &e.st)
	if errors.Is(err, errMoved) {
		err = pathError("open", e.Path(), ErrNotRegular)
	}
	return f, info, err
}

// OpenDir opens the entry if it is a directory. The caller closes it.
func (e *Entry) OpenDir() (*Dir, error) { return e.dir.child(e.name) }

// Entries returns admitted entries in ascending order of the bytes of their
// names: at most n, and only names after the given one. more tells that there
// are further names. The directory is read each time, so memory stays bounded
// by n however large it is. Entries are valid until d is closed.
func (d *Dir) Entries(after string, n int) (entries []*Entry, more bool, err error) {
	for {
		names, rest, err := d.names(after, false, n-len(entries))
		if err != nil {
			return nil, false, err
		}
		for _, de := range names {
			after = de.name
			if e := (&Entry{dir: d, name: de.name, kind: de.kind}); d.admits(e) {
				entries = append(entries, e)
			}
		}
		if !rest || len(entries) >= n {
			return entries, rest, nil
		}
	}
}

// dirent is a name as a directory gives it.
type dirent struct {
	name string
	kind Kind
}

func byName(a, b dirent) int { return strings.Compare(a.name, b.name) }

var direntBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// names returns the first n names after one, or from it on, in ascending order.
func (d *Dir) names(after string, from bool, n int) (names []dirent, more bool, err error) {
	if n <= 0 {
		return nil, true, nil
	}
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return nil, false, pathError("read", d.path, err)
	}
	buf, _ := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(buf)
	for {
		got, err := unix.Getdents(d.fd, *buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, false, failure("read", d.path, err)
		}
		if got == 0 {
			break
		}
		for rest := (*buf)[:got]; len(rest) > 0; {
			var de dirent
			if de, rest = nextDirent(rest, after, from); de.name != "" {
				names = append(names, de)
			}
		}
		if len(names) > 2*n { // keep the smallest only
			slices.SortFunc(names, byName)
			clear(names[n:])
			names, more = names[:n], true
		}
	}
	slices.SortFunc(names, byName)
	if len(names) > n {
		names, more = names[:n], true
	}
	return names, more, nil
}

// nextDirent takes one linux_dirent64 off buf; the name is empty when it is not
// wanted. Its kind is "" where the file system does not tell.
func nextDirent(buf []byte, after string, from bool) (dirent, []byte) {
	const header = 19 // inode 8, offset 8, length 2, type 1
	if len(buf) < header {
		return dirent{}, nil
	}
	size := int(binary.NativeEndian.Uint16(buf[16:]))
	if size < header || size > len(buf) {
		return dirent{}, nil
	}
	raw, kind := buf[header:size], kindOf(uint32(buf[18])<<12)
	if buf[18] == unix.DT_UNKNOWN {
		kind = ""
	}
	if i := slices.Index(raw, 0); i >= 0 {
		raw = raw[:i]
	}
	switch {
	case len(raw) == 0, string(raw) == ".", string(raw) == "..":
	case after == "", string(raw) > after, from && string(raw) == after:
		return dirent{string(raw), kind}, buf[size:]
	}
	return dirent{}, buf[size:]
}
