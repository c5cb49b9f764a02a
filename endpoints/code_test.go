package endpoints

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// devRig is a rig with the dev tools on. rule is more of the policy, after the
// groups.
func devRig(t *testing.T, rule string) *rig {
	t.Helper()
	return newRig(t, rigOptions{policy: `{"groups":["dev_tools"]` + rule + `}`})
}

// code runs a snippet.
func (r *rig) code(language, text string, more ...any) (int, map[string]any) {
	r.t.Helper()
	in := body{"code": text, "language": language}
	for i := 0; i+1 < len(more); i += 2 {
		in[more[i].(string)] = more[i+1]
	}
	return r.call("POST", "/code/run", in)
}

func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}

func TestCodeSeesTheContractsArguments(t *testing.T) {
	r := devRig(t, "")
	for _, c := range []struct{ language, program, code, want string }{
		{"python", "python3", "import sys; print(sys.argv, __name__, sys.modules['__main__'].__dict__ is globals())", "['-c'] __main__ True\n"},
		{"py", "python3", "print('é\U0001f600')", "é\U0001f600\n"},
		{"node", "node", "console.log(require('path').join('a', 'b'), process.argv.length)", "a/b 1\n"},
		{"JavaScript", "node", "console.log(typeof module)", "object\n"},
		{"bash", "bash", `echo "$0 $#"; [[ 1 == 1 ]] && echo ok; false; echo $LINENO`, "bash 0\nok\n0\n"},
		{"sh", "bash", "printf x", "x"},
		{"perl", "perl", "print 6*7", "42"},
	} {
		t.Run(c.language, func(t *testing.T) {
			needs(t, c.program)
			status, out := r.code(c.language, c.code)
			if got, _ := out["stdout"].(string); status != 200 || strings.ReplaceAll(got, "\n1\n", "\n0\n") != c.want || out["exit_code"] != 0.0 {
				t.Errorf("%d %v", status, out)
			}
			if ms, _ := out["execution_time_ms"].(float64); ms <= 0 {
				t.Errorf("took %v", out["execution_time_ms"])
			}
		})
	}
}

func TestGoSnippets(t *testing.T) {
	needs(t, "go")
	r := devRig(t, "")
	status, out := r.code("go", "package main\n\nfunc main() { print(\"e\"); panic(\"over\") }\n", "timeout", 120, "env", map[string]string{"GOFLAGS": ""})
	if text, _ := out["stderr"].(string); status != 200 || out["exit_code"] != 1.0 || !strings.Contains(text, "panic: over") {
		t.Errorf("%d %v", status, out)
	}
}

func TestLongCodeRunsAsShortCodeDoes(t *testing.T) {
	r := devRig(t, "")
	for _, c := range []struct{ language, program, comment, code, want string }{
		{"python", "python3", "#", "import sys; print(sys.argv, __name__, sys.modules['__main__'].__dict__ is globals())", "['-c'] __main__ True\n"},
		{"bash", "bash", "#", `echo "$0 $#"; ls /proc/self/fd | head -3 | tr '\n' ' '; exit 7`, "bash 0\n0 1 2 "},
		{"node", "node", "//", "console.log(require('path').join('a', 'b'), process.argv.length, typeof module)", "a/b 1 object\n"},
		{"perl", "perl", "#", "print 6*7", "42"},
	} {
		t.Run(c.language, func(t *testing.T) {
			needs(t, c.program)
			status, out := r.code(c.language, c.comment+strings.Repeat("x", 600_000)+"\n"+c.code)
			if status != 200 || out["stdout"] != c.want {
				t.Errorf("%d %v", status, out)
			}
		})
	}
	status, out := r.code("bash", ":"+strings.Repeat(" ", 200_000)+"\nexit 7")
	if status != 200 || out["exit_code"] != 7.0 {
		t.Errorf("exit: %d %v", status, out)
	}
}

