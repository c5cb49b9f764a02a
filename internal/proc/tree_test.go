package proc

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The programs below are hard to catch. All are bounded, in number (fewer than
// 300 processes) and in time (they end by themselves).
const (
	// bomb doubles 7 times; half of its processes leave session and group,
	// a third lose their parent at once.
	bomb = `
import os, sys, time
print("up", flush=True)
for depth in range(7):
    if os.fork() == 0:
        if depth % 2: os.setsid()
    elif depth % 3 == 2:
        break
time.sleep(20)
`
	// hopper is never long in one place: a process forks and ends, 250 times.
	hopper = `
import os, sys, time
print("up", flush=True)
for hop in range(250):
    if os.fork(): os._exit(0)
    if hop % 5 == 0: os.setsid()
    time.sleep(0.001)
time.sleep(20)
`
	// sprinter forks and ends as fast as it can, for 20 s: a process is gone
	// before a look at all of them has come to it.
	sprinter = `
import os, sys, time
print("up", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork(): os._exit(0)
    os.setsid()
`
	// daemons fork twice, make their own sessions and clear the environment.
	daemons = `
import os, sys, time
for i in range(10):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sh", ["sh", "-c", "sleep 20; :", sys.argv[1]], {})
        os._exit(0)
print("up", flush=True)
time.sleep(20)
`
)

// leftOf looks for processes with an argument several times, since one that
// runs away is missed by most looks.
func leftOf(arg string) []int {
	for range 20 {
		if left := withArg(arg); len(left) != 0 {
			return left
		}
	}
	return nil
}

func TestNothingEscapesAKill(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for _, name := range []string{"default", "no cgroups"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, variants[name])
			if name == "default" && m.cgroups == nil {
				t.Skip("no writable cgroups here")
			}
			programs := []string{bomb, hopper, sprinter, daemons}
			for i := range rounds {
				feed := NewFeed()
				s := python(t, programs[i%len(programs)], "victim-7140")
				s.Output = feed
				p := start(t, m, s)
				if _, _, err := feed.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				feed.Close()
				time.Sleep(time.Duration(i*7%40) * time.Millisecond) // at different stages of its growth
				p.End(ReasonTimeout)
				if left := leftOf("victim-7140"); len(left) != 0 {
					for _, pid := range left {
						s, _ := readStat(pid)
						k, _ := markOf(pid)
						t.Logf("%d: %+v mark %x, ours %x", pid, s, k, p.mark)
						endPID(pid)
					}
					t.Fatalf("round %d: %d left", i, len(left))
				}
				await(t, p.Done(), "done")
			}
			eventually(t, "no zombie", func() bool { return len(children(os.Getpid())) == 0 })
		})
	}
}

// TestATreeIsFoundWithoutMarks: where marks cannot be set, what is still
// connected by parents, groups or sessions is ended.
func TestATreeIsFoundWithoutMarks(t *testing.T) {
	m := newManager(t, variants["no marks"])
	other := start(t, m, sh("sleep 7142"))
	for range 10 {
		feed := NewFeed()
		s := python(t, strings.ReplaceAll(bomb, "depth % 3 == 2", "False"), "victim-7141")
		s.Output = feed
		p := start(t, m, s)
		if _, _, err := feed.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		feed.Close()
		eventually(t, "all of the bomb", func() bool { return len(withArg("victim-7141")) == 128 })
		p.End(ReasonTimeout)
		if left := withArg("victim-7141"); len(left) != 0 {
			t.Fatalf("%d left", len(left))
		}
	}
	if !alive(other.PID()) {
		t.Error("another command was ended too")
	}
}

// TestAProgramThatChangesItsMarkIsEnded: a program may mark its own
// children, as another server of our kind does.
func TestAProgramThatChangesItsMarkIsEnded(t *testing.T) {
	for _, name := range []string{"default", "no cgroups"} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, variants[name])
			log := NewLog(1 << 10)
			s := bash("(ulimit -S -x 12345; setsid sh -c 'sleep 7143; :' & ulimit -S -x unlimited; sleep 7143 & wait) & echo up; wait")
			s.Output = log
			p := start(t, m, s)
			waitText(t, log, "up\n")
			eventually(t, "both", func() bool { return len(withArg("7143")) == 2 })
			p.End("")
			if left := withArg("7143"); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// TestADaemonThatChangedItsMarkEndsWithTheServer: nothing tells any more whose
