package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestHowProcessesEnd(t *testing.T) {
	m := newManager(t, Options{})
	for _, tc := range []struct {
		name, script string
		code         int
		signal       syscall.Signal
		reason       Reason
	}{
		{"by itself", "exit 0", 0, 0, ReasonExited},
		{"with a code", "exit 3", 3, 0, ReasonExited},
		{"SIGKILL from inside", "kill -9 $$", -9, unix.SIGKILL, ReasonSignaled},
		{"SIGTERM from inside", "kill -15 $$", -15, unix.SIGTERM, ReasonSignaled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, m, sh(tc.script))
			if r.Code != tc.code || r.Signal != tc.signal || r.Reason != tc.reason || r.Detached {
				t.Errorf("got %+v", r.Status)
			}
			if r.MaxRSS <= 0 || r.Ended.IsZero() {
				t.Errorf("no usage or end: %+v", r.Status)
			}
		})
	}
}

func TestOutputsAreKeptApartAndCounted(t *testing.T) {
	m := newManager(t, Options{})
	r := run(t, m, sh("echo out; echo err >&2; exit 3"))
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.Truncated {
		t.Errorf("%q %q %v", r.Stdout, r.Stderr, r.Truncated)
	}
	r = run(t, m, bash("seq 1 30000 >&2; seq 1 30000; seq 1 30000 >&2"))
	if n, e := strings.Count(string(r.Stdout), "\n"), strings.Count(string(r.Stderr), "\n"); n != 30000 || e != 60000 {
		t.Errorf("lost lines: %d and %d", n, e)
	}
}

func TestTheEnvironmentIsWhatTheCallerSays(t *testing.T) {
	t.Setenv("ABX_SERVER_TOKEN", "secret")
	m := newManager(t, Options{})
	r := run(t, m, Spec{Path: "/usr/bin/env", Env: []string{"A=1 2", "B="}})
	if got := string(r.Stdout); got != "A=1 2\nB=\n" {
		t.Errorf("got %q", got)
	}
	if r = run(t, m, Spec{Path: "/usr/bin/env"}); len(r.Stdout) > 0 {
		t.Errorf("an empty environment has %q", r.Stdout)
	}
}

func TestWorkingDirectory(t *testing.T) {
	m := newManager(t, Options{})
	dir := filepath.Join(t.TempDir(), "a b é")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	s := sh("pwd -P")
	s.Dir = dir
	if r := run(t, m, s); string(r.Stdout) != dir+"\n" {
		t.Errorf("by name: %q", r.Stdout)
	}
	// What was opened counts, not what its name leads to now.
	moved := dir + " moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	s = sh("pwd -P")
	s.DirFile = f
	if r := run(t, m, s); string(r.Stdout) != moved+"\n" {
		t.Errorf("by descriptor: %q", r.Stdout)
	}
	s.DirFile, s.Dir = nil, dir
	if _, err := m.Start(t.Context(), s); !errors.Is(err, ErrDir) {
		t.Errorf("missing directory: %v", err)
	}
}

