package endpoints

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFinishedProcessKeepsItsOutput(t *testing.T) {
	r := newRig(t, rigOptions{})
	first := r.start(script("echo keepme; exit 9", "capture_output", true, "label", "first"))
	r.ended(first)
	r.ended(r.start(body{"command": "true"}))
	r.call("GET", "/process/list", nil)
	status, out := r.call("GET", processPath(first, "/output"), nil)
	if status != 200 || joined(out) != "keepme\n" || out["state"] != "exited" || out["exit_code"] != 9.0 {
		t.Errorf("output: %d %v", status, out)
	}
	status, out = r.call("GET", processPath(first), nil)
	if status != 200 || out["state"] != "exited" || out["exit_code"] != 9.0 || out["reason"] != "exited" || out["label"] != "first" || out["captured"] != true {
		t.Errorf("record: %d %v", status, out)
	}
	if ended, started := out["ended_at"].(float64), out["started_at"].(float64); ended < started || math.Abs(ended-float64(time.Now().Unix())) > 60 {
		t.Errorf("times: %v", out)
	}
	_, out = r.call("GET", "/process/list", nil)
	if list := out["processes"].([]any); len(list) != 0 {
		t.Errorf("ended ones are listed: %v", list)
	}
	_, out = r.call("GET", "/process/list?all=1", nil)
	list := out["processes"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["pid"] != float64(first) || list[0].(map[string]any)["exit_code"] != 9.0 {
		t.Errorf("all: %v", list)
	}
	if list[0].(map[string]any)["id"] == list[1].(map[string]any)["id"] {
		t.Error("ids are not unique")
	}
}

// When a reply says exited, the output read with it is whole.
func TestExitedMeansTheOutputIsWhole(t *testing.T) {
	r := newRig(t, rigOptions{})
	for range 100 {
		pid := r.start(script("echo one", "capture_output", true))
		for {
			_, out := r.call("GET", processPath(pid, "/output"), nil)
			if out["state"] == "running" {
				continue
			}
			if joined(out) != "one\n" {
				t.Fatalf("exited with %v", out)
			}
			break
		}
	}
	// Much output, and what a background child prints later still comes.
	pid := r.start(script("{ sleep 0.3; echo late; } & seq 1 100000", "capture_output", true))
	var want strings.Builder
	for i := 1; i <= 100_000; i++ {
		fmt.Fprintf(&want, "%d\n", i)
	}
	eventually(t, "the process ends", func() bool {
		_, out := r.call("GET", processPath(pid, "/output"), nil)
		if out["state"] == "running" {
			return false
		}
		if got := strings.TrimSuffix(joined(out), "late\n"); got != want.String() {
			t.Fatalf("exited with %d of %d bytes", len(got), want.Len())
		}
		return true
	})
	eventually(t, "late output", func() bool { return strings.HasSuffix(r.output(pid), "late\n") })
}

func TestRecordOfARunningProcess(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "sleep 1000", "stdin": 1})
	status, out := r.call("GET", processPath(pid), nil)
	if status != 200 || out["command"] != "sleep 1000" || out["state"] != "running" || out["exit_code"] != nil ||
		out["ended_at"] != nil || out["reason"] != nil || out["stdin_open"] != true || out["captured"] != false || out["identity"] != "anonymous" {
		t.Errorf("%d %v", status, out)
	}
	r.call("POST", processPath(pid, "/signal"), body{"signal": "TSTP"})
	eventually(t, "it stops", func() bool { return processState(pid) == "T" })
	if _, out := r.call("GET", processPath(pid), nil); out["state"] != "running" {
		t.Errorf("a stopped process: %v", out)
	}
	r.call("POST", processPath(pid, "/signal"), body{"signal": 18})
	eventually(t, "it goes on", func() bool { return processState(pid) == "S" })
	if status, out := r.call("DELETE", processPath(pid), nil); status != 200 || out["exit_code"] != -15.0 {
		t.Errorf("%d %v", status, out)
	}
}

