package watch

import (
	"io/fs"
	"time"
)

// tree is a listener's model of what it watches. All of it belongs to the
// listener's goroutine.
type tree struct {
	name string // absolute; where the root is found again
	opt  Options
	in   *instance // nil: all is polled
	box  *inbox
	q    *queue
	stop <-chan struct{}

	root   *node
	above  int32 // the watch of the directory above; 0: none
	places places
	blind  map[*node]struct{} // without a watch, so polled
	moves  map[uint32]*move
	work   []task
	sight  sight

	now   int64 // the time of what is being told
	mute  bool  // arming: the model learns, nobody is told
	dead  bool  // stopped: nobody listens any more
	gone  bool  // the root
	moved bool  // the root, under a new name
	deep  bool  // scans go into known directories too
	again bool  // something could not be looked at: scan all at the next poll
	short bool  // no more watches in this pass
	said  bool  // that watches ran out

	nextPoll, nextTick time.Time
}

// move is the first half of a rename, waiting for the second.
type move struct {
	path        string
	hidden      bool  // the old name was not one of ours: a temporary file, say
	node        *node // the directory that was moved, if it had been entered
	held        []int32
	first, last uint64 // its Deleted events in the queue, with Options.Renames
	since       time.Time
}

// source is where a new entry came from.
type source struct {
	path        string // its old name; empty: unknown
	hidden      bool
	arrived     bool   // by a rename
	node        *node  // what was known of the old directory
	owner       *node  // the directory, of those known before, that had it,
	base        string // under this name
	renamed     bool   // told as Renamed, so the old names need no Deleted
	first, last uint64
}

// below is the source of an entry in a directory that came from s.
func (s *source) below(name string) *source {
	if s == nil || s.node == nil {
		return nil
	}
	if _, known := s.node.names[name]; !known {
		return nil
	}
	return &source{
		path: join(s.path, name), node: s.node.subs[name],
		owner: s.node, base: name, renamed: s.renamed,
	}
}

// see takes note of what is under a name now.
func (t *tree) see(n *node, dir, name string, l look, from *source) {
	verdict := t.judge(dir, name, l.typ)
	isDirectory := l.typ.IsDir()
	lost := l.typ&fs.ModeIrregular != 0
	old, known := n.names[name]
	if known && lost && (from == nil || !from.arrived || old.dir() != isDirectory) {
		return // the event that took it away is on its way
	}
	if known && (verdict&Report == 0 || old.dir() != isDirectory) || n.subs[name] != nil && !isDirectory {
		t.vanish(n, dir, name)
		known = false
	}
	path := join(dir, name)
	replaced := false
	if sub := n.subs[name]; sub != nil && sub.id != l.identity && !lost {
		t.clear(n, name, path)
		replaced = true
	}
	switch {
	case verdict&Report == 0:
	case !known:
		n.remember(name, l.print)
		t.created(path, isDirectory, from)
	default:
		t.compare(n, name, path, old, l, from, replaced)
	}
	t.enter(n, name, l, verdict, from)
}

// compare reports a known entry if it is another now.
func (t *tree) compare(n *node, name, path string, old print, l look, from *source, replaced bool) {
	arrived := from != nil && from.arrived
	if l.typ&fs.ModeIrregular == 0 {
		n.names[name] = l.print
	}
	changed := !old.same(l.print)
	if l.typ.IsDir() && !arrived {
		// Its time changes with each entry that comes or goes.
		changed = false
	}
	if t.opt.Raw && arrived && old&found == 0 {
		changed = true // the kernel's word, whatever the entry looks like
	}
	if !changed && !replaced {
		return
	}
	switch {
	case !t.opt.Raw:
		t.tell(Event{Kind: Modified, Path: path, Dir: l.typ.IsDir()})
	case arrived && !from.hidden:
		t.tell(Event{Op: OpCreate, Path: path, Dir: l.typ.IsDir()})
	default:
		t.tell(Event{Op: OpWrite, Path: path, Dir: l.typ.IsDir()})
	}
}

// enter puts a directory on the list of those to be scanned.
func (t *tree) enter(n *node, name string, l look, verdict Verdict, from *source) {
	sub := n.subs[name]
	if !t.opt.Recursive || verdict&Enter == 0 || !l.typ.IsDir() || l.typ&fs.ModeIrregular != 0 {
		if sub != nil {
			t.clear(n, name, join(n.path(), name))
		}
		return
	}
	if sub == nil {
		if n.inside(l.identity) {
			return
		}
		t.work = append(t.work, task{n.graft(name, l.identity), from})
	} else if t.deep {
		t.work = append(t.work, task{sub, nil})
	}
}

func (t *tree) judge(dir, name string, typ fs.FileMode) Verdict {
	if t.opt.Filter == nil {
		return Pass
	}
	return t.opt.Filter(dir, name, typ)
}

// vanish takes an entry, with all that was known in it, out of the model.
func (t *tree) vanish(n *node, dir, name string) {
	path := join(dir, name)
	t.clear(n, name, path)
	if old, known := n.names[name]; known {
		delete(n.names, name)
		t.deleted(path, old.dir())
	}
}

// clear takes what is in a directory out of the model.
func (t *tree) clear(n *node, name, path string) {
	sub := n.subs[name]
	if sub == nil {
		return
	}
	delete(n.subs, name)
	for path, dir := range sub.entries(path) {
		t.deleted(path, dir)
	}
	t.release(t.detach(sub))
}

// detach makes the events of n and all below it mean nothing. The watches it
// returns are still held, so that they outlive a move.
func (t *tree) detach(n *node) (held []int32) {
	for sub := range n.nodes() {
		sub.off = true
		delete(t.blind, sub)
		if wd := t.places.remove(sub); wd != 0 {
			held = append(held, wd)
		}
	}
	return held
}

func (t *tree) release(held []int32) {
	for _, wd := range held {
		t.in.unsubscribe(t.box, wd, "")
	}
}

func (t *tree) created(path string, dir bool, from *source) {
	if t.opt.Raw {
		t.tell(Event{Op: OpCreate, Path: path, Dir: dir})
		if from != nil && from.hidden {
			// A finished upload under a new name: there is content.
			t.tell(Event{Op: OpWrite, Path: path, Dir: dir})
		}
		return
	}
	e := Event{Kind: Created, Path: path, Dir: dir}
	if from != nil && from.path != "" {
		e.Old = from.path
		if from.last != 0 && t.q.retract(from.first, from.last, from.path) {
			from.renamed = true
		}
		if from.renamed {
			e.Kind = Renamed
			if from.owner != nil {
				delete(from.owner.names, from.base)
			}
		}
	}
	t.tell(e)
}

func (t *tree) deleted(path string, dir bool) {
	if t.opt.Raw {
		t.tell(Event{Op: OpRemove, Path: path, Dir: dir})
		return
	}
	t.tell(Event{Kind: Deleted, Path: path, Dir: dir})
}

// overflow says aloud that something may have been missed.
func (t *tree) overflow(why Reason) {
	t.tell(Event{Kind: Overflow, Reason: why})
}

// tell gives an event to the reader, waiting for room if it must, and returns
// its number in the queue.
func (t *tree) tell(e Event) uint64 {
	if t.mute || t.dead {
		return 0
	}
	e.Time = time.Unix(0, t.now)
	n, ok := t.q.push(e)
	if !ok {
		t.dead = true
	}
	return n
}