// it is, but it must not outlive the server, asked or not.
func TestADaemonThatChangedItsMarkEndsWithTheServer(t *testing.T) {
	if managers.Load() != 0 {
		t.Skip("another manager may own it")
	}
	for name, end := range map[string]func(*Manager){
		"Close": func(*Manager) {},
		"Kill":  (*Manager).Kill,
	} {
		for _, variant := range []string{"no cgroups", "no marks"} {
			t.Run(name+", "+variant, func(t *testing.T) {
				m, err := New(variants[variant])
				if err != nil {
					t.Fatal(err)
				}
				run(t, m, bash("ulimit -S -x 12345; (setsid sh -c 'sleep 47146; :' </dev/null >/dev/null 2>&1 &)"))
				detached := sh("sleep 7147")
				detached.Detach = true
				kept := start(t, m, detached)
				eventually(t, "it is up", func() bool { return len(withArg("sleep 47146; :")) == 1 })
				end(m)
				if err := m.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if left := withArg("47146"); len(left) != 0 {
					t.Errorf("left %v", left)
				}
				if !alive(kept.PID()) {
					t.Error("what was detached was ended too")
				}
				_ = unix.Kill(-kept.PID(), unix.SIGKILL)
				var ws unix.WaitStatus
				_, _ = unix.Wait4(kept.PID(), &ws, 0, nil)
			})
		}
	}
}

// TestKillDoesNotAsk: the second signal to a server leaves no process behind.
func TestKillDoesNotAsk(t *testing.T) {
	m := newManager(t, Options{StopGrace: time.Minute})
	p := start(t, m, bash("trap '' TERM; setsid sleep 7149 & sleep 7149"))
	eventually(t, "both", func() bool { return len(withArg("7149")) == 2 })
	m.Kill()
	await(t, p.Done(), "done")
	if left := withArg("7149"); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if s, _ := p.Status(); s.Reason != ReasonShutdown || s.Code != -9 {
		t.Errorf("%+v", s)
	}
	if _, err := m.Start(t.Context(), trueSpec); !errors.Is(err, ErrClosed) {
		t.Errorf("a start after it: %v", err)
	}
}

// TestAStoppedProgramHearsThatItIsToEnd: it would otherwise use up the grace
// and be killed, with its work unsaved.
func TestAStoppedProgramHearsThatItIsToEnd(t *testing.T) {
	m := newManager(t, Options{})
	p := start(t, m, bash("trap 'exit 6' TERM; kill -STOP $$; while :; do sleep 0.01; done"))
	eventually(t, "it has stopped", func() bool { s, ok := readStat(p.PID()); return ok && s.state == 'T' })
	p.Stop(time.Minute, "", unix.SIGTERM)
	await(t, p.Done(), "done")
	if s, _ := p.Status(); s.Code != 6 {
		t.Errorf("%+v", s)
	}
}

// TestASecondSignalDoesNotCutShortTheFirst: a terminal is ended by SIGTERM and
// SIGHUP, which came together: what had begun to clean up on the first was
// ended by the second.
func TestASecondSignalDoesNotCutShortTheFirst(t *testing.T) {
	for name, opts := range map[string]Options{"marks": {}, "no marks": {noMarks: true, NoCgroups: true}} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, opts)
			s := sh("sh -c 'trap \"sleep 0.3; echo clean; exit\" TERM; echo inner; while :; do sleep 0.01; done' & trap '' TERM; echo outer; wait; while :; do sleep 1000; done")
			log := NewLog(1 << 10)
			s.Output = log
			p := start(t, m, s)
			eventually(t, "both are ready", func() bool {
				text := logText(log)
				return strings.Contains(text, "inner\n") && strings.Contains(text, "outer\n")
			})
			began := time.Now()
			p.Stop(20*time.Second, ReasonShutdown, unix.SIGTERM, unix.SIGHUP)
			await(t, p.Done(), "the end")
			if st, _ := p.Status(); st.Signal != unix.SIGHUP || !strings.Contains(logText(log), "clean\n") {
				t.Errorf("%+v, %q", st, logText(log))
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the second signal came after %v, when nobody heard the first any more", took)
			}
		})
	}
}

