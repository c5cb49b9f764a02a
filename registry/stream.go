package registry

import (
	"context"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// Stream is the body of a route's answer that comes in pieces. One goroutine
// reads it; whoever got it must close it.
type Stream struct {
	more  func(n int) // tells the worker that there is room again
	close func()

	mu      sync.Mutex
	pieces  [][]byte
	err     error
	changed chan struct{}
}

func newStream() *Stream { return &Stream{changed: make(chan struct{}, 1)} }

// put adds a piece. The worker keeps to a window, so what waits is bounded.
func (s *Stream) put(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.pieces = append(s.pieces, data)
		s.wake()
	}
}

func (s *Stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		s.wake()
	}
}

func (s *Stream) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Next waits for the next piece. The end is io.EOF; a worker that ended in the
// middle is another error.
func (s *Stream) Next(ctx context.Context) ([]byte, error) {
	for {
		s.mu.Lock()
		if len(s.pieces) > 0 {
			piece := s.pieces[0]
			s.pieces = s.pieces[1:]
			going := s.err == nil
			s.mu.Unlock()
			if going {
				s.more(max(utf8.RuneCount(piece), 1)) // the worker counts characters
			}
			return piece, nil
		}
		err := s.err
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close tells the worker to make no more.
func (s *Stream) Close() {
	s.mu.Lock()
	over := s.err != nil
	s.pieces, s.err = nil, io.EOF
	s.mu.Unlock()
	if !over {
		s.close()
	}
}

func moreMessage(id uint64, n int) []byte {
	return fmt.Appendf(nil, `{"op":"more","id":%d,"bytes":%d}`+"\n", id, n)
}
