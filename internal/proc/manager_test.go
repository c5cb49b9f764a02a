package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHelper is no test: it is this binary when it plays a server that was
// started in an odd way.
func TestHelper(t *testing.T) {
	if os.Getenv("PROC_TEST_HELPER") == "" {
		t.Skip("only as a child of others")
	}
	m := newManager(t, Options{})
	r := run(t, m, Spec{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/status"}, Env: testEnv})
	var out strings.Builder
	for _, name := range []string{"SigBlk:", "SigIgn:"} {
		out.WriteString(name + itoa(int(statusMask(r.Stdout, name))) + "\n")
	}
	r = run(t, m, Spec{Path: "/bin/ls", Argv: []string{"ls", "/proc/self/fd"}, Env: testEnv})
	out.WriteString("fds:" + itoa(len(strings.Fields(string(r.Stdout)))) + "\n")
	if err := os.WriteFile(os.Getenv("PROC_TEST_HELPER"), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAnOddStartOfTheServerDoesNotReachItsCommands: nohup, a shell's "&", a
// supervisor that blocks signals or leaves descriptors open.
func TestAnOddStartOfTheServerDoesNotReachItsCommands(t *testing.T) {
	m := newManager(t, Options{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "out")
	s := python(t, `
import os, signal, sys
for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTOU, signal.SIGPIPE, signal.SIGUSR2):
    signal.signal(s, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
r, w = os.pipe(); os.set_inheritable(r, True); os.set_inheritable(w, True)
os.execv(sys.argv[1], [sys.argv[1], "-test.run=^TestHelper$"])
`, self)
	s.Env = append(s.Env, "PROC_TEST_HELPER="+file)
	r := run(t, m, s)
	text, _ := os.ReadFile(file)
	if string(text) != "SigBlk:0\nSigIgn:0\nfds:4\n" {
		t.Errorf("%q\n%s%s", text, r.Stdout, r.Stderr)
	}
}

func TestWantOfMemoryIsTheReason(t *testing.T) {
	m := newManager(t, Options{NoCgroups: true})
	m.oom.close()
	counter := filepath.Join(t.TempDir(), "memory.events")
	if err := os.WriteFile(counter, []byte("oom_kill 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(counter)
	if err != nil {
		t.Fatal(err)
	}
	m.oom.f = f
	raise := "echo oom_kill $(date +%N | sed 's/^0*//')2 > " + counter + "; " // as the kernel would
	for _, tc := range []struct {
		script string
		want   Reason
	}{
		{raise + "kill -9 $$", ReasonOOM},
		{"kill -9 $$", ReasonSignaled},
		{raise + "kill -15 $$", ReasonSignaled},
		{raise + "exit 9", ReasonExited},
	} {
		_ = os.WriteFile(counter, []byte("oom_kill 1\n"), 0o644)
		if r := run(t, m, sh(tc.script)); r.Reason != tc.want {
			t.Errorf("%s: %+v", tc.script, r.Status)
		}
	}
	_ = os.WriteFile(counter, []byte("oom_kill 1\n"), 0o644)
	p := start(t, m, sh(raise+"sleep 60"))
	eventually(t, "the counter rises", func() bool { return m.oom.count() > 1 })
	_ = p.Signal(unix.SIGKILL, false)
	await(t, p.Done(), "done")
	if st, _ := p.Status(); st.Reason != ReasonSignaled {
		t.Errorf("our own SIGKILL: %+v", st)
	}
}

func TestWhatIsDrainedIsBounded(t *testing.T) {
	m := newManager(t, Options{})
	s := bash("sleep 7148 & exit 0")
	for range 3 {
		run(t, m, s)
	}
	m.mu.Lock()
	n := len(m.drains)
	first := m.drains[0]
	for len(m.drains) < maxDrains { // as if there were that many
		m.drains = append(m.drains, m.drains[n-1])
	}
	m.mu.Unlock()
	if n != 6 {
		t.Errorf("%d pipes are drained", n)
	}
	run(t, m, s)
	if _, err := first.f.Stat(); err == nil {
		t.Error("the oldest is not closed")
	}
	m.mu.Lock()
	m.drains = m.drains[len(m.drains)-2:]
	m.mu.Unlock()
}

// TestStrangersHideNobody: dead children that other code has not waited for
// yet lie in front of ours.
func TestStrangersHideNobody(t *testing.T) {
	m := newManager(t, Options{})
	if !m.marks.on {
		t.Skip("no marks here")
	}
	var others []*os.Process
	forkMu.Lock()
	for range 30 {
		o, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, o)
	}
	forkMu.Unlock()
	eventually(t, "all lie there", func() bool { return len(zombies()) == len(others) })
	for range 5 {
		if r := run(t, m, sh("(exit 3) & exit 4")); r.Code != 4 {
			t.Errorf("%+v", r.Status)
		}
	}
	for _, o := range others[:5] { // in time
		if st, err := o.Wait(); err != nil || !st.Success() {
			t.Errorf("%v %v", st, err)
		}
	}
	began := time.Now()
	eventually(t, "the rest is taken for orphans", func() bool { return len(zombies()) == 0 })
	if d := time.Since(began); d > 5*foreignWait {
		t.Errorf("one after the other: %v", d)
	}
	for _, o := range others[5:] {
		_ = o.Release()
	}
}

func TestCgroupsAreRemoved(t *testing.T) {
	m := newManager(t, Options{})
	if m.cgroups == nil {
		t.Skip("no writable cgroups here")
	}
	own := filepath.Dir(m.cgroups.root)
	stale := own + "/" + cgroupPrefix + "999999999-0" // no such process can be
	if err := os.MkdirAll(stale+"/1", 0o755); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		run(t, m, trueSpec)
		p := start(t, m, bash("sleep 60 & sleep 60"))
		p.End("")
		await(t, p.Done(), "done")
	}
	if n := m.cgroups.n; n > 5 {
		t.Errorf("%d cgroups for at most two at a time", n)
	}
	newManager(t, Options{}) // clears what it finds
	if _, err := os.Stat(stale); err == nil {
		t.Error("a dead server's cgroups are still there")
	}
	third, err := New(Options{StopGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	start(t, third, sh("sleep 60"))
	root := third.cgroups.root
	if err := third.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); err == nil {
		t.Error("the cgroups of a closed manager are still there")
	}
}
