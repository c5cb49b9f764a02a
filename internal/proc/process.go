package proc

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that a [Manager] started. All methods are safe
// together. It belongs to the manager: nobody has to close it.
type Process struct {
	m       *Manager
	pid     int
	mark    mark
	spec    Spec
	began   time.Time
	ooms    int64 // the OOM counter at the start
	cg      *cgroup
	cgGen   int
	pipes   []*pipe
	exitedC chan struct{}
	doneC   chan struct{}

	mu      sync.Mutex
	ready   bool // the start is over: we hold no end of the child's any more
	reaped  bool // from here on the number may be another's
	killed  bool // we sent SIGKILL
	reason  Reason
	status  Status
	open    int // pipes not at end of file
	holds   int // sweeps and stops under way: not done before they are
	exited  bool
	left    bool // reading has stopped though pipes are open
	done    bool
	limit   *time.Timer
	grace   *time.Timer
	unwatch func() bool
	onExit  func() // called under mu, once, when exited
}

// PID is the process id; it is also the id of the process's group.
func (p *Process) PID() int { return p.pid }

// Started is when the process was started.
func (p *Process) Started() time.Time { return p.began }

// Input is what the Spec said, or nil.
func (p *Process) Input() *Input { return p.spec.Stdin }

// Exited is closed when the process has ended and everything it wrote is in
// its sink. Something it started may still run and write.
func (p *Process) Exited() <-chan struct{} { return p.exitedC }

// Done is closed once, after Exited, when nothing more will come: the pipes
// are at end of file, or the grace is over, and no ending is under way.
func (p *Process) Done() <-chan struct{} { return p.doneC }

// whenExited has f called once, under the process's lock, when it has ended.
func (p *Process) whenExited(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		f()
		return
	}
	p.onExit = f
}

// Status tells how the process ended; ok is false while it runs.
func (p *Process) Status() (status Status, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status, p.exited
}

// Wait waits until the process is done, or for the end of ctx, whose error it
// returns.
func (p *Process) Wait(ctx context.Context) (Status, error) {
	select {
	case <-p.doneC:
		s, _ := p.Status()
		return s, nil
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

// Signal sends sig to the process, or to its whole group. SIGKILL to the group
// ends everything the process started, as End does. It returns ErrEnded when
// the process has ended.
func (p *Process) Signal(sig syscall.Signal, group bool) error {
	p.mu.Lock()
	if p.reaped {
		p.mu.Unlock()
		return ErrEnded
	}
	if group && sig == unix.SIGKILL {
		p.killed = true
		p.mu.Unlock()
		p.End("")
		return nil
	}
	defer p.mu.Unlock()
	p.killed = p.killed || sig == unix.SIGKILL
	return p.send(sig, group)
}

// SignalSession sends sig to every process, in whatever group, of the session
// that the process leads, which was started with a terminal. It returns
// ErrEnded when the process has ended. SIGKILL is the business of End.
func (p *Process) SignalSession(sig syscall.Signal) error {
	p.mu.Lock()
	if p.reaped {
		p.mu.Unlock()
		return ErrEnded
	}
	t := p.m.treeOf(p)
	p.mu.Unlock()
	t.session = p.pid
	t.signal(sig)
	return nil
}

// send is called under p.mu, with the process unreaped.
func (p *Process) send(sig syscall.Signal, group bool) error {
	to := p.pid
	if group {
		to = -p.pid
	}
	err := syscall.Kill(to, sig)
	if errors.Is(err, unix.ESRCH) {
		return ErrEnded
	}
	return err
}

// End ends the whole thing at once: SIGKILL to the group and to everything
// else that descends from the process, wherever it went. It returns when
// nothing of it is left (after five seconds at the latest, should the kernel
// not be able to end one). reason becomes the Status's, unless the process had
// ended by itself before; an empty reason leaves it to how it ended. End also
// ends what an ended process has left behind.
func (p *Process) End(reason Reason) {
	if !p.m.enter() {
		return
	}
	defer p.m.wg.Done()
	p.hold()
	defer p.release()
	p.m.kill(p, reason)
}

// Stop sends the first of sigs to everything the process started, gives it
// grace to end, and then ends what is left as End does. A further signal is
// for who does not hear the one before: it is sent when all that is left
// ignores that one, or when the grace is over, and then gets a moment of its
// own. Stop returns when nothing is left.
func (p *Process) Stop(grace time.Duration, reason Reason, sigs ...syscall.Signal) {
	if !p.m.enter() {
		return
	}
	defer p.m.wg.Done()
	p.hold()
	defer p.release()
	p.m.stop(p, grace, reason, sigs)
}

func (p *Process) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds++
}

func (p *Process) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds--
	p.step()
}

// Forget stops reading the process's output: it is dropped from now on, and
// the process is done as soon as it has ended.
func (p *Process) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return
	}
	if p.spec.Output != nil {
		p.spec.Output.end()
	}
	p.leave()
	p.step()
}

