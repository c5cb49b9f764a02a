package envd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

const (
	maxData    = 32 << 10 // bytes of a message with output
	maxPTYData = 16 << 10
	// afterSignal is how long output of what a signalled program has left
	// behind still counts.
	afterSignal = 2 * time.Second
)

// connect streams the events of a process that runs already.
func (s *Server) connect(ctx context.Context, rc *connect.Call, in *selectRequest, out sender) error {
	c := callOf(ctx)
	r, err := c.find(in.Process)
	id := "process_output"
	if r != nil && r.session != nil {
		id = "pty_connect"
	}
	if err := c.Enter(id); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if r == nil {
		return unknown()
	}
	if d, ok := rc.Timeout(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return c.follow(ctx, rc, r, out)
}

func unknown() error { return connect.Errorf(connect.NotFound, "no such process") }

// keepalive is how long a stream may be silent.
func keepalive(r *http.Request) time.Duration {
	const def, most = 90, 3600
	n, err := strconv.Atoi(strings.TrimSpace(r.Header.Get("Keepalive-Ping-Interval")))
	if err != nil || n < 1 || n > most {
		n = def
	}
	return time.Duration(n) * time.Second
}

// follow streams the events of a process: its start, what it prints from
// where others have stopped on, its end.
func (c *call) follow(ctx context.Context, rc *connect.Call, r *record, out sender) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-c.Stopping():
			cancel(connect.Errorf(connect.Canceled, "the server stops"))
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-over }()

	f := &feed{ctx: ctx, out: out, interval: keepalive(rc.R)}
	if err := f.send(&processEvent{Start: &startEvent{PID: uint32(r.process().PID())}}); err != nil {
		return err
	}
	var err error
	switch {
	case r.session != nil:
		err = f.terminal(r) //nolint:contextcheck // f has ctx
	case r.entry.Log != nil:
		err = f.process(rc, r, c.s.Drain) //nolint:contextcheck // f has ctx
	default:
		err = f.silence(r.entry.Process.Done())
	}
	if err != nil {
		return err
	}
	return f.end(r)
}

// feed sends the events of one stream.
type feed struct {
	ctx      context.Context
	out      sender
	interval time.Duration
	next     time.Time // when the stream has been silent for too long
}

func (f *feed) send(e *processEvent) error {
	err := f.out.Send(&eventResponse{Event: e})
	f.next = time.Now().Add(f.interval)
	return err
}

// ended is why the stream cannot go on, or nil.
func (f *feed) ended() error {
	if f.ctx.Err() == nil {
		return nil
	}
	return context.Cause(f.ctx)
}

// process sends what a process prints.
func (f *feed) process(rc *connect.Call, r *record, drain time.Duration) error {
	p := r.entry.Process
	follower := r.entry.Log.Follow(-1, rc.Unblock)
	defer follower.Close()
	rc.Progress = follower.Touch
	running, cancel := context.WithCancel(f.ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() { // so that a wait for output ends with the program too
		defer close(watched)
		select {
		case <-p.Exited():
			cancel()
		case <-running.Done():
		}
	}()
	defer func() { cancel(); <-watched }()

	var last time.Time // when to stop reading; zero is at the end of the output
	for {
		wait := running
		exited := running.Err() != nil && f.ctx.Err() == nil
		if exited {
			if last.IsZero() {
				last = readUntil(r, drain)
			}
			wait = f.ctx
		}
		until := f.next
		if !last.IsZero() && last.Before(until) {
			until = last
		}
		wait, stop := context.WithDeadline(wait, until)
		page, err := follower.Next(wait)
		stop()
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if err := f.data(e); err != nil {
				return err
			}
			follower.Take(e.Seq + 1)
		}
		if err := f.ended(); err != nil {
			return err
		}
		switch now := time.Now(); {
		case len(page.Events) > 0:
		case page.Ended, exited && !last.IsZero() && !now.Before(last):
			return nil
		case !now.Before(f.next):
			if err := f.send(&processEvent{Keepalive: &empty{}}); err != nil {
				return err
			}
		}
	}
}

// readUntil is how long the output of what an ended program has left behind is
// read: zero is to its end.
func readUntil(r *record, drain time.Duration) time.Time {
	st, _ := r.process().Status()
	switch {
	case r.signalled.Load() && (drain <= 0 || drain > afterSignal):
		return st.Ended.Add(afterSignal)
	case drain > 0:
		return st.Ended.Add(drain)
	}
	return time.Time{}
}

func (f *feed) data(e proc.Event) error {
	for b := e.Data; len(b) > 0; {
		n := min(len(b), maxData)
		data := &dataEvent{Stdout: b[:n]}
		if e.Stream == proc.Stderr {
			data = &dataEvent{Stderr: b[:n]}
		}
		if err := f.send(&processEvent{Data: data}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// terminal sends what a terminal shows.
func (f *feed) terminal(r *record) error {
	at := r.session.Attach(-1)
	defer at.Close()
	buf := make([]byte, maxPTYData)
	for {
		wait, stop := context.WithDeadline(f.ctx, f.next)
		_, n, err := at.Next(wait, buf)
		stop()
		switch {
		case err == nil:
			err = f.send(&processEvent{Data: &dataEvent{PTY: buf[:n]}})
		case errors.Is(err, io.EOF):
			<-r.session.Done()
			return nil
		case f.ended() != nil:
			return f.ended()
		case errors.Is(err, context.DeadlineExceeded):
			err = f.send(&processEvent{Keepalive: &empty{}})
		}
		if err != nil {
			return err
		}
	}
}

// silence waits for the end of a process whose output nobody keeps.
func (f *feed) silence(done <-chan struct{}) error {
	for {
		t := time.NewTimer(time.Until(f.next))
		select {
		case <-done:
			t.Stop()
			return nil
		case <-f.ctx.Done():
			t.Stop()
			return f.ended()
		case <-t.C:
		}
		if err := f.send(&processEvent{Keepalive: &empty{}}); err != nil {
			return err
		}
	}
}

// end tells how a process ended. A time limit is the call's failure.
func (f *feed) end(r *record) error {
	select {
	case <-r.process().Exited():
	case <-f.ctx.Done():
		return f.ended()
	}
	st, _ := r.process().Status()
	if st.Reason == proc.ReasonTimeout {
		return connect.Errorf(connect.DeadlineExceeded, "the time limit of the command is over")
	}
	e := &endEvent{ExitCode: int32(st.Code), Exited: true, Status: "exit status " + strconv.Itoa(st.Code)}
	if st.Signal != 0 {
		e = &endEvent{ExitCode: -1, Status: "signal: " + st.Signal.String()}
	}
	if e.ExitCode != 0 {
		e.Error = &e.Status
	}
	return f.send(&processEvent{End: e})
}
