package envd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// everyCall is every RPC and route with the endpoint it is judged as.
var everyCall = []struct {
	call, body, id string
	scopes         string // that are enough
	stream         bool
}{
	{"process.Process/List", `{}`, "process_list", "process:read", false},
	{"process.Process/Start", `{"process":{"cmd":"true"}}`, "process_start", "process:run", true},
	{"process.Process/Start", `{"process":{"cmd":"/bin/sh"},"pty":{}}`, "pty_create_session", "terminal:use", true},
	{"process.Process/Connect", `{"process":{"pid":4194000}}`, "process_output", "process:read", true},
	{"process.Process/Update", `{"process":{"pid":4194000}}`, "pty_resize", "terminal:use", false},
	{"process.Process/StreamInput", `{"start":{"process":{"pid":4194000}}}`, "process_stdin", "process:manage", true},
	{"process.Process/SendInput", `{"process":{"pid":4194000},"input":{"stdin":""}}`, "process_stdin", "process:manage", false},
	{"process.Process/SendSignal", `{"process":{"pid":4194000},"signal":9}`, "process_signal", "process:manage", false},
	{"process.Process/CloseStdin", `{"process":{"pid":4194000}}`, "process_stdin", "process:manage", false},
	{"filesystem.Filesystem/Stat", `{"path":"BASE"}`, "files_stat", "files:read", false},
	{"filesystem.Filesystem/ListDir", `{"path":"BASE"}`, "files_list", "files:read", false},
	{"filesystem.Filesystem/MakeDir", `{"path":"BASE/x"}`, "files_mkdir", "files:write", false},
	{"filesystem.Filesystem/Move", `{"source":"BASE/a","destination":"BASE/b"}`, "files_move", "files:write,files:delete", false},
	{"filesystem.Filesystem/Remove", `{"path":"BASE/a"}`, "files_delete", "files:delete", false},
	{"filesystem.Filesystem/WatchDir", `{"path":"BASE/none"}`, "files_watch", "files:read", true},
	{"filesystem.Filesystem/CreateWatcher", `{"path":"BASE"}`, "files_watch", "files:read", false},
	{"filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"w"}`, "files_watch", "files:read", false},
	{"filesystem.Filesystem/RemoveWatcher", `{"watcherId":"w"}`, "files_watch", "files:read", false},
	{"GET /files?path=BASE/a", "", "files_download_stream", "files:read", false},
	{"POST /files?path=BASE/a", "x", "files_upload_stream", "files:write", false},
	{"POST /files/compose", `{"source_paths":["BASE/a"],"destination":"BASE/c"}`, "files_upload_stream", "files:write,files:read,files:delete", false},
	{"GET /metrics", "", "system_metrics", "system:read", false},
	{"GET /envs", "", "env_get", "system:read", false},
	{"POST /init", `{}`, "envd_init", "system:write", false},
}

// outcomeOf makes a call and says how it failed: a code of Connect or a status.
func (r *rig) outcomeOf(call, body string, stream bool) (code, text string) {
	r.t.Helper()
	body, call = strings.ReplaceAll(body, "BASE", r.base), strings.ReplaceAll(call, "BASE", r.base)
	if method, path, plain := strings.Cut(call, " "); plain {
		status, text := r.send(method, r.url+path, "application/octet-stream", body)
		return fmt.Sprint(status), text
	}
	if stream {
		_, end, failed := r.stream(call, []string{body}, "Connect-Timeout-Ms", "300") // a shell waits for input
		out, _ := json.Marshal(end)
		return failed, string(out)
	}
	out, failed := r.rpc(call, body)
	shown, _ := json.Marshal(out)
	return failed, string(shown)
}

func TestEveryCallNeedsItsScopes(t *testing.T) {
	for _, c := range everyCall {
		t.Run(strings.ReplaceAll(c.call, "/", "."), func(t *testing.T) {
			t.Parallel()
			quoted := `"` + strings.ReplaceAll(c.scopes, ",", `","`) + `"`
			r := newRig(t, fmt.Sprintf(`{"defaults":{"audit":"all"},"auth":{"tokens":[
				{"id":"none","scopes":[],"token_sha256":"%s"},{"id":"enough","scopes":[%s],"token_sha256":"%s"}]}}`, digest("none"), quoted, digest("enough")))
			for name, want := range map[string][]string{
				"": {"unauthenticated", "401"}, "wrong": {"unauthenticated", "401"}, "none": {"permission_denied", "403"},
			} {
				r.token = name
				code, text := r.outcomeOf(c.call, c.body, c.stream)
				if code != want[0] && code != want[1] {
					t.Errorf("token %q: %s %s", name, code, text)
				}
				if name == "none" && !strings.Contains(text, "missing_scope: ") {
					t.Errorf("the word is missing: %s", text)
				}
			}
			r.token = "enough"
			code, text := r.outcomeOf(c.call, c.body, c.stream)
			switch code {
			case "unauthenticated", "401", "permission_denied", "403", "internal", "500":
				t.Errorf("with %s: %s %s", c.scopes, code, text)
			}
			deadline := time.Now().Add(10 * time.Second)
			for want := fmt.Sprintf(`"identity":"enough","endpoint":%q`, c.id); !strings.Contains(r.audit.String(), want); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("no audit line with %s in %s", want, r.audit)
				}
			}
			for line := range strings.Lines(r.audit.String()) {
				if !strings.Contains(line, `"door":"envd"`) {
					t.Errorf("no door in %s", line)
				}
			}
		})
	}
}

