package watch

import (
	"iter"
	"maps"
	"slices"
)

// node is a directory of the tree, as its reader was told of it.
type node struct {
	parent *node
	name   string
	id     identity
	wd     int32 // its watch; 0: none
	twin   *node // the same directory at another place of the tree (bind mounts)
	names  map[string]print
	subs   map[string]*node // the directories that were entered, reported or not
	off    bool             // no longer part of the tree
}

// path is relative to the root.
func (n *node) path() string {
	if n.parent == nil {
		return "."
	}
	return join(n.parent.path(), n.name)
}

func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// inside says whether id is n or a directory above it: a loop.
func (n *node) inside(id identity) bool {
	for ; n != nil; n = n.parent {
		if n.id == id {
			return true
		}
	}
	return false
}

// remember and graft make the maps when first needed: most directories of a
// large tree have no directories, and many are empty.
func (n *node) remember(name string, p print) {
	if n.names == nil {
		n.names = map[string]print{}
	}
	n.names[name] = p
}

func (n *node) graft(name string, id identity) *node {
	sub := &node{parent: n, name: name, id: id}
	if n.subs == nil {
		n.subs = map[string]*node{}
	}
	n.subs[name] = sub
	return sub
}

// entries are the names below n in reverse order, what is in a directory
// before the directory, so that they can be reported as deleted one by one.
func (n *node) entries(dir string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) { n.walk(dir, yield) }
}

func (n *node) walk(dir string, yield func(string, bool) bool) bool {
	all := slices.Collect(maps.Keys(n.names))
	for name := range n.subs {
		if _, known := n.names[name]; !known {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	for _, name := range slices.Backward(all) {
		path := join(dir, name)
		if sub := n.subs[name]; sub != nil && !sub.walk(path, yield) {
			return false
		}
		if p, known := n.names[name]; known && !yield(path, p.dir()) {
			return false
		}
	}
	return true
}

// nodes are n and all below it.
func (n *node) nodes() iter.Seq[*node] {
	return func(yield func(*node) bool) { n.visit(yield) }
}

func (n *node) visit(yield func(*node) bool) bool {
	if !yield(n) {
		return false
	}
	for _, sub := range n.subs {
		if !sub.visit(yield) {
			return false
		}
	}
	return true
}

// places says which nodes a watch is about.
type places map[int32]*node

func (p places) add(n *node, wd int32) {
	n.wd, n.twin = wd, p[wd]
	p[wd] = n
}

// remove forgets n's watch and returns its number.
func (p places) remove(n *node) int32 {
	wd := n.wd
	if wd == 0 {
		return 0
	}
	if p[wd] == n {
		if n.twin == nil {
			delete(p, wd)
		} else {
			p[wd] = n.twin
		}
	} else {
		for at := p[wd]; at != nil; at = at.twin {
			if at.twin == n {
				at.twin = n.twin
				break
			}
		}
	}
	n.wd, n.twin = 0, nil
	return wd
}

// of are the nodes of a watch; the caller may remove them meanwhile.
func (p places) of(wd int32) []*node {
	var all []*node
	for n := p[wd]; n != nil; n = n.twin {
		all = append(all, n)
	}
	return all
}
