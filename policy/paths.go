package policy

import (
	"path"
	"slices"
	"strings"
)

// Root is an allowed directory: as written, and with its links resolved.
// Both are absolute and lexically clean.
type Root struct{ Lexical, Real string }

// Roots are the allowed directories of a call.
type Roots []Root

// Contains tells whether a real path is a real root or lies below one.
func (r Roots) Contains(real string) bool {
	return slices.ContainsFunc(r, func(root Root) bool { return within(root.Real, real) })
}

// IsRoot tells whether p is a root, by its text or with its links resolved.
func (r Roots) IsRoot(p string) bool {
	return slices.ContainsFunc(r, func(root Root) bool { return p == root.Real || p == root.Lexical })
}

// HoldsRoot tells whether p is a root or has one below it, so that removing p
// would remove a root.
func (r Roots) HoldsRoot(p string) bool {
	return slices.ContainsFunc(r, func(root Root) bool { return within(p, root.Real) || within(p, root.Lexical) })
}

// Of returns the first root that holds the real path.
func (r Roots) Of(real string) (Root, bool) {
	i := slices.IndexFunc(r, func(root Root) bool { return within(root.Real, real) })
	if i < 0 {
		return Root{}, false
	}
	return r[i], true
}

// names tells whether the cleaned path lies in a root by its text alone.
func (r Roots) names(clean string) bool {
	return slices.ContainsFunc(r, func(root Root) bool {
		return within(root.Lexical, clean) || within(root.Real, clean)
	})
}

// linkFree tells whether clean leads to real without a link below a root.
// Links in the root's own prefix are fine.
func (r Roots) linkFree(clean, real string) bool {
	return slices.ContainsFunc(r, func(root Root) bool {
		if !within(root.Real, real) {
			return false
		}
		rel := strings.TrimPrefix(real[len(root.Real):], "/")
		return clean == real || clean == path.Join(root.Lexical, rel)
	})
}

// within tells whether p is dir or below it, by whole components.
func within(dir, p string) bool {
	if !strings.HasPrefix(p, dir) || dir == "" {
		return false
	}
	return len(p) == len(dir) || p[len(dir)] == '/' || dir == "/"
}

// systemTrees are closed whatever the rules say: they lead to other processes
// and to devices.
var systemTrees = []string{"/proc", "/sys", "/dev"}

// InSystemTree tells whether a clean absolute path is /proc, /sys or /dev or
// lies below.
func InSystemTree(p string) bool {
	return slices.ContainsFunc(systemTrees, func(tree string) bool { return within(tree, p) })
}

// PathRules are the compiled path rules of one endpoint. Make them with
// [NewPathRules]; the zero PathRules have the built-in ones only. They are not
// to be changed and safe for concurrent use.
type PathRules struct {
	Allow         []string // lexical roots as configured; empty means the base directory
	Deny          []string
	ReadOnly      bool
	SymlinksNever bool
	DenyHardlinks bool

	deny   *denyList // nil: not compiled yet
	memory bool      // /dev/shm is no device
}

// NewPathRules compiles path rules. The lists are kept, not copied.
func NewPathRules(allow, deny []string, readOnly, symlinksNever, denyHardlinks bool) *PathRules {
	return &PathRules{
		Allow: allow, Deny: deny,
		ReadOnly: readOnly, SymlinksNever: symlinksNever, DenyHardlinks: denyHardlinks,
		deny: compileDeny(deny, false),
	}
}

// Folded returns the same rules for a file system that takes names differing
// by case only for one: deny patterns then compare without case. Composed and
// decomposed spellings stay different.
func (r *PathRules) Folded() *PathRules {
	folded := *r
	folded.deny = compileDeny(r.Deny, true)
	return &folded
}

// sharedMemory is a file system below /dev that programs keep files in.
const sharedMemory = "/dev/shm"

// WithSharedMemory returns the same rules with /dev/shm open, where they admit
// it.
func (r *PathRules) WithSharedMemory() *PathRules {
	open := *r
	open.memory = true
	return &open
}

// Decide judges one path. clean is absolute and lexically clean, real is the
// same with all links resolved (a tail that does not exist kept as text).
//
// The first that applies answers: [PathNotAllowed] when clean lies in no root
// by its text, so that nothing about links outside can be learned;
// PathNotAllowed when real lies in no root; [SymlinkDenied]; [PathDenied] when
// a deny pattern or a system tree holds either path or an ancestor of either;
// [ReadOnlyPath].
func (r *PathRules) Decide(clean, real string, roots []Root, op Op) Decision {
	if !Roots(roots).names(clean) || !Roots(roots).Contains(real) {
		return Refuse(PathNotAllowed, "Path is outside the allowed directories")
	}
	if r.SymlinksNever && !Roots(roots).linkFree(clean, real) {
		return Refuse(SymlinkDenied, "Path leads through a symbolic link")
	}
	if r.denies(real) || clean != real && r.denies(clean) {
		return Refuse(PathDenied, "Path is denied by policy")
	}
	if r.ReadOnly && (op == Write || op == Delete) {
		return Refuse(ReadOnlyPath, "Path is read-only")
	}
	return Allow()
}

// HasDeny tells whether the rules have deny patterns of their own.
func (r *PathRules) HasDeny() bool { return len(r.Deny) > 0 }

// DeniesEntry tells whether the entry name of dir, a real path that was
// admitted, is denied: the cheap question of a tree walk. It looks at what
// the entry adds; that dir and its ancestors are fine is taken as known.
func (r *PathRules) DeniesEntry(dir, name string) bool {
	if dir == "/" && slices.Contains(systemTrees, "/"+name) {
		return true
	}
	return r.compiled().matchesEntry(dir, name)
}

// denies tells whether p or an ancestor of it is denied.
func (r *PathRules) denies(p string) bool {
	return InSystemTree(p) && (!r.memory || !within(sharedMemory, p)) || r.compiled().matches(p)
}

// compiled makes rules that were written as a literal work all the same:
// a deny list must never be lost.
func (r *PathRules) compiled() *denyList {
	if r.deny == nil {
		return compileDeny(r.Deny, false)
	}
	return r.deny
}
