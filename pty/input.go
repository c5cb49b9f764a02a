package pty

import (
	"context"
	"sync"
)

// inputMax is the most typed bytes a session holds for a program that does not
// read them.
const inputMax = 1 << 20

// input carries what is typed to a terminal without ever making one session
// wait for another. Writes of several clients are not mixed within one.
type input struct {
	term *terminal
	over <-chan struct{} // closed when nothing is read any more

	turn  chan struct{} // holds a token while a write is being taken in
	space chan struct{} // told when the queue has shrunk

	mu      sync.Mutex
	queue   []byte // what waits is queue[head:]
	head    int
	running bool // a goroutine is emptying the queue
	wg      sync.WaitGroup
}

func newInput(t *terminal, over <-chan struct{}) *input {
	return &input{term: t, over: over, turn: make(chan struct{}, 1), space: make(chan struct{}, 1)}
}

// write queues p and returns how much of it was taken: all, or what fitted
// before ctx ended, or before the session did, with ErrEnded.
func (in *input) write(ctx context.Context, p []byte) (n int, err error) {
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-in.over:
		return 0, ErrEnded
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		k, err := in.add(p[n:])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
		select {
		case <-in.space:
		case <-in.over:
			return n, ErrEnded
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

// add takes as much of p as there is room for.
func (in *input) add(p []byte) (n int, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.over:
		return 0, ErrEnded
	default:
	}
	if !in.running {
		if n = in.term.tryWrite(p); n == len(p) {
			return n, nil
		}
	}
	if in.head > len(in.queue)/2 {
		in.queue = in.queue[:copy(in.queue, in.queue[in.head:])]
		in.head = 0
	}
	k := min(len(p)-n, inputMax-(len(in.queue)-in.head))
	in.queue = append(in.queue, p[n:n+k]...)
	if !in.running {
		in.running = true
		in.wg.Go(in.drain)
	}
	return n + k, nil
}

// drain writes the queue to the terminal until it is empty. A failed write
// means that the terminal is closed, and nobody will read the rest.
func (in *input) drain() {
	var buf [4 << 10]byte
	var err error
	for {
		in.mu.Lock()
		n := copy(buf[:], in.queue[in.head:])
		if n == 0 || err != nil {
			in.queue, in.head, in.running = nil, 0, false
			in.mu.Unlock()
			return
		}
		in.head += n
		in.mu.Unlock()
		select {
		case in.space <- struct{}{}:
		default:
		}
		_, err = in.term.file.Write(buf[:n])
	}
}

// finish waits until nothing is written any more. over must be closed and so
// must the terminal.
func (in *input) finish() {
	in.mu.Lock()
	in.mu.Unlock() //nolint:staticcheck // an add that began before over was closed has now started its drain
	in.wg.Wait()
}
