package guardfs

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// WalkOptions say how far a walk goes. The zero value visits the whole tree in
// pre-order.
type WalkOptions struct {
	Depth    int    // levels; 1 is the directory itself; 0: no bound
	Max      int    // entries visited; 0: no bound; negative: none
	After    string // a Next of an earlier walk: go on behind it; not with Breadth
	NoHidden bool   // leave out names that begin with a dot, and what is below
	Stat     bool   // look at every entry before its visit; what vanished is left out
	Breadth  bool   // level by level instead of pre-order

	// Enter, if set, is called with every directory that was opened, the first
	// included, before its entries are visited. The Dir is valid until its last
	// entry was visited. [fs.SkipDir] leaves the entries out.
	Enter func(*Dir) error
	// Failed, if set, is told of directories that could not be read; they
	// count as empty.
	Failed func(path string, err error)

	raw   bool               // see Dir.raw; unreadable directories go to leave
	leave func(*Entry) error // called when everything below the entry was visited
}

// WalkResult tells where a walk went and how to go on.
type WalkResult struct {
	Path      string // the resolved directory
	Truncated bool   // Max was reached and there was more
	Next      string // for WalkOptions.After, when Truncated; "" where nothing was visited
}

const (
	batchNames = 1 << 14 // names of a directory held at once
	heldDirs   = 48      // descriptors one walk keeps open
)

// Walk visits the entries below a directory, never following a link. Names
// ascend by bytes within each directory. visit may return [fs.SkipDir] to stay
// out of a directory and [fs.SkipAll] to end the walk; every other error ends
// it and is returned, as is that of ctx. Entries that the rules refuse are left out.
// A name that is no directory is reported as not existing. A directory whose
// path is far longer than any call can give counts as one that could not be read.
func (g *Guard) Walk(ctx context.Context, name string, opt WalkOptions, visit func(*Entry) error) (WalkResult, error) {
	after, err := parseCursor(opt.After)
	if err != nil {
		return WalkResult{}, err
	}
	var root *Dir
	var res WalkResult
	err = g.at(name, policy.Read, target, func(p *place) error {
		res.Path = p.path
		var err error
		root, err = p.open()
		switch {
		case errors.Is(err, ErrNotDirectory):
			err = pathError("open", p.path, unix.ENOENT)
		case err != nil && p.why == nil && errors.Is(err, fs.ErrPermission) && !policy.IsDenied(err):
			opt.failed(p.path, err)
			err = nil
		}
		return err
	})
	if err != nil || root == nil {
		return res, err
	}
	w := &walker{opt: opt, visit: visit, top: root, cursor: after}
	defer w.close()
	err = w.run(ctx)
	if err == nil && w.truncated {
		res.Truncated, res.Next = true, cursor(w.last)
	}
	return res, err
}

func (o *WalkOptions) failed(path string, err error) {
	if o.Failed != nil {
		o.Failed(path, err)
	}
}

// cursor hides where a walk stopped; names need not be text.
func cursor(rel string) string {
	if rel == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(rel))
}

func parseCursor(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	rel, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(rel) == 0 {
		return nil, ErrBadCursor
	}
	parts := strings.Split(string(rel), "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			return nil, ErrBadCursor
		}
	}
	return parts, nil
}

// walker is one walk under way.
type walker struct {
	opt    WalkOptions
	visit  func(*Entry) error
	top    *Dir
	cursor []string

	stack     []*frame
	queue     []*node // directories of the next level, for Breadth
	count     int
	last      string
	truncated bool
}

// frame is a directory whose entries are being visited.
type frame struct {
	d     *Dir
	names []dirent
	more  bool
	last  string   // last name taken
	skip  []string // components of the cursor that lie below d
	entry *Entry   // d as an entry of the frame below

	dev, ino uint64 // of d, while its descriptor is given back
}

// node is a directory to be visited, by the names that lead there.
type node struct {
	up   *node
	name string
}

func (n *node) rel() string {
	if n == nil {
		return ""
	}
	return join(n.up.rel(), n.name)
}

func (w *walker) close() {
	for _, f := range w.stack {
		_ = f.d.Close()
	}
	_ = w.top.Close()
}

func (w *walker) run(ctx context.Context) error {
	if err := w.enter(w.top, nil, w.cursor); err != nil {
		return ended(err)
	}
	var at *node
	for {
		for len(w.stack) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.step(ctx, at); err != nil {
				return ended(err)
			}
		}
		if len(w.queue) == 0 {
			return nil
		}
		at, w.queue = w.queue[0], w.queue[1:]
		if err := w.reach(at); err != nil {
			return ended(err)
		}
	}
}

