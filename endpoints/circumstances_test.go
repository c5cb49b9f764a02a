package endpoints

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestCircumstancesReachTheCommand(t *testing.T) {
	r := newRig(t, rigOptions{})
	in := func() body {
		return script("umask; nice; ulimit -n; ulimit -f; ulimit -t; head -c 1000000 /dev/zero > big; stat -c %s big", "cwd", r.base,
			"umask", "027", "nice", 5, "limits", body{"open_files": 77, "file_size_bytes": 512 << 10, "cpu_seconds": 33})
	}
	base := nice(t)
	want := fmt.Sprintf("0027\n%d\n77\n512\n33\n524288\n", min(base+5, 19))
	_, out := r.call("POST", "/shell", in())
	if out["stdout"] != want {
		t.Errorf("/shell: %v", out)
	}
	text := ""
	for _, e := range r.events("POST", "/shell/stream", in()) {
		if e.name == "stdout" {
			text += e.text() + "\n"
		}
	}
	if text != want {
		t.Errorf("/shell/stream: %q", text)
	}
	started := in()
	started["capture_output"] = true
	pid := r.start(started)
	events := r.events("GET", processPath(pid, "/output?follow=1&stream=stdout"), nil)
	text = ""
	for _, e := range events {
		text += e.text()
	}
	if text != want {
		t.Errorf("/process/start: %q", text)
	}
}

