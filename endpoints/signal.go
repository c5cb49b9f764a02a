package endpoints

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// signals are those a caller may send. The others either end a process in odd
// ways or are the kernel's own to send.
var signals = []syscall.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM,
	unix.SIGKILL, unix.SIGCONT, unix.SIGSTOP, unix.SIGTSTP, unix.SIGWINCH,
}

// endGrace is the time a process that is to end has between SIGTERM and
// SIGKILL.
const endGrace = 2 * time.Second

type signalIn struct {
	PID    string          `path:"pid"`
	Signal api.Field[any]  `json:"signal" doc:"A number or a name: HUP, INT, QUIT, USR1, USR2, TERM, KILL, CONT, STOP, TSTP, WINCH."`
	Group  api.Field[bool] `json:"group" doc:"false spares the processes that it has started."`
}

type signalOut struct {
	PID    int `json:"pid"`
	Signal int `json:"signal"`
}

func (s *Server) signalProcess(_ context.Context, c *api.Call, in signalIn) (signalOut, error) {
	pid, err := parsePID(in.PID)
	if err != nil {
		return signalOut{}, err
	}
	sig, ok := parseSignal(in.Signal.V)
	if !ok {
		return signalOut{}, api.Invalidf("Missing or invalid 'signal'")
	}
	group, err := in.Group.Optional("group", true)
	if err != nil {
		return signalOut{}, err
	}
	e, err := s.target(c, pid, in.PID, sig)
	if err != nil {
		return signalOut{}, err
	}
	if err := e.Process.Signal(sig, group); err != nil {
		return signalOut{}, signalError(err)
	}
	return signalOut{pid, int(sig)}, nil
}

// target is the running process that the signals may be sent to.
func (s *Server) target(c *api.Call, pid int, shown string, sigs ...syscall.Signal) (*proc.Entry, error) {
	if allowed, set := c.Rule.Ints("allowed_signals"); set {
		for _, sig := range sigs {
			if !slices.Contains(allowed, int64(sig)) {
				return nil, policy.Refuse(policy.SignalNotAllowed, "Signal "+unix.SignalName(sig)+" is not allowed").Err()
			}
		}
	}
	if pid == 1 || pid == os.Getpid() {
		return nil, api.Errorf(403, "PermissionError", "", "This process cannot be signalled")
	}
	e, err := s.find(c, shown)
	if err != nil {
		return nil, err
	}
	if _, ended := e.Process.Status(); ended {
		return nil, signalError(proc.ErrEnded)
	}
	return e, nil
}

func signalError(err error) error {
	if errors.Is(err, proc.ErrEnded) {
		return api.Errorf(404, "NotFoundError", "process_exited", "The process has ended")
	}
	return err
}

// parseSignal reads a number, also as text, or a name with or without "SIG".
func parseSignal(v any) (syscall.Signal, bool) {
	if _, truth := v.(bool); truth {
		return 0, false
	}
	n, ok := api.LenientInt(v)
	if name, isText := v.(string); isText && !ok {
		name = strings.ToUpper(strings.TrimSpace(name))
		if !strings.HasPrefix(name, "SIG") {
			name = "SIG" + name
		}
		n = int64(unix.SignalNum(name))
	}
	i := slices.IndexFunc(signals, func(s syscall.Signal) bool { return int64(s) == n })
	if i < 0 {
		return 0, false
	}
	return signals[i], true
}

type stopIn struct {
	PID string `path:"pid"`
}

// stopProcess ends a process with all it has started, and answers how it
// ended.
func (s *Server) stopProcess(ctx context.Context, c *api.Call, in stopIn) (record, error) {
	pid, err := parsePID(in.PID)
	if err != nil {
		return record{}, err
	}
	e, err := s.target(c, pid, in.PID, unix.SIGTERM, unix.SIGKILL)
	if err != nil {
		return record{}, err
	}
	e.Process.Stop(endGrace, "", unix.SIGTERM) //nolint:contextcheck // the caller need not wait for it
	awaitExit(ctx, c, e, endGrace)
	return recordOf(e), nil
}
