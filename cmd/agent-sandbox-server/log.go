package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// sinkLines is how many lines may wait for the writer before lines are dropped
// and counted.
const sinkLines = 4096

// sink writes lines to a reader who may be slow or gone. Write never blocks
// and never fails: nobody is known to read a daemon's stderr, and a request
// must not wait for it. One Write is one line.
type sink struct {
	queue   chan []byte
	dropped atomic.Int64
	quit    chan struct{}
	done    chan struct{}
	once    sync.Once
}

// newSink starts the writer. Close ends it.
func newSink(w io.Writer, format string) *sink {
	s := &sink{queue: make(chan []byte, sinkLines), quit: make(chan struct{}), done: make(chan struct{})}
	direct := slog.New(logHandler(w, format))
	go func() {
		defer close(s.done)
		for {
			select {
			case line := <-s.queue:
				s.put(w, direct, line)
			case <-s.quit:
				for {
					select {
					case line := <-s.queue:
						s.put(w, direct, line)
					default:
						return
					}
				}
			}
		}
	}()
	return s
}

func (s *sink) put(w io.Writer, direct *slog.Logger, line []byte) {
	_, _ = w.Write(line)
	if n := s.dropped.Swap(0); n > 0 {
		direct.Warn("log lines dropped", "count", n)
	}
}

// Write queues a line. It keeps no reference to it.
func (s *sink) Write(line []byte) (int, error) {
	select {
	case s.queue <- slices.Clone(line):
	default:
		s.dropped.Add(1)
	}
	return len(line), nil
}

// Close writes what is queued and ends the writer, or gives up with ctx. Lines
// that come later are lost.
func (s *sink) Close(ctx context.Context) error {
	s.once.Do(func() { close(s.quit) })
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func logHandler(w io.Writer, format string) slog.Handler {
	if format == "json" {
		return slog.NewJSONHandler(w, nil)
	}
	return slog.NewTextHandler(w, nil)
}
