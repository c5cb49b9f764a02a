package guardfs

import (
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// FS is the server's one way to files. It is safe for concurrent use. Roots
// are looked up anew by every call, so they may be created, replaced or
// mounted over at any time.
type FS struct {
	base    func() string
	workdir string

	slash    int   // O_PATH descriptor of "/", where the kernel's walks begin
	slashErr error // why there is none
	walkOnly bool  // without openat2
	umask    uint32

	users, groups nameTable
	temps         sync.Map // names of our unfinished files
	locks         pathLocks
	turns         turns
	folds         sync.Map // root → folded
}

// New makes an FS. base tells the directory that counts as root where rules
// name none; workdir is where relative names start when it lies inside. Both
// are absolute. The caller closes the FS when no call uses it any more.
func New(base func() string, workdir string) *FS {
	f := &FS{
		base: base, workdir: path.Clean(workdir), walkOnly: !haveOpenat2(), umask: currentUmask(),
		users: nameTable{file: "/etc/passwd"}, groups: nameTable{file: "/etc/group"},
	}
	f.slash, f.slashErr = openAt(unix.AT_FDCWD, "/", asDir, 0)
	return f
}

// Close gives back what the FS holds. Guards must not be used after it.
func (f *FS) Close() error {
	if f.slashErr != nil {
		return nil
	}
	f.slashErr = unix.EBADF
	return unix.Close(f.slash)
}

// Guard is one call's view of the files: the path rules of one endpoint. It is
// not safe for concurrent use.
type Guard struct {
	fs    *FS
	rules *policy.PathRules
	lex   []string // lexical roots
	saw   func(path string, op policy.Op, d policy.Decision)
	cased bool // whether the roots fold case was looked up
}

// Guard makes the view of an endpoint. base is the policy's own base directory
// or "". saw, if not nil, is told of every decision about a name that a call
// gave (not of the entries of trees): the resolved path when it was admitted,
// else the cleaned one. A nil rules means the built-in ones.
func (f *FS) Guard(rules *policy.PathRules, base string, saw func(path string, op policy.Op, d policy.Decision)) *Guard {
	if rules == nil {
		rules = &policy.PathRules{}
	}
	g := &Guard{fs: f, rules: rules, saw: saw}
	for _, root := range rules.Allow {
		g.lex = append(g.lex, path.Clean(root))
	}
	if len(g.lex) == 0 {
		if base == "" {
			base = f.base()
		}
		g.lex = []string{path.Clean(base)}
	}
	return g
}

// roots resolves the roots as they are now.
func (g *Guard) roots() policy.Roots {
	roots := make(policy.Roots, len(g.lex))
	for i, lexical := range g.lex {
		real, _ := resolve(lexical, readLink)
		roots[i] = policy.Root{Lexical: lexical, Real: real}
	}
	return roots
}

// named finds the root that holds a clean path by its text alone.
func (g *Guard) named(clean string) (policy.Root, bool) {
	for _, root := range g.lex {
		if within(root, clean) {
			return policy.Root{Lexical: root, Real: root}, true
		}
	}
	return policy.Root{}, false
}

// absolute makes the name of a call absolute and clean.
func (g *Guard) absolute(name string) (string, error) {
	if err := checkName(name).Err(); err != nil {
		return "", err
	}
	if path.IsAbs(name) {
		return path.Clean(name), nil
	}
	return absolute(g.start(), name), nil
}

// start is where relative names begin: the first allowed root, or the working
// directory when it lies in the base directory, or the base directory.
func (g *Guard) start() string {
	root := g.roots()[0]
	if len(g.rules.Allow) > 0 {
		return root.Real
	}
	wd := g.fs.workdir
	if real, _ := resolve(wd, readLink); within(root.Lexical, wd) || within(root.Real, real) {
		return wd
	}
	return root.Real
}

// decide asks the rules, which compare without case where a root does.
func (g *Guard) decide(clean, real string, roots policy.Roots, op policy.Op) policy.Decision {
	if !g.cased {
		g.cased = true
		if g.rules.HasDeny() && g.fs.anyFolds(g.lex) {
			g.rules = g.rules.Folded()
		}
	}
	return g.rules.Decide(clean, real, roots, op)
}

// report tells the observer of a decision about a name of the call.
func (g *Guard) report(path string, op policy.Op, d policy.Decision) {
	if g.saw != nil {
		g.saw(path, op, d)
	}
}

// folded remembers what was found about a root, and about which directory.
type folded struct {
	dev, ino uint64
	yes      bool
}

// anyFolds tells whether a root takes names that differ by case for one.
func (f *FS) anyFolds(roots []string) bool {
	for _, root := range roots {
		var st unix.Stat_t
		if unix.Stat(root, &st) != nil {
			continue
		}
		known, _ := f.folds.Load(root)
		k, ok := known.(folded)
		if !ok || k.dev != uint64(st.Dev) || k.ino != st.Ino {
			k = folded{dev: uint64(st.Dev), ino: st.Ino}
			if fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0); err == nil {
				k.yes = foldsCase(fd)
				_ = unix.Close(fd)
			}
			f.folds.Store(root, k)
		}
		if k.yes {
			return true
		}
	}
	return false
}
