package endpoints

import (
	"fmt"
	"strings"
	"testing"
)

func TestProcessOnATerminal(t *testing.T) {
	r := newRig(t, rigOptions{})
	status, out := r.call("POST", "/process/start", script("stty size; echo $TERM; [ -t 0 ] && [ -t 1 ] && echo both; read x; exit 7",
		"pty", body{"cols": 100, "rows": 30}, "label", "on a terminal"))
	if status != 200 || out["session_id"] == "" || !strings.HasSuffix(out["ws_url"].(string), out["session_id"].(string)) {
		t.Fatalf("%d %v", status, out)
	}
	pid, session := int(out["pid"].(float64)), out["session_id"].(string)
	text := ""
	eventually(t, "the terminal shows it", func() bool {
		_, page := r.call("GET", "/pty/sessions/"+session+"/output", nil)
		text = page["data"].(string)
		return strings.Contains(text, "both")
	})
	if text != "30 100\r\nxterm-256color\r\nboth\r\n" {
		t.Errorf("%q", text)
	}
	if _, list := r.call("GET", "/process/list", nil); len(list["processes"].([]any)) != 1 {
		t.Errorf("%v", list)
	}
	r.call("POST", "/pty/sessions/"+session+"/input", body{"data": "\n"})
	if out := r.ended(pid); out["exit_code"] != 7.0 || out["label"] != "on a terminal" || out["captured"] != false {
		t.Errorf("%v", out)
	}
	// Ended as a process, it ends as a terminal, and the other way round.
	_, out = r.call("POST", "/process/start", script("sleep 1000", "pty", body{}))
	r.call("DELETE", processPath(int(out["pid"].(float64))), nil)
	eventually(t, "the session ends", func() bool {
		_, list := r.call("GET", "/pty/sessions", nil)
		return len(list["sessions"].([]any)) == 0
	})
	_, out = r.call("POST", "/process/start", script("sleep 1000", "pty", body{}))
	r.call("DELETE", "/pty/sessions/"+out["session_id"].(string), nil)
	r.ended(int(out["pid"].(float64)))
}

func TestProcessOnATerminalNeedsBothRights(t *testing.T) {
	in := body{"command": "sleep 1000", "pty": body{}}
	r := newRig(t, rigOptions{policy: `{"endpoints":{"pty_create_session":{"enabled":false}}}`})
	status, out := r.call("POST", "/process/start", in)
	wantError(t, "no terminals", status, out, 404, "endpoint_disabled")

	r = newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"params":{"allow_commands":["true"]}}}}`})
	status, out = r.call("POST", "/process/start", in)
	wantError(t, "not this command", status, out, 403, "command_not_allowed")

	r = newRig(t, rigOptions{policy: `{"endpoints":{"pty_create_session":{"limits":{"max_sessions":1},"params":{"env_deny":["SECRET"]}}}}`})
	status, out = r.call("POST", "/process/start", body{"command": "true", "pty": body{}, "env": body{"SECRET": "x"}})
	wantError(t, "env_deny", status, out, 403, "env_var_not_allowed")
	if status, out := r.call("POST", "/process/start", in); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	status, out = r.call("POST", "/process/start", in)
	wantError(t, "max_sessions", status, out, 429, "session_limit")

	r = newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"limits":{"max_processes":1}}}}`})
	r.start(in)
	status, out = r.call("POST", "/process/start", body{"command": "true"})
	wantError(t, "max_processes", status, out, 429, "process_limit")
}

func TestOddTerminalsOfProcesses(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, bad := range []body{
		{"pty": 5},
		{"pty": true},
		{"pty": []int{1}},
		{"pty": body{"cols": 0}},
		{"pty": body{"rows": 1001}},
		{"pty": body{"cols": "x"}},
		{"pty": body{"cols": nil}},
		{"pty": body{}, "capture_output": true},
		{"pty": body{}, "stdin": true},
		{"pty": body{}, "detach": true},
	} {
		bad["command"] = "true"
		status, out := r.call("POST", "/process/start", bad)
		wantError(t, fmt.Sprint(bad), status, out, 400, "")
	}
	status, out := r.call("POST", "/process/start", body{"command": "no-such-prog", "pty": body{}})
	wantError(t, "missing program", status, out, 400, "command_not_found")
	status, out = r.call("POST", "/process/start", body{"command": "true", "pty": body{}, "env": 5})
	wantError(t, "env", status, out, 400, "env_invalid")
	for _, none := range []body{{"pty": nil}, {}} {
		none["command"] = "true"
		if _, out := r.call("POST", "/process/start", none); out["session_id"] != nil {
			t.Errorf("%v: %v", none, out)
		}
	}
}
