package proc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Each test here is a fault that users of servers of this kind have met, named
// after what they saw.

func TestBackgroundChildDoesNotHoldUpTheAnswer(t *testing.T) {
	m := newManager(t, Options{})
	s := bash("sleep 7131 & echo $!; (sleep 0.3; echo late) & echo hi")
	s.Timeout = 20 * time.Second
	s.Grace.Silence = time.Second
	r := run(t, m, s)
	pid := strings.Fields(string(r.Stdout))
	if len(pid) != 3 || pid[1] != "hi" || pid[2] != "late" || r.Code != 0 || r.Reason != ReasonExited || !r.Detached {
		t.Fatalf("%q %+v", r.Stdout, r.Status)
	}
	if left := withArg("7131"); len(left) != 1 {
		t.Errorf("the background child is not alive: %v", left)
	} else {
		endPID(left[0])
	}
}

func TestTheStreamEndsThoughABackgroundChildHoldsIt(t *testing.T) {
	m := newManager(t, Options{})
	feed := NewFeed()
	s := bash("sleep 7132 & echo hi")
	s.Output, s.Timeout, s.Grace.Silence = feed, 20*time.Second, 200*time.Millisecond
	p := start(t, m, s)
	if got := readFeed(t, feed); got != "hi\n" {
		t.Errorf("got %q", got)
	}
	await(t, p.Done(), "done")
	if st, _ := p.Status(); st.Code != 0 || !st.Detached {
		t.Errorf("%+v", st)
	}
	if left := withArg("7132"); len(left) != 1 {
		t.Errorf("the background child is not alive: %v", left)
	}
	p.End("") // also what an ended process has left behind
	if left := withArg("7132"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestABackgroundChildMayGoOnPrinting(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	// It prints far more than a pipe holds, long after the answer.
	s := bash("(sleep 0.4; head -c 3000000 /dev/zero; echo $? > done) & echo hi")
	s.Dir = dir
	s.Grace.Silence = 50 * time.Millisecond
	if r := run(t, m, s); string(r.Stdout) != "hi\n" || !r.Detached {
		t.Fatalf("%q %+v", r.Stdout[:min(len(r.Stdout), 20)], r.Status)
	}
	eventually(t, "the child finishes", func() bool {
		text, _ := os.ReadFile(dir + "/done")
		return len(text) > 0
	})
	if text, _ := os.ReadFile(dir + "/done"); string(text) != "0\n" {
		t.Errorf("it ended with %q", text)
	}
}

func TestAChattyChildHoldsUpTheAnswerOnlySoLong(t *testing.T) {
	m := newManager(t, Options{})
	s := bash("while :; do echo x 7133; sleep 0.02; done & echo hi; exit 3")
	s.Grace = Grace{Silence: 10 * time.Second, Total: 300 * time.Millisecond}
	out := NewBuffers(1<<20, KeepHead)
	s.Output = out
	p := start(t, m, s)
	await(t, p.Done(), "done")
	if st, _ := p.Status(); st.Code != 3 || !st.Detached {
		t.Errorf("%+v", st)
	}
	if !bytes.Contains(out.Out.Bytes(), []byte("hi\n")) {
		t.Errorf("%q", out.Out.Bytes())
	}
	p.End("")
}

// TestAThiefOfOutputDoesNotHoldUpTheEnd: something the command left behind
// opened the pipe anew and took what lay in it when the command ended. The
// bytes that were waited for never came, and neither did the end.
func TestAThiefOfOutputDoesNotHoldUpTheEnd(t *testing.T) {
	m := newManager(t, Options{})
	const thief = `
import fcntl, os, sys, time
go, gone = os.pipe()
if os.fork() == 0:
    os.close(gone)
    pipe = os.open("/proc/self/fd/1", os.O_RDWR | os.O_NONBLOCK)
    os.read(go, 1)  # the end of the parent
    time.sleep(0.2)
    try:
        while os.read(pipe, 65536): pass
    except BlockingIOError: pass
    open(sys.argv[1], "w").close()
    time.sleep(1000)
os.set_blocking(1, False)
quiet = time.time() + 0.5
while time.time() < quiet:
    try:
        os.write(1, b"x" * 4096)
        quiet = time.time() + 0.5
    except BlockingIOError: time.sleep(0.01)
`
	stolen := filepath.Join(t.TempDir(), "stolen")
	s := python(t, thief, stolen)
	s.Grace = Grace{Silence: 300 * time.Millisecond}
	f := NewFeed()
	s.Output = f
	p := start(t, m, s)
	defer p.End("")
	eventually(t, "the theft", func() bool { _, err := os.Stat(stolen); return err == nil })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, _, err := f.Next(ctx); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no end: %v", err)
		}
	}
	await(t, p.Done(), "the end")
	if st, _ := p.Status(); st.Code != 0 || !st.Detached {
		t.Errorf("%+v", st)
	}
}

