package connect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// DefaultMaxMessage is the most bytes of one message when nobody says
// otherwise.
const DefaultMaxMessage = 64 << 20

// Call is one call. It is used by the goroutine of its handler only.
type Call struct {
	R *http.Request
	// MaxMessage is the most bytes of one message of the caller's, unpacked.
	// Admit may change it.
	MaxMessage int64
	// Progress, if set, is called whenever the peer has taken some of what is
	// sent, at least every 16 KiB.
	Progress func()

	w        http.ResponseWriter
	protocol protocol
	binary   bool
	packed   bool // messages of the caller's may be gzip
	timeout  time.Duration
	timed    bool
	begun    bool
}

// Timeout is the time limit the caller has set for the call; false for none.
// It is above zero, and counts from the start of the call.
func (c *Call) Timeout() (time.Duration, bool) { return c.timeout, c.timed }

// Header are the headers of the answer, until something was sent.
func (c *Call) Header() http.Header { return c.w.Header() }

// Unblock makes a Send that waits for its peer fail, now and from now on. It
// may be called by any goroutine while the handler runs.
func (c *Call) Unblock() {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Unix(1, 0))
}

// Options are what all methods of a service share. They do not change.
type Options struct {
	// Admit lets a call in, or says why not, before any of its messages is
	// read. The context it returns is the handler's. done, if not nil, is
	// called when all is over, with the failure or nil.
	Admit func(ctx context.Context, c *Call) (inner context.Context, done func(*Error), err error)
	// Explain turns what Admit and handlers return into what callers are told.
	Explain func(error) *Error
}

func (o *Options) explain(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if o.Explain != nil {
		return o.Explain(err)
	}
	return &Error{Code: Internal, Msg: "internal error", Err: err}
}

// method serves one method of a service.
type method struct {
	opts   *Options
	stream bool
	run    func(ctx context.Context, c *Call) error
}

// Unary serves a method with one message each way.
func Unary[Req, Res any](o *Options, h func(context.Context, *Call, *Req) (*Res, error)) http.Handler {
	return &method{opts: o, run: func(ctx context.Context, c *Call) error {
		in := new(Req)
		if err := c.readOnly(in); err != nil {
			return err
		}
		if c.timed {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.timeout)
			defer cancel()
		}
		out, err := h(ctx, c, in)
		if err != nil {
			return err
		}
		return c.sendOnly(out)
	}}
}

// Sender sends the messages of one stream. Its methods are for one goroutine.
type Sender[Res any] struct{ c *Call }

// Send sends one message at once. It waits while the peer does not read.
func (s Sender[Res]) Send(m *Res) error { return s.c.send(m) }

// ServerStream serves a method that answers a stream. The caller's time limit
// is the handler's to keep: ctx ends only when the peer has gone.
func ServerStream[Req, Res any](o *Options, h func(context.Context, *Call, *Req, Sender[Res]) error) http.Handler {
	return &method{opts: o, stream: true, run: func(ctx context.Context, c *Call) error {
		in := new(Req)
		if err := c.readOnly(in); err != nil {
			return err
		}
		return h(ctx, c, in, Sender[Res]{c})
	}}
}

// Receiver reads the messages of one stream. Its methods are for one
// goroutine.
type Receiver[Req any] struct{ c *Call }

// Next waits for the next message; io.EOF is the caller's end of them.
func (r Receiver[Req]) Next() (*Req, error) {
	m := new(Req)
	if err := r.c.next(m); err != nil {
		return nil, err
	}
	return m, nil
}

// ClientStream serves a method that reads a stream and then answers once.
func ClientStream[Req, Res any](o *Options, h func(context.Context, *Call, Receiver[Req]) (*Res, error)) http.Handler {
	return &method{opts: o, stream: true, run: func(ctx context.Context, c *Call) error {
		if c.timed {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.timeout)
			defer cancel()
		}
		out, err := h(ctx, c, Receiver[Req]{c})
		if err != nil {
			return err
		}
		return c.send(out)
	}}
}

// ServeHTTP implements [http.Handler].
func (m *method) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	c := &Call{R: r, w: w, MaxMessage: DefaultMaxMessage}
	var known bool
	if c.protocol, c.binary, known = negotiate(r.Header.Get("Content-Type"), m.stream); !known {
		w.Header().Set("Accept-Post", acceptPost(m.stream))
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	err := m.serve(c) //nolint:contextcheck // c has the request
	if err != nil && c.begun && r.Context().Err() != nil {
		return // nobody is there to be told
	}
	c.finish(err)
}

