package policy

import (
	"path"
	"slices"
	"strings"
)

// A denyList is the compiled form of paths.deny.
type denyList struct {
	fold       bool
	everything bool
	components []Glob     // patterns without a slash: any component
	trees      []denyTree // the others: a path and all below it
}

type denyTree struct {
	// glob is anchored at the root of the file system. A pattern for any depth
	// has a star and a slash in front, which is the same: stars cross slashes.
	glob Glob
	// last is what the last component must be, when that is plain text.
	last string
}

func compileDeny(patterns []string, folding bool) *denyList {
	d := &denyList{fold: folding}
	for _, p := range patterns {
		d.add(p)
	}
	return d
}

func (d *denyList) add(pattern string) {
	if pattern == "" {
		return // denies nothing; lint says so
	}
	p := strings.TrimRight(pattern, "/")
	if p == "" {
		d.everything = true
		return
	}
	// Brackets may hold slashes and dots that are no path syntax.
	if strings.Contains(p, "/") && !strings.Contains(p, "[") {
		p = path.Clean(p)
	}
	for strings.HasPrefix(p, "**/") {
		p = strings.TrimLeft(p[len("**/"):], "/")
	}
	switch {
	case p == "/":
		d.everything = true
		return
	case !strings.Contains(p, "/"):
		d.components = append(d.components, compileGlob(p, d.fold))
		return
	}
	t := denyTree{}
	if last := p[strings.LastIndexByte(p, '/')+1:]; !strings.ContainsAny(p, "[") && !strings.ContainsAny(last, "*?") {
		t.last = last
		if d.fold {
			t.last = fold(last)
		}
	}
	if !strings.HasPrefix(p, "/") {
		p = "*/" + p
	}
	t.glob = compileGlob(p, d.fold)
	d.trees = append(d.trees, t)
}

// matches tells whether the absolute path p or an ancestor of it is denied.
func (d *denyList) matches(p string) bool {
	if d.everything {
		return true
	}
	if d.fold {
		p = fold(p)
	}
	if len(d.components) > 0 {
		for name := range strings.SplitSeq(p, "/") {
			if name != "" && d.matchesName(name) {
				return true
			}
		}
	}
	return slices.ContainsFunc(d.trees, func(t denyTree) bool { return t.glob.matchAncestor(p) })
}

// matchesEntry tells whether dir/name is denied, knowing that dir is not.
func (d *denyList) matchesEntry(dir, name string) bool {
	if d.everything {
		return true
	}
	if d.fold {
		name = fold(name)
	}
	if d.matchesName(name) {
		return true
	}
	full := ""
	for _, t := range d.trees {
		if t.last != "" && t.last != name {
			continue
		}
		if full == "" { // made at most once, and mostly never
			if d.fold {
				dir = fold(dir)
			}
			full = strings.TrimSuffix(dir, "/") + "/" + name
		}
		if t.glob.Match(full) {
			return true
		}
	}
	return false
}

func (d *denyList) matchesName(name string) bool {
	return slices.ContainsFunc(d.components, func(g Glob) bool { return g.Match(name) })
}
