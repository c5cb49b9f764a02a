package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// doors are the endpoints that start commands.
var doors = []string{"/shell", "/shell/stream", "/process/start"}

func TestBackgroundChildDoesNotHoldUpTheAnswer(t *testing.T) {
	r := newRig(t, rigOptions{})
	x := newTrial(t)
	in := script("sleep 1000 & echo hi", "env", x.env(), "timeout", 1000, "capture_output", true)
	status, out := r.call("POST", "/shell", in)
	if status != http.StatusOK || out["stdout"] != "hi\n" || out["exit_code"] != 0.0 || out["detached"] != true {
		t.Errorf("/shell: %d %v", status, out)
	}
	events := r.events("POST", "/shell/stream", in)
	if len(events) != 2 || events[0].text() != "hi" || events[1].name != "exit" || events[1].data["exit_code"] != 0.0 {
		t.Errorf("/shell/stream: %v", events)
	}
	pid := r.start(in)
	events = r.events("GET", processPath(pid, "/output?follow=1"), nil)
	if last, ok := exitOf(events); !ok || last.data["exit_code"] != 0.0 || events[0].text() != "hi\n" {
		t.Errorf("follow: %v", events)
	}
	if n := len(x.living()); n != 3 {
		t.Errorf("%d of 3 background children live", n)
	}
}

func TestTimeoutOrKillEndsTheWholeTree(t *testing.T) {
	r := newRig(t, rigOptions{})
	// A pipeline, a child of its own session, and a wait for all.
	const tree = "sleep 1000 & setsid sleep 1000 & sleep 1000 | sleep 1000; true"
	t.Run("shell", func(t *testing.T) {
		x := newTrial(t)
		status, out := r.call("POST", "/shell", script("echo begun; "+tree, "env", x.env(), "timeout", 1))
		wantError(t, "/shell", status, out, 500, "command_timeout")
		if out["type"] != "TimeoutError" || out["stdout"] != "begun\n" || out["stderr"] != "" {
			t.Errorf("got %v", out)
		}
		x.gone("after the time limit")
	})
	t.Run("stream", func(t *testing.T) {
		x := newTrial(t)
		events := r.events("POST", "/shell/stream", script("echo begun; "+tree, "env", x.env(), "timeout", 1))
		want := []event{
			{"stdout", map[string]any{"data": "begun"}},
			{"error", map[string]any{"error": "timeout"}},
			{"exit", map[string]any{"exit_code": -9.0}},
		}
		if d := cmp.Diff(want, events, cmp.AllowUnexported(event{})); d != "" {
			t.Error(d)
		}
		x.gone("after the time limit")
	})
	for name, in := range map[string]body{
		"enforced": script(tree, "timeout", 1, "enforce_timeout", true),
		"signal":   script(tree),
		"delete":   script(tree),
	} {
		t.Run(name, func(t *testing.T) {
			x := newTrial(t)
			in["env"] = x.env()
			pid := r.start(in)
			if name != "enforced" {
				eventually(t, "the tree stands", func() bool { return len(x.living()) >= 5 })
			}
			switch name {
			case "signal":
				if status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": 9}); status != 200 {
					t.Fatalf("signal: %d %v", status, out)
				}
			case "delete":
				if status, out := r.call("DELETE", processPath(pid), nil); status != 200 || out["state"] != "exited" || out["reason"] != "signaled" {
					t.Fatalf("delete: %d %v", status, out)
				}
			}
			reason := map[string]string{"enforced": "timeout", "signal": "signaled", "delete": "signaled"}[name]
			if out := r.ended(pid); out["reason"] != reason {
				t.Errorf("reason: %v", out)
			}
			x.gone("after " + name)
			// A second signal finds nobody to hit.
			status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": 9})
			wantError(t, "second signal", status, out, 404, "process_exited")
		})
	}
}

