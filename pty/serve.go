package pty

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	pingEvery = 20 * time.Second
	pongLimit = 20 * time.Second
	// farewell bounds what is still written when a connection is to end.
	farewell = 3 * time.Second
)

// ServeOptions say how a client is attached.
type ServeOptions struct {
	Since    int64 // as in [Session.Attach]; negative for "go on where others stopped"
	ReadOnly bool  // input, sizes and signals of the client are ignored

	pingEvery, pongLimit time.Duration // 0 for the constants
}

// Why a connection ended, beside the session's end and that of the context.
var (
	errPeerGone = errors.New("pty: the client has gone")
	errNoPong   = errors.New("pty: the client does not answer pings")
	errTooBig   = errors.New("pty: the client sent a message over 1 MiB")
	errNotWS    = errors.New("pty: the client does not speak WebSocket")
)

// Serve attaches a client to a session and carries messages both ways until
// the session has ended (close 1000), the client has gone, fell too far behind
// (1013), sent an overlong message (1009), does not answer pings, or ctx ends
// (1001). It owns c and has closed it when it returns. The error says why; it
// is nil after the session's end and when the client went by itself.
//
// Messages are JSON; with [RawProtocol] negotiated, output and input are
// binary frames. Odd messages are ignored, they never end a connection.
func Serve(ctx context.Context, c *Conn, s *Session, o ServeOptions) error {
	a := s.Attach(o.Since)
	defer a.Close()
	k := &client{conn: c, s: s, a: a, opts: o, raw: c.ws.Subprotocol() == RawProtocol}

	// The end of talk wakes whoever waits. The end of wire tears the
	// connection: the library knows no gentler way to end a write.
	wire, tear := context.WithCancel(context.WithoutCancel(ctx))
	defer tear()
	talk, stop := context.WithCancelCause(ctx)
	context.AfterFunc(talk, func() {
		t := time.AfterFunc(farewell, tear)
		context.AfterFunc(wire, func() { t.Stop() })
	})

	var wg sync.WaitGroup
	wg.Go(func() { stop(k.listen(wire, talk)) })
	wg.Go(func() { stop(k.keepAlive(wire, talk)) })
	err := k.speak(wire, talk)
	stop(err)
	a.Close() // a slow farewell holds nobody up
	if errors.Is(err, errNoPong) {
		_ = c.ws.CloseNow() // it would not answer this either
	} else {
		_ = c.ws.Close(farewellCode(err))
	}
	tear()
	wg.Wait()
	if errors.Is(err, errPeerGone) {
		return nil
	}
	return err
}

// farewellCode is how the reason of an end is told to the peer.
func farewellCode(err error) (websocket.StatusCode, string) {
	switch {
	case err == nil, errors.Is(err, errPeerGone):
		return websocket.StatusNormalClosure, ""
	case errors.Is(err, ErrLagged):
		return websocket.StatusTryAgainLater, "too far behind"
	case errors.Is(err, errNotWS):
		return websocket.StatusProtocolError, ""
	case errors.Is(err, errTooBig):
		return websocket.StatusMessageTooBig, "message over 1 MiB"
	}
	return websocket.StatusGoingAway, ""
}

// client is one served connection.
type client struct {
	conn *Conn
	s    *Session
	a    *Attachment
	opts ServeOptions
	raw  bool
	full atomic.Bool // the session's input queue is full: not listening
}

// listen takes the client's messages until it goes.
func (k *client) listen(wire, talk context.Context) error {
	for {
		typ, msg, err := k.conn.ws.Read(wire)
		if errors.Is(err, websocket.ErrMessageTooBig) {
			return errTooBig
		}
		if err != nil {
			return readError(err)
		}
		if k.opts.ReadOnly {
			continue
		}
		if k.raw && typ == websocket.MessageBinary {
			k.input(talk, msg)
			continue
		}
		if cmd, ok := decode(msg); ok {
			k.obey(talk, cmd)
		}
	}
}

// readError tells a client that has gone from one that sends no frames.
func readError(err error) error {
	var netErr net.Error
	switch {
	case websocket.CloseStatus(err) != -1, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled), errors.As(err, &netErr):
		return errPeerGone
	}
	return errNotWS
}

