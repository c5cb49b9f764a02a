package api

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"
)

// writeTimeout is how long a peer may read nothing before it is dropped.
const writeTimeout = 60 * time.Second

// libraryDrains is the largest body that net/http consumes before an answer.
const libraryDrains = 256 << 10

// answer is the response of one request: it renews the write deadline with
// every write and remembers what audit needs.
type answer struct {
	http.ResponseWriter
	rc     *http.ResponseController
	body   *bodyReader
	status int
	bytes  int64
	code   string // of an error answer
	taken  bool   // hijacked
	lost   bool   // the peer has gone, or reads no more
}

func newAnswer(w http.ResponseWriter) *answer {
	return &answer{ResponseWriter: w, rc: http.NewResponseController(w)}
}

func (a *answer) begun() bool { return a.status != 0 || a.taken }

func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(status int) {
	if status >= 200 && a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) touch() {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	_ = a.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
}

func (a *answer) Write(p []byte) (int, error) {
	a.touch()
	n, err := a.ResponseWriter.Write(p) //nolint:gosec // passes on what handlers write; they say what type it is
	a.bytes += int64(n)
	a.heed(err)
	return n, err
}

// heed notes that an answer failed because of the connection and not of what
// was to be sent.
func (a *answer) heed(err error) {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		a.lost = true
	}
}

// ReadFrom lets the kernel copy from files, in pieces so that a slow but
// living peer keeps renewing its deadline. The library knows a file behind one
// [io.LimitedReader] only, so a source that is one is taken apart.
func (a *answer) ReadFrom(src io.Reader) (int64, error) {
	rf, ok := a.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{a}, src)
	}
	whole := &io.LimitedReader{R: src, N: math.MaxInt64}
	if l, ok := src.(*io.LimitedReader); ok {
		whole = l
	}
	const piece = 1 << 20
	var total int64
	for whole.N > 0 {
		a.touch()
		want := min(piece, whole.N)
		n, err := rf.ReadFrom(&io.LimitedReader{R: whole.R, N: want})
		total += n
		a.bytes += n
		a.heed(err)
		whole.N -= n
		if err != nil || n < want {
			return total, err
		}
	}
	return total, nil
}

func (a *answer) Flush() error { return a.rc.Flush() }

// Hijack implements [http.Hijacker] for WebSockets.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := a.rc.Hijack()
	if err == nil {
		a.taken = true
		if a.status == 0 {
			a.status = http.StatusSwitchingProtocols
		}
	}
	return conn, rw, err
}

// json sends one whole JSON answer.
func (a *answer) json(status int, text []byte, r *http.Request) {
	h := a.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	a.settle(r, func() {
		a.WriteHeader(status)
		_, _ = a.Write(text)
	})
}

// settle sends an answer and, if the peer is still sending a body nobody will
// read, throws that away for a while: closing at once would reset the
// connection and take the answer with it.
func (a *answer) settle(r *http.Request, send func()) {
	if a.body == nil || a.body.ended() || r.ProtoMajor != 1 {
		send()
		return
	}
	if n := r.ContentLength; n >= 0 && n <= libraryDrains {
		// The library reads so little away by itself before it answers, and
		// the connection goes on; it only needs a bound in time.
		_ = a.rc.SetReadDeadline(time.Now().Add(drainTime))
		send()
		return
	}
	a.Header().Set("Connection", "close")
	if !a.body.touched && r.Header.Get("Expect") != "" {
		send() // the peer waits for our word before it sends anything
		return
	}
	if err := a.rc.EnableFullDuplex(); err != nil {
		send()
		return
	}
	send()
	_ = a.rc.Flush()
	_ = a.rc.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, a.body.src, drainBytes)
}

// bodyReader is a request body with its bounds: no more than limit bytes, no
// stall longer than the timeout.
type bodyReader struct {
	src     io.ReadCloser
	rc      *http.ResponseController
	stall   time.Duration
	left    int64
	tooBig  *Error
	touched bool
	eof     bool
	err     error
}

func (b *bodyReader) ended() bool { return b.eof }

// Read implements [io.Reader]. Beyond the limit it returns the 413.
func (b *bodyReader) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	b.touched = true
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(b.stall))
	n, err := b.src.Read(p)
	if int64(n) > b.left {
		b.err = b.tooBig
		return int(b.left), b.err
	}
	b.left -= int64(n)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		// The server now watches the connection for a peer that leaves; a
		// deadline left standing would look like one.
		b.eof = true
		_ = b.rc.SetReadDeadline(time.Time{})
	} else if errors.Is(err, io.ErrUnexpectedEOF) {
		err = Invalidf("The request body ended early")
	} else if _, ok := errors.AsType[net.Error](err); !ok {
		// Not the connection but what came over it: chunks that are none.
		err = Invalidf("The request body is not coded as its head says")
	}
	b.err = err
	return n, err
}
