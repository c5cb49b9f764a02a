package devtools

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// The drivers are programs in the languages of contexts. A driver gets cells
// on descriptor 4, as a mark and the code, each with a NUL behind it, and tells
// what came of them on 5, as JSON objects, one a line. When a cell is over it
// writes the mark to standard output and error, so that what was printed up to
// there is known to be the cell's.
var (
	//go:embed driver/driver.py
	pythonDriver string
	//go:embed driver/driver.js
	nodeDriver string
	//go:embed driver/driver.sh
	bashDriver string
)

// drivers are by language. asks says that the driver wants to be asked to
// interrupt a cell, besides the signal.
var drivers = map[string]struct {
	code string
	asks bool
}{
	"python": {pythonDriver, false},
	"node":   {nodeDriver, true},
	"bash":   {bashDriver, false},
}

// KeepsContexts tells whether contexts can be made in the language.
func (l *Language) KeepsContexts() bool {
	_, ok := drivers[l.Name]
	return ok
}

// CellSink takes what a cell produces, as it comes. It is called by one
// goroutine at a time and never after the run has returned; while it blocks,
// so does the program.
type CellSink interface {
	// Output takes what the cell printed. data is valid during the call.
	Output(s proc.Stream, data []byte)
	// Result takes a MIME bundle, a JSON object.
	Result(bundle json.RawMessage)
}

// CellError is what a cell failed with.
type CellError struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

const (
	maxResults     = 1000     // bundles of one cell
	maxResultBytes = 32 << 20 // of all bundles of one cell
	interruptGrace = 5 * time.Second
	markGrace      = time.Second
	replyGrace     = 200 * time.Millisecond
)

// kernel is one interpreter that runs cells. Two goroutines read what it says;
// they end when it has ended, and stop waits for them.
type kernel struct {
	p        *proc.Process
	requests *os.File
	asks     bool
	readers  sync.WaitGroup
	// condemned says that it was told to end, which takes the system a moment.
	condemned atomic.Bool

	mu   sync.Mutex // held while a sink is called
	cell *cell      // the one that runs
}

// cell is one run of code.
type cell struct {
	sink    CellSink
	marks   [2]markScanner
	replied bool
	done    chan struct{} // closed when the answer and both marks are there
	answer  chan struct{} // closed when the answer is there

	status      int
	failure     *CellError
	results     int
	resultBytes int
	lost        bool // some results were too many or too large
	over        bool
}

// startKernel starts an interpreter. how is the program, its environment and
// its directory.
func startKernel(ctx context.Context, m *proc.Manager, l *Language, program string, how proc.Spec) (*kernel, error) {
	d := drivers[l.Name]
	snippet, err := l.snippet(program, d.code, false)
	if err != nil {
		return nil, err
	}
	defer snippet.Close()
	in, requests, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer in.Close()
	replies, out, err := os.Pipe()
	if err != nil {
		_ = requests.Close()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer out.Close()
	feed := proc.NewFeed()
	how.Argv, how.Files, how.Output = snippet.Argv, append(snippet.Files, in, out), feed
	how.Grace = proc.Grace{Silence: 100 * time.Millisecond, Total: time.Second}
	ctx = context.WithoutCancel(ctx) // it outlives the request; its end ends all
	p, err := m.Start(ctx, how)
	if err != nil {
		_, _ = requests.Close(), replies.Close()
		return nil, err
	}
	k := &kernel{p: p, requests: requests, asks: d.asks}
	k.readers.Go(func() { k.readOutput(ctx, feed) })
	k.readers.Go(func() { k.readReplies(replies) })
	k.readers.Go(func() {
		<-p.Done()
		_ = requests.Close()
		// What was said before the end is still to be read; something that the
		// interpreter has started may hold the other end for ever.
		_ = replies.SetReadDeadline(time.Now().Add(replyGrace))
	})
	return k, nil
}

// stop ends the interpreter with all it started, and what reads from it.
// Its last words still reach the cell that runs, if one does.
func (k *kernel) stop(reason proc.Reason) {
	k.p.End(reason)
	<-k.p.Done()
	k.readers.Wait()
	k.drop(nil)
}

// condemn ends the interpreter without waiting for that.
func (k *kernel) condemn() {
	k.condemned.Store(true)
	k.p.End(proc.ReasonSignaled)
}

// alive tells whether cells can be run.
func (k *kernel) alive() bool {
	select {
	case <-k.p.Exited():
		return false
	default:
		return !k.condemned.Load()
	}
}

func (k *kernel) readOutput(ctx context.Context, feed *proc.Feed) {
	for {
		s, data, err := feed.Next(ctx)
		k.mu.Lock()
		if c := k.cell; c != nil && err == nil {
			c.output(s, data)
		} else if c != nil {
			for i, m := range c.marks {
				c.sink.Output(proc.Stream(i), m.held)
			}
		}
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *cell) output(s proc.Stream, data []byte) {
	out, marked := c.marks[s].feed(data)
	if len(out) > 0 {
		c.sink.Output(s, out)
	}
	if marked {
		c.check()
	}
}

// reply is what a driver says.
type reply struct {
	Type   string          `json:"type"`
	Data   json.RawMessage `json:"data"`
	Status int             `json:"status"`
	CellError
}

func (k *kernel) readReplies(r *os.File) {
	defer r.Close()
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := boundedLine(lines, maxResultBytes)
		if err != nil {
			return
		}
		k.mu.Lock()
		if c := k.cell; c != nil {
			c.take(line)
		}
		k.mu.Unlock()
	}
}

// boundedLine reads a line; of one that is longer than most bytes nothing is
// kept and nil returned.
func boundedLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for long := false; ; {
		piece, err := r.ReadSlice('\n')
		if long = long || len(line)+len(piece) > most; !long {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil:
			return nil, err
		case long:
			return nil, nil
		default:
			return line, nil
		}
	}
}

