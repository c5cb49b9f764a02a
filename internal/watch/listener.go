package watch

import (
	"context"
	"io"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// hold is how long an event waits for others on its path.
	hold = 20 * time.Millisecond
	// moveWait is how long the second half of a rename is waited for; the
	// kernel writes both at once.
	moveWait = 20 * time.Millisecond
	// tick is the time between two looks whether the root is where it was:
	// the kernel says nothing of a renamed directory further up.
	tick = time.Second

	readMost = 512
)

// Listener is one reader's stream of changes. Next is for one goroutine at a
// time; all other methods may be called by any, at any time.
type Listener struct {
	q      *queue
	stop   chan struct{}
	finish chan struct{}
	ended  chan struct{} // closed when its goroutine has let go of everything

	stopOnce, finishOnce sync.Once
}

// Next returns the next changes, at least one, in their order, waiting for them
// as long as ctx lasts. A change rests 20 ms (in a raw stream not at all) to be
// merged with what follows on the same path. Changes that wait for a slow
// reader are bounded in number; beyond the bound an [Overflow] takes their
// place, and what differs then is reported. After the last change Next returns
// [ErrGone], [ErrClosed] or, after Finish, [io.EOF].
func (l *Listener) Next(ctx context.Context) ([]Event, error) { return l.q.pop(ctx, readMost) }

// Finish ends the stream in good order: Next still returns what changed before
// the call, without waiting, and then [io.EOF].
func (l *Listener) Finish() { l.finishOnce.Do(func() { close(l.finish) }) }

// Close ends the stream at once and returns when all it held is free. It may be
// called more than once.
func (l *Listener) Close() {
	l.stopOnce.Do(func() { close(l.stop) })
	l.q.abort(ErrClosed)
	<-l.ended
}

// arm takes in the tree below the directory open as fd. When it returns nil,
// every later change is told.
func (t *tree) arm(fd int) (err error) {
	id, err := identityOf(fd)
	if err != nil {
		return err
	}
	t.root = &node{id: id}
	t.now = time.Now().UnixNano()
	t.mute = true
	t.lookAbove(fd)
	seen := t.pass(func() {
		if err = t.scan(task{t.root, nil}); err == nil {
			t.run()
			t.settle()
		}
	})
	t.mute = false
	if seen != nil {
		return seen
	}
	if t.said {
		t.overflow(WatchesOut)
	}
	if t.stopped() {
		return ErrClosed
	}
	return err
}

// settle takes in silence what happened during arming, and what was on its way
// from before: a shared watch may have been there earlier.
func (t *tree) settle() {
	const tries = 3 // then the loss is said aloud
	for range tries {
		if t.in == nil || t.stopped() {
			return
		}
		t.in.sync()
		list, lost := t.box.take()
		if lost {
			t.rescan()
		}
		for _, c := range list {
			t.apply(c)
		}
		if !lost {
			return
		}
	}
}

// lookAbove watches the directory that holds the root, if it may. Only whether
// the root's name goes away is heard.
func (t *tree) lookAbove(fd int) {
	if t.in == nil {
		return
	}
	up, err := openAt(fd, "..", unix.O_RDONLY|dirFlags)
	if err != nil {
		return
	}
	defer unix.Close(up)
	name := path.Base(t.name)
	if l, err := lookAt(up, name); err != nil || l.identity != t.root.id {
		return
	}
	if wd, err := t.in.subscribe(t.box, up, name); err == nil {
		t.above = wd
	}
}

// follow is the listener's goroutine after arming. It returns when the stream
// has ended for whatever reason.
func (t *tree) follow(finish <-chan struct{}) {
	now := time.Now()
	t.nextPoll, t.nextTick = now.Add(t.opt.Interval), now.Add(tick)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !t.stopped() && !t.gone {
		timer.Reset(t.pause())
		select {
		case <-t.stop:
			return
		case <-finish:
			t.last()
			return
		case <-t.box.ready:
			_ = t.pass(t.hear) // a root that is gone ends the loop
		case <-timer.C:
			t.wake()
		}
		t.expire(time.Now())
	}
	if t.gone {
		t.bury()
	}
}