func ended(err error) error {
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// enter puts a directory that was opened on the stack.
func (w *walker) enter(d *Dir, e *Entry, skip []string) error {
	f := &frame{d: d, entry: e, skip: skip, more: true}
	w.stack = append(w.stack, f)
	if len(w.stack) > heldDirs {
		if err := w.letGo(w.stack[len(w.stack)-heldDirs]); err != nil {
			return err
		}
	}
	if w.opt.Enter == nil {
		return nil
	}
	err := w.opt.Enter(d)
	if errors.Is(err, fs.SkipDir) {
		f.more, err = false, nil
	}
	return err
}

// step visits the next entry of the directory on top, or leaves it.
func (w *walker) step(ctx context.Context, at *node) error {
	f := w.stack[len(w.stack)-1]
	de, ok, err := f.next()
	if err != nil {
		w.opt.failed(f.d.path, err)
		if w.opt.raw {
			return err
		}
	}
	if !ok {
		return w.pop(f)
	}
	e := &Entry{dir: f.d, name: de.name, kind: de.kind}
	if isTemp(e.name) && !w.opt.raw {
		f.d.sweep(ctx, e)
		return nil
	}
	var below []string
	passed := false // visited by an earlier walk
	if len(f.skip) > 0 {
		passed, below = de.name == f.skip[0], f.skip[1:]
		if !passed {
			below = nil
		}
		f.skip = nil
	}
	if w.opt.NoHidden && de.name[0] == '.' || (w.opt.Stat || e.kind == "") && e.look() != nil || !f.d.admits(e) {
		return nil
	}
	if !passed {
		if w.opt.Max != 0 && w.count >= w.opt.Max {
			w.truncated = true
			return fs.SkipAll
		}
		w.count++
		w.last = e.Rel()
		if err := w.visit(e); err != nil {
			if errors.Is(err, fs.SkipDir) {
				return nil
			}
			return err
		}
	}
	if e.kind != Directory || w.opt.Depth > 0 && e.Depth() >= w.opt.Depth {
		return w.left(e)
	}
	if e.tooDeep() && !e.dir.deep {
		w.opt.failed(e.Path(), pathError("open", e.Path(), unix.ENAMETOOLONG))
		return w.left(e)
	}
	if w.opt.Breadth {
		w.queue = append(w.queue, &node{at, e.name})
		return nil
	}
	return w.into(e, below)
}

// into goes down into a directory.
func (w *walker) into(e *Entry, below []string) error {
	d, err := e.OpenDir()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.opt.failed(e.Path(), err)
		}
		return w.left(e)
	}
	return w.enter(d, e, below)
}

func (w *walker) left(e *Entry) error {
	if w.opt.leave == nil || e == nil {
		return nil
	}
	return w.opt.leave(e)
}

// pop leaves the directory on top and takes the one below up again.
func (w *walker) pop(f *frame) error {
	w.stack = w.stack[:len(w.stack)-1]
	var err error
	if len(w.stack) > 0 {
		if below := w.stack[len(w.stack)-1]; below.d.fd < 0 {
			if err = w.takeUp(below, f.d.fd); err != nil {
				w.opt.failed(below.d.path, err)
				below.names, below.more, below.entry = nil, false, nil
			}
		}
	}
	if f.d != w.top {
		_ = f.d.Close()
	}
	if err != nil {
		return nil
	}
	return w.left(f.entry)
}

// reach opens a directory that was seen a level above.
func (w *walker) reach(n *node) error {
	rel := n.rel()
	fd, err := w.top.g.fs.descend(w.top.fd, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	path := join(w.top.path, rel)
	if err != nil {
		if err = missing("open", path, err); !errors.Is(err, fs.ErrNotExist) {
			w.opt.failed(path, err)
		}
		return nil
	}
	d := *w.top
	d.fd, d.path, d.clean, d.rel = fd, path, join(w.top.clean, rel), rel
	d.depth = strings.Count(rel, "/") + 1
	if isKernelFS(fd) {
		w.opt.failed(path, errSystemTree())
		_ = d.Close()
		return nil
	}
	return w.enter(&d, nil, nil)
}

// letGo gives a descriptor back for the time deep below it.
func (w *walker) letGo(f *frame) error {
	if f.d == w.top || f.d.fd < 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(f.d.fd, &st); err != nil {
		return pathError("stat", f.d.path, err)
	}
	f.dev, f.ino = uint64(st.Dev), st.Ino
	return f.d.Close()
}

// takeUp opens a directory again; it must still be the same one. It is looked
// for above the one that was left, which takes the same time at every depth,
// and where that was moved meanwhile by its path.
func (w *walker) takeUp(f *frame, child int) error {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK
	if child >= 0 {
		if fd, err := openAt(child, "..", flags, 0); err == nil && f.holds(fd) {
			return nil
		}
	}
	if f.d.beyond {
		return pathError("open", f.d.path, unix.ENOENT)
	}
	fd, err := w.top.g.fs.descend(w.top.fd, f.d.rel, flags)
	if err != nil {
		return missing("open", f.d.path, err)
	}
	if !f.holds(fd) {
		return pathError("open", f.d.path, unix.ENOENT)
	}
	return nil
}

// holds takes a descriptor if it is of the directory that was let go, or
// closes it.
func (f *frame) holds(fd int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Dev) != f.dev || st.Ino != f.ino {
		_ = unix.Close(fd)
		return false
	}
	f.d.fd = fd
	return true
}

// next takes one name, reading the directory in batches.
func (f *frame) next() (dirent, bool, error) {
	if len(f.names) == 0 && f.more {
		after, from := f.last, false
		if len(f.skip) > 0 {
			after, from = f.skip[0], true
		}
		var err error
		if f.names, f.more, err = f.d.names(after, from, batchNames); err != nil {
			f.more = false
			return dirent{}, false, err
		}
	}
	if len(f.names) == 0 {
		return dirent{}, false, nil
	}
	de := f.names[0]
	f.names, f.last = f.names[1:], de.name
	return de, true, nil
}
