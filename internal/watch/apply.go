package watch

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// apply takes one change of the kernel into the model.
func (t *tree) apply(c change) {
	t.now = c.at
	for _, n := range t.places.of(c.wd) {
		if n.wd != c.wd {
			continue // went while its twin was looked at
		}
		if c.name == "" {
			t.self(n, c)
			continue
		}
		dir := n.path()
		switch {
		case c.is(unix.IN_CREATE):
			t.create(n, dir, c)
		case c.is(unix.IN_DELETE):
			t.vanish(n, dir, c.name)
		case c.is(unix.IN_MOVED_FROM):
			t.depart(n, dir, c)
		case c.is(unix.IN_MOVED_TO):
			t.arrive(n, dir, c)
		default:
			t.touch(n, dir, c)
		}
		t.run()
	}
}

func (t *tree) create(n *node, dir string, c change) {
	if _, known := n.names[c.name]; known && t.opt.Raw && !c.is(unix.IN_ISDIR) {
		return // the scan was faster
	}
	t.see(n, dir, c.name, t.find(n, dir, c), nil)
}

// find looks at the entry a change is about. If it has gone since, or is of
// another type now, later events say so; the change still happened.
func (t *tree) find(n *node, dir string, c change) look {
	if at, ok := t.at(n, dir); ok {
		if l, err := lookAt(at, c.name); err == nil && l.typ.IsDir() == c.is(unix.IN_ISDIR) {
			return l
		}
	}
	return gone(c.is(unix.IN_ISDIR))
}

// touch takes note of changed content or attributes.
func (t *tree) touch(n *node, dir string, c change) {
	old, known := n.names[c.name]
	if !known {
		return
	}
	path := join(dir, c.name)
	if t.opt.Raw {
		switch {
		case c.is(unix.IN_ATTRIB):
			t.tell(Event{Op: OpChmod, Path: path, Dir: old.dir()})
		case c.is(unix.IN_MODIFY):
			t.tell(Event{Op: OpWrite, Path: path, Dir: old.dir()})
		}
	}
	l := t.find(n, dir, c)
	if l.typ&fs.ModeIrregular == 0 && l.typ.IsDir() == old.dir() {
		n.names[c.name] = l.print
		if !t.opt.Raw && !old.same(l.print) {
			t.tell(Event{Kind: Modified, Path: path, Dir: old.dir()})
		}
	}
	if sub := n.subs[c.name]; sub != nil && sub.wd == 0 && t.in != nil {
		t.work = append(t.work, task{sub, nil}) // it may have become readable
	}
}

// depart is the first half of a rename.
func (t *tree) depart(n *node, dir string, c change) {
	old, known := n.names[c.name]
	sub := n.subs[c.name]
	m := &move{path: join(dir, c.name), node: sub, hidden: !known && sub == nil, since: time.Now()}
	if before := t.moves[c.cookie]; before != nil {
		t.release(before.held)
	}
	t.moves[c.cookie] = m
	if sub != nil {
		delete(n.subs, c.name)
		if !t.opt.Raw {
			for path, dir := range sub.entries(m.path) {
				m.note(t.tell(Event{Kind: Deleted, Path: path, Dir: dir}))
			}
		}
		m.held = t.detach(sub)
	}
	if !known {
		return
	}
	delete(n.names, c.name)
	if t.opt.Raw {
		t.tell(Event{Op: OpRename, Path: m.path, Dir: old.dir()})
		return
	}
	m.note(t.tell(Event{Kind: Deleted, Path: m.path, Dir: old.dir()}))
}

func (m *move) note(number uint64) {
	if m.first == 0 {
		m.first = number
	}
	m.last = number
}

// arrive is the second half of a rename, or an entry from outside the tree.
func (t *tree) arrive(n *node, dir string, c change) {
	from := &source{arrived: true}
	m := t.moves[c.cookie]
	if m != nil {
		delete(t.moves, c.cookie)
		// The watches are let go when the scan has taken them again.
		defer t.release(m.held)
		from.hidden, from.node = m.hidden, m.node
		if !m.hidden {
			from.path = m.path
		}
		if t.opt.Renames {
			from.first, from.last = m.first, m.last
		}
	}
	// A directory is scanned afresh under its new name: the filter may judge
	// it otherwise there.
	t.see(n, dir, c.name, t.find(n, dir, c), from)
	t.run()
	if from.renamed && from.node != nil {
		for path, dir := range from.node.entries(from.path) {
			t.deleted(path, dir) // was known in the old directory and is not in the new
		}
	}
}

// expire gives up on renames whose second half led outside.
func (t *tree) expire(now time.Time) {
	for cookie, m := range t.moves {
		if now.Sub(m.since) >= moveWait {
			delete(t.moves, cookie)
			t.release(m.held)
		}
	}
}

// self is a change of a watched directory itself. For all but the root the
// directory above has told already, or will.
func (t *tree) self(n *node, c change) {
	if c.is(unix.IN_MOVE_SELF) && n == t.root {
		t.moved = true
	}
	if c.is(unix.IN_ATTRIB) && n == t.root && t.opt.Raw {
		t.tell(Event{Op: OpChmod, Path: ".", Dir: true})
	}
	if c.is(unix.IN_IGNORED) {
		// Removed, or unmounted: then something else is under its name.
		t.places.remove(n)
		t.blind[n] = struct{}{}
		if soon := time.Now().Add(moveWait); t.nextPoll.After(soon) {
			t.nextPoll = soon
		}
	}
}
