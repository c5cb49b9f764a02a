package browser

import (
	"maps"
	"slices"
)

// refs are the elements that snapshots have named, until the page is another
// one. An element keeps its name.
type refs struct {
	byNode map[int]int // backend node id → N of eN
	nodes  []int       // backend node ids, that of e1 first
}

// name is N of eN for an element.
func (r *refs) name(node int) int {
	if n, ok := r.byNode[node]; ok {
		return n
	}
	if r.byNode == nil {
		r.byNode = map[int]int{}
	}
	r.nodes = append(r.nodes, node)
	r.byNode[node] = len(r.nodes)
	return len(r.nodes)
}

// clone is a copy that can be added to on its own.
func (r *refs) clone() refs { return refs{maps.Clone(r.byNode), slices.Clone(r.nodes)} }