func TestNoWaitingWithoutGrace(t *testing.T) {
	m := newManager(t, Options{})
	for i := range 20 {
		s := bash("sleep 7134 & seq 1 20000; echo end")
		out := NewBuffers(1<<20, KeepHead)
		s.Output = out
		p := start(t, m, s)
		await(t, p.Done(), "done")
		st, _ := p.Status()
		if !bytes.HasSuffix(out.Out.Bytes(), []byte("20000\nend\n")) || !st.Detached {
			t.Errorf("run %d: %d bytes, %+v", i, out.Out.Total(), st)
		}
		p.End("")
		r := run(t, m, sh("echo x"))
		if r.Detached || string(r.Stdout) != "x\n" {
			t.Errorf("a plain one: %+v %q", r.Status, r.Stdout)
		}
	}
}

func TestAKillEndsWhatTheCommandStarted(t *testing.T) {
	for name, opts := range variants {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, opts)
			for _, end := range []struct {
				name string
				do   func(p *Process)
			}{
				{"time limit", nil},
				{"signal 9", func(p *Process) { _ = p.Signal(unix.SIGKILL, true) }},
				{"output limit", func(p *Process) { p.End(ReasonOutputLimit) }},
			} {
				log := NewLog(1 << 10)
				s := bash("sleep 7135 & sleep 7135 | sleep 7135 & setsid sleep 7135 & echo up; wait")
				s.Output = log
				if end.do == nil {
					s.Timeout = 500 * time.Millisecond
				}
				p := start(t, m, s)
				waitText(t, log, "up\n")
				if end.do != nil {
					eventually(t, "all four", func() bool { return len(withArg("7135")) == 4 })
					end.do(p)
				}
				await(t, p.Done(), end.name)
				if left := withArg("7135"); len(left) != 0 {
					t.Errorf("%s: left %v", end.name, left)
				}
				if err := p.Signal(unix.SIGKILL, true); !errors.Is(err, ErrEnded) {
					t.Errorf("%s: a second signal: %v", end.name, err)
				}
			}
			eventually(t, "no zombies", func() bool { return len(zombies()) == 0 })
		})
	}
}

