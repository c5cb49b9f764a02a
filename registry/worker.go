package registry

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

const (
	// maxLine bounds one message of a worker: 100 MiB of a result and what is
	// around it.
	maxLine = 100<<20 + 64<<10
	// outDepth is how many messages may wait to be written.
	outDepth = 64
	// burst is how many bytes of small messages are written at once.
	burst = 64 << 10
	// drainTime is how long messages are read on after the process has ended:
	// a child it forked may hold the pipe.
	drainTime = time.Second
	// abandonedMost is how many threads may be stuck in calls that nobody waits
	// for before a fresh worker takes over.
	abandonedMost = 16
)

// hello is what a worker says when all is loaded.
type hello struct {
	Commands []pythonCommand `json:"commands"`
	Routes   []pythonRoute   `json:"routes"`
	Groups   map[string]bool `json:"groups"`
	Start    *Start          `json:"start"`
	Python   string          `json:"python"`
}

type pythonCommand struct {
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Hidden      bool        `json:"hidden"`
	Scopes      []string    `json:"scopes"`
	Args        []pythonArg `json:"args"`
	First       int         `json:"first"` // the item that registered the name first
	Item        int         `json:"item"`  // the item the definition is from
}

type pythonArg struct {
	Name        string  `json:"name"`
	Type        string  `json:"type"`
	Required    bool    `json:"required"`
	Default     *string `json:"default"`
	Description string  `json:"description"`
}

type pythonRoute struct {
	ID           string   `json:"id"`
	Method       string   `json:"method"`
	Pattern      string   `json:"pattern"`
	Group        string   `json:"group"`
	Scopes       []string `json:"scopes"`
	AuthRequired bool     `json:"auth_required"`
	Streaming    bool     `json:"streaming"`
	Summary      string   `json:"summary"`
}

// worker is one connection to Python code that runs commands. The process at
// its other end is ours, or the one that started us.
type worker struct {
	in      *os.File
	out     *os.File
	process *proc.Process // nil when attached
	dir     string        // its Python files, "" when attached
	queue   chan []byte
	said    chan message  // ready or failed, once
	asked   func()        // the other end wants the server to stop
	tired   func()        // too many threads are stuck
	gone    chan struct{} // closed when no more messages come
	why     error         // set before gone is closed
	wg      sync.WaitGroup
	ended   func(*worker)
	end     func() // ends the process, in the time it takes itself

	routes map[string]int // by id, where they are at this worker

	mu        sync.Mutex
	open      map[uint64]*pending
	abandoned int
	retired   bool
	idle      chan struct{} // closed when retired and nothing open is waited for
}

// pending is a call that a worker has not finished.
type pending struct {
	answer    chan message // the answer, or the head of a stream
	stream    *Stream
	abandoned bool // nobody waits: the time limit is over
}

// connect begins to talk over two pipes, which the worker then owns.
func connect(in, out *os.File) *worker {
	return &worker{
		in: in, out: out, queue: make(chan []byte, outDepth), said: make(chan message, 1),
		gone: make(chan struct{}), open: map[uint64]*pending{}, idle: make(chan struct{}),
		asked: func() {}, tired: func() {}, ended: func(*worker) {},
	}
}

// run starts what moves messages. Close or the end of the process ends it.
func (w *worker) run() {
	w.wg.Go(w.write)
	w.wg.Go(w.read)
	if w.process != nil {
		w.wg.Go(func() {
			select {
			case <-w.process.Exited():
				_ = w.in.SetReadDeadline(time.Now().Add(drainTime))
			case <-w.gone:
			}
		})
	}
}

