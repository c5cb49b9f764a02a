package guardfs

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// MoveOptions say how something is moved.
type MoveOptions struct {
	NoOverwrite bool // something of the final name is policy.FileExists
	// Exact takes the destination for the final name even if it is a directory:
	// one that is empty is replaced by a directory.
	Exact bool

	// Final, if not nil, is asked about the final path once the path rules have
	// admitted it and the source was found, before anything is changed. taken
	// tells that something of that name will be replaced. Its error is returned
	// as it is.
	Final func(real string, source Info, taken bool) error
}

// MoveResult tells what was moved where.
type MoveResult struct {
	Source      string // resolved; a link's own path
	Destination string // resolved, as named
	Path        string // where the source is now
}

// Move renames source, a link itself and never its target. The source is
// judged as [policy.Delete], the destination as [policy.Write]; refusals say
// which side they are about. Missing parents of the destination are made.
//
// An existing directory as destination receives the source under its own name;
// that name must be free ([ErrAlreadyExists]). An existing file is replaced. The final
// path is judged, and with deny patterns every path below it, old and new.
// Between file systems the source is copied under a name nobody sees, which then
// takes the final name at once; if the source cannot be removed nothing changes.
func (g *Guard) Move(ctx context.Context, source, destination string, opt MoveOptions) (MoveResult, error) {
	from, err := g.absolute(source)
	if err != nil {
		return MoveResult{}, g.side("source: ", source, policy.Delete, err)
	}
	to, err := g.absolute(destination)
	if err != nil {
		return MoveResult{}, g.side("destination: ", destination, policy.Write, err)
	}
	for i := range looks {
		m := &mover{g: g, opt: opt, first: i == 0}
		res, err := m.move(ctx, from, to)
		m.close()
		if !errors.Is(err, errMoved) {
			return res, err
		}
	}
	return MoveResult{}, g.side("source: ", from, policy.Delete, errSwapped())
}

// side tells the observer of a refusal and says which name it is about.
func (g *Guard) side(prefix, path string, op policy.Op, err error) error {
	g.reportErr(path, op, err)
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return d.Prefix(prefix)
	}
	return err
}

// mover is one try to move something.
type mover struct {
	g     *Guard
	opt   MoveOptions
	first bool // decisions are reported once

	src, dst *place
	final    *place // dst, or the source's name in it
}

func (m *mover) close() {
	for _, p := range []*place{m.src, m.dst, m.final} {
		if p != nil {
			p.close()
		}
	}
}

func (m *mover) move(ctx context.Context, from, to string) (MoveResult, error) {
	var err error
	if m.src, err = m.take(from, policy.Delete, itself, "source: "); err != nil {
		return MoveResult{}, err
	}
	if m.dst, err = m.take(to, policy.Write, target, "destination: "); err != nil {
		return MoveResult{}, err
	}
	if err := m.src.present(); err != nil {
		return MoveResult{}, m.g.side("source: ", from, policy.Delete, err)
	}
	res := MoveResult{Source: m.src.path, Destination: m.dst.path, Path: m.src.path}
	if m.same(to) {
		return res, nil
	}
	if err := m.findFinal(); err != nil {
		return MoveResult{}, m.g.side("destination: ", to, policy.Write, err)
	}
	if m.final.path == m.src.path {
		return res, nil
	}
	if err := m.check(ctx); err != nil {
		return MoveResult{}, err
	}
	made, err := m.final.prepare(false)
	if err != nil {
		return MoveResult{}, m.g.side("destination: ", to, policy.Write, err)
	}
	err = m.rename(ctx)
	made.finish(err == nil)
	res.Path = m.final.path
	return res, err
}

func (m *mover) take(clean string, op policy.Op, as mode, prefix string) (*place, error) {
	p, err := m.g.take(clean, op, as)
	switch {
	case err != nil && !errors.Is(err, errMoved):
		return nil, m.g.side(prefix, clean, op, err)
	case err == nil && m.first:
		m.g.report(p.path, op, policy.Allow())
	}
	return p, err
}

// same tells whether both names stand for one and the same entry.
func (m *mover) same(to string) bool {
	dir, name := split(to)
	dir, _ = resolve(dir, readLink)
	return join(dir, name) == m.src.path || m.dst.path == m.src.path
}

// findFinal finds the place the source shall have.
func (m *mover) findFinal() error {
	if m.src.kind() == Directory && within(m.src.path, m.dst.path) {
		return pathError("move", m.src.path, ErrInvalidMove)
	}
	m.final = m.dst
	if m.opt.Exact || m.dst.why != nil || m.dst.kind() != Directory {
		return nil
	}
	fd, err := m.dst.openDir(asDir)
	if err != nil {
		return err
	}
	p := *m.dst
	p.dir, p.via = fd, false
	_, p.name = split(m.src.path)
	p.path, p.clean = join(m.dst.path, p.name), join(m.dst.clean, p.name)
	m.final = &p
	p.look()
	return m.g.decide(p.clean, p.path, p.in, policy.Write).Err()
}

