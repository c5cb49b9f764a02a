package guardfs

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// ErrEscapes is a name or the text of a link that leads out of a [Tree].
var ErrEscapes = errors.New("leads out of the directory")

// Tree is a directory that one call fills with many things, such as what an
// archive holds. Names are clean, relative to it and judged one by one. Links
// in it are followed only where they stay in it; whatever is exchanged
// meanwhile, nothing outside is touched. It is not safe for concurrent use.
// The caller closes it.
type Tree struct {
	g    *Guard
	path string
	in   policy.Roots
	fd   int // of the directory, once made

	dir  string // the parent used last, as named
	real string // and where it really is
	at   int    // and its descriptor; -1: none

	// Judge, if not nil, is asked about the resolved path of everything that is
	// no directory once the path rules have admitted it.
	Judge func(real string) error
	// Made are the directories made in the tree so far, by relative path.
	Made map[string]bool
}

// Tree judges a directory to be filled. Nothing is made before [Tree.Make].
func (g *Guard) Tree(name string) (*Tree, error) {
	real, err := g.Check(name, policy.Write)
	if err != nil {
		return nil, err
	}
	q := g.Quiet()
	return &Tree{g: q, path: real, in: q.roots(), fd: -1, at: -1, Made: map[string]bool{}}, nil
}

// Path is the resolved path of the directory.
func (t *Tree) Path() string { return t.path }

// Make makes the directory, with its parents, if it is not there, and takes
// hold of it.
func (t *Tree) Make() error {
	if _, _, err := t.g.Mkdir(t.path, MkdirOptions{}); err != nil {
		return err
	}
	f, real, err := t.g.Dir(t.path, policy.Write)
	if err != nil {
		return err
	}
	defer f.Close()
	if real != t.path {
		return errSwapped() // a link came in its place
	}
	t.fd, err = t.g.fs.descend(int(f.Fd()), "", asDir)
	return failure("open", t.path, err)
}

// Close gives back what the tree holds. Files written in it can be executed
// at once afterwards.
func (t *Tree) Close() error {
	t.forget()
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
		t.fd = -1
		letForksPass()
	}
	return nil
}

// forget gives back the parent used last.
func (t *Tree) forget() {
	if t.at >= 0 {
		_ = unix.Close(t.at)
	}
	t.dir, t.at = "", -1
}

// Links are links that will be in a tree before a name is used: the text of
// the one at a relative path. known without text means that there will be
// something else.
type Links func(rel string) (text string, known bool)

// Place resolves the parents of a relative name with links that will be there,
// judges the name and returns where it will be, relative to the tree. It is
// only as true as the links; what writes looks again.
func (t *Tree) Place(rel string, dir bool, links Links) (real string, err error) {
	parent, name := splitRel(rel)
	at, err := t.resolve(parent, links)
	if err != nil {
		return "", err
	}
	if err := t.judge(rel, join(at, name), dir); err != nil {
		return "", err
	}
	return strings.TrimPrefix(join(at, name)[len(t.path):], "/"), nil
}

// Leads tells with nil that a link with that text, at a place that
// [Tree.Place] gave, stays in the tree.
func (t *Tree) Leads(real, text string, links Links) error {
	dir, _ := splitRel(real)
	switch {
	case text == "" || strings.IndexByte(text, 0) >= 0 || len(text) >= unix.PathMax:
		return ErrEscapes
	case text[0] != '/':
		// No cleaning: what ".." means depends on the links before it.
		text = join(t.path, dir) + "/" + text
	}
	to, loop := resolve(text, t.reader(links))
	if loop || !within(t.path, to) {
		return ErrEscapes
	}
	return nil
}

// Exists tells whether something is at a place that [Tree.Place] gave.
func (t *Tree) Exists(real string) bool {
	p := t.g.fs.pin(join(t.path, real))
	defer p.close()
	return p.why == nil
}

func splitRel(rel string) (dir, name string) {
	i := strings.LastIndexByte(rel, '/')
	if i < 0 {
		return "", rel
	}
	return rel[:i], rel[i+1:]
}

// resolve follows the links of a directory in the tree.
func (t *Tree) resolve(dir string, links Links) (string, error) {
	if dir == "" {
		return t.path, nil
	}
	real, loop := resolve(join(t.path, dir), t.reader(links))
	if loop || !within(t.path, real) {
		return "", ErrEscapes
	}
	return real, nil
}

// reader reads links below the tree, those to come before those that are.
func (t *Tree) reader(links Links) func(string) (string, bool) {
	return func(p string) (string, bool) {
		if links != nil && len(p) > len(t.path) && within(t.path, p) {
			if text, known := links(strings.TrimPrefix(p[len(t.path):], "/")); known {
				return text, text != ""
			}
		}
		return readLink(p)
	}
}

