package host

import (
	"cmp"
	"slices"
	"strings"
)

// Package is one installed package.
type Package struct {
	Name, Version string
	Arch          string // where its manager tells architectures apart
}

// Packages is what a manager has installed.
type Packages struct {
	List      []Package
	Truncated bool // there are more
}

const (
	mostPackages = 50_000
	// mostEntries bounds the names that are read of one folder.
	mostEntries = 200_000
	// longestText bounds a name or version; longer is no package.
	longestText = 512
)

// add appends a package that has a name and a version; it is false when the
// list is full.
func (p *Packages) add(pkg Package) bool {
	if !proper(pkg.Name) || !proper(pkg.Version) {
		return true
	}
	if len(p.List) >= mostPackages {
		p.Truncated = true
		return false
	}
	p.List = append(p.List, pkg)
	return true
}

func proper(s string) bool { return s != "" && len(s) <= longestText }

// sorted orders the list by name, then architecture, leaves the order of
// versions as it is, and drops what is there twice.
func (p Packages) sorted() Packages {
	slices.SortStableFunc(p.List, func(a, b Package) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Arch, b.Arch))
	})
	p.List = slices.Compact(p.List)
	return p
}
