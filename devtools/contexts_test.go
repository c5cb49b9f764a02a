package devtools

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// The languages of contexts, with the same little programs in each.
var dialects = []struct {
	language            string
	set, get, want      string // a variable, and the way to see it
	noise               string // prints o to standard output and e to error
	fail, failName      string
	spin, nap, waitLong string // busy, asleep in a program, asleep by itself
	die                 string
}{
	{
		language: "python", set: "x = 20", get: "print(x + 1)", want: "21\n",
		noise: "import sys; print('o'); print('e', file=sys.stderr)",
		fail:  "1/0", failName: "ZeroDivisionError",
		spin: "while True: pass", nap: "import os; os.system('sleep 60')", waitLong: "import time; time.sleep(60)",
		die: "import os; os._exit(7)",
	},
	{
		language: "node", set: "const x = 20", get: "console.log(x + 1)", want: "21\n",
		noise: "console.log('o'); console.error('e')",
		fail:  "nothing.here", failName: "ReferenceError",
		spin: "while (true);", nap: "require('child_process').execSync('sleep 60')", waitLong: "await new Promise(() => setTimeout(() => {}, 60000))",
		die: "process.exit(7)",
	},
	{
		language: "bash", set: "x=20", get: "echo $((x + 1))", want: "21\n",
		noise: "echo o; echo e >&2",
		fail:  "false", failName: "",
		spin: "while :; do :; done", nap: "sleep 60; sleep 60", waitLong: "f() { while true; do sleep 60; done; }; f; f",
		die: "exit 7",
	},
}

func TestContextKeepsVariables(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for _, d := range dialects {
		t.Run(d.language, func(t *testing.T) {
			c := newContext(t, s, d.language)
			if _, cell := runCell(t, c, d.set); cell.Status != 0 || cell.Count != 1 || cell.Error != nil {
				t.Errorf("set: %+v %v", cell, cell.Error)
			}
			out, cell := runCell(t, c, d.get)
			if out.out.String() != d.want || cell.Count != 2 {
				t.Errorf("get: %q %q %+v", out.out.String(), out.err.String(), cell)
			}
			out, cell = runCell(t, c, d.fail)
			if cell.Status == 0 {
				t.Errorf("a failure has status 0")
			}
			if d.failName != "" && (cell.Error == nil || cell.Error.Name != d.failName || cell.Error.Value == "") {
				t.Errorf("fail: %+v", cell.Error)
			}
			if strings.Contains(out.out.String()+out.err.String(), "\x1e") {
				t.Errorf("the mark is shown: %q %q", out.out.String(), out.err.String())
			}
			out, _ = runCell(t, c, d.noise)
			if out.out.String() != "o\n" || out.err.String() != "e\n" {
				t.Errorf("noise: %q %q", out.out.String(), out.err.String())
			}
			if out, _ = runCell(t, c, d.get); out.out.String() != d.want {
				t.Errorf("after a failure: %q %q", out.out.String(), out.err.String())
			}
		})
	}
}

func TestTimeLimitInterruptsTheCellAndKeepsTheContext(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for _, d := range dialects {
		for name, code := range map[string]string{"spin": d.spin, "nap": d.nap, "wait": d.waitLong} {
			t.Run(d.language+" "+name, func(t *testing.T) {
				c := newContext(t, s, d.language)
				defer s.Delete(c)
				runCell(t, c, d.set)
				cell, err := c.Run(t.Context(), code, 500*time.Millisecond, &collector{})
				if err != nil || !cell.TimedOut || cell.Lost {
					t.Fatalf("%+v %v", cell, err)
				}
				out, cell := runCell(t, c, d.get)
				if out.out.String() != d.want || cell.Count != 3 {
					t.Errorf("then: %q %q %+v %v", out.out.String(), out.err.String(), cell, cell.Error)
				}
				if out, _ := runCell(t, c, d.get); out.out.String() != d.want {
					t.Errorf("and then: %q", out.out.String())
				}
			})
		}
	}
}

func TestInterpreterThatDoesNotHeedIsReplaced(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	runCell(t, c, "x = 1")
	out := &collector{}
	cell, err := c.Run(t.Context(), "import signal; signal.signal(2, signal.SIG_IGN); print('deaf')\nwhile True: pass", 300*time.Millisecond, out)
	if err != nil || !cell.TimedOut || !cell.Lost || out.out.String() != "deaf\n" {
		t.Fatalf("%+v %v %q", cell, err, out.out.String())
	}
	if _, cell := runCell(t, c, "x"); cell.Count != 1 || cell.Error == nil || cell.Error.Name != "NameError" {
		t.Errorf("%+v", cell)
	}
}

func TestCodeThatEndsTheInterpreter(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for _, d := range dialects {
		t.Run(d.language, func(t *testing.T) {
			c := newContext(t, s, d.language)
			out, cell := runCell(t, c, d.noise+"\n"+d.die)
			if !cell.Lost || cell.Status != 7 || out.out.String() != "o\n" || out.err.String() != "e\n" {
				t.Errorf("%+v %q %q", cell, out.out.String(), out.err.String())
			}
			if out, cell := runCell(t, c, d.set+"\n"+d.get); out.out.String() != d.want || cell.Count != 1 {
				t.Errorf("then: %q %+v", out.out.String(), cell)
			}
		})
	}
}

