package proc

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipe is our end of one output of a process. One goroutine reads it until end
// of file, first into the sink and, when the process is done, into nothing.
type pipe struct {
	p      *Process
	stream Stream
	f      *os.File
	raw    syscall.RawConn

	mu   sync.Mutex // held while bytes leave the kernel and are counted
	read int64

	taken  atomic.Int64 // bytes that are in the sink
	target atomic.Int64 // bytes written before the process ended; -1: not known yet
	last   atomic.Int64 // when bytes came last, Unix nanoseconds
	drop   atomic.Bool

	eof bool // under p.mu
}

// newPipe makes a pipe and returns our end, non-blocking, and the program's.
func newPipe(p *Process, s Stream) (*pipe, int, error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, os.NewSyscallError("pipe2", err)
	}
	pp := &pipe{p: p, stream: s}
	pp.target.Store(-1)
	err := unix.SetNonblock(fd[0], true)
	if err == nil {
		pp.f = os.NewFile(uintptr(fd[0]), "|"+s.String())
		pp.raw, err = pp.f.SyscallConn()
	}
	if err != nil {
		unix.Close(fd[0])
		unix.Close(fd[1])
		return nil, -1, err
	}
	return pp, fd[1], nil
}

// next waits for bytes and reads them into a block, as many as there are.
// io.EOF is the end. EAGAIN says that bytes which the process had written
// before its end are not there any more.
func (pp *pipe) next() (b *block, n int, err error) {
	wait := pp.raw.Read(func(fd uintptr) bool {
		due := pp.target.Load() > pp.taken.Load() // asked before the look
		// A block is held only while there is something to put in.
		b = getBlock()
		n, err = pp.fill(int(fd), b)
		if n > 0 {
			return true
		}
		putBlock(b)
		b = nil
		return due || !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case wait != nil: // the file was closed
		return nil, 0, wait
	case n == 0:
		return nil, 0, err
	}
	return b, n, nil
}

// fill reads until b is full or the pipe is empty. A program that writes small
// pieces makes more of them meanwhile, and one hand-over carries them all.
func (pp *pipe) fill(fd int, b *block) (n int, err error) {
	pp.mu.Lock()
	defer pp.mu.Unlock()
	for n < len(b) {
		var got int
		got, err = unix.Read(fd, b[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return n, err
		case got == 0:
			return n, io.EOF
		}
		n += got
		pp.read += int64(got)
	}
	return n, nil
}

// run is the reading goroutine.
func (pp *pipe) run(sink Sink) {
	for {
		b, n, err := pp.next()
		if errors.Is(err, unix.EAGAIN) {
			// Somebody who has the pipe open took them: wait for no more.
			pp.target.Store(pp.taken.Load())
			pp.p.reached()
			continue
		}
		if err != nil {
			break
		}
		if pp.drop.Load() {
			putBlock(b)
			continue
		}
		if !sink.take(pp.stream, b, n) {
			putBlock(b)
		}
		pp.last.Store(time.Now().UnixNano())
		if taken, target := pp.taken.Add(int64(n)), pp.target.Load(); target >= 0 && taken >= target {
			pp.p.reached()
		}
	}
	pp.f.Close()
	pp.p.pipeEnded(pp)
}

// aim notes, when the process has just ended, how many bytes it can have
// written: those read and those that wait in the pipe.
func (pp *pipe) aim() {
	waiting := 0
	_ = pp.raw.Control(func(fd uintptr) {
		pp.mu.Lock()
		defer pp.mu.Unlock()
		waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		waiting += int(pp.read)
	})
	pp.target.Store(int64(waiting))
}

// settled: everything written before the end is in the sink. Called under p.mu.
func (pp *pipe) settled() bool {
	target := pp.target.Load()
	return pp.eof || (target >= 0 && pp.taken.Load() >= target)
}

// held says that some process still has the other end.
func (pp *pipe) held() bool {
	gone := true
	_ = pp.raw.Control(func(fd uintptr) {
		set := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(set, 0)
		gone = err == nil && set[0].Revents&unix.POLLHUP != 0
	})
	return !gone
}