func TestAClientThatLeavesEndsTheCommand(t *testing.T) {
	m := newManager(t, Options{})
	for _, script := range []string{"while :; do echo t; sleep .1; done & sleep 7136", "sleep 7136", "yes 7136"} {
		ctx, cancel := context.WithCancel(t.Context())
		feed := NewFeed()
		s := bash("echo up; " + script)
		s.Output = feed
		p, err := m.Start(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := feed.Next(ctx); err != nil {
			t.Fatal(err)
		}
		cancel() // and nobody reads the feed any more
		await(t, p.Done(), script)
		if left := withArg("7136"); len(left) != 0 {
			t.Errorf("%s: left %v", script, left)
		}
		if st, _ := p.Status(); st.Reason != ReasonDisconnected {
			t.Errorf("%s: %+v", script, st)
		}
	}
}

func TestAClientThatLeavesDuringTheGraceIsNotWaitedFor(t *testing.T) {
	m := newManager(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	feed := NewFeed()
	s := bash("yes & echo up")
	s.Output, s.Grace = feed, Grace{Silence: time.Hour, Total: time.Hour}
	p, err := m.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	// The feed is full, so not all that was written before the end is taken.
	eventually(t, "the leader's end", func() bool { return !alive(p.PID()) })
	cancel()
	await(t, p.Done(), "done")
	p.End("")
}

func TestACharacterCutByAReadArrivesWhole(t *testing.T) {
	m := newManager(t, Options{})
	log := NewLog(1 << 20)
	s := python(t, `import os,time
os.write(1,b'A\xe2\x82');time.sleep(.3);os.write(1,b'\xacB\n');os.write(2,b'x\xffy\n')
os.write(1,b'tail\xe2')`)
	s.Output = log
	p := start(t, m, s)
	await(t, p.Done(), "done")
	var out, errs []byte
	for _, e := range log.Read(0).Events {
		if e.Stream == Stderr {
			errs = append(errs, e.Data...)
			continue
		}
		out = append(out, e.Data...)
		if i := bytes.IndexByte(e.Data, 0xe2); i >= 0 && i+1 < len(e.Data) && !bytes.Contains(e.Data, []byte("€")) {
			t.Errorf("cut: %q", e.Data)
		}
	}
	if string(out) != "A€B\ntail\xe2" || string(errs) != "x\xffy\n" {
		t.Errorf("%q %q", out, errs)
	}
}

func TestBlankLinesAndTheLastLineArrive(t *testing.T) {
	m := newManager(t, Options{})
	feed := NewFeed()
	s := Spec{Path: "/usr/bin/printf", Argv: []string{"printf", `a\n\nb\r\n\n  c\ttail`}, Env: testEnv, Output: feed}
	start(t, m, s)
	var lines Lines
	var got []string
	emit := func(line []byte, _ bool) error {
		got = append(got, string(line))
		return nil
	}
	for {
		_, data, err := feed.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = lines.Feed(data, emit)
	}
	_ = lines.Flush(emit)
	if strings.Join(got, "|") != "a||b\r||  c\ttail" {
		t.Errorf("%q", got)
	}
}

func TestAPromptIsSeenBeforeItsLineEnds(t *testing.T) {
	m := newManager(t, Options{})
	feed := NewFeed()
	s := sh("printf Password:; sleep 60")
	s.Output = feed
	p := start(t, m, s)
	if _, data, err := feed.Next(t.Context()); err != nil || string(data) != "Password:" {
		t.Errorf("%q %v", data, err)
	}
	feed.Close()
	p.End("")
}

// TestExitedMeansAllOutputIsThere: when an answer says that the process has
// ended, the output read with it is whole, also when a child holds the pipe.
func TestExitedMeansAllOutputIsThere(t *testing.T) {
	m := newManager(t, Options{})
	for i, script := range []string{
		"seq 1 60000", "sleep 7137 & seq 1 60000", "echo one; exec seq 1 60000", "yes 7137 >&2 & seq 1 60000",
	} {
		for range 15 {
			log := NewLog(1 << 20)
			s := bash(script)
			s.Output = log
			p := start(t, m, s)
			var page Page
			for !page.Exited {
				page = log.Read(0) // one question, as a poll is
			}
			var out []byte
			for _, e := range page.Events {
				if e.Stream == Stdout {
					out = append(out, e.Data...)
				}
			}
			// The noise of the last script may push the numbers out of the ring.
			if !bytes.HasSuffix(out, []byte("\n59999\n60000\n")) && i != 3 {
				t.Fatalf("%s: ends with %q", script, out[max(0, len(out)-20):])
			}
			if _, ended := p.Status(); !ended {
				t.Fatal("the log says exited, the status does not")
			}
			p.End("")
			await(t, p.Done(), "done")
		}
	}
}

// lateLog takes nothing before it is let, and notes what was in it when it was
// told of the process's end.
type lateLog struct {
	*Log
	let    chan struct{}
	atExit string
}

func (l *lateLog) take(s Stream, b *block, n int) bool {
	<-l.let
	return l.Log.take(s, b, n)
}

func (l *lateLog) exited() {
	l.atExit = logText(l.Log)
	l.Log.exited()
}

// TestExitedWaitsForWhatIsInThePipe: the reader is behind when the process
// ends, and end of file does not come because a child holds the pipe.
func TestExitedWaitsForWhatIsInThePipe(t *testing.T) {
	m := newManager(t, Options{})
	log := &lateLog{Log: NewLog(1 << 20), let: make(chan struct{})}
	s := bash("sleep 7138 & echo first; sleep 0.1; seq 1 5000")
	s.Output = log
	p := start(t, m, s)
	eventually(t, "the leader is reaped", func() bool { return m.lookup(p.PID()) == nil })
	if _, ended := p.Status(); ended {
		t.Error("exited, though nothing was taken")
	}
	close(log.let)
	await(t, p.Exited(), "exited")
	if !strings.HasSuffix(log.atExit, "\n4999\n5000\n") {
		t.Errorf("it ends with %q", log.atExit[max(0, len(log.atExit)-20):])
	}
	p.End("")
}

func TestLaterOutputOfAChildBecomesEvents(t *testing.T) {
	m := newManager(t, Options{})
	log := NewLog(1 << 20)
	s := bash("(sleep 0.3; echo later) & echo now")
	s.Output = log
	p := start(t, m, s)
	await(t, p.Exited(), "exited")
	page := log.Read(0)
	if !page.Exited || page.Ended {
		t.Errorf("%+v", page)
	}
	await(t, p.Done(), "done")
	if page = log.Read(0); !page.Ended || logText(log) != "now\nlater\n" {
		t.Errorf("%+v %q", page, logText(log))
	}
}

func TestACommandThatReadsItsInputEndsAtOnce(t *testing.T) {
	m := newManager(t, Options{})
	s := Spec{Path: "/bin/cat", Env: testEnv, Timeout: 20 * time.Second}
	if r := run(t, m, s); r.Code != 0 || len(r.Stdout) != 0 {
		t.Errorf("%+v %q", r.Status, r.Stdout)
	}
}

func TestDeadChildrenAreReapedUnasked(t *testing.T) {
	m := newManager(t, Options{})
	for range 5 {
		start(t, m, trueSpec)
	}
	// And those that were never ours to begin with: the parent of this one ends first.
	run(t, m, sh("(sleep 0.05; exit 3) >/dev/null 2>&1 & true"))
	eventually(t, "no zombie", func() bool { return len(zombies()) == 0 && len(children(os.Getpid())) == 0 })
}

func TestMemoryDoesNotFollowTheOutput(t *testing.T) {
	m := newManager(t, Options{})
	before := rss(t)
	out := NewBuffers(1<<20, KeepHead)
	s := Spec{Path: "/usr/bin/head", Argv: []string{"head", "-c", "60000000", "/dev/zero"}, Env: testEnv, Output: out}
	p := start(t, m, s)
	await(t, p.Done(), "head")
	if out.Out.Total() != 60000000 || len(out.Out.Bytes()) != 1<<20 || !out.Out.Truncated() {
		t.Errorf("%d of %d", len(out.Out.Bytes()), out.Out.Total())
	}
	log := NewLog(1 << 20)
	s = bash("yes | head -c 60000000")
	s.Output = log
	p = start(t, m, s)
	await(t, p.Done(), "yes")
	if page := log.Read(0); log.Bytes() > 1<<20 || log.Bytes() < 700<<10 || !page.Dropped {
		t.Errorf("%d bytes kept, dropped %v", log.Bytes(), page.Dropped)
	}
	if grown := rss(t) - before; grown > 32<<20 && !raceEnabled {
		t.Errorf("grew by %d MiB", grown>>20)
	}
}

func rss(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return statusKiB(text, "VmRSS:")
}

func readFeed(t testing.TB, f *Feed) string {
	t.Helper()
	var out []byte
	for {
		_, data, err := f.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return string(out)
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data...)
	}
}
