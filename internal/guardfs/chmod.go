package guardfs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Chmod sets the permission bits of what name leads to and, with recursive, of
// everything below it; links in the tree are left alone. A tree with a denied
// entry is refused before anything is changed. changed counts the entries whose
// mode is another now.
func (g *Guard) Chmod(ctx context.Context, name string, mode uint32, recursive bool) (real string, changed int, err error) {
	err = g.at(name, policy.Write, target, func(p *place) error {
		real = p.path
		if p.why != nil {
			return missing("chmod", p.path, p.why)
		}
		if err := p.allowsLinks(); err != nil {
			return err
		}
		deep := recursive && p.kind() == Directory
		if deep && (g.rules.HasDeny() || g.rules.DenyHardlinks) {
			if err := p.judgeTree(ctx, p.checkChmod); err != nil {
				return err
			}
		}
		if deep {
			if err := p.chmodBelow(ctx, mode, &changed); err != nil {
				return err
			}
		}
		return chmodOne(p.dir, p.name, p.path, &p.st, mode, &changed)
	})
	return real, changed, err
}

// checkChmod refuses files with several names where the rules say so.
func (p *place) checkChmod(e *Entry) error {
	if !p.g.rules.DenyHardlinks || e.kind != File {
		return nil
	}
	if err := e.look(); err != nil {
		return failure("chmod", e.Path(), err)
	}
	return p.g.allowsLinks(&e.st)
}

// chmodBelow changes everything in the directory at the place. A directory is
// changed after its content, so that taking rights away does not stop the work,
// but before it where that lets us in.
func (p *place) chmodBelow(ctx context.Context, mode uint32, changed *int) error {
	letIn(p.dir, p.name, p.path, &p.st, mode, changed)
	d, err := p.openRaw()
	if err != nil {
		return err
	}
	w := &walker{top: d, opt: WalkOptions{raw: true, Stat: true}, visit: func(e *Entry) error {
		if e.kind == Directory {
			letIn(e.dir.fd, e.name, e.Path(), &e.st, mode, changed)
		}
		return nil
	}}
	defer w.close()
	var unread error
	w.opt.Failed = func(_ string, err error) { unread = err }
	w.opt.leave = func(e *Entry) error {
		if unread != nil {
			return unread
		}
		if e.kind == Symlink || isTemp(e.name) {
			return nil
		}
		err := chmodOne(e.dir.fd, e.name, e.Path(), &e.st, mode, changed)
		if errors.Is(err, errMoved) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	return w.run(ctx)
}

// letIn gives a directory its new mode at once if it is closed to us and the
// mode may open it. What goes wrong is seen when it is opened.
func letIn(dir int, name, path string, st *unix.Stat_t, mode uint32, changed *int) {
	const in = unix.R_OK | unix.X_OK
	if mode&0o555 == 0 || unix.Faccessat(dir, name, in, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) == nil {
		return
	}
	if chmodOne(dir, name, path, st, mode, changed) == nil {
		st.Mode = st.Mode&^0o7777 | mode
	}
}

func chmodOne(dir int, name, path string, st *unix.Stat_t, mode uint32, changed *int) error {
	if st.Mode&0o7777 == mode {
		return nil
	}
	err := chmodAt(dir, name, mode)
	switch {
	case err == nil:
		*changed++
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EOPNOTSUPP):
		return errMoved // a link by now
	}
	return failure("chmod", path, err)
}
