package proc

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// killLimit bounds how long an ending looks for survivors. Only a process
	// that sleeps in the kernel can outlast it.
	killLimit = 5 * time.Second
	// treeLimit bounds the walk below a process before it is killed.
	treeLimit = 256
)

// tree finds everything that one start (or all of a manager's) brought into
// the world. The mark alone is enough where marks work; what was found by
// walking the tree catches programs that changed their RLIMIT_LOCKS, such as
// another server of our kind.
type tree struct {
	m       *Manager
	mark    mark
	all     bool           // everything with one of our marks that is not detached
	known   map[int]uint64 // found by descent: number and start time
	fallen  atomic.Int64   // orphans of the tree that were reaped while it is killed
	dying   int            // orphans of the tree that the last look found dead
	groups  map[int]bool   // without marks: groups and sessions they made
	session int            // only what is in this session, unless 0
}

// treeOf looks at what p has now. It is called under p.mu.
func (m *Manager) treeOf(p *Process) *tree {
	t := &tree{m: m, mark: p.mark, known: map[int]uint64{}}
	if p.reaped {
		return t
	}
	t.known = descendants(p.pid, treeLimit)
	if !m.marks.on {
		t.groups = map[int]bool{p.pid: true}
		if s, ok := readStat(p.pid); ok {
			t.known[p.pid] = s.start
		}
		for pid := range t.known {
			if s, ok := readStat(pid); ok {
				t.join(s)
			}
		}
	}
	return t
}

// has says whether pid belongs to the tree and is alive.
func (t *tree) has(pid int) bool {
	alive, _ := t.look(pid)
	return alive
}

// look says whether pid belongs to the tree and is alive, or is an orphan of it
// that has ended and was not reaped yet.
func (t *tree) look(pid int) (alive, dead bool) {
	if !t.m.marks.on {
		return t.hasUnmarked(pid), false
	}
	k, ok := markOf(pid)
	if !ok {
		return false, false
	}
	marked := t.bears(k)
	start, found := t.known[pid]
	if !marked && !found {
		return false, false
	}
	s, ok := readStat(pid)
	switch {
	case !ok:
		return false, false
	case s.dead():
		return false, marked && t.m.lookup(pid) == nil
	}
	return t.within(s) && (marked || s.start == start), false
}

// within says that a process is in the session that is meant.
func (t *tree) within(s stat) bool { return t.session == 0 || t.session == s.sid }

// bears says that k is a mark of the tree.
func (t *tree) bears(k mark) bool {
	if t.all {
		return t.m.marks.ours(k) && !k.detached()
	}
	return k == t.mark
}

// hasUnmarked follows parents, groups and sessions.
func (t *tree) hasUnmarked(pid int) bool {
	s, ok := readStat(pid)
	if !ok || s.dead() || !t.within(s) {
		return false
	}
	if start, found := t.known[pid]; found {
		return start == s.start
	}
	_, child := t.known[s.ppid]
	if !child && !t.groups[s.pgrp] && !t.groups[s.sid] {
		return false
	}
	if other := t.m.lookup(pid); other != nil {
		return false
	}
	t.known[pid] = s.start
	t.join(s)
	return true
}

// join notes the group and the session of a process of the tree, unless they
// are the server's own.
func (t *tree) join(s stat) {
	sid, _ := unix.Getsid(0)
	for _, id := range []int{s.pgrp, s.sid} {
		if id > 1 && id != sid && id != unix.Getpgrp() {
			t.groups[id] = true
		}
	}
}

// signal sends sig to every living process of the tree and counts them.
// Signal 0 only counts.
func (t *tree) signal(sig syscall.Signal) int {
	n := 0
	t.dying = 0
	self := unix.Getpid()
	_ = eachProcess(func(pid int) {
		if pid == self || pid == 1 {
			return
		}
		alive, dead := t.look(pid)
		if dead {
			t.dying++
		}
		if alive && signalIf(pid, sig, func() bool { return t.has(pid) }) {
			n++
		}
	})
	return n
}

// killAll kills until nothing is left. Looking through /proc once is no proof:
// a process may have forked and ended between being listed and being asked. A
// look that finds nothing while no process was born anywhere is one; on a busy
// machine four in a row must do, if no orphan of the tree has ended meanwhile:
// one that lies dead or was reaped may have left a child behind the look's back.
func (t *tree) killAll() {
	defer t.m.hunt(t)()
	deadline := time.Now().Add(killLimit)
	pause := 200 * time.Microsecond
	for clean := 0; clean < 4; {
		before, fallen := lastPID(), t.fallen.Load()
		killed := t.signal(unix.SIGKILL)
		born, fell := before < 0 || lastPID() != before, t.fallen.Load() != fallen
		switch {
		case killed == 0 && !born && !fell:
			return
		case killed == 0 && !fell && t.dying == 0:
			clean++
			continue
		case time.Now().After(deadline):
			return
		case killed == 0:
			t.chase()
		default:
			time.Sleep(pause)
			pause = min(2*pause, 20*time.Millisecond)
		}
		clean = 0
	}
}

// chase runs down processes that fork and end faster than a look at all
// processes takes: each, when the one before it has ended, is a child of ours.
func (t *tree) chase() {
	for range 200 {
		for _, pid := range adopted() {
			signalIf(pid, unix.SIGKILL, func() bool { return t.has(pid) })
		}
	}
}