func TestSignals(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "sleep 1000"})
	for _, bad := range []any{nil, "x", "", 0, -1, -9, 17, 64, 1000, true, false, []int{9}, body{}, "SIGSEGV", "SIGCHLD", 9.5e300} {
		status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": bad})
		wantError(t, fmt.Sprint(bad), status, out, 400, "")
	}
	status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": 9, "group": "no"})
	wantError(t, "group", status, out, 400, "")
	for _, pid := range []int{1, os.Getpid()} {
		status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": 15})
		if status != 403 || out["type"] != "PermissionError" {
			t.Errorf("%d: %d %v", pid, status, out)
		}
		if status, _ := r.call("DELETE", processPath(pid), nil); status != 403 {
			t.Errorf("DELETE %d: %d", pid, status)
		}
	}
	for _, good := range []any{2, "2", 2.7, "INT", "SIGINT", "sigint"} {
		pid := r.start(body{"command": "sleep 1000"})
		status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": good})
		if status != 200 || out["signal"] != 2.0 || out["pid"] != float64(pid) {
			t.Errorf("%v: %d %v", good, status, out)
		}
		if out := r.ended(pid); out["exit_code"] != -2.0 || out["reason"] != "signaled" {
			t.Errorf("%v: %v", good, out)
		}
	}
	// The group gets it, unless told otherwise.
	x := newTrial(t)
	pid = r.start(script("trap : USR1; trap 'exit 3' TERM; sleep 1000 & wait; wait; wait", "env", x.env()))
	eventually(t, "the child runs", func() bool { return len(x.living()) == 2 })
	r.call("POST", processPath(pid, "/signal"), body{"signal": 15, "group": false})
	if out := r.ended(pid); out["exit_code"] != 3.0 {
		t.Errorf("trap: %v", out)
	}
	if n := len(x.living()); n != 1 {
		t.Errorf("%d children left, want the one that was spared", n)
	}
}

func TestDeleteInsistsAfterTwoSeconds(t *testing.T) {
	r := newRig(t, rigOptions{})
	x := newTrial(t)
	pid := r.start(script("trap '' TERM; echo up; while :; do sleep 1000; done", "env", x.env(), "capture_output", true))
	r.call("GET", processPath(pid, "/output?wait=30"), nil)
	status, out := r.call("DELETE", processPath(pid), nil)
	if status != 200 || out["exit_code"] != -9.0 || out["state"] != "exited" {
		t.Errorf("%d %v", status, out)
	}
	x.gone("after DELETE")
	status, out = r.call("DELETE", processPath(pid), nil)
	wantError(t, "again", status, out, 404, "process_exited")
}

func TestAllowedSignals(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"process_signal":{"params":{"allowed_signals":[15]}}}}`})
	pid := r.start(body{"command": "sleep 1000"})
	status, out := r.call("POST", processPath(pid, "/signal"), body{"signal": 9})
	wantError(t, "9", status, out, 403, "signal_not_allowed")
	status, out = r.call("POST", processPath(1, "/signal"), body{"signal": 9})
	wantError(t, "before the pid is looked at", status, out, 403, "signal_not_allowed")
	status, out = r.call("DELETE", processPath(pid), nil)
	wantError(t, "DELETE needs both", status, out, 403, "signal_not_allowed")
	if status, _ := r.call("POST", processPath(pid, "/signal"), body{"signal": 15}); status != 200 {
		t.Errorf("15: %d", status)
	}
}

func TestOddProcessIDs(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, c := range []struct{ method, more string }{{"GET", ""}, {"DELETE", ""}, {"GET", "/output"}, {"POST", "/signal"}, {"POST", "/stdin"}} {
		in := any(nil)
		if c.method == "POST" {
			in = body{"signal": 15, "data": "x"}
		}
		for pid, want := range map[string]int{
			"abc": 400, "1.5": 400, "0x10": 400, "1_0": 400,
			"999999": 404, "0": 404, "-1": 404, "-99999999999999999999": 404, "99999999999999999999": 404,
		} {
			status, out := r.call(c.method, "/process/"+pid+c.more, in)
			typ := map[int]string{400: "ValueError", 404: "NotFoundError"}[want]
			if status != want || out["type"] != typ {
				t.Errorf("%s %s%s: %d %v, want %d", c.method, pid, c.more, status, out, want)
			}
		}
	}
}

func TestFlagsAreBooleans(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, name := range []string{"capture_output", "stdin", "enforce_timeout", "detach"} {
		for _, bad := range []any{"no", "true", 2, []int{}, body{}} {
			status, out := r.call("POST", "/process/start", body{"command": "true", name: bad})
			wantError(t, fmt.Sprint(name, bad), status, out, 400, "")
		}
		for _, good := range []any{nil, true, false, 0, 1} {
			if status, out := r.call("POST", "/process/start", body{"command": "true", name: good}); status != 200 {
				t.Errorf("%s %v: %d %v", name, good, status, out)
			}
		}
	}
	status, out := r.call("POST", "/process/start", body{"command": "true", "label": strings.Repeat("x", maxLabel+1)})
	wantError(t, "label", status, out, 400, "")
}

func TestProcessLimitHoldsInParallel(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"limits":{"max_processes":3}}, "shell":{"limits":{"max_processes":1}}}}`})
	type answer struct {
		status int
		out    map[string]any
	}
	answers := make(chan answer)
	for range 40 {
		go func() {
			status, out := r.call("POST", "/process/start", body{"command": "sleep 1000"})
			answers <- answer{status, out}
		}()
	}
	var pids []int
	for range 40 {
		a := <-answers
		if a.status == 200 {
			pids = append(pids, int(a.out["pid"].(float64)))
		} else if a.status != 429 || a.out["code"] != "process_limit" || a.out["limit"] != 3.0 || a.out["type"] != "ResourceError" || a.out["retry_after"] != nil {
			t.Errorf("%v", a)
		}
	}
	if len(pids) != 3 {
		t.Fatalf("%d started", len(pids))
	}
	// A bad command comes before the limit, the rest of the body behind it.
	status, out := r.call("POST", "/process/start", body{"command": "echo 'x"})
	wantError(t, "bad command", status, out, 400, "command_invalid")
	status, out = r.call("POST", "/process/start", body{"command": "true", "cwd": 5})
	wantError(t, "bad cwd", status, out, 429, "process_limit")
	// An ended process frees its place, a failed start takes none.
	if status, _ := r.call("DELETE", processPath(pids[0]), nil); status != 200 {
		t.Fatal(status)
	}
	for range 5 {
		r.call("POST", "/process/start", body{"command": "no-such-prog"})
	}
	r.start(body{"command": "sleep 1000"})
}

