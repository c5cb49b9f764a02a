package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	creations   = 30
	watchWindow = 6 // seconds, in which all creations have to fit
)

// watched is the time from before a file is created until the event that tells of it has come. The pauses
// are random, so that a server that polls is met at any point of its period.
func watched(ctx context.Context, b *bench, s *server) ([]float64, error) {
	dir, err := os.MkdirTemp(b.dir, "watched-")
	if err != nil {
		return nil, err
	}
	var begun, seen [creations]time.Time
	done := make(chan error, 1)
	target := fmt.Sprintf("/files/watch?path=%s&timeout=%d", dir, watchWindow)
	err = s.stream(ctx, "GET", target, nil, 0, func(r io.Reader) error {
		lines := bufio.NewScanner(r)
		for ready := false; !ready && lines.Scan(); {
			ready = lines.Text() == "event: ready"
		}
		go func() { done <- createAll(ctx, dir, &begun) }()
		for lines.Scan() {
			if i, ok := createdIn(lines.Text()); ok && seen[i].IsZero() {
				seen[i] = time.Now()
			}
		}
		return errors.Join(<-done, lines.Err())
	})
	if err != nil {
		return nil, err
	}
	var took []float64
	for i := range seen {
		if seen[i].IsZero() {
			return nil, fmt.Errorf("no event tells of file %d", i)
		}
		took = append(took, seen[i].Sub(begun[i]).Seconds())
	}
	return took, nil
}

func createAll(ctx context.Context, dir string, begun *[creations]time.Time) error {
	for i := range begun {
		select {
		case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		begun[i] = time.Now()
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("new%d", i)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// createdIn is the number of the new file that a line of events tells of.
func createdIn(line string) (int, bool) {
	data, ok := strings.CutPrefix(line, "data:")
	if !ok {
		return 0, false
	}
	var change struct{ Type, Path string }
	if json.Unmarshal([]byte(data), &change) != nil || change.Type != "created" {
		return 0, false
	}
	var i int
	_, err := fmt.Sscanf(filepath.Base(change.Path), "new%d", &i)
	return i, err == nil && i >= 0 && i < creations
}

// nappers is how many callers are waiting at once.
const nappers = 100

const greetFile = `import time
from agent_sandbox.server import command

@command(description="Say hello.")
def greet(name: str) -> str:
    return f"hello {name}"

@command(description="Rest.")
def nap() -> str:
    time.sleep(0.2)
    return "rested"
`

// withGreetings runs do with a fresh server that has the commands of greetFile.
func withGreetings(ctx context.Context, b *bench, p program, do func(*server) ([]float64, error)) ([]float64, error) {
	file := b.path("greet.py")
	if err := os.WriteFile(file, []byte(greetFile), 0o600); err != nil {
		return nil, err
	}
	plain := p.args
	p.args = func(port, ptyPort int) []string { return append(plain(port, ptyPort), "--commands", file) }
	p.env = append(p.env, "ABX_COMMANDS_PYTHON="+b.python) // the published server is run by the same
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	return do(s)
}

func callCommand(ctx context.Context, c *client, name, body, want string) error {
	answer, err := c.post(ctx, "/commands/"+name, body)
	if err == nil && !strings.Contains(string(answer), want) {
		err = fmt.Errorf("%s answered %.200s", name, answer)
	}
	return err
}

// greet calls a named command that is a Python function.
func greet(ctx context.Context, b *bench, p program) ([]float64, error) {
	return withGreetings(ctx, b, p, func(s *server) ([]float64, error) {
		return each(calls, func() error { return callCommand(ctx, s.client, "greet", `{"name": "you"}`, "hello you") })
	})
}

// nap gives a call five seconds and tries again, as a client would: where a listener takes in few
// connections at once, some of a hundred are never heard.
func nap(ctx context.Context, c *client) (err error) {
	for range 5 {
		limited, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = callCommand(limited, c, "nap", `{}`, "rested")
		cancel()
		if err == nil {
			break
		}
		c.hangUp()
	}
	return err
}

// naps calls a function that sleeps 200 ms from 100 clients at once, and is how long all take.
func naps(ctx context.Context, b *bench, p program) ([]float64, error) {
	return withGreetings(ctx, b, p, func(s *server) ([]float64, error) {
		return each(3, func() error {
			errs := make([]error, nappers)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					c := &client{addr: s.addr}
					defer c.hangUp()
					errs[i] = nap(ctx, c)
				})
			}
			wg.Wait()
			return errors.Join(errs...)
		})
	})
}
