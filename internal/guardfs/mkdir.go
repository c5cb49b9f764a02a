package guardfs

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// MkdirOptions say how a directory is made.
type MkdirOptions struct {
	Mode      *uint32 // permission bits of the last directory; nil: 0777 less the umask
	NoParents bool    // a missing parent is an error
}

// Mkdir makes a directory and its missing parents. One that is there already
// is fine, and so is a link to one; existed tells. Anything else of that name
// is [ErrAlreadyExists].
func (g *Guard) Mkdir(name string, opt MkdirOptions) (real string, existed bool, err error) {
	err = g.at(name, policy.Write, target, func(p *place) error {
		real = p.path
		var err error
		existed, err = p.mkdir(opt)
		return err
	})
	return real, existed, err
}

func (p *place) mkdir(opt MkdirOptions) (existed bool, err error) {
	if p.why == nil {
		switch p.kind() {
		case Directory:
			return true, nil
		case Symlink:
			return false, errMoved
		}
		return false, pathError("mkdir", p.path, ErrAlreadyExists)
	}
	made, err := p.prepare(opt.NoParents)
	if err != nil {
		return false, err
	}
	err = p.mkdirLast(opt.Mode)
	made.finish(err == nil)
	return false, err
}

func (p *place) mkdirLast(mode *uint32) error {
	perm := uint32(0o777)
	if mode != nil {
		perm = *mode & 0o700
	}
	err := unix.Mkdirat(p.dir, p.name, perm)
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT):
		return errMoved
	case err == nil && mode != nil:
		err = chmodAt(p.dir, p.name, *mode&0o7777)
	}
	return writing("mkdir", p.path, err)
}

// prepare makes sure that something new can be made at the place: the name is
// one a new file may have and its directory is pinned, made where it is
// missing. The caller finishes what it returns.
func (p *place) prepare(noParents bool) (*madeDirs, error) {
	if p.loop {
		return nil, refuse(policy.SymlinkDenied, "Path is a symbolic link that leads to itself")
	}
	if err := checkNew(p.path); err != nil {
		return nil, err
	}
	if p.dir >= 0 {
		if p.why != nil && !errors.Is(p.why, unix.ENOENT) {
			return nil, writing("open", p.path, p.why)
		}
		return nil, nil
	}
	if !errors.Is(p.why, unix.ENOENT) || noParents {
		return nil, writing("open", p.path, p.why)
	}
	return p.makeParents()
}

// madeDirs are directories made on the way to something, to be taken away
// again when that fails. A nil one is empty.
type madeDirs struct {
	fs   *FS
	from int // O_PATH descriptor of the directory they were made below
	rel  []string
}

// finish ends the care for the directories; they stay when keep is set, or
// when somebody has put something in them.
func (m *madeDirs) finish(keep bool) {
	if m == nil || m.from < 0 {
		return
	}
	for i := len(m.rel) - 1; i >= 0 && !keep; i-- {
		dir, name := "", m.rel[i]
		if j := strings.LastIndexByte(name, '/'); j >= 0 {
			dir, name = name[:j], name[j+1:]
		}
		fd, err := m.fs.descend(m.from, dir, asDir)
		if err != nil {
			break
		}
		_ = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
		_ = unix.Close(fd)
	}
	_ = unix.Close(m.from)
	m.from = -1
}

// makeParents makes the missing directories above the place and pins the last.
func (p *place) makeParents() (*madeDirs, error) {
	f := p.g.fs
	dir, _ := split(p.path)
	base, fd, err := dir, -1, error(nil)
	for { // the deepest that is there
		if fd, err = f.descend(f.slash, base[1:], asDir); !errors.Is(err, unix.ENOENT) || base == "/" {
			break
		}
		base, _ = split(base)
	}
	if err != nil {
		return nil, writing("mkdir", dir, err)
	}
	made := &madeDirs{fs: f, from: fd}
	if isKernelFS(fd) {
		made.finish(true)
		return nil, errSystemTree()
	}
	at, err := made.mkdirs(strings.TrimPrefix(dir[len(base):], "/"))
	if err != nil {
		made.finish(false)
		return nil, writing("mkdir", dir, err)
	}
	p.dir = at
	p.look()
	return made, nil
}

// mkdirs makes the directories of rel and returns the last one, pinned.
func (m *madeDirs) mkdirs(rel string) (int, error) {
	at, done := m.from, ""
	for name := range strings.SplitSeq(rel, "/") {
		if name == "" {
			continue
		}
		done = join(done, name)
		err := unix.Mkdirat(at, name, 0o777)
		next := -1
		if err == nil {
			m.rel = append(m.rel, done)
		}
		if err == nil || errors.Is(err, unix.EEXIST) {
			next, err = openAt(at, name, asDir|unix.O_NOFOLLOW, 0)
			if errors.Is(err, unix.ENOTDIR) && !isOther(at, name) || errors.Is(err, unix.ENOENT) {
				err = errMoved
			}
		} else if errors.Is(err, unix.ENOENT) {
			err = errMoved // the directory itself was removed
		}
		if at != m.from {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	if at == m.from { // somebody else has made them all
		return m.fs.descend(m.from, "", asDir)
	}
	return at, nil
}
