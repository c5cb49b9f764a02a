package guardfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// mode says which thing a name stands for when its last component is a link.
type mode uint8

const (
	target   mode = iota // what the link leads to
	itself               // the link; both it and what it leads to are judged
	selfOnly             // the link; only its own place is judged
)

// place is where a name leads: its directory, held open below a root and
// reached without a link, and the last component.
type place struct {
	g      *Guard
	dir    int        // O_PATH; -1 when the directory could not be pinned
	shared *sharedDir // whose descriptor dir is, if not the place's own
	name   string     // last component; "." for the root directory
	path   string     // what the rules were asked about; answers show it
	clean  string     // what the call named
	via    bool       // links were followed on the way
	loop   bool       // the name is a link that leads to itself

	why error        // why there is nothing to see, such as ENOENT; nil: st holds
	st  unix.Stat_t  // what is there, never of what a link leads to
	op  policy.Op    // what the call is about to do
	in  policy.Roots // the roots the rules were asked with
}

func (p *place) close() {
	switch {
	case p.dir < 0:
	case p.shared != nil:
		p.shared.leave()
	default:
		_ = unix.Close(p.dir)
	}
	p.dir, p.shared = -1, nil
}

func (p *place) kind() Kind { return kindOf(p.st.Mode) }

// look finds out once more what is at the place.
func (p *place) look() { p.why = lstatAt(p.dir, p.name, &p.st) }

// isLink tells that the place holds a link; after all links were followed that
// means that it was put there meanwhile.
func (p *place) isLink() bool { return p.why == nil && p.kind() == Symlink }

// at pins name, asks the rules, and lets act work on the place. act may say
// errMoved when it finds the place changed and has done nothing. The place is
// closed afterwards, unless act took its descriptor.
func (g *Guard) at(name string, op policy.Op, m mode, act func(*place) error) error {
	clean, err := g.absolute(name)
	if err != nil {
		g.reportErr(name, op, err)
		return err
	}
	for i := range looks {
		var p *place
		if p, err = g.take(clean, op, m); err == nil {
			if i == 0 {
				g.report(p.path, op, policy.Allow())
			}
			err = act(p)
			p.close()
		} else if !errors.Is(err, errMoved) {
			g.reportErr(clean, op, err)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
	}
	err = errSwapped()
	g.reportErr(clean, op, err)
	return err
}

func (g *Guard) reportErr(path string, op policy.Op, err error) {
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		g.report(path, op, d.Decision)
	}
}

// take looks once: it resolves a clean name, asks the rules and pins the
// place. The error is a refusal, or errMoved.
func (g *Guard) take(clean string, op policy.Op, m mode) (*place, error) {
	if root, ok := g.named(clean); ok {
		// Most names have no links: then one walk both shows that and pins.
		p := g.fs.pin(clean)
		if !errors.Is(p.why, unix.ELOOP) && !errors.Is(p.why, unix.ENAMETOOLONG) && (m == selfOnly || !p.isLink()) {
			p.g, p.clean, p.op, p.in = g, clean, op, policy.Roots{root}
			return p.judged(g.decide(clean, clean, p.in, op))
		}
		p.close()
	}
	return g.takeSlowly(clean, op, m)
}

// takeSlowly is take for names with links, and for those outside all roots.
func (g *Guard) takeSlowly(clean string, op policy.Op, m mode) (*place, error) {
	roots := g.roots()
	p, err := g.follow(clean, roots, op, m)
	if err != nil {
		return nil, err
	}
	if p.loop && m == target {
		_, p.name = split(p.path)
		p.why = unix.ELOOP
		return p, nil
	}
	pinned := g.fs.pin(p.path)
	if errors.Is(pinned.why, unix.ELOOP) || m == target && pinned.isLink() {
		pinned.close()
		return nil, errMoved
	}
	pinned.g, pinned.clean, pinned.via, pinned.loop, pinned.op, pinned.in = g, clean, true, p.loop, op, roots
	if m == itself && pinned.isLink() {
		if err := pinned.judgeLead(); err != nil {
			pinned.close()
			return nil, err
		}
	}
	return pinned.judged(policy.Allow())
}

// judgeLead judges where the link at the place leads. It was judged by name
// before it was pinned, and something else may have stood there then.
func (p *place) judgeLead() error {
	text, err := readLinkOf(p.dir, p.name, &p.st)
	if err != nil || text == "" {
		return errMoved
	}
	real, _ := resolve(p.path, func(at string) (string, bool) {
		if at == p.path {
			return text, true
		}
		return readLink(at)
	})
	return p.g.decide(p.clean, real, p.in, p.op).Err()
}

// follow resolves a clean name and asks the rules, without pinning anything.
func (g *Guard) follow(clean string, roots policy.Roots, op policy.Op, m mode) (*place, error) {
	if _, ok := g.named(clean); !ok && !roots.Contains(clean) {
		// No look at the disk: whether links outside lead back in is nobody's business.
		return nil, g.decide(clean, clean, roots, op).Err()
	}
	p := &place{g: g, clean: clean, path: clean, op: op, in: roots, dir: -1}
	if m != selfOnly {
		real, loop := resolve(clean, readLink)
		if err := g.decide(clean, real, roots, op).Err(); err != nil {
			return nil, err
		}
		if loop && g.rules.SymlinksNever {
			return nil, refuse(policy.SymlinkDenied, "Path leads through a symbolic link")
		}
		p.path, p.loop = real, loop
	}
	if m != target {
		dir, name := split(clean)
		dir, _ = resolve(dir, readLink)
		p.path = join(dir, name)
		if err := g.decide(clean, p.path, roots, op).Err(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// judged returns the place if the decision allows it and the kernel's own
// files are not in it.
func (p *place) judged(d policy.Decision) (*place, error) {
	err := d.Err()
	if err == nil && p.dir >= 0 && isKernelFS(p.dir) {
		err = errSystemTree()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// pin walks a path that holds no link and holds its directory open. why is
// ELOOP when it has links by now.
func (f *FS) pin(real string) *place {
	p := &place{path: real, dir: -1}
	dir, name := split(real)
	p.name = name
	if p.why = f.slashErr; p.why != nil {
		return p
	}
	p.dir, p.why = f.descend(f.slash, dir[1:], asDir)
	if p.why == nil {
		p.look()
	}
	return p
}

// Check decides about a name without doing anything: the resolved path, or the
// refusal that a call would get. It tells nothing about what exists. For
// [policy.Delete] the roots themselves are refused, as deleting them is.
func (g *Guard) Check(name string, op policy.Op) (real string, err error) {
	clean, err := g.absolute(name)
	if err != nil {
		g.reportErr(name, op, err)
		return "", err
	}
	m := target
	if op == policy.Delete {
		m = itself
	}
	roots := g.roots()
	p, err := g.follow(clean, roots, op, m)
	if err == nil && op == policy.Delete && roots.HoldsRoot(p.path) {
		err = errRoot()
	}
	if err != nil {
		g.reportErr(clean, op, err)
		return "", err
	}
	g.report(p.path, op, policy.Allow())
	return p.path, nil
}

func errRoot() error {
	return refuse(policy.PathDenied, "An allowed directory itself cannot be removed or moved")
}