// check asks everything that may forbid the move, before anything is changed.
func (m *mover) check(ctx context.Context) error {
	final, src := m.final, m.src
	taken := final.why == nil
	if err := checkNew(final.path); err != nil {
		return m.g.side("destination: ", m.dst.clean, policy.Write, err)
	}
	if m.opt.Final != nil {
		if err := m.opt.Final(final.path, newInfo(src.path, &src.st), taken); err != nil {
			return err
		}
	}
	switch {
	case !taken:
	case final != m.dst:
		return pathError("move", final.path, ErrAlreadyExists)
	case final.kind() == Symlink:
		return errMoved
	case final.kind() == Directory && src.kind() != Directory:
		return pathError("move", final.path, ErrAlreadyExists)
	case src.kind() == Directory && final.kind() != Directory:
		return pathError("move", final.path, ErrNotDirectory)
	case m.opt.NoOverwrite:
		return errFileExists()
	case final.allowsLinks() != nil:
		return final.allowsLinks()
	}
	if src.kind() == Symlink {
		if real, _ := resolve(src.path, readLink); real == final.path {
			return pathError("move", src.path, ErrInvalidMove) // it would lead to itself
		}
	}
	if src.kind() != Directory || !m.g.rules.HasDeny() {
		return nil
	}
	err := src.judgeTree(ctx, func(e *Entry) error {
		at := Dir{g: m.g, path: join(final.path, e.dir.rel), clean: join(final.clean, e.dir.rel)}
		if at.denies(e.name) {
			return refuse(policy.PathDenied, "Directory would hold an entry that is denied by policy")
		}
		return nil
	})
	return m.g.side("source: ", src.clean, policy.Delete, err)
}

// rename does it.
func (m *mover) rename(ctx context.Context) error {
	src, final := m.src, m.final
	taken := final.why == nil
	if taken && final.st.Ino == src.st.Ino && final.st.Dev == src.st.Dev {
		// Two names of one file: renaming would do nothing and leave both.
		return failure("move", src.path, unix.Unlinkat(src.dir, src.name, 0))
	}
	var err error
	if taken {
		err = unix.Renameat(src.dir, src.name, final.dir, final.name)
	} else {
		err = renameNew(src.dir, src.name, final.dir, final.name)
	}
	switch {
	case errors.Is(err, unix.EXDEV) && taken && final.kind() == Directory:
		return pathError("move", final.path, ErrAlreadyExists) // whether it is empty would have to be seen and kept so
	case errors.Is(err, unix.EXDEV):
		return m.carry(ctx)
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EISDIR):
		return errMoved // what was looked at has changed
	case errors.Is(err, unix.ENOTEMPTY):
		err = ErrAlreadyExists
	case errors.Is(err, unix.EINVAL):
		err = ErrInvalidMove
	}
	return writing("move", m.blamed(err), err)
}

// blamed is the path of the side that stopped a rename.
func (m *mover) blamed(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return m.final.path
	case errors.Is(err, fs.ErrPermission) && removableFrom(m.src.dir) == nil && removableFrom(m.final.dir) != nil:
		return m.final.path
	}
	return m.src.path
}

// carry moves between file systems.
func (m *mover) carry(ctx context.Context) error {
	src, final := m.src, m.final
	c := &copier{fs: m.g.fs, preserve: true, special: true, leaving: true}
	tmp, err := c.stage(ctx, src, final)
	if err != nil {
		return err
	}
	defer c.drop(ctx, m.g, final.dir, tmp)
	if err := syncDir(final.dir); err != nil {
		return failure("move", final.path, err)
	}
	old := final.why == nil
	if old {
		// The old content is kept until the source is gone.
		err = unix.Renameat2(final.dir, tmp, final.dir, final.name, unix.RENAME_EXCHANGE)
	} else {
		err = renameNew(final.dir, tmp, final.dir, final.name)
	}
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
		return errMoved
	}
	if err != nil {
		return writing("move", final.path, err)
	}
	gone := tmpPrefix + rand.Text()
	m.g.fs.temps.Store(gone, nil)
	defer m.g.fs.temps.Delete(gone)
	if err := renameNew(src.dir, src.name, src.dir, gone); err != nil {
		if old {
			_ = unix.Renameat2(final.dir, tmp, final.dir, final.name, unix.RENAME_EXCHANGE)
		} else {
			_ = renameNew(final.dir, final.name, final.dir, tmp)
		}
		return failure("move", src.path, err)
	}
	m.g.removeAll(ctx, src.dir, gone)
	return nil
}

// syncDir brings everything of a file system to the disk; dir is pinned only.
func syncDir(dir int) error {
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil // not readable: the system will write it in time
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}
