package proc

import "syscall"

// SignalSession sends sig to every process, in whatever group, of the session
// that the process leads, which was started with a terminal. It returns
// ErrEnded when the process has ended.
func (p *Process) SignalSession(sig syscall.Signal) error {
	p.mu.Lock()
	if p.reaped {
		p.mu.Unlock()
		return ErrEnded
	}
	t := p.m.treeOf(p)
	p.mu.Unlock()
	member := func(pid int) bool {
		s, ok := readStat(pid)
		return ok && s.sid == p.pid && t.has(pid)
	}
	return eachProcess(func(pid int) {
		if member(pid) {
			signalIf(pid, sig, func() bool { return member(pid) })
		}
	})
}
