package registry

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// command makes a command of what a worker says about one.
func (p *python) command(c pythonCommand) *Command {
	out := &Command{Name: c.Name, Description: c.Description, Hidden: c.Hidden, Scopes: c.Scopes, Source: "python"}
	for _, a := range c.Args {
		out.Args = append(out.Args, Arg{Name: a.Name, Type: a.Type, Required: a.Required, Default: a.Default, Description: a.Description})
	}
	out.run = func(ctx context.Context, call Call) ([]byte, error) { return p.runCommand(ctx, c.Name, call) }
	return out
}

func (p *python) runCommand(ctx context.Context, name string, call Call) ([]byte, error) {
	limit := p.o.Timeout
	if call.Timeout > 0 && (limit == 0 || call.Timeout < limit) {
		limit = call.Timeout
	}
	line := func(id uint64, _ *worker) []byte {
		b := make([]byte, 0, len(call.Object)+len(name)+64)
		b = append(b, `{"op":"call","id":`...)
		b = strconv.AppendUint(b, id, 10)
		b = append(b, `,"name":`...)
		b = AppendLine(b, []byte(quoteJSON(name)))
		b = append(b, `,"args":`...)
		b = AppendLine(b, call.Object)
		return append(b, "}\n"...)
	}
	m, err := p.ask(ctx, line, limit, nil)
	if err != nil {
		return nil, err
	}
	if m.failed || m.status != 200 {
		return nil, failureOf(m)
	}
	if call.MaxOutput > 0 && int64(len(m.body)) > call.MaxOutput {
		return nil, tooMuchOutput(call.MaxOutput)
	}
	return m.body, nil
}

// ask sends one call to a worker and waits for its answer, or for the head of
// a stream. A call is sent once: when the worker ends, nobody can know whether
// it ran.
func (p *python) ask(ctx context.Context, line func(id uint64, w *worker) []byte, limit time.Duration, stream *Stream) (message, error) {
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	w, id, call, err := p.enterCall(ctx, over, stream)
	if err != nil {
		return message{}, inTime(err, limit)
	}
	if stream != nil {
		stream.more = func(n int) { w.tell(moreMessage(id, n)) }
		stream.close = func() { w.tell(cancelMessage(id)) }
	}
	select {
	case w.queue <- line(id, w):
	case <-w.gone:
		return message{}, crashed(w)
	case <-over:
		w.forget(id)
		return message{}, timedOut(limit.Seconds())
	case <-ctx.Done():
		w.forget(id)
		return message{}, ctx.Err()
	}
	select {
	case m := <-call.answer:
		return m, nil
	case <-w.gone:
		select { // it may have answered before it ended
		case m := <-call.answer:
			return m, nil
		default:
		}
		return message{}, crashed(w)
	case <-over:
		w.abandon(id)
		return message{}, timedOut(limit.Seconds())
	case <-ctx.Done():
		// The function runs on: its caller has gone, not its effect. A stream
		// has no effect but what is read from it.
		if stream != nil {
			stream.close()
		}
		return message{}, ctx.Err()
	}
}

var errOver = errors.New("the time limit is over")

func inTime(err error, limit time.Duration) error {
	if errors.Is(err, errOver) {
		return timedOut(limit.Seconds())
	}
	return err
}

// enterCall finds a worker for a call, waiting for one to be ready.
func (p *python) enterCall(ctx context.Context, over <-chan time.Time, stream *Stream) (*worker, uint64, *pending, error) {
	id := p.nextID.Add(1)
	var patience <-chan time.Time
	for {
		p.mu.Lock()
		w, changed := p.current, p.changed
		p.mu.Unlock()
		if w != nil {
			if c, err := w.begin(id, stream); err == nil {
				return w, id, c, nil
			}
			// It has just ended; current changes in a moment.
		}
		if patience == nil {
			t := time.NewTimer(p.o.waitMost)
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-changed:
		case <-patience:
			return nil, 0, nil, failed(503, "WorkerUnavailable", "command_worker_unavailable", "The Python worker is starting").with("retry_after", int64(1))
		case <-over:
			return nil, 0, nil, errOver
		case <-ctx.Done():
			return nil, 0, nil, ctx.Err()
		case <-p.quit.Done():
			return nil, 0, nil, failed(503, "WorkerUnavailable", "command_worker_unavailable", "The server is stopping").with("retry_after", int64(1))
		}
	}
}

func crashed(w *worker) error {
	f := failed(500, "WorkerCrashed", "command_worker_crashed", "The Python worker ended while the command ran")
	f.Err = w.why
	return f
}

// failureOf reads the error a worker answers with.
func failureOf(m message) error {
	f := &Failure{Status: m.status, Type: "InternalError", Text: "The command failed"}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(m.body, &body); err != nil {
		f.Status, f.Err = 500, err
		return f
	}
	for key, raw := range body {
		var to *string
		switch key {
		case "error":
			to = &f.Text
		case "type":
			to = &f.Type
		case "code":
			to = &f.Code
		default:
			f = f.with(key, raw)
			continue
		}
		if err := json.Unmarshal(raw, to); err != nil {
			f.Err = err
		}
	}
	return f
}
