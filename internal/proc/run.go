package proc

import "context"

// Result is a whole run.
type Result struct {
	Status
	Stdout, Stderr []byte
	// Truncated says that one of them is longer than what was kept.
	Truncated bool
}

// Run starts a program, waits until it is done and returns the first limit
// bytes of each of its outputs; spec.Output is not used. When ctx ends, the
// program and all it started are ended, and the Result says
// [ReasonDisconnected]. A program that fails is no error; that is for the
// caller to read in Code.
func (m *Manager) Run(ctx context.Context, spec Spec, limit int) (Result, error) {
	out := NewBuffers(limit, KeepHead)
	spec.Output = out
	p, err := m.Start(ctx, spec)
	if err != nil {
		return Result{}, err
	}
	<-p.Done() // not ctx: its end ends the process, and with it this wait
	status, _ := p.Status()
	return Result{
		Status:    status,
		Stdout:    out.Out.Bytes(),
		Stderr:    out.Err.Bytes(),
		Truncated: out.Out.Truncated() || out.Err.Truncated(),
	}, nil
}