// take reads one line of a driver. Code can write to the descriptor too, so
// anything may come; it harms nobody but the cell.
func (c *cell) take(line []byte) {
	if line == nil {
		c.lost = true
		return
	}
	var r reply
	if json.Unmarshal(line, &r) != nil {
		return
	}
	switch r.Type {
	case "result":
		c.results++
		c.resultBytes += len(r.Data)
		if c.results > maxResults || c.resultBytes > maxResultBytes || len(r.Data) == 0 || r.Data[0] != '{' {
			c.lost = true
			return
		}
		c.sink.Result(r.Data)
	case "error":
		c.failure = &r.CellError
	case "done":
		if !c.replied {
			c.replied, c.status = true, r.Status
			close(c.answer)
			c.check()
		}
	}
}

// check ends the cell when everything of it is there.
func (c *cell) check() {
	if c.replied && c.marks[proc.Stdout].found && c.marks[proc.Stderr].found && !c.over {
		c.over = true
		close(c.done)
	}
}

// begin hands code to the driver.
func (k *kernel) begin(ctx context.Context, code string, sink CellSink) (*cell, error) {
	mark := "\x1e" + rand.Text() + "\x1e"
	c := &cell{sink: sink, done: make(chan struct{}), answer: make(chan struct{})}
	for i := range c.marks {
		c.marks[i].mark = []byte(mark)
	}
	k.drop(c)
	if until, ok := ctx.Deadline(); ok {
		_ = k.requests.SetWriteDeadline(until)
	}
	stop := context.AfterFunc(ctx, func() { _ = k.requests.SetWriteDeadline(time.Now()) })
	defer stop()
	request := bytes.Join([][]byte{[]byte(mark), []byte(code), nil}, []byte{0})
	if _, err := k.requests.Write(request); err != nil {
		return c, fmt.Errorf("hand the code to the interpreter: %w", err)
	}
	return c, nil
}

// drop makes c the cell that output belongs to. After it the sink of the
// former is not called any more.
func (k *kernel) drop(c *cell) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cell = c
}

// wait waits until the cell is over or ctx ends. A driver whose mark is lost,
// because the code has closed or redirected an output, is not waited for long.
func (k *kernel) wait(ctx context.Context, c *cell) error {
	answer := c.answer
	var late <-chan time.Time
	for {
		select {
		case <-c.done:
			return nil
		case <-late:
			return nil
		case <-answer:
			answer = nil
			t := time.NewTimer(markGrace)
			defer t.Stop()
			late = t.C
		case <-k.p.Exited():
			return proc.ErrEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// interrupt asks the cell to end and tells whether it did, whatever became of
// ctx.
func (k *kernel) interrupt(ctx context.Context, c *cell) bool {
	if k.asks {
		_ = k.requests.SetWriteDeadline(time.Now().Add(interruptGrace))
		_, _ = k.requests.Write([]byte{0})
	}
	_ = k.p.Signal(syscall.SIGINT, true)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptGrace)
	defer cancel()
	return k.wait(ctx, c) == nil
}

// markScanner passes on a stream up to a mark.
type markScanner struct {
	mark  []byte
	held  []byte // the end of what came, which may begin the mark
	found bool
}

// feed returns what comes before the mark, without what may be its beginning.
// The answer is valid until the next call. Behind the mark nothing is passed on.
func (m *markScanner) feed(data []byte) (out []byte, marked bool) {
	if m.found {
		return nil, false
	}
	data = append(m.held, data...)
	if i := bytes.Index(data, m.mark); i >= 0 {
		m.found, m.held = true, nil
		return data[:i], true
	}
	n := len(data) - overlap(data, m.mark)
	m.held = bytes.Clone(data[n:])
	return data[:n], false
}

// overlap is the length of the longest end of data that is a beginning of mark.
func overlap(data, mark []byte) int {
	for n := min(len(data), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(data, mark[:n]) {
			return n
		}
	}
	return 0
}
