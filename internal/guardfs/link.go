package guardfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Symlink makes a link with the given text, and its missing parents. Its own
// place is judged for writing; where the text leads is the caller's to judge,
// for instance by [Guard.Check]. A name that is taken is [ErrAlreadyExists].
func (g *Guard) Symlink(text, name string) (real string, err error) {
	err = g.at(name, policy.Write, selfOnly, func(p *place) error {
		real = p.path
		return p.makeNew(func() error { return unix.Symlinkat(text, p.dir, p.name) })
	})
	return real, err
}

// Link gives the regular file old a second name. Both are judged, old as if it
// were written, since it can be through the new name. A name that is taken is
// [ErrAlreadyExists].
func (g *Guard) Link(old, name string) (real string, err error) {
	err = g.at(old, policy.Write, target, func(from *place) error {
		if from.why != nil {
			return missing("link", from.path, from.why)
		}
		if err := mustBeFile(from.path, &from.st); err != nil {
			return err
		}
		if g.rules.DenyHardlinks {
			return refuse(policy.PathDenied, "Hard links are not allowed")
		}
		err := g.at(name, policy.Write, selfOnly, func(p *place) error {
			real = p.path
			return p.makeNew(func() error { return p.linkTo(from) })
		})
		return err
	})
	return real, err
}

// linkTo links the place to a file, if that is still the one that was judged.
func (p *place) linkTo(from *place) error {
	if err := unix.Linkat(from.dir, from.name, p.dir, p.name, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := lstatAt(p.dir, p.name, &st); err == nil && (st.Ino != from.st.Ino || st.Dev != from.st.Dev) {
		_ = unix.Unlinkat(p.dir, p.name, 0)
		return errMoved
	}
	return nil
}

// makeNew makes something of a name that is free.
func (p *place) makeNew(mk func() error) error {
	if p.why == nil {
		return pathError("create", p.path, ErrAlreadyExists)
	}
	made, err := p.prepare(false)
	if err != nil {
		return err
	}
	if p.why == nil {
		err = unix.EEXIST
	} else {
		err = mk()
	}
	made.finish(err == nil)
	switch {
	case errors.Is(err, unix.EEXIST):
		err = ErrAlreadyExists
	case errors.Is(err, unix.ENOENT):
		return errMoved
	}
	return writing("create", p.path, err)
}