func TestFilesAreHandedOverInOrder(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	var files []*os.File
	for _, name := range []string{"in", "out", "err", "three", "four"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	if _, err := files[0].WriteAt([]byte("hello"), 0); err != nil {
		t.Fatal(err)
	}
	s := sh("cat; echo e >&2; echo 3 >&3; echo 4 >&4")
	s.StdinFile, s.StdoutFile, s.StderrFile, s.Files = files[0], files[1], files[2], files[3:]
	p := start(t, m, s)
	await(t, p.Done(), "the end")
	got := map[string]string{}
	for _, f := range files[1:] {
		text, _ := os.ReadFile(f.Name())
		got[filepath.Base(f.Name())] = string(text)
	}
	want := map[string]string{"out": "hello", "err": "e\n", "three": "3\n", "four": "4\n"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestNoDescriptorIsInherited(t *testing.T) {
	// One that lacks close-on-exec, as if the server had been started with it.
	var fd [2]int
	if err := unix.Pipe(fd[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd[0])
	defer unix.Close(fd[1])
	m := newManager(t, Options{})
	r := run(t, m, Spec{Path: "/bin/ls", Argv: []string{"ls", "/proc/self/fd"}, Env: testEnv})
	if got := strings.Fields(string(r.Stdout)); len(got) != 4 { // 0, 1, 2 and the directory itself
		t.Errorf("descriptors %v", got)
	}
}

func TestSignalsAreAtTheirDefaults(t *testing.T) {
	m := newManager(t, Options{})
	r := run(t, m, Spec{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/status"}, Env: testEnv})
	for _, name := range []string{"SigBlk:", "SigIgn:"} {
		if n := statusMask(r.Stdout, name); n != 0 {
			t.Errorf("%s %x", name, n)
		}
	}
}

func TestACommandIsALeaderOfItsGroupInOurSession(t *testing.T) {
	m := newManager(t, Options{})
	p := start(t, m, sh("sleep 60"))
	defer p.End("")
	own, _ := readStat(os.Getpid())
	s, ok := readStat(p.PID())
	if !ok || s.pgrp != p.PID() || s.sid != own.sid {
		t.Errorf("group %d session %d, ours is %d", s.pgrp, s.sid, own.sid)
	}
}

func TestATerminalIsTheControllingOne(t *testing.T) {
	m := newManager(t, Options{})
	outer, inner, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer outer.Close()
	s := sh("tty; ps -o sid= -p $$ >/dev/null; echo hi >/dev/tty; exit 7")
	s.TTY = inner
	p := start(t, m, s)
	inner.Close()
	text, _ := io.ReadAll(outer) // ends with EIO
	await(t, p.Done(), "the end")
	status, _ := p.Status()
	if !strings.HasPrefix(string(text), "/dev/pts/") || !strings.Contains(string(text), "hi\r\n") || status.Code != 7 {
		t.Errorf("%q %+v", text, status)
	}
}

func TestStartErrors(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	umask := 0o22
	for _, tc := range []struct {
		name string
		spec Spec
		want error
	}{
		{"missing", Spec{Path: dir + "/nope"}, ErrNotFound},
		{"below a file", Spec{Path: file("f", "", 0o755) + "/x"}, ErrNotFound},
		{"a directory", Spec{Path: dir}, ErrNotExecutable},
		{"no x bit", Spec{Path: file("nox", "#!/bin/sh\n", 0o644)}, ErrNotExecutable},
		{"no #! line", Spec{Path: file("plain", "echo hi\n", 0o755)}, ErrNotProgram},
		{"no interpreter", Spec{Path: file("noint", "#!/no/such/thing\n", 0o755)}, ErrNotFound},
		{"relative", Spec{Path: "sh"}, ErrInvalid},
		{"NUL", Spec{Path: "/bin/sh", Argv: []string{"sh", "a\x00b"}}, ErrInvalid},
		{"niceness", Spec{Path: "/bin/sh", Nice: 20}, ErrInvalid},
		{"too long", Spec{Path: "/bin/echo", Argv: []string{"echo", strings.Repeat("x", 200_000)}}, unix.E2BIG},
		{"missing, staged", Spec{Path: dir + "/nope", Umask: &umask}, ErrNotFound},
		{"no #! line, staged", Spec{Path: dir + "/plain", Umask: &umask}, ErrNotProgram},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := m.Start(t.Context(), tc.spec)
			var start *StartError
			if !errors.Is(err, tc.want) || !errors.As(err, &start) || p != nil {
				t.Errorf("got %v, %v", p, err)
			}
		})
	}
	if n := len(m.live) + len(m.byPID); n != 0 {
		t.Errorf("%d entries of failed starts", n)
	}
}

func TestTimeLimit(t *testing.T) {
	m := newManager(t, Options{})
	s := sh("echo partial; exec sleep 60")
	s.Timeout = 300 * time.Millisecond
	r := run(t, m, s)
	if r.Reason != ReasonTimeout || r.Code != -9 || string(r.Stdout) != "partial\n" {
		t.Errorf("%+v %q", r.Status, r.Stdout)
	}
	s = sh("while :; do echo x; sleep 0.02; done")
	s.Timeout = 300 * time.Millisecond
	if r = run(t, m, s); r.Reason != ReasonTimeout || len(r.Stdout) == 0 {
		t.Errorf("a chatty one: %+v", r.Status)
	}
}

func TestKillGraceLetsAProgramCleanUp(t *testing.T) {
	m := newManager(t, Options{})
	s := sh("trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.02; done")
	s.Timeout, s.KillGrace = 300*time.Millisecond, 20*time.Second
	if r := run(t, m, s); r.Reason != ReasonTimeout || r.Code != 4 || string(r.Stdout) != "up\nbye\n" {
		t.Errorf("%+v %q", r.Status, r.Stdout)
	}
	s = sh("trap '' TERM; while :; do sleep 0.02; done")
	s.Timeout, s.KillGrace = 100*time.Millisecond, 100*time.Millisecond
	if r := run(t, m, s); r.Reason != ReasonTimeout || r.Code != -9 {
		t.Errorf("one that does not listen: %+v", r.Status)
	}
}

func TestSignals(t *testing.T) {
	m := newManager(t, Options{})
	// Not by a shell: one that is just forking for it is not seen to stop.
	p := start(t, m, Spec{Path: "/bin/sleep", Argv: []string{"sleep", "60"}, Env: testEnv})
	state := func() byte { s, _ := readStat(p.PID()); return s.state }
	for _, step := range []struct {
		sig  syscall.Signal
		want byte
	}{{unix.SIGTSTP, 'T'}, {unix.SIGCONT, 'S'}} {
		if err := p.Signal(step.sig, true); err != nil {
			t.Fatal(err)
		}
		eventually(t, step.sig.String(), func() bool {
			if _, ended := p.Status(); ended {
				t.Fatalf("it ended: %+v", p.status)
			}
			return state() == step.want
		})
	}
	if _, ended := p.Status(); ended {
		t.Error("a stopped process counts as ended")
	}
	if err := p.Signal(unix.SIGHUP, true); err != nil {
		t.Fatal(err)
	}
	await(t, p.Done(), "SIGHUP")
	if s, _ := p.Status(); s.Code != -1 || s.Reason != ReasonSignaled {
		t.Errorf("%+v", s)
	}
	if err := p.Signal(unix.SIGTERM, true); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

func TestASignalToTheProcessAloneSparesTheGroup(t *testing.T) {
	m := newManager(t, Options{})
	log := NewLog(1 << 20)
	s := bash("trap 'echo got; exit 0' USR1; (trap 'echo child' USR1; echo ready; while :; do sleep 0.02; done) & wait")
	s.Output = log
	p := start(t, m, s)
	defer p.End("")
	waitText(t, log, "ready\n")
	if err := p.Signal(unix.SIGUSR1, false); err != nil {
		t.Fatal(err)
	}
	await(t, p.Exited(), "the leader")
	if text := logText(log); strings.Contains(text, "child") || !strings.Contains(text, "got") {
		t.Errorf("%q", text)
	}
}

func TestTheContextEndsTheCommand(t *testing.T) {
	m := newManager(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	p, err := m.Start(ctx, sh("sleep 60 & sleep 61"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	await(t, p.Done(), "cancel")
	if s, _ := p.Status(); s.Reason != ReasonDisconnected || s.Code != -9 {
		t.Errorf("%+v", s)
	}
	if p, err = m.Start(ctx, sh("true")); !errors.Is(err, context.Canceled) {
		t.Errorf("started with an ended context: %v %v", p, err)
	}
}

func TestAStoppingServerAsksBeforeItKills(t *testing.T) {
	m, err := New(Options{StopGrace: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	s := sh("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
	log := NewLog(1 << 10)
	s.Output = log
	p, err := m.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	waitText(t, log, "ready\n")
	stop(ErrStopping)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, _ := p.Status(); st.Reason != ReasonShutdown || st.Code != 7 {
		t.Errorf("%+v", st)
	}
}

func TestTheFirstReasonStays(t *testing.T) {
	m := newManager(t, Options{})
	p := start(t, m, sh("sleep 60"))
	var wg sync.WaitGroup
	wg.Go(func() { p.End(ReasonOutputLimit) })
	wg.Wait()
	p.End(ReasonTimeout)
	await(t, p.Done(), "the end")
	if s, _ := p.Status(); s.Reason != ReasonOutputLimit || s.Code != -9 {
		t.Errorf("%+v", s)
	}
}

func TestStopAsksFirst(t *testing.T) {
	m := newManager(t, Options{})
	log := NewLog(1 << 10)
	s := sh("trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done")
	s.Output = log
	p := start(t, m, s)
	waitText(t, log, "up\n")
	p.Stop(20*time.Second, "", unix.SIGTERM)
	await(t, p.Done(), "the end")
	if s, _ := p.Status(); s.Code != 5 || s.Reason != ReasonExited {
		t.Errorf("%+v", s)
	}
}

func TestOnlyTheStageKnowsHow(t *testing.T) {
	m := newManager(t, Options{})
	umask := 0o027
	s := bash(`umask; nice; ulimit -n; ulimit -t; ulimit -f; ulimit -u; ulimit -v; printf '%s|' "$@" "$X"`)
	s.Argv = append(s.Argv, "bash", "a b", "\xff", "é")
	s.Env = append(s.Env, "X=\xfe", "GOMEMLIMIT=nonsense", "GODEBUG=inittrace=1")
	s.Umask, s.Nice = &umask, 3
	s.Limits = Limits{CPUSeconds: 100, Processes: 500, OpenFiles: 77, FileSizeBytes: 1 << 20}
	memory := "unlimited"
	if !raceEnabled { // the race detector needs more
		s.Limits.MemoryBytes, memory = 100<<20, "102400"
	}
	s.Timeout = time.Minute
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, m, s)
	want := strings.Join([]string{"0027", itoa(20 - own + 3), "77", "100", "1024", "500", memory, "a b|\xff|é|\xfe|"}, "\n")
	if d := cmp.Diff(want, string(r.Stdout)); d != "" || len(r.Stderr) > 0 {
		t.Errorf("%s\nstderr %q %+v", d, r.Stderr, r.Status)
	}
}

func TestTheStageLeavesTheRestAlone(t *testing.T) {
	m := newManager(t, Options{})
	plain := Spec{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/limits"}, Env: testEnv}
	staged := plain
	staged.Nice = 1
	a, b := run(t, m, plain), run(t, m, staged)
	drop := func(text []byte) (out []string) { // marks differ
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "Max file locks") {
				out = append(out, line)
			}
		}
		return out
	}
	if d := cmp.Diff(drop(a.Stdout), drop(b.Stdout)); d != "" {
		t.Error(d)
	}
	fds := Spec{Path: "/bin/ls", Argv: []string{"ls", "/proc/self/fd"}, Env: testEnv, Nice: 1}
	if r := run(t, m, fds); len(strings.Fields(string(r.Stdout))) != 4 {
		t.Errorf("descriptors %q", r.Stdout)
	}
}

func TestALargeCommandFitsBehindASmallMemoryLimit(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector itself needs more memory")
	}
	m := newManager(t, Options{})
	s := sh("echo $#")
	for range 15 {
		s.Argv = append(s.Argv, strings.Repeat("x", 100_000))
	}
	s.Limits.MemoryBytes = 32 << 20
	if r := run(t, m, s); string(r.Stdout) != "14\n" {
		t.Errorf("%q %q %+v", r.Stdout, r.Stderr, r.Status)
	}
}

func TestAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	m := newManager(t, Options{})
	for _, nice := range []int{0, 1} { // without and with the stage
		s := sh("id -u; id -g; id -G")
		s.User, s.Nice = &User{UID: 65534, GID: 65533, Groups: []uint32{7}}, nice
		s.Dir = "/"
		if r := run(t, m, s); string(r.Stdout) != "65534\n65533\n65533 7\n" {
			t.Errorf("nice %d: %q %q", nice, r.Stdout, r.Stderr)
		}
	}
}

func TestAFileRunsAtOnceAfterItWasWritten(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // forks that hold the file for a moment
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					run(t, m, trueSpec)
				}
			}
		})
	}
	for i := range 150 {
		path := filepath.Join(dir, itoa(i))
		if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Run(t.Context(), Spec{Path: path, Env: testEnv}, 0); err != nil {
			t.Errorf("try %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
	// And one that is held for longer than a moment.
	path := filepath.Join(dir, "held")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("#!/bin/sh\nexit 0\n"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Millisecond, func() { f.Close() })
	if r := run(t, m, Spec{Path: path, Env: testEnv}); r.Code != 0 {
		t.Errorf("%+v", r.Status)
	}
}

func TestUsage(t *testing.T) {
	m := newManager(t, Options{})
	p := start(t, m, sh("while :; do :; done"))
	defer p.End("")
	eventually(t, "some processor time", func() bool {
		cpu, rss := p.Usage()
		return cpu > 0 && rss > 0
	})
	p.End("")
	await(t, p.Done(), "the end")
	if cpu, rss := p.Usage(); cpu <= 0 || rss <= 0 {
		t.Errorf("after the end: %v %v", cpu, rss)
	}
}

// TestOtherCodeMayWaitForItsOwnChild: a test or a library that starts a
// program with os/exec still gets its status while a manager is at work.
func TestOtherCodeMayWaitForItsOwnChild(t *testing.T) {
	m := newManager(t, Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				forkMu.Lock() // a fork during ours would get our mark
				proc, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 3"}, &os.ProcAttr{})
				forkMu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				if st, err := proc.Wait(); err != nil || st.ExitCode() != 3 {
					t.Errorf("%v %v", st, err)
				}
			}
		})
		wg.Go(func() {
			for range 25 {
				if r := run(t, m, sh("exit 4")); r.Code != 4 {
					t.Errorf("%+v", r.Status)
				}
			}
		})
	}
	wg.Wait()
}

func logText(l *Log) string {
	var b strings.Builder
	for _, e := range l.Read(0).Events {
		b.Write(e.Data)
	}
	return b.String()
}

func waitText(t testing.TB, l *Log, text string) {
	t.Helper()
	eventually(t, "output "+text, func() bool { return strings.Contains(logText(l), text) })
}