func TestCodeMistakes(t *testing.T) {
	r := devRig(t, "")
	for _, c := range []struct {
		in     any
		status int
		typ    string
		code   string
	}{
		{body{}, 400, "ValueError", ""},
		{body{"code": ""}, 400, "ValueError", ""},
		{body{"code": 5}, 400, "ValueError", ""},
		{body{"code": "a\x00b"}, 400, "ValueError", ""},
		{body{"code": "1", "language": "klingon"}, 400, "ValueError", ""},
		{body{"code": "1", "language": nil}, 400, "ValueError", ""},
		{body{"code": "1", "language": 5}, 400, "ValueError", ""},
		{body{"code": "1", "language": ""}, 400, "ValueError", ""},
		{body{"code": "1", "cwd": "/etc"}, 403, "PolicyDenied", "path_not_allowed"},
		{body{"code": "1", "cwd": "nosuch"}, 400, "ValueError", ""},
		{body{"code": "1", "cwd": 5}, 400, "ValueError", ""},
		{body{"code": "1", "env": body{"ABX_X": "1"}}, 403, "PolicyDenied", "env_var_denied"},
		{body{"code": "1", "env": body{"A": 1}}, 400, "ValueError", "env_invalid"},
		{body{"code": "1", "env": body{"A=B": "1"}}, 400, "ValueError", "env_invalid"},
		{body{"code": "1", "stdin_base64": "?"}, 400, "ValueError", ""},
		{body{"code": "1", "context_id": "nosuch"}, 404, "ValueError", ""},
		{body{"code": "1", "context_id": 5}, 400, "ValueError", ""},
	} {
		for _, path := range []string{"/code/run", "/code/run/stream"} {
			status, out := r.call("POST", path, c.in)
			text, _ := json.Marshal(c.in)
			wantError(t, path+" "+string(text), status, out, c.status, c.code)
			if out["type"] != c.typ {
				t.Errorf("%s %s: type %v", path, text, out["type"])
			}
		}
	}
}

func TestCodeWithoutItsInterpreter(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools"]}`, env: map[string]string{"PATH": "/nonexistent"}})
	for _, path := range []string{"/code/run", "/code/run/stream", "/code/contexts"} {
		status, out := r.call("POST", path, body{"code": "1"})
		wantError(t, path, status, out, 500, "")
		if out["type"] != "FileNotFoundError" {
			t.Errorf("%s: %v", path, out)
		}
	}
}

func TestInterpreterInADeviceTreeIsNotRun(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "abx-test-")
	if err != nil {
		t.Skip("/dev/shm cannot be written")
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\necho run\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools"]}`, env: map[string]string{"PATH": dir}})
	status, out := r.code("python", "1")
	wantError(t, "below /proc", status, out, 403, "process_denied")
}

func TestCodePolicy(t *testing.T) {
	r := devRig(t, `,"endpoints":{"code_run":{"params":{"languages":["Bash"]},"limits":{"max_output_bytes":10,"timeout_seconds":1}}}`)
	for _, path := range []string{"/code/run", "/code/run/stream", "/code/contexts"} {
		status, out := r.call("POST", path, body{"code": "1"})
		wantError(t, path, status, out, 403, "language_not_allowed")
	}
	status, out := r.code("sh", "printf hééééééé; printf 0123456789abc >&2")
	if status != 200 || out["stdout"] != "héééé" || out["stderr"] != "0123456789" || out["truncated"] != true || out["language"] != "bash" {
		t.Errorf("%d %v", status, out)
	}
	if _, out := r.code("bash", "printf 0123456789"); out["truncated"] != nil {
		t.Errorf("exactly the limit: %v", out)
	}
	status, out = r.code("bash", "echo on; sleep 1000", "timeout", 100)
	if status != 408 || out["type"] != "TimeoutError" || out["stdout"] != "on\n" || out["code"] != nil {
		t.Errorf("%d %v", status, out)
	}
	events := r.events("POST", "/code/run/stream", body{"code": "printf 0123456789abc; sleep 1000", "language": "bash"})
	if last := events[len(events)-1]; last.name != "exit" || last.data["exit_code"] != -9.0 || events[len(events)-2].data["error"] != "output_limit" {
		t.Errorf("stream: %v", events)
	}
}