// collected is called by the reaper, under p.mu, when the process was reaped.
func (p *Process) collected(ws syscall.WaitStatus, ru *syscall.Rusage) {
	p.reaped = true
	s := Status{Reason: p.reason, Ended: time.Now(), MaxRSS: ru.Maxrss << 10}
	s.CPU = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
	natural := ReasonExited
	if ws.Signaled() {
		s.Signal = ws.Signal()
		s.Code = -int(s.Signal)
		natural = ReasonSignaled
	} else {
		s.Code = ws.ExitStatus()
	}
	if s.Reason == "" {
		s.Reason = natural
		if p.m.oom.killed(p, s.Signal) {
			s.Reason = ReasonOOM
		}
	}
	p.status = s
	if p.limit != nil {
		p.limit.Stop()
	}
	if p.spec.Stdin != nil {
		p.spec.Stdin.end()
	}
	for _, pp := range p.pipes {
		pp.aim()
	}
	p.step()
	if !p.done && p.open > 0 && !p.left && !p.spec.Output.lasting() {
		p.grace = time.AfterFunc(min(p.spec.Grace.Silence, p.spec.Grace.Total), p.graceOver)
	}
}

// reached is called when a pipe has given all that was written before the end.
func (p *Process) reached() {
	if p.isExited() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step()
}

func (p *Process) isExited() bool {
	select {
	case <-p.exitedC:
		return true
	default:
		return false
	}
}

func (p *Process) pipeEnded(pp *pipe) {
	p.m.undrain(pp)
	p.mu.Lock()
	defer p.mu.Unlock()
	pp.eof = true
	p.open--
	p.step()
}

// step moves the process on as far as it goes: running, exited, done. It is
// called under p.mu whenever something it depends on has changed.
func (p *Process) step() {
	if p.done || !p.reaped {
		return
	}
	if !p.exited {
		for _, pp := range p.pipes {
			if !p.left && !pp.settled() {
				return
			}
		}
		p.exited = true
		if p.spec.Output != nil {
			p.spec.Output.exited()
		}
		if p.onExit != nil {
			p.onExit()
		}
		close(p.exitedC)
	}
	if p.holds > 0 || (p.open > 0 && !p.left) {
		return
	}
	p.done = true
	if p.grace != nil {
		p.grace.Stop()
	}
	if p.unwatch != nil {
		p.unwatch()
	}
	if p.spec.Output != nil {
		p.spec.Output.end()
	}
	p.m.finished(p)
	close(p.doneC)
}

// graceOver looks whether to stop reading what others still hold.
func (p *Process) graceOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.left || p.open == 0 {
		return
	}
	g := p.spec.Grace
	now := time.Now()
	total := p.status.Ended.Add(g.Total)
	if p.spec.Timeout > 0 && p.began.Add(p.spec.Timeout).Before(total) {
		total = p.began.Add(p.spec.Timeout)
	}
	quiet := p.status.Ended
	settled, held := true, false
	for _, pp := range p.pipes {
		if at := time.Unix(0, pp.last.Load()); at.After(quiet) {
			quiet = at
		}
		if !pp.eof {
			settled = settled && pp.settled()
			held = held || pp.held()
		}
	}
	wait := min(g.Silence-now.Sub(quiet), total.Sub(now))
	if p.ready && settled && held && wait <= 0 {
		p.status.Detached = true
		p.leave()
		p.step()
		return
	}
	// Not settled: the consumer is slow. Not held: end of file is on its way.
	// Not ready: the holder is our own start.
	p.grace.Reset(max(wait, 5*time.Millisecond))
}

// leave hands the open pipes to the drain. It is called under p.mu.
func (p *Process) leave() {
	if p.left {
		return
	}
	p.left = true
	for _, pp := range p.pipes {
		if !pp.eof {
			pp.drop.Store(true)
			p.m.drain(pp)
		}
	}
}

// timeout is called when the time limit is over.
func (p *Process) timeout() {
	p.mu.Lock()
	late := p.reaped
	if !late {
		p.holds++
	}
	p.mu.Unlock()
	if late {
		return
	}
	defer p.release()
	if p.spec.KillGrace > 0 {
		p.m.stop(p, p.spec.KillGrace, ReasonTimeout, []syscall.Signal{unix.SIGTERM})
		return
	}
	p.m.kill(p, ReasonTimeout)
}

// disconnected is called when the context of the start has ended: whoever
// would have taken the output has gone.
func (p *Process) disconnected(cause error) {
	if errors.Is(cause, ErrStopping) {
		return // Close is on its way
	}
	p.mu.Lock()
	running := !p.reaped
	p.holds++
	p.mu.Unlock()
	if running {
		p.m.kill(p, ReasonDisconnected)
	}
	if out := p.spec.Output; out != nil && !out.lasting() {
		out.end()
		if !running {
			p.mu.Lock()
			p.leave() // what it left behind lives on
			p.mu.Unlock()
		}
	}
	p.release()
}
