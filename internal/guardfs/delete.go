package guardfs

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// DeleteOptions say what may be removed.
type DeleteOptions struct {
	Flat     bool // only an empty directory; others are ErrNotEmpty
	NoFollow bool // of a link, judge its own place only, not where it leads
}

// maxJudged is how many entries of a tree are judged before it is refused as
// too large to know.
const maxJudged = 100_000

// Delete removes what name stands for, a link itself and never its target, a
// directory with all its content. Links in a tree are removed, never entered.
//
// Roots, directories that hold one, and trees with a denied entry are refused
// before anything is removed. When a tree cannot be removed as a whole the
// error is a [*PartialError].
func (g *Guard) Delete(ctx context.Context, name string, opt DeleteOptions) (real string, err error) {
	m := itself
	if opt.NoFollow {
		m = selfOnly
	}
	err = g.at(name, policy.Delete, m, func(p *place) error {
		real = p.path
		if err := p.removable(ctx); err != nil {
			return err
		}
		if opt.Flat || p.kind() != Directory {
			return p.removeOne()
		}
		deleted, err := p.g.removeTree(ctx, p.dir, p.name, p.path, p.clean, true)
		if err != nil && !errors.Is(err, errMoved) {
			err = &PartialError{deleted, err}
		}
		return err
	})
	return real, err
}

// removable refuses what may not be taken away: roots, what is not there,
// trees with denied entries.
func (p *place) removable(ctx context.Context) error {
	if err := p.present(); err != nil {
		return err
	}
	if p.kind() == Directory && p.g.rules.HasDeny() {
		return p.judgeTree(ctx, nil)
	}
	return nil
}

// present refuses roots and what is not there.
func (p *place) present() error {
	if p.g.roots().HoldsRoot(p.path) {
		return errRoot()
	}
	return missing("remove", p.path, p.why)
}

// judgeTree refuses the tree at the place when the rules deny an entry in it.
// also, if not nil, is asked about every entry too.
func (p *place) judgeTree(ctx context.Context, also func(*Entry) error) error {
	d, err := p.openRaw()
	if err != nil {
		return err
	}
	judged := 0
	w := &walker{top: d, opt: WalkOptions{raw: true}}
	var unreadable error
	w.opt.Failed = func(_ string, err error) { unreadable = err }
	w.visit = func(e *Entry) error {
		if judged++; judged > maxJudged && p.g.rules.HasDeny() {
			return refuse(policy.PathDenied, "Directory is too large to be judged")
		}
		if e.dir.denies(e.name) {
			return refuse(policy.PathDenied, "Directory holds an entry that is denied by policy")
		}
		if also != nil {
			return also(e)
		}
		return nil
	}
	defer w.close()
	if err := w.run(ctx); err != nil {
		return err
	}
	return unreadable
}

// openRaw opens the directory of the place to work on everything in it.
func (p *place) openRaw() (*Dir, error) {
	d, err := p.open()
	if err == nil {
		d.raw = true
	}
	return d, err
}

// removeOne removes a single entry.
func (p *place) removeOne() error {
	flags := 0
	if p.kind() == Directory {
		flags = unix.AT_REMOVEDIR
	}
	err := unix.Unlinkat(p.dir, p.name, flags)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		err = ErrNotEmpty
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		return errMoved
	}
	return failure("remove", p.path, err)
}

// removeAll tidies up: it removes name in dir with everything below it, as far
// as possible, also when the caller has gone away.
func (g *Guard) removeAll(ctx context.Context, dir int, name string) {
	_, _ = g.removeTree(context.WithoutCancel(ctx), dir, name, "/"+name, "/"+name, false)
}

// removeTree removes the directory name in dir and tells how many entries have
// gone. With judge, a denied entry that has come meanwhile stops it.
func (g *Guard) removeTree(ctx context.Context, dir int, name, path, clean string, judge bool) (deleted int, err error) {
	p := &place{g: g, dir: dir, name: name, path: path, clean: clean}
	for range looks {
		if p.look(); p.why != nil {
			return deleted, missing("remove", path, p.why)
		}
		if p.kind() != Directory {
			if err = p.removeOne(); err == nil {
				return deleted + 1, nil
			}
			return deleted, err
		}
		n, unread, err := p.empty(ctx, judge)
		deleted += n
		if err != nil {
			return deleted, err
		}
		err = p.removeOne()
		switch {
		case err == nil:
			return deleted + 1, nil
		case errors.Is(err, ErrNotEmpty) && unread != nil:
			return deleted, unread
		case !errors.Is(err, ErrNotEmpty) && !errors.Is(err, errMoved):
			return deleted, err
		}
		// Somebody has put something in: look again.
	}
	return deleted, pathError("remove", path, ErrNotEmpty)
}

// empty removes everything in the directory at the place. unread is why a
// directory in it could not be read, if so.
func (p *place) empty(ctx context.Context, judge bool) (deleted int, unread, err error) {
	d, err := p.openRaw()
	if errors.Is(err, fs.ErrPermission) && !policy.IsDenied(err) {
		return 0, err, nil // it may be empty
	}
	if err != nil {
		return 0, nil, err
	}
	d.deep = !judge || !p.g.rules.HasDeny() // nothing is asked about paths
	w := &walker{top: d, opt: WalkOptions{raw: true}}
	defer w.close()
	w.opt.Failed = func(_ string, err error) { unread = err }
	w.visit = func(e *Entry) error {
		if judge && e.dir.denies(e.name) {
			return errPathDenied()
		}
		return nil
	}
	w.opt.leave = func(e *Entry) error {
		flags := 0
		if e.kind == Directory {
			flags = unix.AT_REMOVEDIR
		}
		switch err := unix.Unlinkat(e.dir.fd, e.name, flags); {
		case err == nil:
			deleted++
		case errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
			// Exchanged meanwhile; the next round takes it.
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			if unread != nil {
				return unread
			}
		default:
			return failure("remove", e.Path(), err)
		}
		return nil
	}
	err = w.run(ctx)
	return deleted, unread, err
}