func TestBackgroundChildDoesNotHoldUpCode(t *testing.T) {
	r := devRig(t, "")
	x := newTrial(t)
	status, out := r.code("bash", "sleep 1000 & echo now; exit 3", "env", x.env(), "timeout", 100)
	if status != 200 || out["stdout"] != "now\n" || out["exit_code"] != 3.0 {
		t.Errorf("%d %v", status, out)
	}
	if len(x.living()) != 1 {
		t.Error("the background child was ended")
	}
}

func TestCodeTimeoutEndsTheWholeTree(t *testing.T) {
	r := devRig(t, "")
	x := newTrial(t)
	status, out := r.code("bash", "sleep 1000 & setsid sleep 1000 & (sleep 1000; echo never); echo x", "env", x.env(), "timeout", 0.5)
	if status != 408 || out["type"] != "TimeoutError" {
		t.Errorf("%d %v", status, out)
	}
	x.gone("after the time limit")
}

func TestCodeEndsWithItsCaller(t *testing.T) {
	r := devRig(t, "")
	for _, path := range []string{"/code/run", "/code/run/stream"} {
		x := newTrial(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		text, _ := json.Marshal(body{"code": "sleep 1000 & sleep 1000", "language": "bash", "env": x.env()})
		req, err := http.NewRequestWithContext(ctx, "POST", r.url+path, strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if res, err := r.http.Do(req); err == nil {
				var sink [512]byte
				for err == nil {
					_, err = res.Body.Read(sink[:])
				}
				_ = res.Body.Close()
			}
		}()
		eventually(t, "the code runs", func() bool { return len(x.living()) >= 2 })
		cancel()
		<-gone
		x.gone("after " + path + " was left")
	}
}

func TestCodeOutputIsBounded(t *testing.T) {
	r := devRig(t, "")
	status, out := r.code("bash", "head -c 30000000 /dev/zero | tr '\\0' y; echo done >&2", "timeout", 100)
	text, _ := out["stdout"].(string)
	if status != 200 || out["truncated"] != true || out["stderr"] != "done\n" || out["exit_code"] != 0.0 || len(text) != 10<<20 {
		t.Errorf("%d, %d bytes, %v", status, len(text), out["stderr"])
	}
}

func TestOutputOfCodeIsNotLostOrRewritten(t *testing.T) {
	r := devRig(t, "")
	status, out := r.code("bash", `printf 'a\xffb\r\nc\rd'`)
	if status != 200 || out["stdout"] != "a\ufffdb\r\nc\rd" {
		t.Errorf("%d %q", status, out["stdout"])
	}
}

func TestCodeThatReadsInputDoesNotHang(t *testing.T) {
	r := devRig(t, "")
	if status, out := r.code("bash", "cat; echo end"); status != 200 || out["stdout"] != "end\n" {
		t.Errorf("%d %v", status, out)
	}
	dir := filepath.Join(r.base, "d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	status, out := r.code("bash", `read x; echo "$x $GREET $(basename "$PWD")"`, "stdin", "in\n", "env", body{"GREET": "hi"}, "cwd", "d")
	if status != 200 || out["stdout"] != "in hi d\n" {
		t.Errorf("%d %v", status, out)
	}
}

func TestCodeLeavesNoFiles(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r := devRig(t, "")
	r.code("python", "print(1)")
	r.code("bash", "#"+strings.Repeat("x", 200_000)+"\nexit 3")
	if _, err := exec.LookPath("go"); err == nil {
		r.code("go", "package nothing", "env", body{"TMPDIR": "/tmp"})
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestStreamOfCode(t *testing.T) {
	r := devRig(t, "")
	got := r.events("POST", "/code/run/stream", body{"code": "echo a; exit 3", "language": "bash"})
	for i := range got {
		delete(got[i].data, "execution_time_ms")
	}
	want := []event{{"stdout", map[string]any{"data": "a\n"}}, {"exit", map[string]any{"exit_code": 3.0}}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(event{})); d != "" {
		t.Error(d)
	}
	got = r.events("POST", "/code/run/stream", body{"code": "echo a; sleep 1000", "language": "bash", "timeout": 0.5})
	if len(got) != 3 || got[1].name != "error" || got[1].data["error"] != "timeout" || got[1].data["name"] != "TimeoutError" || got[2].data["exit_code"] != -9.0 {
		t.Errorf("timeout: %v", got)
	}
}

// context makes a context and returns its id.
func (r *rig) context(language string) string {
	r.t.Helper()
	status, out := r.call("POST", "/code/contexts", body{"language": language})
	id, _ := out["id"].(string)
	if status != 200 || id == "" {
		r.t.Fatalf("%d %v", status, out)
	}
	return id
}

func TestContextsOverTheWire(t *testing.T) {
	needs(t, "python3")
	r := devRig(t, "")
	id := r.context("py")
	cell := func(code string, more ...any) (int, map[string]any) {
		in := body{"code": code, "context_id": id}
		for i := 0; i+1 < len(more); i += 2 {
			in[more[i].(string)] = more[i+1]
		}
		return r.call("POST", "/code/run", in)
	}
	if status, out := cell("x = 20"); status != 200 || out["error"] != nil || len(out["results"].([]any)) != 0 {
		t.Errorf("%d %v", status, out)
	}
	_, out := cell("print('p'); x + 1")
	want := []any{map[string]any{"text/plain": "21", "is_main_result": true}}
	if d := cmp.Diff(want, out["results"]); d != "" || out["stdout"] != "p\n" || out["execution_count"] != 2.0 || out["context_id"] != id || out["language"] != "python" {
		t.Errorf("%v %v", out, d)
	}
	_, out = cell("1/0")
	failure, _ := out["error"].(map[string]any)
	if trace, _ := failure["traceback"].(string); failure["name"] != "ZeroDivisionError" || failure["value"] != "division by zero" || !strings.Contains(trace, "1/0") || out["exit_code"] != 1.0 {
		t.Errorf("%v", out)
	}
	status, out := cell("print('on'); import time; time.sleep(60)", "timeout", 0.5)
	if status != 408 || out["type"] != "TimeoutError" || out["stdout"] != "on\n" || out["context_lost"] != nil {
		t.Errorf("%d %v", status, out)
	}
	for _, more := range [][]any{{"stdin", "x"}, {"cwd", "/"}, {"env", body{"A": "1"}}, {"language", "bash"}} {
		if status, out := cell("1", more...); status != 400 || out["type"] != "ValueError" {
			t.Errorf("%v: %d %v", more, status, out)
		}
	}
	if _, out := cell("x", "language", "python"); out["execution_count"] != 5.0 {
		t.Errorf("%v", out)
	}
	_, out = r.call("GET", "/code/contexts", nil)
	if d := cmp.Diff([]any{map[string]any{"id": id, "language": "python", "cwd": r.base}}, out["contexts"]); d != "" {
		t.Error(d)
	}
	if status, out := r.call("POST", "/code/contexts/"+id+"/restart", nil); status != 200 || out["id"] != id {
		t.Errorf("restart: %d %v", status, out)
	}
	if _, out := cell("x"); out["error"] == nil {
		t.Errorf("a variable has outlived the restart: %v", out)
	}
	if status, out := r.call("DELETE", "/code/contexts/"+id, nil); status != 200 || out["deleted"] != true {
		t.Errorf("delete: %d %v", status, out)
	}
	for name, do := range map[string]func() (int, map[string]any){
		"run":     func() (int, map[string]any) { return cell("1") },
		"restart": func() (int, map[string]any) { return r.call("POST", "/code/contexts/"+id+"/restart", nil) },
		"delete":  func() (int, map[string]any) { return r.call("DELETE", "/code/contexts/"+id, nil) },
	} {
		if status, out := do(); status != 404 || out["type"] != "ValueError" {
			t.Errorf("%s: %d %v", name, status, out)
		}
	}
}

func TestStreamOfAContext(t *testing.T) {
	needs(t, "python3")
	r := devRig(t, "")
	id := r.context("python")
	got := r.events("POST", "/code/run/stream", body{"context_id": id, "code": "print('a'); display(1); print('é', end=''); 2"})
	names := []string{}
	text := ""
	for _, e := range got {
		names = append(names, e.name)
		text += e.text()
	}
	last := got[len(got)-1]
	if text != "a\né" || last.name != "exit" || last.data["exit_code"] != 0.0 || last.data["execution_count"] != 1.0 {
		t.Errorf("%v", got)
	}
	if n := strings.Count(strings.Join(names, " "), "result"); n != 2 {
		t.Errorf("%d results in %v", n, got)
	}
	got = r.events("POST", "/code/run/stream", body{"context_id": id, "code": "nothing"})
	if len(got) != 2 || got[0].name != "error" || got[0].data["name"] != "NameError" || got[1].data["exit_code"] != 1.0 {
		t.Errorf("%v", got)
	}
	got = r.events("POST", "/code/run/stream", body{"context_id": id, "code": "import time; time.sleep(60)", "timeout": 0.5})
	if len(got) != 2 || got[0].data["error"] != "timeout" || got[1].name != "exit" {
		t.Errorf("%v", got)
	}
}

func TestContextsBelongToTheirIdentity(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools"],"auth":{"tokens":[
		{"id":"a","scopes":["devtools:run"],"token_sha256":"` + digest("a") + `"},
		{"id":"b","scopes":["devtools:run"],"token_sha256":"` + digest("b") + `"},
		{"id":"all","scopes":["*"],"token_sha256":"` + digest("all") + `"}]}}`})
	r.token = "a"
	id := r.context("bash")
	for token, seen := range map[string]bool{"a": true, "b": false, "all": true} {
		r.token = token
		status, _ := r.call("POST", "/code/run", body{"context_id": id, "code": ":"})
		_, out := r.call("GET", "/code/contexts", nil)
		if list := out["contexts"].([]any); (status == 200) != seen || (len(list) == 1) != seen {
			t.Errorf("%s: %d %v", token, status, list)
		}
	}
	r.token = "b"
	if status, _ := r.call("DELETE", "/code/contexts/"+id, nil); status != 404 {
		t.Errorf("a stranger deletes it: %d", status)
	}
}

func TestTooManyContexts(t *testing.T) {
	r := devRig(t, "")
	for range 16 {
		r.context("bash")
	}
	status, out := r.call("POST", "/code/contexts", body{"language": "bash"})
	wantError(t, "one more", status, out, 429, "context_limit")
	if out["type"] != "ResourceError" || out["limit"] != 16.0 {
		t.Errorf("%v", out)
	}
	if status, out := r.call("POST", "/code/contexts", body{"language": "perl"}); status != 400 {
		t.Errorf("perl: %d %v", status, out)
	}
}

func TestContextsEndWithTheServer(t *testing.T) {
	x := newTrial(t)
	t.Run("server", func(t *testing.T) {
		r := devRig(t, "")
		status, out := r.call("POST", "/code/contexts", body{"language": "bash", "env": x.env()})
		if status != 200 {
			t.Fatalf("%d %v", status, out)
		}
		if _, out = r.call("POST", "/code/run", body{"context_id": out["id"], "code": "setsid sleep 1000 &"}); out["exit_code"] != 0.0 {
			t.Fatalf("%v", out)
		}
		eventually(t, "the child runs", func() bool { return len(x.living()) == 2 })
	})
	x.gone("after the server has stopped")
}

func TestCodeTimesAreTheContracts(t *testing.T) {
	r := devRig(t, "")
	for _, timeout := range []any{"x", nil, -1, 0, "5", 1e9, true, []int{1}} {
		if status, out := r.code("bash", "echo 1", "timeout", timeout); status != 200 || out["stdout"] != "1\n" {
			t.Errorf("%v: %d %v", timeout, status, out)
		}
	}
	began := time.Now()
	if status, _ := r.code("bash", "sleep 1000", "timeout", 0.2); status != 408 || time.Since(began) > 20*time.Second {
		t.Errorf("%d after %v", status, time.Since(began))
	}
}
