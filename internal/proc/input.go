package proc

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

const (
	inputLimit = 1 << 20
	inputWait  = 10 * time.Second
)

// What can go wrong with writing to a program's input.
var (
	// ErrInputFull: the buffer stayed full for ten seconds.
	ErrInputFull = errors.New("the process does not read its input")
	// ErrInputClosed: end of file was sent, or the program closed its end.
	ErrInputClosed = errors.New("the input is closed")
)

// Input is a buffered way to a program's standard input. Its methods are safe
// together. It belongs to one start.
type Input struct {
	wait time.Duration
	turn chan struct{} // one writer at a time, in the order of calls

	mu      sync.Mutex
	f       *os.File // nil before the start
	spawn   func(func()) bool
	queue   []byte
	flying  int // bytes the writer took from the queue and has not written yet
	writing bool
	eof     bool
	err     error
	room    chan struct{} // closed when the queue became shorter or the input ended
}

// NewInput makes an Input that is open until Write is told eof.
func NewInput() *Input {
	return &Input{wait: inputWait, turn: make(chan struct{}, 1), room: make(chan struct{})}
}

// InputBytes makes an Input that holds data and ends after it. It keeps data.
func InputBytes(data []byte) *Input {
	in := NewInput()
	in.queue, in.eof = data, true
	return in
}

// Write adds data to the buffer of 1 MiB, in the order of calls, and end of
// file after it if eof is set. While the buffer is full it waits for room, for
// at most ten seconds; then it returns the number of bytes taken and
// ErrInputFull, and eof is not applied. After end of file, and when the
// program has closed its input, it returns ErrInputClosed; when the program
// has ended, ErrEnded.
func (in *Input) Write(ctx context.Context, data []byte, eof bool) (n int, err error) {
	limit := time.NewTimer(in.wait)
	defer limit.Stop()
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-limit.C:
		return 0, ErrInputFull
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		in.mu.Lock()
		if in.err != nil || in.eof {
			defer in.mu.Unlock()
			return n, errOr(in.err, ErrInputClosed)
		}
		take := min(len(data)-n, max(inputLimit-len(in.queue)-in.flying, 0))
		in.queue = append(in.queue, data[n:n+take]...)
		n += take
		if n == len(data) && eof {
			in.eof = true
		}
		room := in.room
		in.kick()
		in.mu.Unlock()
		if n == len(data) {
			return n, nil
		}
		select {
		case <-room:
		case <-limit.C:
			return n, ErrInputFull
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// Close puts end of file behind what is in the buffer, at once: a Write that
// waits for room fails with ErrInputClosed. Closing twice is fine.
func (in *Input) Close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil || in.eof {
		return
	}
	in.eof = true
	in.kick()
	in.freed()
}

// Open says whether Write may succeed.
func (in *Input) Open() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err == nil && !in.eof
}

// attach gives the pipe to the input. spawn runs a function in a goroutine
// that the manager awaits, or says that it is too late for that.
func (in *Input) attach(f *os.File, spawn func(func()) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.f, in.spawn = f, spawn
	if in.err != nil {
		f.Close()
		return
	}
	in.kick()
}

// kick starts the writer if there is something to do and none runs. It is
// called under in.mu.
func (in *Input) kick() {
	if in.f == nil || in.writing || in.err != nil || (len(in.queue) == 0 && !in.eof) {
		return
	}
	in.writing = true
	if !in.spawn(in.pump) {
		in.writing = false
		in.fail(ErrEnded)
	}
}

// pump writes until the queue is empty. A goroutine lives only while there is
// something to write.
func (in *Input) pump() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.err == nil && len(in.queue) > 0 {
		data := in.queue[:min(len(in.queue), blockSize)]
		in.queue = in.queue[len(data):]
		if len(in.queue) == 0 {
			in.queue = nil
		}
		in.flying = len(data)
		in.mu.Unlock()
		_, err := in.f.Write(data)
		in.mu.Lock()
		in.flying = 0
		if err != nil {
			in.fail(ErrInputClosed)
		}
		in.freed()
	}
	if in.err == nil && in.eof {
		in.fail(ErrInputClosed)
	}
	in.writing = false
}

// freed wakes who waits for room. It is called under in.mu.
func (in *Input) freed() {
	close(in.room)
	in.room = make(chan struct{})
}

// fail ends the input for good. It is called under in.mu.
func (in *Input) fail(err error) {
	if in.err != nil {
		return
	}
	in.err = err
	in.queue = nil
	if in.f != nil {
		in.f.Close()
	}
	in.freed()
}

// end is called when the program has ended.
func (in *Input) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.fail(ErrEnded)
	} else {
		in.err = ErrEnded
	}
}