// send queues a message. It waits while the worker does not read, until ctx
// ends or the worker has gone.
func (w *worker) send(ctx context.Context, line []byte) error {
	select {
	case w.queue <- line:
		return nil
	case <-w.gone:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errGone = errors.New("the Python worker has ended")

func (w *worker) write() {
	var buf []byte
	for {
		select {
		case line := <-w.queue:
			buf = append(buf[:0], line...)
		case <-w.gone:
			return
		}
		for more := true; more && len(buf) < burst; {
			select {
			case line := <-w.queue:
				buf = append(buf, line...)
			default:
				more = false
			}
		}
		if _, err := w.out.Write(buf); err != nil {
			return // the reader sees the end too, and says so
		}
		if cap(buf) > 4*burst {
			buf = nil
		}
	}
}

// read delivers messages until the end of the worker.
func (w *worker) read() {
	src := bufio.NewReaderSize(w.in, 256<<10)
	var err error
	for err == nil {
		var line []byte
		if line, err = readLine(src, maxLine); err == nil {
			var m message
			if m, err = parseMessage(line); err == nil {
				w.deliver(m)
			}
		}
	}
	w.mu.Lock()
	w.why = fmt.Errorf("%w: %w", errGone, err)
	close(w.gone)
	for _, c := range w.open {
		if c.stream != nil {
			c.stream.end(errGone)
		}
	}
	w.mu.Unlock()
	_ = w.in.Close()
	_ = w.out.Close()
	if w.process != nil {
		// It closed its pipe, sent no messages, or has ended: nothing of it stays.
		w.process.End("")
		<-w.process.Done()
		_ = os.RemoveAll(w.dir)
	}
	w.ended(w)
}

// readLine reads one line, without its end, in memory of its own.
func readLine(src *bufio.Reader, most int) ([]byte, error) {
	part, err := src.ReadSlice('\n')
	if err == nil {
		return append([]byte(nil), part[:len(part)-1]...), nil
	}
	var line []byte
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("a message of more than %d bytes", most)
		}
		line = append(line, part...)
		part, err = src.ReadSlice('\n')
	}
	line = append(line, part...)
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

func (w *worker) deliver(m message) {
	switch m.op {
	case "ready", "failed":
		select {
		case w.said <- m:
		default:
		}
		return
	case "stop":
		w.asked()
		return
	}
	var data string
	if m.op == "chunk" && json.Unmarshal(m.data, &data) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.open[m.id]
	if c == nil {
		return
	}
	switch m.op {
	case "head":
		c.give(m)
		return
	case "chunk":
		if c.stream != nil {
			c.stream.put([]byte(data))
		}
		return
	case "end":
		if c.stream != nil {
			c.stream.end(io.EOF)
		}
	case "result":
		c.give(m)
	case "late":
	default:
		return
	}
	w.finish(m.id, c)
}

// give hands the answer to who waits for it. A second one is not taken.
func (c *pending) give(m message) {
	select {
	case c.answer <- m:
	default:
	}
}

// finish forgets a call. It is called under w.mu.
func (w *worker) finish(id uint64, c *pending) {
	delete(w.open, id)
	if c.abandoned {
		w.abandoned--
	}
	w.settle()
}

// settle notices that a retired worker has nothing to do any more. It is
// called under w.mu.
func (w *worker) settle() {
	if w.retired && len(w.open) == w.abandoned {
		select {
		case <-w.idle:
		default:
			close(w.idle)
		}
	}
}

// retire lets the calls that run finish; none will come.
func (w *worker) retire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.retired = true
	w.settle()
}

// begin enters a call; stream takes what comes after a head, if it may come.
func (w *worker) begin(id uint64, stream *Stream) (*pending, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.retired {
		return nil, errGone // another is there already
	}
	select {
	case <-w.gone:
		return nil, errGone
	default:
	}
	// Room for an answer, so that delivering never waits.
	c := &pending{answer: make(chan message, 1), stream: stream}
	w.open[id] = c
	return c, nil
}

// forget drops a call that was never sent.
func (w *worker) forget(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.open[id]; c != nil {
		w.finish(id, c)
	}
}

// abandon gives up a call at its time limit and tells the worker.
func (w *worker) abandon(id uint64) {
	w.mu.Lock()
	c := w.open[id]
	tired := false
	if c != nil && !c.abandoned {
		c.abandoned = true
		w.abandoned++
		tired = w.abandoned >= abandonedMost
		w.settle()
	}
	w.mu.Unlock()
	if c == nil {
		return
	}
	w.tell(cancelMessage(id))
	if tired {
		w.tired()
	}
}

// tell sends a message that nobody waits for, or drops it when the worker does
// not read.
func (w *worker) tell(line []byte) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case w.queue <- line:
	case <-w.gone:
	case <-t.C:
	}
}

func cancelMessage(id uint64) []byte {
	return fmt.Appendf(nil, `{"op":"cancel","id":%d}`+"\n", id)
}

// stop asks the worker to end, so that code after start() runs, and ends it
// when it does not within patience. An attached one only loses its server.
func (w *worker) stop(patience time.Duration) {
	w.tell([]byte(`{"op":"shutdown"}` + "\n"))
	if w.process == nil {
		_ = w.in.SetReadDeadline(time.Now())
	} else {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-w.process.Exited():
		case <-t.C:
			w.end()
		}
	}
	w.wg.Wait()
}