// obey does what a message asks for. What cannot be done is ignored, like
// what is not understood.
func (k *client) obey(talk context.Context, cmd command) {
	switch {
	case cmd.resize != nil:
		_ = k.s.Resize(cmd.resize.cols, cmd.resize.rows)
	case cmd.signal != 0:
		_ = k.s.Signal(cmd.signal)
	default:
		k.input(talk, cmd.input)
	}
}

// input types for the client. While the session's queue is full it blocks, and
// with it the reading of this client alone.
func (k *client) input(talk context.Context, p []byte) {
	k.full.Store(true)
	_, _ = k.s.Input(talk, p)
	k.full.Store(false)
}

// keepAlive pings the client and returns when it does not answer.
func (k *client) keepAlive(wire, talk context.Context) error {
	tick := time.NewTicker(cmp.Or(k.opts.pingEvery, pingEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-talk.Done():
			return nil
		}
		if err := k.ping(wire, talk); err != nil {
			return err
		}
	}
}

// ping returns nil after a pong. A client that we do not read, because its
// input finds no room, is not asked for one.
func (k *client) ping(wire, talk context.Context) error {
	wire, cancel := context.WithTimeout(wire, cmp.Or(k.opts.pongLimit, pongLimit))
	defer cancel()
	for {
		err := k.conn.ws.Ping(wire)
		switch {
		case err == nil || k.full.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return errPeerGone
		case wire.Err() != nil:
			return errNoPong
		}
		select { // the library gives up early while a write is stuck
		case <-time.After(time.Second):
		case <-talk.Done():
			return nil
		}
	}
}

// speak sends the client what the session has to say, from the first event to
// the last, and returns nil after that.
func (k *client) speak(wire, talk context.Context) error {
	title, err := k.greet(wire)
	next, held := k.a.seen, 0
	for err == nil {
		if err = k.a.wait(talk, held); errors.Is(err, io.EOF) {
			return k.exited(wire)
		}
		if err == nil {
			err = k.conn.waitWritable(talk, k.a)
		}
		if err == nil {
			next, held, err = k.output(wire, next, held)
		}
		if now := k.s.titleNow(); err == nil && now != title {
			title = now
			err = k.event(wire, titleEvent{"event", "title", title})
		}
	}
	return err
}

func (k *client) greet(wire context.Context) (title string, err error) {
	r := k.s.Record()
	return r.Title, k.event(wire, startedEvent{
		Type: "event", Event: "started", SessionID: r.ID, PID: r.PID,
		Offset: k.a.from, Cols: r.Cols, Rows: r.Rows, Title: r.Title,
	})
}

func (k *client) exited(wire context.Context) error {
	st, _ := k.s.Status()
	return k.event(wire, exitedEvent{"event", "exited", k.s.id, st.Code, signalName(st)})
}

// output sends one message of what the terminal shows from offset next on, and
// returns the offset after it. What it could not send yet, since it is less
// than a character, it reports as held; called again with nothing more, it
// sends that too.
func (k *client) output(wire context.Context, next int64, held int) (int64, int, error) {
	p := pieces.Get().(*piece)
	defer pieces.Put(p)
	off, n := k.a.peek(p[:])
	data := p[:n]
	if k.raw {
		if off > next {
			if err := k.event(wire, skippedEvent{"event", "skipped", off}); err != nil {
				return next, 0, err
			}
		}
		return k.sent(off+int64(n), k.write(wire, websocket.MessageBinary, data))
	}
	if off > next { // output was lost, perhaps the beginning of a character
		skip := headLen(data)
		off, data = off+int64(skip), data[skip:]
		held = 0
	}
	buf := outgoing.Get().(*[]byte)
	defer outgoing.Put(buf)
	msg, taken := appendOutput((*buf)[:0], off, data, held == len(data))
	if taken == 0 {
		k.a.take(off)
		return off, len(data), nil
	}
	*buf = msg
	return k.sent(off+int64(taken), k.write(wire, websocket.MessageText, msg))
}

// sent marks everything before an offset as taken, unless sending failed.
func (k *client) sent(next int64, err error) (int64, int, error) {
	if err == nil {
		k.a.take(next)
	}
	return next, 0, err
}

func (k *client) event(wire context.Context, e any) error {
	msg, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return k.write(wire, websocket.MessageText, msg)
}

func (k *client) write(wire context.Context, typ websocket.MessageType, msg []byte) error {
	if k.conn.ws.Write(wire, typ, msg) != nil {
		return errPeerGone
	}
	return nil
}