func TestPolicyTimeLimitEndsBackgroundProcesses(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"limits":{"timeout_seconds":0.3}}}}`})
	x := newTrial(t)
	pid := r.start(script("trap '' TERM; sleep 1000", "env", x.env(), "kill_grace", 8))
	if out := r.ended(pid); out["reason"] != "timeout" || out["exit_code"] != -9.0 {
		t.Errorf("got %v", out)
	}
	x.gone("after the policy's limit")
}

func TestCharacterCutByAReadArrivesWhole(t *testing.T) {
	r := newRig(t, rigOptions{})
	// Half a character, then its rest, then a byte that is none.
	const halves = `printf 'A\342\202'; sleep 0.2; printf '\254B\377C\n'`
	const want = "A\u20acB\ufffdC"
	if _, out := r.call("POST", "/shell", script(halves)); out["stdout"] != want+"\n" {
		t.Errorf("/shell: %q", out["stdout"])
	}
	events := r.events("POST", "/shell/stream", script(halves))
	if events[0].text() != want {
		t.Errorf("lines: %q", events[0].text())
	}
	text := ""
	for _, e := range r.events("POST", "/shell/stream", script(halves, "mode", "chunks")) {
		text += e.text()
	}
	if text != want+"\n" {
		t.Errorf("chunks: %q", text)
	}
	pid := r.start(script(halves, "capture_output", true))
	text = ""
	for _, e := range r.events("GET", processPath(pid, "/output?follow=1"), nil) {
		text += e.text()
	}
	if text != want+"\n" || r.output(pid) != want+"\n" {
		t.Errorf("captured: %q, %q", text, r.output(pid))
	}
}

func TestPromptsAndBlankLinesAreSeen(t *testing.T) {
	r := newRig(t, rigOptions{})
	var lines []string
	for _, e := range r.events("POST", "/shell/stream", script(`printf 'a\n\nb\r\n\n  c\ttail'`)) {
		if e.name == "stdout" {
			lines = append(lines, e.text())
		}
	}
	if d := cmp.Diff([]string{"a", "", "b\r", "", "  c\ttail"}, lines); d != "" {
		t.Error(d)
	}
	// The prompt comes although its line goes on only when it was seen.
	answer := filepath.Join(r.base, "answer")
	a := r.open("POST", "/shell/stream", script("printf Password:; until [ -e "+answer+" ]; do sleep 0.01; done; echo x", "mode", "chunks"))
	defer a.hangUp()
	events, err := readEvents(a.body, func(e event) bool {
		if e.text() == "Password:" {
			if err := os.WriteFile(answer, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	if err != nil || events[0].name != "start" || events[0].data["pid"].(float64) < 2 {
		t.Errorf("%v %v", events, err)
	}
	if _, ok := exitOf(events); !ok {
		t.Errorf("no exit: %v", events)
	}
}

func TestCommandThatReadsInputDoesNotHang(t *testing.T) {
	r := newRig(t, rigOptions{})
	status, out := r.call("POST", "/shell", body{"command": "cat", "timeout": 1000})
	if status != 200 || out["stdout"] != "" || out["exit_code"] != 0.0 {
		t.Errorf("/shell: %d %v", status, out)
	}
	if events := r.events("POST", "/shell/stream", body{"command": "cat", "timeout": 1000}); len(events) != 1 || events[0].name != "exit" {
		t.Errorf("/shell/stream: %v", events)
	}
	if out := r.ended(r.start(body{"command": "cat"})); out["exit_code"] != 0.0 {
		t.Errorf("/process/start: %v", out)
	}
}

func TestInputIsGivenToTheCommand(t *testing.T) {
	r := newRig(t, rigOptions{})
	big := strings.Repeat("0123456789abcde\n", 200_000)
	_, out := r.call("POST", "/shell", body{"command": "cat", "stdin": big})
	if out["stdout"] != big {
		t.Errorf("%d of %d bytes", len(out["stdout"].(string)), len(big))
	}
	_, out = r.call("POST", "/shell", body{"command": "od -An -tx1", "stdin": "no", "stdin_base64": "AP8K"})
	if out["stdout"] != " 00 ff 0a\n" {
		t.Errorf("bytes: %q", out["stdout"])
	}
	if events := r.events("POST", "/shell/stream", body{"command": "cat", "stdin": "a\nb"}); len(events) != 3 || events[1].text() != "b" {
		t.Errorf("stream: %v", events)
	}
	// A command that does not read it is no failure.
	if status, out := r.call("POST", "/shell", body{"command": "true", "stdin": big}); status != 200 || out["exit_code"] != 0.0 {
		t.Errorf("unread: %d %v", status, out)
	}
	for _, door := range doors[:2] {
		for _, bad := range []body{{"stdin": 5}, {"stdin_base64": "YQ"}, {"stdin_base64": "YQ==\n"}, {"stdin_base64": 1, "stdin": "x"}} {
			bad["command"] = "cat"
			status, out := r.call("POST", door, bad)
			wantError(t, fmt.Sprint(door, bad), status, out, 400, "")
		}
	}
}

func TestMistakesAreTheSame4xxEverywhere(t *testing.T) {
	r := newRig(t, rigOptions{})
	noLine := r.write("noline", "echo hi\n")
	if err := os.Chmod(noLine, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := r.write("plain", "x")
	dir := filepath.Join(r.base, "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		what string
		in   body
		code string
		typ  string
		late bool // told in the stream, by published contract
	}{
		{"empty", body{"command": ""}, "", "ValueError", false},
		{"blank", body{"command": " \t\n"}, "command_invalid", "ValueError", false},
		{"quote", body{"command": "echo 'x"}, "command_invalid", "ValueError", false},
		{"long argument", body{"command": "echo " + strings.Repeat("x", 200_000)}, "command_invalid", "ValueError", false},
		{"many arguments", body{"args": append(make([]string, 4096), "x")}, "process_invalid", "ValueError", false},
		{"no args", body{"args": []string{}}, "", "ValueError", false},
		{"odd args", body{"args": "ls"}, "", "ValueError", false},
		{"missing program", body{"command": "no-such-prog"}, "command_not_found", "FileNotFoundError", true},
		{"directory", body{"command": dir}, "command_not_executable", "PermissionError", true},
		{"not executable", body{"command": plain}, "command_not_executable", "PermissionError", true},
		{"no #!", body{"command": noLine}, "command_not_executable", "OSError", true},
		{"missing cwd", body{"command": "true", "cwd": filepath.Join(r.base, "nope")}, "", "ValueError", false},
		{"file as cwd", body{"command": "true", "cwd": plain}, "", "ValueError", false},
		{"odd env", body{"command": "true", "env": []int{1}}, "env_invalid", "ValueError", false},
		{"device", body{"command": "/dev/null"}, "process_denied", "PolicyDenied", false},
	}
	for _, c := range cases {
		for _, door := range doors {
			if c.late && door == "/shell/stream" {
				events := r.events("POST", door, c.in)
				if len(events) != 1 || events[0].name != "error" || events[0].data["error"] == "" {
					t.Errorf("%s %s: %v", door, c.what, events)
				}
				continue
			}
			status, out := r.call("POST", door, c.in)
			want := 400
			if c.typ == "PolicyDenied" {
				want = 403
			}
			wantError(t, door+" "+c.what, status, out, want, c.code)
			if out["type"] != c.typ {
				t.Errorf("%s %s: type %v, want %s", door, c.what, out["type"], c.typ)
			}
		}
	}
}

func TestOutputOfACommandIsBounded(t *testing.T) {
	r := newRig(t, rigOptions{})
	status, out := r.call("POST", "/shell", script("head -c 12000000 /dev/zero | tr '\\0' x"))
	if n := len(out["stdout"].(string)); status != 200 || n != wholeOutput || out["truncated"] != true {
		t.Errorf("%d, %d bytes, truncated %v", status, n, out["truncated"])
	}
	status, out = r.call("POST", "/shell", script("head -c 2000000 /dev/zero | tr '\\0' x; printf END; sleep 1000", "timeout", 4, "keep", "tail"))
	text, _ := out["stdout"].(string)
	if status != 500 || len(text) > partialOutput || !strings.HasSuffix(text, "xEND") || out["truncated"] != true {
		t.Errorf("%d, %d bytes, truncated %v", status, len(text), out["truncated"])
	}
	_, out = r.call("POST", "/shell", script(`printf 'a\377'; printf '\r\n' >&2`, "encoding", "base64"))
	if out["stdout"] != "a\ufffd" || out["stdout_base64"] != "Yf8=" || out["stderr_base64"] != "DQo=" {
		t.Errorf("exact bytes: %v", out)
	}
}

func TestCommandsEndWithTheirCallers(t *testing.T) {
	r := newRig(t, rigOptions{})
	x := newTrial(t)
	for _, c := range []struct{ door, text string }{
		{"/shell/stream", "while :; do echo t; sleep 0.01; done"},
		{"/shell/stream", "sleep 1000 & setsid sleep 1000 & wait"},
		{"/shell/stream", "yes"},
		{"/shell", "sleep 1000 & setsid sleep 1000 & wait"},
		{"/shell", "yes"},
	} {
		started := filepath.Join(r.base, "started")
		ctx, hangUp := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			a := r.openIn(ctx, "POST", c.door, script("touch "+started+"; "+c.text, "env", x.env()))
			defer a.hangUp()
			_, _ = io.Copy(io.Discard, a.body)
		}()
		eventually(t, "the command runs", func() bool { _, err := os.Stat(started); return err == nil })
		hangUp()
		<-done
		x.gone("after " + c.door + " " + c.text)
		if err := os.Remove(started); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNobodyStaysAZombie(t *testing.T) {
	r := newRig(t, rigOptions{})
	var pids []int
	for range 5 {
		pids = append(pids, r.start(body{"command": "true"}))
	}
	for _, pid := range pids {
		eventually(t, "the child is reaped", func() bool { return processState(pid) == "" })
	}
}

// cutAfter is how much of a stream the n-th reader takes before it hangs up.
func cutAfter(n int) int { return n * 7919 % 60_000 }

func TestFiveHundredCutStreamsLeaveNothing(t *testing.T) {
	cuts := 500
	if testing.Short() {
		cuts = 50
	}
	r := newRig(t, rigOptions{policy: `{"endpoints":{"shell_stream":{"limits":{"max_processes":8}}}}`})
	x := newTrial(t)
	var want strings.Builder
	for i := 1; i <= 2000; i++ {
		fmt.Fprintf(&want, "%0100d\n", i)
	}
	errs := make(chan error)
	for worker := range 4 {
		go func() {
			for n := worker; n < cuts; n += 4 {
				if err := r.cutStream(script("seq -f %0100.0f 1 2000; sleep 1000", "env", x.env()), cutAfter(n), want.String()); err != nil {
					errs <- fmt.Errorf("cut %d: %w", n, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	x.gone("after the cuts")
	// The places are free again, too.
	eventually(t, "a place is free", func() bool {
		a := r.open("POST", "/shell/stream", body{"command": "true"})
		defer a.hangUp()
		return a.status == http.StatusOK
	})
}

// cutStream reads n characters of output and hangs up. What came must be the
// beginning of want.
func (r *rig) cutStream(in body, n int, want string) error {
	a := r.open("POST", "/shell/stream", in)
	for end := time.Now().Add(patience); a.status == http.StatusTooManyRequests; {
		a.hangUp() // the worker's last ones are still being ended
		if time.Now().After(end) {
			return errors.New("no place was given back")
		}
		time.Sleep(5 * time.Millisecond)
		a = r.open("POST", "/shell/stream", in)
	}
	defer a.hangUp()
	if a.status != http.StatusOK {
		return fmt.Errorf("status %d", a.status)
	}
	var got strings.Builder
	_, err := readEvents(a.body, func(e event) bool {
		got.WriteString(e.text() + "\n")
		return got.Len() < n
	})
	if err != nil {
		return err
	}
	if got.Len() < min(n, 1) || !strings.HasPrefix(want, got.String()) {
		return fmt.Errorf("%d characters that are not the beginning", got.Len())
	}
	return nil
}
