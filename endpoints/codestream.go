package endpoints

import (
	"context"
	"fmt"
	"syscall"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// cellError is the error event of a stream. Name, value and traceback are what
// code failed with.
type cellError struct {
	Error     string `json:"error"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// cellExit is the last event of a stream.
type cellExit struct {
	Code      int     `json:"exit_code"`
	Took      float64 `json:"execution_time_ms"`
	Count     int     `json:"execution_count,omitempty"`
	Truncated bool    `json:"truncated,omitempty"`
	Lost      bool    `json:"context_lost,omitempty"`
}

func (s *Server) streamCode(ctx context.Context, c *api.Call, in codeIn, ev *api.Events) error {
	if in.Context.Set() {
		return s.streamCell(ctx, c, &in, ev)
	}
	ip, snippet, err := s.prepareCode(c, &in)
	if err != nil {
		return err
	}
	defer ip.close()
	defer snippet.Close()
	ctx, cancel := context.WithCancel(ctx)
	feed := proc.NewFeed()
	ip.how.Output = feed
	p, err := s.Procs.Start(ctx, ip.how)
	if err != nil {
		cancel()
		return ip.failed(err)
	}
	defer func() {
		cancel()
		feed.Close()
		<-p.Done()
	}()
	//nolint:contextcheck // the stop is bounded by its own grace
	defer when(c.Stopping(), func() { p.Stop(stopGrace, proc.ReasonShutdown, syscall.SIGTERM) })()
	if err := ev.Start(); err != nil {
		return err
	}
	st, err := deliver(ctx, p, feed, &chunkStream{ev: ev, left: outputBudget(c.Rule)})
	if err != nil {
		return err
	}
	switch st.Reason {
	case proc.ReasonTimeout:
		_ = ev.Send("error", timeoutEvent(ip.how.Timeout.Seconds()))
	case proc.ReasonOutputLimit:
		_ = ev.Send("error", cellError{Error: string(st.Reason), Name: "OutputLimit", Value: "The code printed more than is allowed"})
	}
	return ev.Send("exit", cellExit{Code: st.Code, Took: elapsedMS(st.Ended.Sub(p.Started()))})
}

func timeoutEvent(seconds float64) cellError {
	return cellError{
		Error: string(proc.ReasonTimeout), Name: "TimeoutError", Value: fmt.Sprintf("Code execution timed out after %gs", seconds),
	}
}