// pause is how long nothing needs to be done.
func (t *tree) pause() time.Duration {
	next := t.nextTick
	if t.polls() && t.nextPoll.Before(next) {
		next = t.nextPoll
	}
	wait := time.Until(next)
	if len(t.moves) > 0 {
		wait = min(wait, moveWait)
	}
	return max(wait, 0)
}

func (t *tree) polls() bool { return t.in == nil || len(t.blind) > 0 || t.again }

// hear takes in what the kernel said.
func (t *tree) hear() {
	list, lost := t.box.take()
	if lost {
		t.now = time.Now().UnixNano()
		t.overflow(QueueLost)
		t.rescan()
	}
	for _, c := range list {
		if t.dead {
			return
		}
		t.apply(c)
	}
}

// wake does what is due: a poll, or a look whether the root is there.
func (t *tree) wake() {
	now := time.Now()
	if t.polls() && !now.Before(t.nextPoll) {
		_ = t.pass(t.poll)
		took := time.Since(now)
		t.nextPoll = time.Now().Add(max(t.opt.Interval, 4*took)) // at most a fifth of a core
		t.nextTick = time.Now().Add(tick)
	}
	if !now.Before(t.nextTick) {
		_ = t.pass(func() {})
		t.nextTick = now.Add(tick)
	}
}

// poll looks at what no watch tells of.
func (t *tree) poll() {
	if t.gone {
		return
	}
	t.now = time.Now().UnixNano()
	t.short = false
	if t.in == nil || t.again {
		t.rescan()
	}
	blind := make([]*node, 0, len(t.blind))
	for n := range t.blind {
		blind = append(blind, n)
	}
	for _, n := range blind {
		if t.stopped() {
			return
		}
		if n.off || t.in == nil {
			continue
		}
		if err := t.scan(task{n, nil}); absent(err) && n.parent != nil {
			t.lookAgain(n)
		}
		t.run()
	}
	if len(t.blind) == 0 {
		t.said = false
	}
}

// lookAgain finds out what is under a directory's name if not that directory.
func (t *tree) lookAgain(n *node) {
	dir := n.parent.path()
	at, ok := t.at(n.parent, dir)
	if !ok {
		return // the same will be found out of the directory above
	}
	l, err := lookAt(at, n.name)
	switch {
	case err == nil:
		t.see(n.parent, dir, n.name, l, nil)
	case absent(err):
		t.vanish(n.parent, dir, n.name)
	}
}

// last takes in what happened until now and ends the stream.
func (t *tree) last() {
	if t.in != nil {
		t.in.sync()
	}
	_ = t.pass(func() {
		t.hear()
		if t.polls() {
			t.poll()
		}
	})
	if t.gone {
		t.bury()
		return
	}
	t.q.end(io.EOF)
}

// bury tells the end of a root that is gone.
func (t *tree) bury() {
	if t.in != nil {
		t.in.sync()
		t.hear() // sees nothing any more, but names come and go
	}
	t.now = time.Now().UnixNano()
	switch {
	case !t.opt.Raw:
		for path, dir := range t.root.entries(".") {
			t.deleted(path, dir)
		}
	case t.moved:
		t.tell(Event{Op: OpRename, Path: ".", Dir: true})
	default:
		t.tell(Event{Op: OpRemove, Path: ".", Dir: true})
	}
	t.q.end(ErrGone)
}

// letGo frees every watch.
func (t *tree) letGo() {
	if t.root != nil {
		t.release(t.detach(t.root))
	}
	for _, m := range t.moves {
		t.release(m.held)
	}
	if t.above != 0 {
		t.in.unsubscribe(t.box, t.above, path.Base(t.name))
	}
	t.in.leave(t.box)
}
