package pty

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

// RawProtocol is the WebSocket sub-protocol in which binary frames are the
// terminal's bytes, both ways, and text frames are JSON control messages.
const RawProtocol = "pty.raw.v1"

// sendBuffer bounds what the kernel holds for a client. Left alone it grows to
// megabytes, and a pong would stand in that queue for longer than clients wait.
const sendBuffer = 256 << 10

// Conn is an accepted WebSocket connection.
type Conn struct {
	ws   *websocket.Conn
	sock syscall.RawConn // nil when the connection is no plain socket
}

// Accept upgrades a request that has been admitted: origin and credentials are
// the caller's business. When it fails it has answered w. The connection must
// be given to [Serve] or closed.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	h := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols:       []string{RawProtocol},
		InsecureSkipVerify: true, // the one origin check is at the door
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(messageMax)
	return &Conn{ws: ws, sock: h.sock}, nil
}

// Close closes the connection with a status code, such as 1008 for an unknown
// session, and a reason of at most 123 bytes. It waits up to 5 s for the
// peer's answer.
func (c *Conn) Close(code int, reason string) error {
	return c.ws.Close(websocket.StatusCode(code), reason)
}

// hijacker looks at the connection on its way to the WebSocket library, which
// does not let anybody reach it afterwards.
type hijacker struct {
	http.ResponseWriter
	sock syscall.RawConn
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if socket, ok := conn.(interface {
		syscall.Conn
		SetWriteBuffer(bytes int) error
	}); ok && err == nil {
		_ = socket.SetWriteBuffer(sendBuffer)
		h.sock, _ = socket.SyscallConn()
	}
	return conn, rw, err
}

// waitWritable waits until the kernel has room for another message, so that
// writes do not block: pongs and the closing frame can then always be sent,
// also to a client that takes its output slowly or not at all.
//
// It looks again and again, but only while output waits for a client that does
// not read: a wait in the poller would hold the lock that those frames need.
func (c *Conn) waitWritable(ctx context.Context, a *Attachment) error {
	for pause := time.Millisecond / 2; !c.writable(); pause = min(2*pause, 16*time.Millisecond) {
		if _, _, err := a.look(); err != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (c *Conn) writable() bool {
	ready := true
	if c.sock != nil {
		_ = c.sock.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(p, 0)
			ready = err != nil || n > 0 // an error shows in the write
		})
	}
	return ready
}

// outgoing are buffers for encoded messages; a silent attachment has none.
var outgoing = sync.Pool{New: func() any { return new([]byte) }}
