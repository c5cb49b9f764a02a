package envd

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lastAudit waits for the audit line number n, from 1.
func (r *rig) lastAudit(n int) (line object) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if all := strings.SplitAfter(r.audit.String(), "\n"); len(all) > n {
			if err := json.Unmarshal([]byte(all[n-1]), &line); err != nil {
				r.t.Fatal(err)
			}
			return line
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no audit line %d: %s", n, r.audit)
		}
	}
}

// What a limit refused was an "error" in the lines of this listener and had a
// word of its own in those of the other.
func TestAuditNamesLimitsByTheirWords(t *testing.T) {
	r := newRig(t, fmt.Sprintf(`{"defaults":{"audit":"all"},"auth":{"tokens":[{"id":"a","scopes":["*"],"token_sha256":%q}]},"endpoints":{
		"files_upload_stream":{"limits":{"max_bytes":10}},"files_stat":{"limits":{"max_request_bytes":20}},
		"process_start":{"limits":{"max_processes":1}},"pty_create_session":{"limits":{"max_sessions":1}}}}`, digest("t")))
	r.token = "t"
	file := "/files?path=" + filepath.Join(r.base, "f")
	start := func(pty string) (failed string) {
		_, _, failed = r.stream("process.Process/Start", []string{`{"process":{"cmd":"/bin/sh","args":["-c","sleep 60"]},"stdin":false` + pty + `}`}, "Connect-Timeout-Ms", "60000")
		return failed
	}
	n := 0
	for _, c := range []struct {
		code string
		call func()
	}{
		{"payload_too_large", func() { r.send("POST", r.url+file, "application/octet-stream", "more than ten bytes") }},
		{"payload_too_large", func() { r.rpc("filesystem.Filesystem/Stat", `{"path":"/a/longer/one/than/that"}`) }},
		{"unauthorized", func() {
			token := r.token
			r.token = ""
			r.send("GET", r.url+file, "", "")
			r.token = token
		}},
	} {
		c.call()
		n++
		if line := r.lastAudit(n); line["code"] != c.code || line["decision"] != "deny" {
			t.Errorf("got %v, want %s", line, c.code)
		}
	}
	for word, pty := range map[string]string{"process_limit": "", "session_limit": `,"pty":{}`} {
		done := make(chan string)
		go func() { done <- start(pty) }()
		pid := r.waitForOne()
		if failed := start(pty); failed != "resource_exhausted" {
			t.Errorf("a second one: %q", failed)
		}
		// The line follows the answer.
		wanted := `"code":"` + word + `"`
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(r.audit.String(), wanted); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no %s in %s", word, r.audit.String())
			}
		}
		r.rpc("process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%v},"signal":9}`, pid))
		<-done
	}
}

// waitForOne is the number of the one process that runs.
func (r *rig) waitForOne() any {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		out, _ := r.rpc("process.Process/List", `{}`)
		if all, ok := out["processes"].([]any); ok && len(all) == 1 {
			return all[0].(object)["pid"]
		}
		if time.Now().After(deadline) {
			r.t.Fatal("nothing runs")
		}
	}
}