func TestEveryCallIsOffWithItsEndpoint(t *testing.T) {
	for _, c := range everyCall {
		t.Run(strings.ReplaceAll(c.call, "/", "."), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fmt.Sprintf(`{"endpoints":{%q:{"enabled":false}}}`, c.id))
			code, text := r.outcomeOf(c.call, c.body, c.stream)
			if code != "permission_denied" && code != "403" || !strings.Contains(text, "endpoint_disabled: ") {
				t.Errorf("%s %s", code, text)
			}
		})
	}
}

func TestReadOnlyTokenReadsAndDoesNotWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t, fmt.Sprintf(`{"auth":{"tokens":[{"id":"ro","scopes":["files:read","process:read","system:read"],"token_sha256":"%s"}]}}`, digest("ro")))
	r.token = "ro"
	if err := os.WriteFile(filepath.Join(r.base, "a"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range everyCall {
		code, text := r.outcomeOf(c.call, c.body, c.stream)
		refused := code == "permission_denied" || code == "403"
		reads := true
		for scope := range strings.SplitSeq(c.scopes, ",") {
			reads = reads && strings.HasSuffix(scope, ":read")
		}
		if refused == reads {
			t.Errorf("%s: %s %s", c.call, code, text)
		}
	}
	if got, err := os.ReadFile(filepath.Join(r.base, "a")); err != nil || string(got) != "old" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestPathsAreJudgedWhetherTheyExistOrNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{"defaults":{"paths":{"deny":["**/secret*"]}}}`)
	for name, text := range map[string]string{"secret1": "s", "ok": "o"} {
		if err := os.WriteFile(filepath.Join(r.base, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/etc/passwd", "/etc/none", "BASE/secret1", "BASE/secret2", "BASE/../x", "/proc/self/environ"} {
		for _, c := range everyCall {
			if !strings.Contains(c.body+c.call, "BASE") || strings.HasSuffix(c.call, "ListDir") && strings.Contains(path, "secret") {
				continue
			}
			for _, from := range []string{"BASE/a", "BASE/b", "BASE/x", "BASE/none", "BASE/c", `BASE"`} {
				to := path
				if strings.HasSuffix(from, `"`) {
					to += `"`
				}
				call, body := strings.Replace(c.call, from, to, 1), strings.Replace(c.body, from, to, 1)
				if call == c.call && body == c.body {
					continue
				}
				code, text := r.outcomeOf(call, body, c.stream)
				if strings.Contains(body, "BASE/b") || strings.Contains(body, `"destination":"BASE/c"`) || !strings.Contains(c.body, "BASE/a") || code == "permission_denied" || code == "403" {
					if code != "permission_denied" && code != "403" {
						t.Errorf("%s %s: %s %s", call, body, code, text)
					}
				}
			}
		}
	}
	out, _ := r.rpc("filesystem.Filesystem/ListDir", `{"path":"`+r.base+`"}`)
	if shown, _ := json.Marshal(out); strings.Contains(string(shown), "secret") || !strings.Contains(string(shown), `"ok"`) {
		t.Errorf("listed %s", shown)
	}
}

func TestProcessesBelongToWhoStartedThem(t *testing.T) {
	t.Parallel()
	r := newRig(t, fmt.Sprintf(`{"auth":{"tokens":[
		{"id":"a","scopes":["process:*","terminal:use"],"token_sha256":"%s"},{"id":"b","scopes":["process:*","terminal:use"],"token_sha256":"%s"},
		{"id":"all","scopes":["*"],"token_sha256":"%s"}]}}`, digest("a"), digest("b"), digest("all")))
	r.token = "a"
	out, _, failed := r.stream("process.Process/Start", []string{`{"process":{"cmd":"/bin/sh","args":["-c","sleep 60 & echo $!; kill -STOP $$"]},"tag":"mine"}`}, "Connect-Timeout-Ms", "1500")
	if failed != "deadline_exceeded" || len(out) == 0 {
		t.Fatalf("%v %s", out, failed)
	}
	start := object{"cmd": "/bin/sleep", "args": []string{"60"}}
	body, _ := json.Marshal(object{"command": "sleep 60"})
	status, text := r.send(http.MethodPost, r.http+"/process/start", "application/json", string(body))
	var started struct{ PID int }
	if err := json.Unmarshal([]byte(text), &started); err != nil || started.PID == 0 {
		t.Fatalf("%d %s %v", status, text, start)
	}
	for token, want := range map[string]bool{"a": true, "b": false, "all": true} {
		r.token = token
		listed, _ := r.rpc("process.Process/List", `{}`)
		shown, _ := json.Marshal(listed)
		if got := strings.Contains(string(shown), fmt.Sprintf(`"pid":%d`, started.PID)); got != want {
			t.Errorf("%s sees %s", token, shown)
		}
	}
	r.token = "b"
	if _, failed := r.rpc("process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":9}`, started.PID)); failed != "not_found" {
		t.Errorf("a stranger's kill: %s", failed)
	}
	r.token = "a"
	if _, failed := r.rpc("process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":9}`, started.PID)); failed != "" {
		t.Errorf("the owner's kill: %s", failed)
	}
}
