package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// maxMessage bounds one message of Chrome. A picture in base64 is the
	// largest there is.
	maxMessage = 64 << 20
	// maxQueue is how many messages may wait to be written. Chrome reads them
	// at once; when it does not it is as good as dead.
	maxQueue = 4096
)

var (
	errLost    = errors.New("the browser has gone")
	errCrashed = errors.New("the page has crashed or was closed")
	// errTooLarge is the answer to a command whose result is larger than we
	// take.
	errTooLarge = errors.New("the result is too large")
)

// protocolError is Chrome's refusal of a command.
type protocolError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    string `json:"data"`
}

func (e *protocolError) Error() string { return e.Message }

// object is the parameters of a command.
type object map[string]any

type command struct {
	ID      int64  `json:"id"`
	Session string `json:"sessionId,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

// message is a reply, which has an ID, or an event, which has a method.
type message struct {
	ID      int64           `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *protocolError  `json:"error"`
}

type reply struct {
	result json.RawMessage
	err    error
}

// conn speaks the DevTools protocol over the two pipes of one Chrome. Its
// methods are safe together. Events are given to one function, in order, on the
// goroutine that reads; that function must not wait for anything.
type conn struct {
	events func(m *message)
	queue  chan []byte
	lost   chan struct{} // closed when the browser can be spoken with no more
	heard  atomic.Int64  // messages that came
	wg     sync.WaitGroup
	files  []*os.File

	mu      sync.Mutex
	last    int64
	waiting map[int64]func(reply) // called on the goroutine that reads; must not wait
}

// newConn takes over the files: to is what Chrome reads, from what it writes.
func newConn(to, from *os.File, events func(*message)) *conn {
	c := &conn{
		events: events, queue: make(chan []byte, maxQueue), lost: make(chan struct{}),
		files: []*os.File{to, from}, waiting: map[int64]func(reply){},
	}
	c.wg.Go(func() {
		c.read(bufio.NewReaderSize(from, 64<<10))
		close(c.lost)
		_ = to.Close() // the writer may be blocked
	})
	c.wg.Go(func() { c.write(to) })
	return c
}

// close ends the conversation and both goroutines.
func (c *conn) close() {
	for _, f := range c.files {
		_ = f.Close()
	}
	c.wg.Wait()
}

func (c *conn) write(to io.Writer) {
	for {
		select {
		case <-c.lost:
			return
		case text := <-c.queue:
			if _, err := to.Write(text); err != nil {
				for _, f := range c.files {
					_ = f.Close() // ends the reader too
				}
				return
			}
		}
	}
}

func (c *conn) read(from *bufio.Reader) {
	for {
		text, err := readMessage(from)
		c.heard.Add(1)
		switch {
		case errors.Is(err, errTooLarge):
			if id := idOf(text); id != 0 {
				c.answer(id, reply{err: err})
			}
			continue
		case err != nil:
			return
		}
		var m message
		if json.Unmarshal(text, &m) != nil {
			return // never seen; there is no way to go on
		}
		switch {
		case m.ID != 0 && m.Error != nil:
			c.answer(m.ID, reply{err: m.Error})
		case m.ID != 0:
			c.answer(m.ID, reply{result: m.Result})
		case m.Method != "":
			c.events(&m)
		}
	}
}

// readMessage reads up to the zero byte that ends a message. Of one that is too
// large it returns the beginning, with errTooLarge.
func readMessage(from *bufio.Reader) ([]byte, error) {
	var text []byte
	dropped := false
	for {
		piece, err := from.ReadSlice(0)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(text)+len(piece) > maxMessage {
			dropped = true
			text = text[:min(len(text), 64)]
		}
		if !dropped {
			text = append(text, piece...)
		}
		switch {
		case err != nil:
		case dropped:
			return text, errTooLarge
		default:
			return text[:len(text)-1], nil
		}
	}
}

// idOf is the ID that a reply begins with, 0 for an event.
func idOf(text []byte) int64 {
	const lead = `{"id":`
	if len(text) < len(lead) || string(text[:len(lead)]) != lead {
		return 0
	}
	end := len(lead)
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	n, _ := strconv.ParseInt(string(text[len(lead):end]), 10, 64)
	return n
}

func (c *conn) answer(id int64, r reply) {
	c.mu.Lock()
	done := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if done != nil {
		done(r)
	}
}

// post sends a command and does not wait for its reply. It never blocks.
func (c *conn) post(session, method string, params object) {
	_, _ = c.send(session, method, params, nil)
}

// send queues a command; done gets its reply.
func (c *conn) send(session, method string, params any, done func(reply)) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock() // commands are queued in the order of their numbers
	c.last++
	if o, ok := params.(object); ok && o == nil {
		params = nil // Chrome takes no null
	}
	text, err := json.Marshal(command{c.last, session, method, params})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case <-c.lost:
		return 0, errLost
	default:
	}
	select {
	case c.queue <- append(text, 0):
	default:
		return 0, errLost
	}
	if done != nil {
		c.waiting[c.last] = done
	}
	return c.last, nil
}

// call sends a command, waits for its reply and decodes it into result, unless
// that is nil. Errors are *protocolError, errLost, errTooLarge or that of ctx.
func (c *conn) call(ctx context.Context, session, method string, params object, result any) error {
	return c.callUntil(ctx, nil, session, method, params, result)
}

// callUntil is call that fails with errCrashed when down is closed.
func (c *conn) callUntil(ctx context.Context, down <-chan struct{}, session, method string, params object, result any) error {
	ch := make(chan reply, 1)
	id, err := c.send(session, method, params, func(r reply) { ch <- r })
	if err != nil {
		return err
	}
	select {
	case r := <-ch:
		return r.decode(result)
	case <-c.lost:
		select {
		case r := <-ch: // it came just before
			return r.decode(result)
		default:
		}
		return errLost
	case <-down:
		err = errCrashed
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	delete(c.waiting, id)
	c.mu.Unlock()
	return err
}

func (r reply) decode(result any) error {
	if r.err != nil || result == nil {
		return r.err
	}
	return json.Unmarshal(r.result, result)
}