// judge asks the rules about a name and where it really is.
func (t *Tree) judge(rel, real string, dir bool) error {
	if err := checkName(rel).Err(); err != nil {
		return err
	}
	if err := checkNew(real); err != nil {
		return err
	}
	if err := t.g.decide(join(t.path, rel), real, t.in, policy.Write).Err(); err != nil {
		return err
	}
	if t.Judge != nil && !dir {
		return t.Judge(real)
	}
	return nil
}

// reach judges a name, makes its missing parents and holds the last one. What
// it gives is good until the next call.
func (t *Tree) reach(rel string, dir bool) (at int, name, real string, err error) {
	parent, name := splitRel(rel)
	if t.at < 0 || t.dir != parent {
		t.forget()
		if t.at, t.real, err = t.hold(parent, true); err != nil {
			return -1, "", "", writing("open", join(t.path, rel), err)
		}
		t.dir = parent
	}
	real = join(t.real, name)
	return t.at, name, real, t.judge(rel, real, dir)
}

// hold opens a directory of the tree, made where it is missing if mk is set.
func (t *Tree) hold(dir string, mk bool) (fd int, real string, err error) {
	real = join(t.path, dir)
	for range looks {
		rel := strings.TrimPrefix(real[len(t.path):], "/")
		fd, err = t.g.fs.descend(t.fd, rel, asDir)
		if errors.Is(err, unix.ENOENT) && mk {
			if err = t.judge(dir, real, true); err == nil {
				fd, err = t.make(rel)
			}
		}
		switch {
		case err == nil && isKernelFS(fd):
			_ = unix.Close(fd)
			return -1, "", errSystemTree()
		case !errors.Is(err, unix.ELOOP) && !errors.Is(err, errMoved):
			return fd, real, err
		}
		if real, err = t.resolve(dir, nil); err != nil {
			return -1, "", err
		}
	}
	return -1, "", errSwapped()
}

// make makes the directories of a resolved relative path and holds the last.
func (t *Tree) make(rel string) (int, error) {
	from, err := t.g.fs.descend(t.fd, "", asDir)
	if err != nil {
		return -1, err
	}
	made := &madeDirs{fs: t.g.fs, from: from}
	at, err := made.mkdirs(rel)
	for _, dir := range made.rel {
		t.Made[dir] = true
	}
	made.finish(true)
	return at, err
}

// again runs a step that may find its directory gone.
func (t *Tree) again(rel string, dir bool, step func(at int, name, real string) error) error {
	for range looks {
		at, name, real, err := t.reach(rel, dir)
		if err == nil {
			err = writing("create", real, step(at, name, real))
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		t.forget()
	}
	return errSwapped()
}

// Mkdir makes a directory and its missing parents. One that is there is fine,
// and so is a link to one in the tree; anything else of that name is
// [ErrAlreadyExists].
func (t *Tree) Mkdir(rel string) error {
	return t.again(rel, true, func(at int, name, real string) error {
		err := unix.Mkdirat(at, name, 0o777)
		switch {
		case err == nil:
			t.Made[strings.TrimPrefix(real[len(t.path):], "/")] = true
			return nil
		case errors.Is(err, unix.ENOENT):
			return errMoved
		case !errors.Is(err, unix.EEXIST):
			return err
		}
		fd, to, err := t.hold(rel, false)
		switch {
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENOENT): // a file, or a link to nothing
			return ErrAlreadyExists
		case err != nil:
			return err
		}
		_ = unix.Close(fd)
		return t.judge(rel, to, true)
	})
}

// SetDir gives a directory that was made in the tree its mode and time; zero
// times are left.
func (t *Tree) SetDir(rel string, mode *uint32, mtime time.Time) error {
	return t.again(rel, true, func(at int, name, _ string) error {
		if !mtime.IsZero() {
			if err := setTime(at, name, mtime); err != nil {
				return err
			}
		}
		if mode == nil {
			return nil
		}
		return chmodAt(at, name, *mode&0o777)
	})
}