func TestShellLimitCountsWhatRuns(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"shell":{"limits":{"max_processes":1}}}}`})
	x := newTrial(t)
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		r.call("POST", "/shell", script("until [ -e go ]; do sleep 0.01; done", "env", x.env(), "cwd", r.base))
	}()
	eventually(t, "it runs", func() bool { return len(x.living()) > 0 })
	status, out := r.call("POST", "/shell", body{"command": "true"})
	wantError(t, "second", status, out, 429, "process_limit")
	r.write("go", "")
	eventually(t, "its place is free", func() bool {
		status, _ := r.call("POST", "/shell", body{"command": "true"})
		return status == 200
	})
}

func TestOthersProcessesDoNotExist(t *testing.T) {
	r := newRig(t, rigOptions{policy: fmt.Sprintf(`{"auth":{"tokens":[
		{"id":"a","scopes":["process:*"],"token_sha256":"%s"},
		{"id":"b","scopes":["process:*"],"token_sha256":"%s"},
		{"id":"all","scopes":["*"],"token_sha256":"%s"}]}}`, digest("A"), digest("B"), digest("ALL"))})
	r.token = "A"
	pid := r.start(body{"command": "sleep 1000", "capture_output": true, "stdin": true})
	calls := []struct {
		method, more string
		in           any
	}{{"GET", "", nil}, {"GET", "/output", nil}, {"POST", "/stdin", body{"data": "x"}}, {"POST", "/signal", body{"signal": 18}}}
	r.token = "B"
	for _, c := range append(slices.Clone(calls), struct {
		method, more string
		in           any
	}{"DELETE", "", nil}) {
		status, out := r.call(c.method, processPath(pid, c.more), c.in)
		// The very answer of a process that is not there.
		none, nothing := r.call(c.method, "/process/4194304"+c.more, c.in)
		if status != 404 || none != 404 || out["type"] != nothing["type"] || out["code"] != nothing["code"] {
			t.Errorf("%s %s: %d %v, unknown %d %v", c.method, c.more, status, out, none, nothing)
		}
	}
	if _, out := r.call("GET", "/process/list?all=1", nil); len(out["processes"].([]any)) != 0 {
		t.Errorf("listed: %v", out)
	}
	for _, token := range []string{"A", "ALL"} {
		r.token = token
		if _, out := r.call("GET", "/process/list", nil); len(out["processes"].([]any)) != 1 {
			t.Errorf("%s: %v", token, out)
		}
		for _, c := range calls {
			if status, out := r.call(c.method, processPath(pid, c.more), c.in); status != 200 {
				t.Errorf("%s %s %s: %d %v", token, c.method, c.more, status, out)
			}
		}
	}
}

func TestDetachedProcessOutlivesTheServer(t *testing.T) {
	x := newTrial(t)
	var kept, other int
	t.Run("server", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		kept = r.start(body{"command": "sleep 1000", "detach": true, "env": x.env()})
		other = r.start(body{"command": "sleep 1000", "env": x.env()})
	})
	left := x.living()
	if !slices.Contains(left, kept) || slices.Contains(left, other) {
		t.Errorf("left: %v, detached %d, other %d", left, kept, other)
	}
	for _, pid := range left {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
			_, _ = p.Wait()
		}
	}
}

func TestWaitingEndsWithTheServer(t *testing.T) {
	var stopping time.Time
	t.Run("server", func(t *testing.T) {
		r := newRig(t, rigOptions{policy: `{"endpoints":{
			"process_detail":{"limits":{"max_concurrency":1}},
			"process_output":{"limits":{"max_concurrency":2}}}}`})
		pid := r.start(body{"command": "sleep 1000", "capture_output": true})
		for _, more := range []string{"?wait=60", "/output?wait=30", "/output?follow=1"} {
			go func() {
				a := r.openIn(context.Background(), "GET", processPath(pid, more), nil)
				defer a.hangUp()
				_, _ = io.Copy(io.Discard, a.body)
			}()
		}
		for _, more := range []string{"", "/output"} {
			eventually(t, "calls wait", func() bool {
				status, _ := r.call("GET", processPath(pid, more), nil)
				return status == http.StatusTooManyRequests
			})
		}
		stopping = time.Now()
	}) // its end awaits the calls
	if took := time.Since(stopping); took > 20*time.Second {
		t.Errorf("the server stopped after %v", took)
	}
}

func TestStdinBuffersAndSaysWhenItIsFull(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "sleep 1000", "stdin": true})
	status, out := r.call("POST", processPath(pid, "/stdin"), body{"data": strings.Repeat("x", 300_000)})
	if status != 200 || out["written"] != 300_000.0 || out["closed"] != false {
		t.Errorf("%d %v", status, out)
	}
	status, out = r.call("POST", processPath(pid, "/stdin"), body{"data": strings.Repeat("x", 3_000_000), "eof": true})
	wantError(t, "full", status, out, 409, "stdin_full")
	if n, _ := out["written"].(float64); n < 700_000 || n > 1_000_000 || out["type"] != "ConflictError" {
		t.Errorf("%v", out)
	}
	if _, out := r.call("GET", processPath(pid), nil); out["stdin_open"] != true {
		t.Errorf("closed though not all was taken: %v", out)
	}
}

func TestStdinInOrder(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "cat", "stdin": true, "capture_output": true})
	path := processPath(pid, "/stdin")
	for _, in := range []body{{"data": "h\u00e9llo\n"}, {"data_base64": "AP8=", "data": 5}, {"data": "", "eof": 0, "data_base64": "Cg=="}, {"data": "end", "eof": true}} {
		if status, out := r.call("POST", path, in); status != 200 {
			t.Fatalf("%v: %d %v", in, status, out)
		}
	}
	status, out := r.call("POST", path, body{"data": "x"})
	if status != 409 || out["type"] != "ConflictError" {
		t.Errorf("after eof: %d %v", status, out)
	}
	r.ended(pid)
	if got := r.output(pid); got != "h\u00e9llo\n\x00\ufffd\nend" {
		t.Errorf("%q", got)
	}
	status, out = r.call("POST", path, body{"data": "x"})
	if status != 409 || out["type"] != "ConflictError" {
		t.Errorf("after the end: %d %v", status, out)
	}
}

func TestStdinMistakes(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "cat", "stdin": true})
	for _, bad := range []body{{}, {"data": ""}, {"data": 5}, {"data_base64": "!!!"}, {"data_base64": "YQ"}, {"data_base64": "Y Q=="}, {"data_base64": "YQ==\n"}, {"data_base64": 5, "data": "x"}, {"eof": "yes"}} {
		status, out := r.call("POST", processPath(pid, "/stdin"), bad)
		wantError(t, fmt.Sprint(bad), status, out, 400, "")
	}
	pid = r.start(body{"command": "sleep 1000"})
	status, out := r.call("POST", processPath(pid, "/stdin"), body{"data": "x"})
	if status != 409 || out["type"] != "ConflictError" {
		t.Errorf("no stdin: %d %v", status, out)
	}
}