func (m *method) serve(c *Call) (failed *Error) {
	ctx := c.R.Context()
	if m.opts.Admit != nil {
		inner, done, err := m.opts.Admit(ctx, c)
		if done != nil {
			defer func() { done(failed) }()
		}
		if err != nil {
			return m.opts.explain(err)
		}
		ctx = inner
	}
	if e := c.readHead(); e != nil {
		return e
	}
	if err := m.run(ctx, c); err != nil {
		return m.opts.explain(err)
	}
	return nil
}

// readHead reads what the headers say of the call.
func (c *Call) readHead() *Error {
	h := c.R.Header
	if v := h.Get("Connect-Protocol-Version"); v != "" && v != "1" {
		return Errorf(InvalidArgument, "Connect-Protocol-Version must be 1")
	}
	coding := h.Get(c.protocol.codingHeader())
	switch coding {
	case "", "identity":
	case "gzip":
		c.packed = true
	default:
		return Errorf(Unimplemented, "unknown compression; gzip is supported")
	}
	text, grpc := h.Get("Connect-Timeout-Ms"), c.protocol == grpcWeb || c.protocol == grpcPlain
	if grpc {
		text = h.Get("Grpc-Timeout")
	}
	if text == "" {
		return nil
	}
	d, ok := parseTimeout(text, grpc)
	if !ok {
		return Errorf(InvalidArgument, "the time limit is not a number")
	}
	if d <= 0 {
		return Errorf(DeadlineExceeded, "the time limit is over")
	}
	c.timeout, c.timed = d, true
	return nil
}

// parseTimeout reads milliseconds, or a number with gRPC's unit.
func parseTimeout(text string, grpc bool) (time.Duration, bool) {
	unit := time.Millisecond
	if grpc {
		units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
		var ok bool
		if unit, ok = units[text[len(text)-1]]; !ok {
			return 0, false
		}
		text = text[:len(text)-1]
	}
	if len(text) > 10 || strings.ContainsAny(text, "+-") {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false
	}
	const most = 100 * 365 * 24 * time.Hour
	if n > int64(most/unit) {
		return most, true
	}
	return time.Duration(n) * unit, true
}

// readOnly reads the one message of a call that has no more.
func (c *Call) readOnly(m any) error {
	if c.protocol == connectUnary {
		text, err := readAll(c.R.Body, c.MaxMessage)
		if err == nil && c.packed {
			text, err = unpack(text, c.MaxMessage)
		}
		if err != nil {
			return err
		}
		return c.decode(text, m)
	}
	if err := c.next(m); err != nil {
		if errors.Is(err, io.EOF) {
			return Errorf(InvalidArgument, "the call has no message")
		}
		return err
	}
	// The end must be seen: only then the library notices a peer that leaves.
	var more [1]byte
	if n, err := io.ReadFull(c.R.Body, more[:]); n > 0 {
		return Errorf(Unimplemented, "the call has more than one message")
	} else if !errors.Is(err, io.EOF) {
		return bodyError(err)
	}
	return nil
}

// next reads the next message of a stream; io.EOF is its end.
func (c *Call) next(m any) error {
	flags, text, err := readEnvelope(c.R.Body, c.MaxMessage)
	if err != nil {
		return err
	}
	switch {
	case flags&^flagPacked != 0:
		return Errorf(InvalidArgument, "odd envelope flags")
	case flags&flagPacked != 0 && !c.packed:
		return Errorf(Internal, "a compressed message without a compression header")
	case flags&flagPacked != 0:
		if text, err = unpack(text, c.MaxMessage); err != nil {
			return err
		}
	}
	return c.decode(text, m)
}

func (c *Call) decode(text []byte, m any) error {
	read := readJSON
	if c.binary {
		read = readBinary
	}
	if err := read(text, m); err != nil {
		return Errorf(InvalidArgument, "%v", err)
	}
	return nil
}

func (c *Call) encode(b []byte, m any) []byte {
	if c.binary {
		return appendBinary(b, m)
	}
	return appendJSON(b, m)
}
