package proc

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Stage()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

// variants are the ways in which the manager can find what a start has left.
var variants = map[string]Options{
	"default":    {},
	"no cgroups": {NoCgroups: true},
	"no marks":   {NoCgroups: true, noMarks: true},
}

func newManager(t testing.TB, opts Options) *Manager {
	t.Helper()
	if opts.StopGrace == 0 {
		opts.StopGrace = 200 * time.Millisecond
	}
	m, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

var testEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "LC_ALL=C.UTF-8"}

// sh is a Spec that runs a script.
func sh(script string) Spec {
	return Spec{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: testEnv}
}

func bash(script string) Spec {
	return Spec{Path: "/bin/bash", Argv: []string{"bash", "-c", script}, Env: testEnv}
}

// python finds a real interpreter, past wrappers that are shell scripts.
func python(t testing.TB, script string, args ...string) Spec {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if executable(path) == nil {
			return Spec{Path: path, Argv: append([]string{"python3", "-c", script}, args...), Env: testEnv}
		}
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	return Spec{Path: path, Argv: append([]string{"python3", "-c", script}, args...), Env: os.Environ()}
}

func start(t testing.TB, m *Manager, s Spec) *Process {
	t.Helper()
	p, err := m.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func run(t testing.TB, m *Manager, s Spec) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := m.Run(ctx, s, 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// await waits for a channel with a generous deadline.
func await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing after 30 s", what)
	}
}

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func alive(pid int) bool {
	s, ok := readStat(pid)
	return ok && !s.dead()
}

// withArg lists living processes that have an argument.
func withArg(arg string) []int {
	var out []int
	_ = eachProcess(func(pid int) {
		text, err := os.ReadFile("/proc/" + itoa(pid) + "/cmdline")
		if err != nil {
			return
		}
		for a := range strings.SplitSeq(string(text), "\x00") {
			if a == arg && alive(pid) {
				out = append(out, pid)
				return
			}
		}
	})
	return out
}

// zombies lists dead children of this process.
func zombies() []int {
	var out []int
	self := os.Getpid()
	_ = eachProcess(func(pid int) {
		if s, ok := readStat(pid); ok && s.ppid == self && s.dead() {
			out = append(out, pid)
		}
	})
	return out
}

func endPID(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }
