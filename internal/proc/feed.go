package proc

import (
	"context"
	"io"
	"sync"
)

// feedDepth bounds what waits in a [Feed]: 16 blocks are 1 MiB.
const feedDepth = 16

// Feed is a [Sink] for one consumer that takes pieces as they come. A slow
// consumer slows the program down: at most about 1 MiB waits here, and the
// rest in the program's own pipe.
//
// The consumer calls Next until io.EOF. One that gives up before must call
// Close, or end the process by the context it was started with.
type Feed struct {
	pieces chan piece
	last   *block // given to the consumer by the last Next

	once  sync.Once
	ended chan struct{}
}

type piece struct {
	stream Stream
	b      *block
	n      int
}

// NewFeed makes a Feed.
func NewFeed() *Feed {
	return &Feed{pieces: make(chan piece, feedDepth), ended: make(chan struct{})}
}

func (f *Feed) take(s Stream, b *block, n int) bool {
	select {
	case <-f.ended:
		return false
	default:
	}
	select {
	case f.pieces <- piece{s, b, n}:
		return true
	case <-f.ended:
		return false
	}
}

func (f *Feed) exited() {}

func (f *Feed) end() { f.once.Do(func() { close(f.ended) }) }

func (f *Feed) lasting() bool { return false }

// Next waits for output and returns the next piece of up to 64 KiB, as many
// lines as there were. data is valid until the next call. The end of all
// output is io.EOF: then the process is done. Next is called by one goroutine.
func (f *Feed) Next(ctx context.Context) (s Stream, data []byte, err error) {
	if f.last != nil {
		putBlock(f.last)
		f.last = nil
	}
	select {
	case p := <-f.pieces:
		return f.give(p)
	default:
	}
	select {
	case p := <-f.pieces:
		return f.give(p)
	case <-f.ended:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	select { // both may have been ready
	case p := <-f.pieces:
		return f.give(p)
	default:
		return 0, nil, io.EOF
	}
}

func (f *Feed) give(p piece) (Stream, []byte, error) {
	f.last = p.b
	return p.stream, p.b[:p.n], nil
}

// Close says that nobody will call Next again: what comes is dropped, and the
// program is no longer held up.
func (f *Feed) Close() { f.end() }
