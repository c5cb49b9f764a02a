package endpoints

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// maxOutputWait is how long a question for output may wait, in seconds.
const maxOutputWait = 30

type outputIn struct {
	PID      string `path:"pid"`
	Since    string `query:"since" doc:"The first event wanted; 0 by default."`
	Wait     string `query:"wait" doc:"Seconds to wait for an event, at most 30."`
	Stream   string `query:"stream" doc:"stdout or stderr; both by default."`
	Limit    string `query:"limit" doc:"At most so many events."`
	Encoding string `query:"encoding" doc:"base64 adds the exact bytes of each event."`
	Follow   bool   `query:"follow" doc:"Answer server-sent events, as with Accept: text/event-stream: output events, then exit."`
}

// readOutput answers captured output by cursor, once or as a stream.
func (s *Server) readOutput(ctx context.Context, c *api.Call, in outputIn, ev *api.Events) (api.Body, error) {
	e, err := s.find(c, in.PID)
	if err != nil {
		return nil, err
	}
	if e.Log == nil {
		return nil, conflict("", "The process was started without 'capture_output'")
	}
	cur, err := in.cursor()
	if err != nil {
		return nil, err
	}
	wait, err := waitTime(in.Wait, maxOutputWait)
	if err != nil {
		return nil, err
	}
	ctx, cancel := until(ctx, c.Stopping())
	defer cancel()
	if c.R.Method != http.MethodHead && (in.Follow || acceptsEvents(c.R)) {
		return nil, follow(ctx, e, cur, ev)
	}
	ctx, cancelWait := context.WithTimeout(ctx, wait)
	defer cancelWait()
	page := cur.next(ctx, e.Log)
	out := &outputPage{cur: cur, page: page, tail: outputTail{
		PID: e.Process.PID(), Next: min(cur.since, page.Next), First: page.First, State: "running", Dropped: page.Dropped,
	}}
	// What the page says of the end counts: it holds all that was written
	// before. The process itself may have ended since.
	if st, ended := e.Process.Status(); ended && page.Exited {
		out.tail.State, out.tail.ExitCode = "exited", &st.Code
	}
	return out, nil
}

// acceptsEvents tells whether a caller asks for server-sent events.
func acceptsEvents(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// cursor is a reader's place in the output of a process, and what it wants of
// it.
type cursor struct {
	since  int64
	left   int // events still wanted
	stream string
	exact  bool // the bytes too
	lost   bool // events were gone before the last page could show them
}

func (in *outputIn) cursor() (*cursor, error) {
	cur := &cursor{left: math.MaxInt, stream: in.Stream}
	if in.Since != "" {
		n, ok := queryInt(in.Since)
		if !ok {
			return nil, api.Invalidf("Invalid 'since': an integer")
		}
		cur.since = max(n, 0)
	}
	if in.Limit != "" {
		n, ok := queryInt(in.Limit)
		if !ok || n < 1 {
			return nil, api.Invalidf("Invalid 'limit': a positive integer")
		}
		cur.left = int(min(n, math.MaxInt))
	}
	if in.Stream != "" && in.Stream != proc.Stdout.String() && in.Stream != proc.Stderr.String() {
		return nil, api.Invalidf("Invalid 'stream': stdout or stderr")
	}
	var err error
	cur.exact, err = wantsBase64(in.Encoding)
	return cur, err
}

// wantsBase64 reads an 'encoding'.
func wantsBase64(encoding string) (bool, error) {
	if encoding != "" && encoding != "base64" {
		return false, api.Invalidf("Invalid 'encoding': base64 or nothing")
	}
	return encoding != "", nil
}

// next waits for events that the reader wants, until the end of the output or
// of ctx, and moves the cursor behind them.
func (cur *cursor) next(ctx context.Context, log *proc.Log) proc.Page {
	cur.lost = false
	for {
		page := log.Wait(ctx, cur.since)
		cur.lost = cur.lost || page.First > cur.since
		wanted := page.Events[:0]
		for _, e := range page.Events {
			if cur.stream == "" || cur.stream == e.Stream.String() {
				wanted = append(wanted, e)
			}
		}
		page.Events = wanted
		if len(wanted) > cur.left {
			page.Events = wanted[:cur.left]
			cur.since = page.Events[cur.left-1].Seq + 1
		} else {
			cur.since = max(cur.since, page.Next)
		}
		cur.left -= len(page.Events)
		if len(page.Events) > 0 || page.Ended || ctx.Err() != nil {
			return page
		}
	}
}

// outputEvent is an event of output as callers see it.
type outputEvent struct {
	Seq        int64  `json:"seq"`
	Stream     string `json:"stream"`
	Data       string `json:"data"`
	DataBase64 []byte `json:"data_base64,omitempty"`
}

func (cur *cursor) show(e proc.Event) outputEvent {
	out := outputEvent{Seq: e.Seq, Stream: e.Stream.String(), Data: string(e.Data)}
	if cur.exact {
		out.DataBase64 = e.Data
	}
	return out
}

// outputPage is an answer of output. It is encoded event by event: what is
// kept of a process may be large.
type outputPage struct {
	cur  *cursor
	page proc.Page
	tail outputTail
}

type outputTail struct {
	PID      int    `json:"pid"`
	Next     int64  `json:"next"`
	First    int64  `json:"first"`
	State    string `json:"state"`
	ExitCode *int   `json:"exit_code"`
	Dropped  bool   `json:"dropped"`
}

// Header implements [api.Body].
func (o *outputPage) Header(h http.Header) { h.Set("Content-Type", "application/json; charset=utf-8") }

// Send implements [api.Body].
func (o *outputPage) Send(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	lead := `{"events":[`
	for _, e := range o.page.Events {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, _ = out.WriteString(lead) // its error stays and is told by Flush
		if err := enc.Encode(o.cur.show(e)); err != nil {
			return err
		}
		lead = ","
	}
	if len(o.page.Events) == 0 {
		_, _ = out.WriteString(lead)
	}
	tail, err := json.Marshal(o.tail)
	if err != nil {
		return err
	}
	_, _ = out.WriteString("],")
	_, _ = out.Write(tail[1:])
	return out.Flush()
}

// follow sends output from the cursor on as events and then how the process
// ended. What something that it has left behind prints still counts while no
// second passes in silence, as for commands that are waited for. When events
// are gone before they could be sent, a "dropped" event says so.
func follow(ctx context.Context, e *proc.Entry, cur *cursor, ev *api.Events) error {
	if err := ev.Start(); err != nil {
		return err
	}
	running, cancel := until(ctx, e.Process.Exited())
	defer cancel()
	next := func() proc.Page { return cur.next(running, e.Log) }
	quiet := func() proc.Page {
		ctx, cancel := context.WithTimeout(ctx, grace.Silence)
		defer cancel()
		return cur.next(ctx, e.Log)
	}
	for exited := false; ; {
		since := cur.since
		page := next()
		if cur.lost {
			if err := ev.Add("dropped", map[string]int64{"since": since, "first": page.First}); err != nil {
				return err
			}
		}
		for _, event := range page.Events {
			if err := ev.Add("output", cur.show(event)); err != nil {
				return err
			}
		}
		if err := ev.Flush(); err != nil {
			return err
		}
		switch {
		case ctx.Err() != nil, cur.left == 0:
			return nil
		case page.Ended, exited && len(page.Events) == 0:
			st, _ := e.Process.Status()
			return ev.Send("exit", map[string]any{
				"exit_code": st.Code, "signal": signalName(st.Signal), "reason": st.Reason, "next": cur.since,
			})
		}
		if page.Exited {
			exited, next = true, quiet
		}
	}
}