// nice is our own niceness.
func nice(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var n int
	if _, err := fmt.Sscan(f[16], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMemoryLimitBindsTheCommand(t *testing.T) {
	r := newRig(t, rigOptions{})
	in := script("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}", "limits", body{"memory_bytes": 64 << 20})
	if status, out := r.call("POST", "/shell", in); status != 200 || strings.HasPrefix(out["stdout"].(string), "2") {
		t.Errorf("%d %v", status, out)
	}
	// A bound that leaves no room for the program itself is the caller's
	// mistake, or the program's end: never ours.
	status, out := r.call("POST", "/shell", body{"command": "true", "limits": body{"memory_bytes": 1}})
	if status != 400 && (status != 200 || out["exit_code"] == 0.0) {
		t.Errorf("one byte: %d %v", status, out)
	}
}

func TestOddCircumstances(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, bad := range []body{
		{"umask": 18},
		{"umask": "888"},
		{"umask": "1000"},
		{"umask": "-1"},
		{"nice": -1},
		{"nice": 20},
		{"nice": "5"},
		{"nice": 1.5},
		{"kill_grace": -1},
		{"kill_grace": 9},
		{"kill_grace": "1"},
		{"kill_grace": 1e300},
		{"limits": 5},
		{"limits": []int{}},
		{"limits": body{"cpu_seconds": 0}},
		{"limits": body{"cpu_seconds": "5"}},
		{"limits": body{"memory": 5}},
		{"limits": body{"open_files": -1}},
		{"limits": body{"processes": 0.5}},
		{"user": 5},
		{"user": ""},
	} {
		bad["command"] = "true"
		for _, door := range doors {
			status, out := r.call("POST", door, bad)
			wantError(t, fmt.Sprint(door, bad), status, out, 400, "")
		}
	}
	for _, good := range []body{{"umask": nil}, {"nice": nil}, {"limits": nil}, {"limits": body{}}, {"kill_grace": nil}, {"user": nil}, {"umask": "0"}, {"nice": 19}} {
		good["command"] = "true"
		if status, out := r.call("POST", "/shell", good); status != 200 {
			t.Errorf("%v: %d %v", good, status, out)
		}
	}
}

func TestKillGraceLetsACommandEndByItself(t *testing.T) {
	r := newRig(t, rigOptions{})
	x := newTrial(t)
	status, out := r.call("POST", "/shell", script("trap 'echo bye; exit' TERM; sleep 1000 & wait", "env", x.env(), "timeout", 1, "kill_grace", 8))
	wantError(t, "trap", status, out, 500, "command_timeout")
	if out["stdout"] != "bye\n" {
		t.Errorf("%v", out)
	}
	x.gone("after a graceful end")
	status, out = r.call("POST", "/shell", script("trap '' TERM; sleep 1000", "env", x.env(), "timeout", 0.2, "kill_grace", 0.2))
	wantError(t, "deaf", status, out, 500, "command_timeout")
	x.gone("after an insisted end")
}

func TestGraceNeverPassesThePolicysLimit(t *testing.T) {
	for _, c := range []struct {
		most            float64 // 0: none
		asked, grace    float64
		want, wantGrace time.Duration
	}{
		{0, 300, 0, 300 * time.Second, 0},
		{0, 1e7, 8, 1e7 * time.Second, 8 * time.Second},
		{60, 300, 0, 60 * time.Second, 0},
		{60, 300, 8, 52 * time.Second, 8 * time.Second},
		{60, 10, 8, 10 * time.Second, 8 * time.Second},
		{4, 300, 8, 2 * time.Second, 2 * time.Second},
	} {
		text := "{}"
		if c.most > 0 {
			text = fmt.Sprintf(`{"endpoints":{"shell":{"limits":{"timeout_seconds":%v}}}}`, c.most)
		}
		r := newRig(t, rigOptions{policy: text})
		rule := r.gate.Policy().Rule("shell")
		spec := proc.Spec{KillGrace: time.Duration(c.grace * float64(time.Second))}
		limitTime(rule, &spec, c.asked)
		if spec.Timeout != c.want || spec.KillGrace != c.wantGrace {
			t.Errorf("%+v: %v and %v", c, spec.Timeout, spec.KillGrace)
		}
	}
}

const userPolicy = `{"endpoints":{
	"shell":{"params":{"allow_users":["nobody","65534:65534","12345:6789","no-such-user"]}},
	"process_start":{"params":{"allow_users":["nobody"]}}}}`

func TestUsersThatPolicyDoesNotList(t *testing.T) {
	r := newRig(t, rigOptions{policy: userPolicy})
	for _, name := range []string{"root", "0:0", "daemon", "nobody ", "65534", "65534:0"} {
		status, out := r.call("POST", "/shell", body{"command": "true", "user": name})
		wantError(t, name, status, out, 403, string(policy.UserNotAllowed))
	}
	r = newRig(t, rigOptions{})
	for _, door := range doors {
		status, out := r.call("POST", door, body{"command": "true", "user": "nobody"})
		wantError(t, door, status, out, 403, string(policy.UserNotAllowed))
	}
}

func TestCommandsRunAsAListedUser(t *testing.T) {
	r := newRig(t, rigOptions{policy: userPolicy})
	if os.Geteuid() != 0 {
		status, out := r.call("POST", "/shell", body{"command": "id", "user": "nobody"})
		wantError(t, "not root", status, out, 403, string(policy.UserNotAllowed))
		return
	}
	if err := os.Chmod(r.base, 0o755); err != nil {
		t.Fatal(err)
	}
	who := script("id -u; id -g; id -G; echo $USER $LOGNAME $HOME", "user", "nobody")
	status, out := r.call("POST", "/shell", who)
	lines := strings.Split(out["stdout"].(string), "\n")
	if status != 200 || lines[0] != "65534" || strings.Contains(" "+lines[2]+" ", " 0 ") || !strings.HasPrefix(lines[3], "nobody nobody /") {
		t.Errorf("nobody: %d %v", status, out)
	}
	for name, want := range map[string]string{"65534:65534": "65534\n65534\n", "12345:6789": "12345\n6789\n"} {
		// With and without the stage between fork and exec.
		for _, more := range []body{{}, {"nice": 1}} {
			more["args"], more["user"] = []string{"sh", "-c", "id -u; id -g"}, name
			if _, out := r.call("POST", "/shell", more); out["stdout"] != want {
				t.Errorf("%v: %v", more, out)
			}
		}
	}
	status, out = r.call("POST", "/shell", body{"command": "true", "user": "no-such-user"})
	wantError(t, "unknown", status, out, 400, "")
	pid := r.start(body{"command": "id -u", "user": "nobody", "capture_output": true})
	r.ended(pid)
	if got := r.output(pid); got != "65534\n" {
		t.Errorf("start: %q", got)
	}
}

func TestUserStartsInAPinnedDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	base, err := os.MkdirTemp("/tmp", "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{policy: `{"endpoints":{"shell":{"params":{"allow_users":["nobody"]},"paths":{"allow":["` + base + `"]}}}}`})
	status, out := r.call("POST", "/shell", body{"command": "pwd", "user": "nobody", "cwd": base})
	if status != 200 || out["stdout"] != base+"\n" {
		t.Errorf("%d %v", status, out)
	}
}
