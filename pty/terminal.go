package pty

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal owns the master side of one pseudo-terminal. The descriptor is
// reached only through it, so that a closed terminal's number can never be
// used for another one. One goroutine may read while others write and control.
type terminal struct {
	file *os.File
	raw  syscall.RawConn
}

// openTerminal makes a terminal of the given size and returns its two sides.
// The caller closes both; tty is for the program.
func openTerminal(cols, rows int) (t *terminal, tty *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	t = &terminal{file: os.NewFile(uintptr(fd), "/dev/ptmx")}
	defer func() {
		if err != nil {
			_ = t.close()
			if tty != nil {
				_ = tty.Close()
			}
		}
	}()
	if t.raw, err = t.file.SyscallConn(); err != nil {
		return nil, nil, err
	}
	err = t.control(func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return os.NewSyscallError("TIOCSPTLCK", err)
		}
		if tty, err = openPeer(fd); err != nil {
			return err
		}
		return setEraseUTF8(fd)
	})
	if err != nil {
		return nil, tty, err
	}
	return t, tty, t.resize(cols, rows)
}

// openPeer opens the program's side of the terminal whose master is fd.
func openPeer(fd int) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, flags)
	if errno == 0 {
		return os.NewFile(peer, "tty"), nil
	}
	// Kernels that do not know the call (gVisor) leave only the name.
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, os.NewSyscallError("TIOCGPTPEER", errno)
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), flags, 0)
}

// setEraseUTF8 makes the erase key remove whole characters.
func setEraseUTF8(fd int) error {
	attr, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return os.NewSyscallError("TCGETS", err)
	}
	attr.Iflag |= unix.IUTF8
	return os.NewSyscallError("TCSETS", unix.IoctlSetTermios(fd, unix.TCSETS, attr))
}

// control runs f on the descriptor, which stays open meanwhile.
func (t *terminal) control(f func(fd int) error) error {
	var inner error
	if err := t.raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (t *terminal) resize(cols, rows int) error {
	return t.control(func(fd int) error {
		ws := unix.Winsize{Col: uint16(cols), Row: uint16(rows)}
		return os.NewSyscallError("TIOCSWINSZ", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &ws))
	})
}

// interrupt sends SIGINT or SIGQUIT to the terminal's foreground group. The
// kernel looks the group up and signals it in one step, so that no group that
// came later is hit.
func (t *terminal) interrupt(sig syscall.Signal) error {
	return t.control(func(fd int) error {
		err := unix.IoctlSetInt(fd, unix.TIOCSIG, int(sig))
		if !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EINVAL) {
			return os.NewSyscallError("TIOCSIG", err)
		}
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		if err != nil || group <= 1 {
			return os.NewSyscallError("TIOCGPGRP", err)
		}
		return os.NewSyscallError("kill", unix.Kill(-group, sig))
	})
}

func (t *terminal) close() error { return t.file.Close() }

// piece is a buffer for what one read of a terminal brings.
type piece [pieceMax]byte

// pieces are shared by all terminals: an idle one has none.
var pieces = sync.Pool{New: func() any { return new(piece) }}

const (
	// gatherFrom is how much must have come at once for more to be expected:
	// the kernel hands over at most 4 KiB per read.
	gatherFrom = 2 << 10
	gatherTime = 2 * time.Millisecond
	gatherLook = 64 // times in a row that nothing was there
)

// read waits for output and returns at most limit bytes of it, in a piece that
// the caller puts back, or nil and the error that ended the wait: io errors
// when the terminal has ended, os.ErrDeadlineExceeded after stopReading.
//
// While a program writes without pause, it gathers for up to gatherTime, which
// turns sixteen small messages into one. A key's echo is never held up.
func (t *terminal) read(limit int) (p *piece, n int, err error) {
	waitErr := t.raw.Read(func(fd uintptr) bool {
		p = pieces.Get().(*piece)
		n, err = gather(int(fd), p[:min(limit, pieceMax)])
		if n > 0 {
			err = nil // it comes again
			return true
		}
		pieces.Put(p)
		p = nil
		return !errors.Is(err, unix.EAGAIN)
	})
	if p == nil && waitErr != nil {
		err = waitErr
	}
	return p, n, err
}

// gather reads what is there into p, and what follows at once.
func gather(fd int, p []byte) (n int, err error) {
	var until time.Time
	looks := 0
	for n < len(p) {
		var k int
		k, err = unix.Read(fd, p[n:])
		switch {
		case k > 0:
			n += k
			looks = 0
			continue
		case err == nil:
			return n, unix.EIO // a terminal has no end of file but its end
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN) || n < gatherFrom:
			return n, err
		}
		now := time.Now()
		if until.IsZero() {
			until = now.Add(gatherTime)
		} else if looks++; looks > gatherLook || now.After(until) {
			return n, nil
		}
		// The writer is just making more: let it, here and in the kernel.
		runtime.Gosched()
		_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
	return n, nil
}

// stopReading makes the read that waits, and later ones, fail with
// os.ErrDeadlineExceeded when nothing is there at the given time.
func (t *terminal) stopReading(at time.Time) { _ = t.file.SetReadDeadline(at) }

// tryWrite writes as much of p as fits without waiting.
func (t *terminal) tryWrite(p []byte) (n int) {
	_ = t.raw.Write(func(fd uintptr) bool {
		n, _ = unix.Write(int(fd), p)
		return true
	})
	return max(n, 0)
}
