package devtools

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestMain(m *testing.M) {
	proc.Stage()
	goleak.VerifyTestMain(m)
}

func newManager(t *testing.T) *proc.Manager {
	t.Helper()
	m, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("closing the process manager: %v", err)
		}
	})
	return m
}

// find is the path of a program, or the end of the test where there is none.
func find(t *testing.T, program string) string {
	t.Helper()
	path, err := proc.LookPath(program, os.Getenv("PATH"), "/")
	if err != nil {
		t.Skipf("%s is not installed", program)
	}
	return path
}

func mustLanguage(t *testing.T, name string) *Language {
	t.Helper()
	l, ok := FindLanguage(name)
	if !ok {
		t.Fatalf("no language %s", name)
	}
	return l
}

func newContexts(t *testing.T, o ContextOptions) *Contexts {
	t.Helper()
	s := NewContexts(newManager(t), o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing the contexts: %v", err)
		}
	})
	return s
}

func newContext(t *testing.T, s *Contexts, language string, env ...string) *Context {
	t.Helper()
	l := mustLanguage(t, language)
	program := l.Programs()[0]
	c, err := s.Create(t.Context(), ContextSpec{
		Owner: "me", Language: l, Program: program,
		How: proc.Spec{Path: find(t, program), Env: append(os.Environ(), env...), Dir: t.TempDir()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// collector is a sink that keeps everything.
type collector struct {
	mu       sync.Mutex
	out, err strings.Builder
	results  []map[string]any
	seen     chan struct{} // gets an item for each piece of output, if not nil
}

func (c *collector) Output(s proc.Stream, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == proc.Stdout {
		c.out.Write(data)
	} else {
		c.err.Write(data)
	}
	if c.seen != nil {
		select {
		case c.seen <- struct{}{}:
		default:
		}
	}
}

func (c *collector) Result(bundle json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var v map[string]any
	if err := json.Unmarshal(bundle, &v); err != nil {
		v = map[string]any{"unreadable": string(bundle)}
	}
	c.results = append(c.results, v)
}

// plain is the text of the last result.
func (c *collector) plain() string {
	if len(c.results) == 0 {
		return ""
	}
	text, _ := c.results[len(c.results)-1]["text/plain"].(string)
	return text
}

// runCell runs code and fails the test when it cannot be run at all.
func runCell(t *testing.T, c *Context, code string) (*collector, Cell) {
	t.Helper()
	out := &collector{}
	cell, err := c.Run(t.Context(), code, 20*time.Second, out)
	if err != nil {
		t.Fatalf("%q: %v", code, err)
	}
	return out, cell
}