// TestLastWordsOfAnInterpreterArrive: what it had printed right before its end
// was dropped now and then.
func TestLastWordsOfAnInterpreterArrive(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "bash")
	for range 20 {
		out, cell := runCell(t, c, "printf %060000d 0; exit 7")
		if !cell.Lost || cell.Status != 7 || out.out.Len() != 60000 {
			t.Fatalf("%+v, %d bytes", cell, out.out.Len())
		}
	}
}

func TestCallerWhoLeavesInterruptsTheCell(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	runCell(t, c, "x = 1")
	ctx, cancel := context.WithCancel(t.Context())
	out := &collector{seen: make(chan struct{}, 1)}
	go func() {
		<-out.seen
		cancel()
	}()
	began := time.Now()
	if _, err := c.Run(ctx, "import time; print('on'); time.sleep(60)", time.Minute, out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if time.Since(began) > 30*time.Second {
		t.Error("the cell ran on")
	}
	if out, _ := runCell(t, c, "x"); out.plain() != "1" {
		t.Errorf("the context is gone: %q", out.plain())
	}
}

func TestCellsWaitForEachOther(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	first := &collector{seen: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(context.Background(), "import time; print('a'); time.sleep(.4); print('b')", 20*time.Second, first)
		done <- err
	}()
	<-first.seen
	if _, err := c.Run(t.Context(), "1", 10*time.Millisecond, &collector{}); !errors.Is(err, ErrContextBusy) {
		t.Errorf("a wait without end: %v", err)
	}
	out, cell := runCell(t, c, "print('c')")
	if err := <-done; err != nil || first.out.String() != "a\nb\n" {
		t.Errorf("first: %v %q", err, first.out.String())
	}
	if out.out.String() != "c\n" || cell.Count != 2 {
		t.Errorf("second: %q %+v", out.out.String(), cell)
	}
}

func TestBackgroundOutputIsNotTheNextCells(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "bash")
	file := filepath.Join(t.TempDir(), "said")
	runCell(t, c, "(until [ -e "+file+" ]; do sleep .01; done; echo late; echo done > "+file+".done) &")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { _, err := os.Stat(file + ".done"); return err == nil })
	// What was printed before the cell began may still be on its way, but not
	// what comes before the answer to a first cell.
	runCell(t, c, ":")
	if out, _ := runCell(t, c, "echo now"); out.out.String() != "now\n" {
		t.Errorf("got %q", out.out.String())
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

func TestRestartForgetsEverything(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	runCell(t, c, "x = 1")
	out := &collector{seen: make(chan struct{}, 1)}
	done := make(chan Cell, 1)
	go func() {
		cell, _ := c.Run(context.Background(), "import time; print('on'); time.sleep(60)", time.Minute, out)
		done <- cell
	}()
	<-out.seen
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cell := <-done; !cell.Lost || cell.TimedOut {
		t.Errorf("the cell that ran: %+v", cell)
	}
	if _, cell := runCell(t, c, "x"); cell.Count != 1 || cell.Error == nil || cell.Error.Name != "NameError" {
		t.Errorf("%+v %v", cell, cell.Error)
	}
}

func TestDeletedContextLeavesNothing(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	c := newContext(t, s, "python")
	out := &collector{seen: make(chan struct{}, 1)}
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(context.Background(), "import os, subprocess, time; p = subprocess.Popen(['sleep', '77']); print(p.pid, os.getpid()); time.sleep(60)", time.Minute, out)
		done <- err
	}()
	<-out.seen
	s.Delete(c)
	if err := <-done; !errors.Is(err, ErrContextGone) {
		t.Errorf("the cell that ran: %v", err)
	}
	for word := range strings.FieldsSeq(out.out.String()) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
	if _, err := c.Run(t.Context(), "1", time.Second, &collector{}); !errors.Is(err, ErrContextGone) {
		t.Errorf("a run after the end: %v", err)
	}
	if err := c.Restart(t.Context()); !errors.Is(err, ErrContextGone) {
		t.Errorf("a restart after the end: %v", err)
	}
	if len(s.List(proc.Viewer{All: true})) != 0 {
		t.Error("it is still listed")
	}
	s.Delete(c) // once more is fine
}

func TestContextsHaveOwners(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	c := newContext(t, s, "bash")
	for _, v := range []struct {
		proc.Viewer
		want bool
	}{{proc.Viewer{Owner: "me"}, true}, {proc.Viewer{Owner: "you"}, false}, {proc.Viewer{Owner: "you", All: true}, true}} {
		if _, ok := s.Get(c.ID, v.Viewer); ok != v.want || (len(s.List(v.Viewer)) == 1) != v.want {
			t.Errorf("%+v: %v", v.Viewer, ok)
		}
	}
}

