package proc

import (
	"context"
	"maps"
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
	m      *Manager
	mark   mark
	all    bool           // everything with one of our marks that is not detached
	known  map[int]uint64 // found by descent: number and start time
	groups map[int]bool   // without marks: groups and sessions they made
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
	if !t.m.marks.on {
		return t.hasUnmarked(pid)
	}
	k, ok := markOf(pid)
	if !ok {
		return false
	}
	marked := k == t.mark
	if t.all {
		marked = t.m.marks.ours(k) && !k.detached()
	}
	start, found := t.known[pid]
	if !marked && !found {
		return false
	}
	s, ok := readStat(pid)
	return ok && !s.dead() && (marked || s.start == start)
}

// hasUnmarked follows parents, groups and sessions.
func (t *tree) hasUnmarked(pid int) bool {
	s, ok := readStat(pid)
	if !ok || s.dead() {
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
	self := unix.Getpid()
	_ = eachProcess(func(pid int) {
		if pid == self || pid == 1 || !t.has(pid) {
			return
		}
		if signalIf(pid, sig, func() bool { return t.has(pid) }) {
			n++
		}
	})
	return n
}

// killAll kills until nothing is left. Looking through /proc once is no proof:
// a process may have forked and ended between being listed and being asked. A
// look that finds nothing while no process was born anywhere is one; on a busy
// machine four in a row must do.
func (t *tree) killAll() {
	deadline := time.Now().Add(killLimit)
	pause := 200 * time.Microsecond
	for clean := 0; clean < 4; {
		before := lastPID()
		if t.signal(unix.SIGKILL) == 0 {
			if before >= 0 && lastPID() == before {
				return
			}
			clean++
			continue
		}
		clean = 0
		if time.Now().After(deadline) {
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
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
	for _, sig := range sigs {
		t.signal(sig)
	}
	t.await(context.Background(), grace)
	m.kill(p, reason)
}

// await returns when nothing of the tree is left, or after d, or at the end
// of ctx.
func (t *tree) await(ctx context.Context, d time.Duration) {
	deadline := time.Now().Add(d)
	pause := time.Millisecond
	for t.signal(0) > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
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
		t.signal(unix.SIGTERM)
		t.signal(unix.SIGCONT) // a stopped one could not hear it
	}
	for _, t := range trees {
		t.await(ctx, time.Until(deadline))
	}
	trees = m.treesOf(running)
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

// treesOf notes the reason for what still runs and finds all there is to end:
// with marks in one tree that also has what ended commands left behind.
func (m *Manager) treesOf(running []*Process) []*tree {
	all := &tree{m: m, all: true, known: map[int]uint64{}}
	var each []*tree
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
