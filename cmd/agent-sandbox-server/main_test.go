package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// patience is the deadline of everything that is waited for. Nothing is
// expected to come near it.
const patience = 30 * time.Second

const program0 = "agent-sandbox-server"

func TestMain(m *testing.M) {
	proc.Stage()
	// Without it the race detector holds every program up for a second.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	// Called by this name the test binary is the program.
	testscript.Main(leakChecked{m}, map[string]func(){program0: main})
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	status := l.m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Vars = slices.DeleteFunc(e.Vars, func(s string) bool { return strings.HasPrefix(s, "ABX_") })
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("PYTHON", realPython())
			e.Setenv("SERVER", filepath.SplitList(e.Getenv("PATH"))[0]+"/"+program0)
			for _, name := range []string{"PORT", "PORT2", "PTYPORT"} {
				e.Setenv(name, strconv.Itoa(freePort(t)))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"healthy": scriptHealthy, "status": scriptStatus, "signal": scriptSignal, "listen": scriptListen, "lines": scriptLines, "exits": scriptExits,
		},
	})
}

// realPython is an interpreter that needs no home directory, as wrappers do.
func realPython() string {
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "python3"
}

// exits N COMMAND… runs a command that must end with status N.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N COMMAND [ARGUMENT...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("status %d, want %s", got, want)
	}
}

// healthy PORT waits for a server.
func scriptHealthy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: healthy PORT")
	}
	ts.Check(waitHealthy("http://127.0.0.1:" + args[0]))
}

// status CODE PORT PATH [METHOD] asks once.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: status CODE PORT PATH [METHOD]")
	}
	method := http.MethodGet
	if len(args) > 3 {
		method = args[3]
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://127.0.0.1:"+args[1]+args[2], nil)
	ts.Check(err)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	ts.Check(err)
	defer res.Body.Close()
	if got := strconv.Itoa(res.StatusCode); got != args[0] {
		ts.Fatalf("status %s, want %s", got, args[0])
	}
}

// signal NAME goes to the last background command.
func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}
	running := ts.BackgroundCmds()
	if neg || len(args) != 1 || signals[args[0]] == 0 || len(running) == 0 {
		ts.Fatalf("usage: signal TERM|INT|HUP, with a command in the background")
	}
	ts.Check(running[len(running)-1].Process.Signal(signals[args[0]]))
}

// listen PORT holds a port until the script ends.
func scriptListen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen PORT")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:"+args[0])
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
}

// lines N FILE counts lines.
func scriptLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lines N FILE")
	}
	if got := strconv.Itoa(strings.Count(ts.ReadFile(args[1]), "\n")); got != args[0] {
		ts.Fatalf("%s lines, want %s", got, args[0])
	}
}

// givenPorts are those freePort has given out.
var givenPorts sync.Map

// freePort is a port that nothing listens on. It lies below those the kernel
// gives out by itself, since others would get it before it is used.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		if l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func waitHealthy(url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		res, err := client.Get(url + "/health")
		if err != nil {
			last = err
			continue
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && res.StatusCode == http.StatusOK && strings.TrimSpace(string(text)) == `{"status":"ok"}` {
			return nil
		}
		last = fmt.Errorf("status %d, body %.100q", res.StatusCode, text)
	}
	return fmt.Errorf("not healthy: %w", last)
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// await waits until the log matches and returns the submatches.
func (b *lockedBuffer) await(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if m := re.FindStringSubmatch(b.String()); m != nil {
			return m
		}
	}
	t.Fatalf("the log never matched %q:\n%s", pattern, b.String())
	return nil
}

// running is the program as a process of its own.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *lockedBuffer
	url  string
	base string
	done chan struct{} // closed when it has ended
}

// serveProcess starts the server and waits until it listens.
func serveProcess(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := startProcess(t, env, args...)
	m := r.log.await(t, `"?http"?[=:]"?(127\.0\.0\.1:\d+)`)
	r.url = "http://" + m[1]
	if err := waitHealthy(r.url); err != nil {
		t.Fatalf("%v\n%s", err, r.log)
	}
	return r
}

func startProcess(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, log: &lockedBuffer{}, base: t.TempDir(), done: make(chan struct{})}
	r.cmd = exec.Command(exe, append([]string{"serve", "--host", "127.0.0.1", "--port", "0", "--base-dir", r.base}, args...)...)
	r.cmd.Args[0] = program0
	r.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "ABX_") }), env...)
	r.cmd.Stderr = r.log
	r.cmd.Dir = r.base
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
	})
	return r
}

func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// wait is the exit status.
func (r *running) wait() int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatalf("it did not end:\n%s", r.log)
	}
	return r.cmd.ProcessState.ExitCode()
}

// get is status and body of one request.
func (r *running) get(path string, header ...string) (int, string) {
	r.t.Helper()
	status, text, err := r.ask(http.MethodGet, path, "", header...)
	if err != nil {
		r.t.Fatalf("GET %s: %v", path, err)
	}
	return status, text
}

func (r *running) ask(method, path, body string, header ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// TestServeLeavesNothingBehind runs the whole program inside the test, so that
// the leak check of TestMain sees what it started.
func TestServeLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log := &lockedBuffer{}
	ended := make(chan int, 1)
	env := []string{"PATH=" + os.Getenv("PATH")}
	go func() {
		ended <- run(ctx, []string{"--host", "127.0.0.1", "--port=0", "--base-dir", t.TempDir()}, env, nil, io.Discard, log)
	}()
	m := log.await(t, `http=(\S+)`)
	if err := waitHealthy("http://" + m[1]); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case status := <-ended:
		if status != exitOK {
			t.Errorf("status %d\n%s", status, log)
		}
	case <-time.After(patience):
		t.Fatalf("it did not stop:\n%s", log)
	}
}

// TestFailedStartLeavesNothingBehind does the same for a start that fails at
// its last step.
func TestFailedStartLeavesNothingBehind(t *testing.T) {
	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	log := &lockedBuffer{}
	args := []string{"serve", "--host=127.0.0.1", "--port", strconv.Itoa(portOf(busy)), "--base-dir", t.TempDir()}
	if status := run(context.Background(), args, nil, nil, io.Discard, log); status != exitFailed {
		t.Errorf("status %d", status)
	}
	if got := log.String(); !strings.HasPrefix(got, "listen error: ") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr %q", got)
	}
}
