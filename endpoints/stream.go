package endpoints

import (
	"encoding/base64"
	"math"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// outputBudget is how many characters a stream may still send.
func outputBudget(rule *policy.Rule) int64 {
	if n, ok := rule.Int("max_output_bytes"); ok {
		return n
	}
	return math.MaxInt64
}

// lineStream sends whole lines, one event each.
type lineStream struct {
	ev    *api.Events
	lines [2]proc.Lines
	left  int64
	now   proc.Stream
}

func newLineStream(ev *api.Events, rule *policy.Rule) outStream {
	return &lineStream{ev: ev, left: outputBudget(rule)}
}

func (l *lineStream) put(s proc.Stream, data []byte) error {
	l.now = s
	if err := l.lines[s].Feed(data, l.line); err != nil {
		return l.fail(err)
	}
	return l.ev.Flush()
}

func (l *lineStream) end() error {
	for _, s := range []proc.Stream{proc.Stdout, proc.Stderr} {
		l.now = s
		if err := l.lines[s].Flush(l.line); err != nil {
			return l.fail(err)
		}
	}
	return l.ev.Flush()
}

// line sends one line unless it passes the limit; each counts as its
// characters and one more.
func (l *lineStream) line(line []byte, partial bool) error {
	if l.left != math.MaxInt64 {
		if l.left -= int64(utf8.RuneCount(line)) + 1; l.left < 0 {
			return errOutputLimit
		}
	}
	return l.ev.Text(l.now.String(), line, partial)
}

// fail sends what came before the limit.
func (l *lineStream) fail(err error) error {
	if flushErr := l.ev.Flush(); flushErr != nil {
		return flushErr
	}
	return err
}

// chunkStream sends pieces as they come: prompts, progress bars.
type chunkStream struct {
	ev   *api.Events
	held [2][]byte // the beginning of a character
	left int64
}

func newChunkStream(ev *api.Events, rule *policy.Rule, pid int) outStream {
	_ = ev.Send("start", map[string]int{"pid": pid})
	return &chunkStream{ev: ev, left: outputBudget(rule)}
}

func (c *chunkStream) put(s proc.Stream, data []byte) error {
	if len(c.held[s]) > 0 {
		data = append(c.held[s], data...)
		c.held[s] = nil
	}
	n := proc.Whole(data)
	c.held[s] = append([]byte(nil), data[n:]...)
	return c.send(s, data[:n])
}

func (c *chunkStream) end() error {
	for _, s := range []proc.Stream{proc.Stdout, proc.Stderr} {
		if err := c.send(s, c.held[s]); err != nil {
			return err
		}
	}
	return nil
}

func (c *chunkStream) send(s proc.Stream, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if c.left -= int64(len(data)); c.left < 0 {
		return errOutputLimit
	}
	if utf8.Valid(data) {
		if err := c.ev.Text(s.String(), data, false); err != nil {
			return err
		}
		return c.ev.Flush()
	}
	return c.ev.Send(s.String(), map[string]string{
		"data": string(data), "data_base64": base64.StdEncoding.EncodeToString(data),
	})
}