// setTime sets the times of name itself.
func setTime(at int, name string, mtime time.Time) error {
	ts, err := unix.TimeToTimespec(mtime)
	if err != nil {
		return err
	}
	return unix.UtimesNanoAt(at, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

// NewFile is a file being written to a tree. Commit or Abort ends it, before
// anything else is done with the tree.
type NewFile struct {
	t    *Tree
	f    *os.File
	at   int
	tmp  string
	name string
	real string
	keep bool
}

// Create begins a file. What has its name is replaced by Commit, links
// themselves and not what they lead to; with keep it is refused as
// [policy.FileExists]. Directories and what is no file are never replaced.
func (t *Tree) Create(rel string, keep bool) (*NewFile, error) {
	var n *NewFile
	err := t.again(rel, false, func(at int, name, real string) error {
		if err := t.replaceable(at, name, real, keep); err != nil {
			return err
		}
		n = &NewFile{t: t, at: at, tmp: t.newTemp(), name: name, real: real, keep: keep}
		fd, err := openAt(at, n.tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			t.g.fs.temps.Delete(n.tmp)
			if errors.Is(err, unix.ENOENT) {
				return errMoved
			}
			return err
		}
		n.f = os.NewFile(uintptr(fd), real)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (t *Tree) newTemp() string {
	tmp := tmpPrefix + rand.Text()
	t.g.fs.temps.Store(tmp, nil)
	return tmp
}

// dropTemp removes an unfinished thing, if it still has that name.
func (t *Tree) dropTemp(at int, tmp string) {
	_ = unix.Unlinkat(at, tmp, 0)
	t.g.fs.temps.Delete(tmp)
}

// replaceable refuses a name that is taken by what may not be replaced.
func (t *Tree) replaceable(at int, name, real string, keep bool) error {
	var st unix.Stat_t
	err := lstatAt(at, name, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case kindOf(st.Mode) == Directory:
		return pathError("create", real, ErrIsDirectory)
	case keep:
		return errFileExists()
	case kindOf(st.Mode) != File && kindOf(st.Mode) != Symlink:
		return pathError("create", real, ErrNotRegular)
	}
	return nil
}

// Write adds bytes.
func (n *NewFile) Write(b []byte) (int, error) {
	k, err := n.f.Write(b)
	if err != nil {
		err = pathError("write", n.real, errnoOf(err))
	}
	return k, err
}

// errnoOf takes the name of a file off an error, which may be one nobody knows.
func errnoOf(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}

// Commit gives the file its mode, its time and its name. A nil mode is 0666
// less the umask, a zero time is now. The bytes need not be on the disk yet.
func (n *NewFile) Commit(mode *uint32, mtime time.Time) error {
	defer n.t.dropTemp(n.at, n.tmp)
	perm := 0o666 &^ n.t.g.fs.umask
	if mode != nil {
		perm = *mode & 0o777
	}
	err := unix.Fchmod(int(n.f.Fd()), perm)
	if err == nil && !mtime.IsZero() {
		err = setTime(n.at, n.tmp, mtime)
	}
	if closeErr := n.f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = rename(n.at, n.tmp, n.name, n.keep)
	}
	return unmoved(writing("create", n.real, err))
}

// Abort gives the file up.
func (n *NewFile) Abort() {
	_ = n.f.Close()
	n.t.dropTemp(n.at, n.tmp)
}

// rename gives an unfinished thing its name in the same directory.
func rename(at int, tmp, name string, keep bool) error {
	if !keep {
		return unix.Renameat(at, tmp, at, name)
	}
	err := renameNew(at, tmp, at, name)
	if errors.Is(err, unix.EEXIST) {
		return errFileExists()
	}
	return err
}

// Symlink makes a link whose text must lead to somewhere in the tree. Names
// that are taken are treated as by Create.
func (t *Tree) Symlink(text, rel string, keep bool) error {
	return t.again(rel, false, func(at int, name, real string) error {
		if err := t.Leads(strings.TrimPrefix(real[len(t.path):], "/"), text, nil); err != nil {
			return err
		}
		return t.put(at, name, real, keep, func(tmp string) error { return unix.Symlinkat(text, at, tmp) })
	})
}

// Unlink takes a link away, if it is still one.
func (t *Tree) Unlink(rel string) {
	dir, name := splitRel(rel)
	at, _, err := t.hold(dir, false)
	if err != nil {
		return
	}
	defer unix.Close(at)
	if isLink(at, name) {
		_ = unix.Unlinkat(at, name, 0)
	}
}

// Link gives a regular file of the tree another name in it. The file is judged
// as if it were written, since it can be through the new name.
func (t *Tree) Link(old, rel string, keep bool) error {
	if t.g.rules.DenyHardlinks {
		return refuse(policy.PathDenied, "Hard links are not allowed")
	}
	parent, name := splitRel(old)
	from, dir, err := t.hold(parent, false)
	real := join(dir, name)
	if err != nil {
		return missing("link", join(t.path, old), err)
	}
	defer unix.Close(from)
	if err := t.judge(old, real, false); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := lstatAt(from, name, &st); err != nil {
		return missing("link", real, err)
	}
	if kindOf(st.Mode) != File {
		return pathError("link", real, ErrNotRegular)
	}
	return t.again(rel, false, func(at int, to, real string) error {
		return t.put(at, to, real, keep, func(tmp string) error {
			if err := unix.Linkat(from, name, at, tmp, 0); err != nil {
				return err
			}
			var now unix.Stat_t
			if err := lstatAt(at, tmp, &now); err != nil || now.Ino != st.Ino || now.Dev != st.Dev {
				return errSwapped()
			}
			return nil
		})
	})
}

// put makes something under an unfinished name and then gives it its own.
func (t *Tree) put(at int, name, real string, keep bool, mk func(tmp string) error) error {
	if err := t.replaceable(at, name, real, keep); err != nil {
		return err
	}
	tmp := t.newTemp()
	defer t.dropTemp(at, tmp) // also when both names are of one file already
	err := mk(tmp)
	if errors.Is(err, unix.ENOENT) {
		return errMoved
	}
	if err == nil {
		err = rename(at, tmp, name, keep)
	}
	return err
}
