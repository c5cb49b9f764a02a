package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// pingEvery is the longest silence on an event stream; a comment breaks it,
// which also finds peers that have gone without a word.
const pingEvery = 15 * time.Second

// Events writes server-sent events. Its methods may be called from several
// goroutines. A peer that stops reading for a minute, or has gone, ends the
// stream: the request's context is cancelled, and every later call returns the
// same error.
type Events struct {
	mu      sync.Mutex
	w       *answer
	r       *http.Request
	cancel  context.CancelFunc
	buf     []byte
	started bool
	err     error
	ping    *time.Timer
	closed  bool
}

func newEvents(w *answer, r *http.Request, cancel context.CancelFunc) *Events {
	return &Events{w: w, r: r, cancel: cancel}
}

// Start sends the head of the stream. It is implied by the first event; a
// stream that may stay silent calls it so that the peer knows it is accepted.
func (e *Events) Start() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flush()
}

// Send writes one event and flushes it. data is any value that encodes to a
// JSON object.
func (e *Events) Send(name string, data any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.add(name, data); err != nil {
		return err
	}
	return e.flush()
}

// Raw writes one event and flushes it. data is a JSON object on one line of
// ASCII, which is not checked.
func (e *Events) Raw(name string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	e.open(name)
	e.buf = append(append(e.buf, data...), '\n', '\n')
	return e.flush()
}

// Add appends one event without flushing, for bursts as with [Events.Text].
func (e *Events) Add(name string, data any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.add(name, data); err != nil || len(e.buf) < flushAt {
		return err
	}
	return e.flush()
}

func (e *Events) add(name string, data any) error {
	if e.err != nil {
		return e.err
	}
	e.open(name)
	if e.buf, e.err = encodeASCII(e.buf, data); e.err != nil {
		e.cancel()
		return e.err
	}
	e.buf = append(e.buf, '\n', '\n')
	return nil
}

// flushAt is how many bytes of unflushed events are gathered at most.
const flushAt = 64 << 10

// Text appends the event {"data": text} without flushing, so that a burst of
// lines costs one write. partial adds "partial": true. Call [Events.Flush]
// when there is nothing more to append for now.
func (e *Events) Text(name string, text []byte, partial bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return e.err
	}
	e.open(name)
	e.buf = append(e.buf, `{"data": `...)
	e.buf = AppendText(e.buf, text)
	if partial {
		e.buf = append(e.buf, `, "partial": true`...)
	}
	e.buf = append(e.buf, "}\n\n"...)
	if len(e.buf) >= flushAt {
		return e.flush()
	}
	return nil
}

// Flush sends what Text and Add appended.
func (e *Events) Flush() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || len(e.buf) == 0 {
		return e.err
	}
	return e.flush()
}

func (e *Events) open(name string) {
	e.buf = append(e.buf, "event: "...)
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, "\ndata: "...)
}

// flush sends the buffer; with an empty one it only starts the stream.
func (e *Events) flush() error {
	if e.err != nil {
		return e.err
	}
	if !e.started {
		e.started = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
		e.ping = time.AfterFunc(pingEvery, e.breakSilence)
	}
	e.ping.Reset(pingEvery)
	if len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	if cap(e.buf) > 4*flushAt {
		e.buf = nil // one long line must not pin its size for the whole stream
	}
	e.buf = e.buf[:0]
	if e.err == nil {
		e.err = e.w.Flush()
	}
	if e.err != nil {
		e.cancel()
	}
	return e.err
}

func (e *Events) breakSilence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.err != nil {
		return
	}
	e.buf = append(e.buf, ": ping\n\n"...)
	_ = e.flush()
}

// Begun tells whether anything was sent: then an error can only be an event.
func (e *Events) Begun() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started
}

// finish ends the stream. It returns a handler's error for an ordinary answer
// if nothing was sent yet; later an error becomes the stream's own event.
func (e *Events) finish(err error) error {
	if !e.Begun() {
		return err
	}
	if err != nil && e.r.Context().Err() == nil {
		_ = e.Send("error", map[string]string{"error": Public(err)})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.flush()
	e.closed = true
	e.ping.Stop()
	return nil
}