func TestThereAreOnlySoManyContexts(t *testing.T) {
	s := newContexts(t, ContextOptions{Most: 2})
	a := newContext(t, s, "bash")
	newContext(t, s, "bash")
	spec := ContextSpec{Language: a.Language, Program: "bash", How: proc.Spec{Path: find(t, "bash"), Dir: "/"}}
	_, err := s.Create(t.Context(), spec)
	if full, ok := errors.AsType[*proc.LimitError](err); !ok || full.Limit != 2 {
		t.Fatalf("got %v", err)
	}
	s.Delete(a)
	if _, err := s.Create(t.Context(), spec); err != nil {
		t.Errorf("a place that is free again: %v", err)
	}
}

func TestContextNobodyUsesEnds(t *testing.T) {
	s := newContexts(t, ContextOptions{Idle: 300 * time.Millisecond})
	c := newContext(t, s, "bash")
	if _, err := c.Run(t.Context(), "sleep 1", 20*time.Second, &collector{}); err != nil {
		t.Errorf("a context that runs a cell has ended: %v", err)
	}
	waitFor(t, func() bool { return len(s.List(proc.Viewer{All: true})) == 0 })
	if _, err := c.Run(t.Context(), ":", time.Second, &collector{}); !errors.Is(err, ErrContextGone) {
		t.Errorf("got %v", err)
	}
}

func TestClosedOutputDoesNotHangTheContext(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "bash")
	runCell(t, c, "exec >/dev/null")
	if out, cell := runCell(t, c, "echo x; echo y >&2"); cell.Lost || out.err.String() != "y\n" {
		t.Errorf("%+v %q", cell, out.err.String())
	}
}

func TestCellThatTalksToTheDriversDescriptors(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	out, cell := runCell(t, c, `import os
os.write(5, b'nonsense\n{"type":"result"}\n{"type":"result","data":[1]}\n{"type":7}\n[]\n\n')
3`)
	if out.plain() != "3" || cell.Lost {
		t.Errorf("%+v %v", cell, out.results)
	}
}

func TestManyAndLargeResultsAreDropped(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	out, cell := runCell(t, c, "for i in range(3000): display(i)")
	if len(out.results) != maxResults || !cell.Dropped {
		t.Errorf("%d results, %+v", len(out.results), cell)
	}
	out, cell = runCell(t, c, "class B:\n  def _repr_html_(self): return 'x' * 40_000_000\ndisplay(B())\n'small'")
	if out.plain() != "'small'" || !cell.Dropped {
		t.Errorf("%d results, %+v", len(out.results), cell)
	}
}

func TestLargeOutputOfACellIsNotTheNextCells(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for language, code := range map[string]string{
		"python": "print('x' * 1000000)",
		"node":   "console.error('y'.repeat(1000000)); console.log('x'.repeat(1000000))",
		"bash":   "printf '%01000000d\\n' 0",
	} {
		t.Run(language, func(t *testing.T) {
			c := newContext(t, s, language)
			for range 3 {
				out, cell := runCell(t, c, code)
				if out.out.Len() != 1_000_001 || language == "node" && out.err.Len() != 1_000_001 || cell.Status != 0 {
					t.Fatalf("%d and %d bytes of the cell, %+v", out.out.Len(), out.err.Len(), cell)
				}
				if out, _ := runCell(t, c, "1 + 1"); out.out.Len() != 0 || language != "bash" && out.err.Len() != 0 {
					t.Fatalf("%d bytes of the cell before", out.out.Len())
				}
			}
		})
	}
}

func TestOutputThatNobodyCanWriteDoesNotHangTheCell(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "node")
	for _, code := range []string{
		"process.stdout.write = () => { throw new Error('mine') }; 0", "process.stdout.end(); process.stderr.destroy(); 0", "0",
	} {
		if out, cell := runCell(t, c, code); cell.Status != 0 || cell.Lost || out.plain() != "0" {
			t.Errorf("%q: %q %+v %v", code, out.plain(), cell, cell.Error)
		}
	}
}

func TestRestartedContextIsUsableAtOnce(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	for range 30 {
		runCell(t, c, "x = 1")
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, cell := runCell(t, c, "x"); cell.Lost || cell.Count != 1 || cell.Error == nil || cell.Error.Name != "NameError" {
			t.Fatalf("%+v %v", cell, cell.Error)
		}
	}
}

func TestCellThatWaitsForARestartRunsAfterIt(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	for range 10 {
		out := &collector{seen: make(chan struct{}, 1)}
		first, second := make(chan Cell, 1), make(chan Cell, 1)
		run := func(to chan Cell, code string, out *collector) {
			cell, err := c.Run(context.Background(), code, time.Minute, out)
			if err != nil {
				t.Error(err)
			}
			to <- cell
		}
		go run(first, "import time; print('on'); time.sleep(60)", out)
		<-out.seen
		go run(second, "1", &collector{})
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cell := <-first; !cell.Lost {
			t.Fatalf("the cell that ran: %+v", cell)
		}
		if cell := <-second; cell.Lost {
			t.Fatalf("the cell that waited: %+v %v", cell, cell.Error)
		}
	}
}
