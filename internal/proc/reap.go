package proc

import (
	"bytes"
	"errors"
	"maps"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreignWait is how long a child that is neither ours nor an orphan with our
// mark may stay dead before it is reaped: other code in this process that
// started it with os/exec wants to wait for it. Where there are no marks every
// stranger is taken for an orphan at once.
const foreignWait = 2 * time.Second

// reap is the goroutine that waits for all children. SIGCHLD wakes it; a call
// that blocks could not be ended.
func (m *Manager) reap() {
	defer close(m.reaperC)
	strangers := map[int]time.Time{} // since when they lie there
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		again.Reset(m.reapAll(strangers))
		select {
		case <-m.chld:
		case <-again.C:
		case <-m.quit:
			m.reapAll(strangers) // what Close has just ended
			return
		}
	}
}

// reapAll reaps what has ended and returns when to look again at the latest.
func (m *Manager) reapAll(strangers map[int]time.Time) time.Duration {
	for {
		pid := peek(unix.P_ALL, 0)
		if pid == 0 {
			clear(strangers)
			m.cgroups.tidy()
			return time.Hour
		}
		if !m.reapOne(pid) {
			// It would be shown again and again, and hides who lies behind it.
			return m.reapBehind(strangers)
		}
	}
}

// reapBehind looks at every child, strangers or not.
func (m *Manager) reapBehind(strangers map[int]time.Time) time.Duration {
	now := time.Now()
	seen := map[int]time.Time{}
	for _, pid := range ownChildren() {
		if peek(unix.P_PID, pid) == 0 || m.reapOne(pid) {
			continue
		}
		since, known := strangers[pid]
		if !known {
			since = now
		}
		if now.Sub(since) >= foreignWait {
			reapPID(pid, nil)
			continue
		}
		seen[pid] = since
	}
	clear(strangers)
	maps.Copy(strangers, seen)
	m.cgroups.tidy()
	return 20 * time.Millisecond
}

// reapOne reaps a child that has ended, unless it is a stranger.
func (m *Manager) reapOne(pid int) bool {
	if m.collect(pid) {
		return true
	}
	// Not ours by the table. A start that is under way will put it there.
	forkMu.Lock()
	defer forkMu.Unlock()
	if m.lookup(pid) != nil {
		return true // the next look finds it
	}
	if m.marks.on {
		k, ok := markOf(pid)
		if !ok || !m.marks.ours(k) {
			return false
		}
		m.fell(k)
	}
	reapPID(pid, nil)
	return true
}

// ownChildren lists our children, living or not.
func ownChildren() []int {
	self := unix.Getpid()
	if out := children(self); len(out) > 0 {
		return out
	}
	var out []int // no such files on this kernel
	_ = eachProcess(func(pid int) {
		if s, ok := readStat(pid); ok && s.ppid == self {
			out = append(out, pid)
		}
	})
	return out
}

// peek returns a child that has ended and leaves it in place, or 0.
func peek(kind, id int) int {
	for {
		var info unix.Siginfo
		err := unix.Waitid(kind, id, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == nil {
			// x/sys does not name the field. It follows three ints and is
			// aligned like a pointer.
			const at = (3*4 + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
			return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), at))) //nolint:gosec // within info, by the line above
		}
		if !errors.Is(err, unix.EINTR) {
			return 0
		}
	}
}

func (m *Manager) lookup(pid int) *Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byPID[pid]
}

// collect marks a process of ours as ended and reaps it, under its lock: while
// someone else holds the lock the number is still its.
func (m *Manager) collect(pid int) bool {
	p := m.lookup(pid)
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return true
	}
	var ru syscall.Rusage
	ws, ok := reapPID(pid, &ru)
	m.forget(p)
	if !ok { // stolen by a wait that is not ours to fix: it has ended all the same
		ws = 0
	}
	p.collected(ws, &ru)
	return true
}

func reapPID(pid int, ru *syscall.Rusage) (syscall.WaitStatus, bool) {
	var ws syscall.WaitStatus
	for {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, ru)
		if !errors.Is(err, unix.EINTR) {
			return ws, err == nil && got == pid
		}
	}
}

// statusMask reads a set of signals from /proc/<pid>/status.
func statusMask(status []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	return n
}