func TestStopWaitsForTheWholeTree(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	log := NewLog(1 << 10)
	// The leader ends at once; a daemon of it needs a moment to save its work.
	s := bash(`setsid bash -c "trap 'sleep 0.3; echo saved >file; exit' TERM; echo up; while :; do sleep 0.02; done" & wait`)
	s.Output, s.Dir = log, dir
	p := start(t, m, s)
	waitText(t, log, "up\n")
	p.Stop(20*time.Second, "", unix.SIGTERM)
	if text, _ := os.ReadFile(dir + "/file"); string(text) != "saved\n" {
		t.Errorf("the daemon was not given its time: %q", text)
	}
	await(t, p.Done(), "done")
}

func TestCloseEndsEverythingButWhatIsDetached(t *testing.T) {
	for _, name := range []string{"default", "no cgroups"} {
		t.Run(name, func(t *testing.T) {
			opts := variants[name]
			opts.StopGrace = 3 * time.Second
			m, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			detached := bash("sleep 7145 & sleep 7145")
			detached.Detach = true
			kept := start(t, m, detached)
			polite := bash("trap 'echo bye >file; exit 6' TERM; sleep 60 & : >up; wait")
			polite.Dir = dir
			p := start(t, m, polite)
			stubborn := start(t, m, bash("trap '' TERM; sleep 7144 & sleep 7144 & wait"))
			run(t, m, bash("sleep 7144 >/dev/null 2>&1 & exit 0")) // left behind by a command that has ended
			eventually(t, "all are up", func() bool {
				_, err := os.Stat(dir + "/up")
				return err == nil && len(withArg("7144")) == 3 && len(withArg("7145")) == 2
			})

			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := m.Close(ctx); err != nil {
				t.Fatal(err)
			}
			if left := withArg("7144"); len(left) != 0 {
				t.Errorf("left %v", left)
			}
			if text, _ := os.ReadFile(dir + "/file"); string(text) != "bye\n" {
				t.Errorf("nobody asked first: %q", text)
			}
			if s, _ := p.Status(); s.Reason != ReasonShutdown || s.Code != 6 {
				t.Errorf("polite: %+v", s)
			}
			if s, _ := stubborn.Status(); s.Reason != ReasonShutdown || s.Code != -9 {
				t.Errorf("stubborn: %+v", s)
			}
			if left := withArg("7145"); len(left) != 2 || !alive(kept.PID()) {
				t.Errorf("detached: %v", left)
			}
			if _, err := m.Start(t.Context(), trueSpec); !errors.Is(err, ErrClosed) {
				t.Errorf("a start after Close: %v", err)
			}
			_ = unix.Kill(-kept.PID(), unix.SIGKILL)
			var ws unix.WaitStatus
			_, _ = unix.Wait4(kept.PID(), &ws, 0, nil)
		})
	}
}

func TestCloseDoesNotWaitForAReaderThatIsGone(t *testing.T) {
	m, err := New(Options{StopGrace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	s := sh("yes")
	s.Output = NewFeed() // nobody reads it
	p := start(t, m, s)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, p.Done(), "done")
	if err := m.Close(ctx); err == nil {
		t.Error("closed twice without an error")
	}
}

// TestSignalsRaceWithTheEnd: signals race with the end of the
// process and with the next one that gets its number.
func TestSignalsRaceWithTheEnd(t *testing.T) {
	m := newManager(t, Options{})
	for range 100 {
		p := start(t, m, trueSpec)
		go func() { _ = p.Signal(unix.SIGTERM, true) }()
		go func() { _ = p.Signal(unix.SIGCONT, false) }()
		await(t, p.Done(), "done")
		if err := p.Signal(unix.SIGKILL, true); !errors.Is(err, ErrEnded) {
			t.Fatalf("after the end: %v", err)
		}
	}
}