// hunt has the reaper tell t about its orphans until the result is called.
func (m *Manager) hunt(t *tree) (over func()) {
	if !m.marks.on {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hunts = append(m.hunts, t)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.hunts = slices.DeleteFunc(m.hunts, func(o *tree) bool { return o == t })
	}
}

// fell is told by the reaper that an orphan with mark k has ended.
func (m *Manager) fell(k mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.hunts {
		if t.bears(k) {
			t.fallen.Add(1)
		}
	}
}

// kill is End without the bookkeeping: the caller holds p.
func (m *Manager) kill(p *Process, reason Reason) {
	p.mu.Lock()
	t := m.treeOf(p)
	if !p.reaped {
		if p.reason == "" {
			p.reason = reason
		}
		p.killed = true
		_ = p.send(unix.SIGKILL, true)
	}
	p.mu.Unlock()
	m.cgroups.kill(p.cg, p.cgGen)
	t.killAll()
}

// stop is Stop without the bookkeeping.
func (m *Manager) stop(p *Process, grace time.Duration, reason Reason, sigs []syscall.Signal) {
	p.mu.Lock()
	t := m.treeOf(p)
	if !p.reaped && p.reason == "" {
		p.reason = reason
	}
	p.mu.Unlock()
	over := time.Now().Add(grace)
	var before syscall.Signal
	for _, sig := range sigs {
		if before != 0 {
			t.awaitHearers(before, time.Until(over))
			over = later(over, time.Now().Add(lastWord))
		}
		t.ask(sig)
		before = sig
	}
	t.await(context.Background(), time.Until(over))
	m.kill(p, reason)
}

// lastWord is the least time that a further signal is given, when all of the
// grace was spent on the one before it.
const lastWord = 200 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// ask sends the signals that a tree is to end by. What is stopped hears them
// only when it goes on.
func (t *tree) ask(sigs ...syscall.Signal) {
	for _, sig := range append(sigs, unix.SIGCONT) {
		t.signal(sig)
	}
}

// await returns when nothing of the tree is left, or after d, or at the end
// of ctx.
func (t *tree) await(ctx context.Context, d time.Duration) {
	t.while(ctx, d, func() bool { return t.signal(0) > 0 })
}

// awaitHearers returns when all that is left of the tree ignores sig, or after
// d.
func (t *tree) awaitHearers(sig syscall.Signal, d time.Duration) {
	t.while(context.Background(), d, func() (hears bool) {
		_ = eachProcess(func(pid int) { hears = hears || t.has(pid) && !ignores(pid, sig) })
		return hears
	})
}

// while returns when more says no, or after d, or at the end of ctx.
func (t *tree) while(ctx context.Context, d time.Duration, more func() bool) {
	deadline := time.Now().Add(d)
	pause := time.Millisecond
	for more() && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(min(pause, max(time.Until(deadline), 0)))
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// stopAll ends everything for Close.
func (m *Manager) stopAll(ctx context.Context) {
	running := m.running()
	trees := m.treesOf(running)
	deadline := time.Now().Add(m.opts.StopGrace)
	for _, t := range trees {
		t.ask(unix.SIGTERM)
	}
	for _, t := range trees {
		t.await(ctx, time.Until(deadline))
	}
	m.killEach(running)
}

// killEach kills all there is.
func (m *Manager) killEach(running []*Process) {
	trees := m.treesOf(running)
	for _, p := range running {
		p.mu.Lock()
		if !p.reaped {
			p.killed = true
			_ = p.send(unix.SIGKILL, true)
		}
		p.mu.Unlock()
		m.cgroups.kill(p.cg, p.cgGen)
	}
	for _, t := range trees {
		t.killAll()
	}
}

// treesOf notes the reason for what still runs and finds all there is to end,
// with marks in one tree that also has what ended commands left behind.
func (m *Manager) treesOf(running []*Process) []*tree {
	all := &tree{m: m, all: true, known: m.strays(), groups: map[int]bool{}}
	each := []*tree{{m: m, known: maps.Clone(all.known), groups: map[int]bool{}}}
	for _, p := range running {
		p.mu.Lock()
		if !p.reaped && p.reason == "" {
			p.reason = ReasonShutdown
		}
		t := m.treeOf(p)
		p.mu.Unlock()
		each = append(each, t)
		maps.Copy(all.known, t.known)
	}
	if m.marks.on {
		return []*tree{all}
	}
	return each
}

// strays are the children that came to us and bear no mark of ours, with all
// that is below them: daemons of programs that changed their marks. Nobody can
// say which command they belong to, but to one of ours they do.
func (m *Manager) strays() map[int]uint64 {
	out := map[int]uint64{}
	if managers.Load() > 1 {
		return out // they may be another's
	}
	for _, pid := range ownChildren() {
		s, ok := readStat(pid)
		if !ok || m.before[pid] == s.start || m.lookup(pid) != nil {
			continue
		}
		if k, ok := markOf(pid); ok && m.marks.ours(k) {
			continue // found by that
		}
		out[pid] = s.start
		maps.Copy(out, descendants(pid, treeLimit))
	}
	return out
}
