package envd

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// target enters the call as what it is for a process or for a terminal, and
// finds the running process.
func (c *call) target(sel *processSelector, process, terminal string) (*record, error) {
	r, findErr := c.find(sel)
	id := process
	if r != nil && r.session != nil {
		id = terminal
	}
	if err := c.Enter(id); err != nil {
		return nil, err
	}
	if findErr != nil {
		return nil, findErr
	}
	if r == nil || r.ended() {
		return nil, unknown()
	}
	return r, nil
}

func (s *Server) sendInput(ctx context.Context, _ *connect.Call, in *sendInputRequest) (*empty, error) {
	r, err := callOf(ctx).target(in.Process, "process_stdin", "pty_connect")
	if err != nil {
		return nil, err
	}
	return &empty{}, r.write(ctx, in.Input)
}

// write gives a process input, all of it.
func (r *record) write(ctx context.Context, in *processInput) error {
	switch {
	case in == nil || in.Stdin == nil && in.PTY == nil:
		return connect.Errorf(connect.InvalidArgument, "no input is given")
	case r.session != nil && in.PTY == nil:
		return connect.Errorf(connect.FailedPrecondition, "the process runs on a terminal: send pty input")
	case r.session != nil:
		_, err := r.session.Input(ctx, in.PTY)
		return err
	case in.Stdin == nil:
		return connect.Errorf(connect.FailedPrecondition, "the process has no terminal")
	}
	input := r.entry.Process.Input()
	if input == nil {
		return connect.Errorf(connect.FailedPrecondition, "the process was started without stdin")
	}
	_, err := input.Write(ctx, in.Stdin, false)
	return err
}

// streamInput passes the messages of a stream on as they come.
func (s *Server) streamInput(ctx context.Context, _ *connect.Call, in connect.Receiver[streamInputRequest]) (*empty, error) {
	c := callOf(ctx)
	var r *record
	for {
		m, err := in.Next()
		if errors.Is(err, io.EOF) {
			if r == nil {
				err = c.Enter("process_stdin")
				return &empty{}, err
			}
			return &empty{}, nil
		}
		switch {
		case err != nil:
		case m.Start != nil && r != nil:
			err = connect.Errorf(connect.InvalidArgument, "a second start")
		case m.Start != nil:
			r, err = c.target(m.Start.Process, "process_stdin", "pty_connect")
		case r == nil:
			if err = c.Enter("process_stdin"); err == nil {
				err = connect.Errorf(connect.InvalidArgument, "the first message must be a start")
			}
		case m.Data != nil:
			err = r.write(ctx, m.Data.Input)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *Server) closeStdin(ctx context.Context, _ *connect.Call, in *selectRequest) (*empty, error) {
	r, err := callOf(ctx).target(in.Process, "process_stdin", "pty_connect")
	switch {
	case err != nil:
		return nil, err
	case r.session != nil:
		return nil, connect.Errorf(connect.FailedPrecondition, "a terminal has no stdin to close: send Ctrl+D (0x04) instead")
	}
	input := r.entry.Process.Input()
	if input == nil {
		return nil, connect.Errorf(connect.FailedPrecondition, "the process was started without stdin")
	}
	input.Close()
	return &empty{}, nil
}

// sendSignal signals a process. SIGKILL ends everything it has started,
// SIGTERM goes to its group, and other signals to the program alone.
func (s *Server) sendSignal(ctx context.Context, _ *connect.Call, in *sendSignalRequest) (*empty, error) {
	c := callOf(ctx)
	r, err := c.target(in.Process, "process_signal", "pty_delete_session")
	if err != nil {
		return nil, err
	}
	if in.Signal < 1 || in.Signal > 64 {
		return nil, connect.Errorf(connect.InvalidArgument, "signals are 1 to 64")
	}
	sig := syscall.Signal(in.Signal)
	if allowed, set := c.Rule.Ints("allowed_signals"); set && !slices.Contains(allowed, int64(sig)) {
		return nil, policy.Refuse(policy.SignalNotAllowed, "Signal "+unix.SignalName(sig)+" is not allowed").Err()
	}
	r.signalled.Store(true)
	switch {
	case r.session != nil && sig == unix.SIGKILL:
		err = r.session.Signal(sig)
	default:
		err = r.process().Signal(sig, sig == unix.SIGKILL || sig == unix.SIGTERM)
	}
	return &empty{}, err
}

// update resizes a terminal.
func (s *Server) update(ctx context.Context, _ *connect.Call, in *updateRequest) (*empty, error) {
	r, err := callOf(ctx).target(in.Process, "pty_resize", "pty_resize")
	switch {
	case err != nil:
		return nil, err
	case in.PTY == nil:
		return &empty{}, nil
	case r.session == nil:
		return nil, connect.Errorf(connect.FailedPrecondition, "the process has no terminal")
	case in.PTY.Size == nil:
		return &empty{}, nil
	}
	cols, rows := min(in.PTY.Size.Cols, math.MaxUint16), min(in.PTY.Size.Rows, math.MaxUint16)
	return &empty{}, r.session.Resize(int(cols), int(rows))
}
