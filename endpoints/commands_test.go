package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

const commandsManifest = `
version: 1
commands:
  - name: greet
    description: Say hello
    args:
      - {name: name, description: who}
      - {name: times, type: integer, default: 2, choices: [1, 2]}
      - {name: tags, type: string_array, default: ["a"], choices: ["a", "b"]}
    argv: [printf, "%s|", "hi {name}", "{times}", "{tags...}"]
  - name: loud
    shell: 'echo one; printf "two\nthr" >&2; sleep 0.05; printf "é\302\205e"; echo done'
  - {name: fails, shell: 'echo before; echo why >&2; exit 3'}
  - {name: slow, shell: 'sleep 600'}
  - {name: deploy, scopes: ["deploy:run"], argv: [printf, deployed]}
  - {name: trapdoor, hidden: true, argv: [printf, open]}
  - {name: secrets, shell: 'env | grep -c never-shown; exit 0'}
  - {name: pretty, shell: 'printf "{\n \"a\": \"é\"\n}"', result: json}
  - {name: here, argv: [pwd]}
  - {name: "héllo", argv: [printf, accent]}
  - {name: wait, shell: 'touch waiting; while [ ! -e go ]; do sleep 0.02; done; echo gone'}
`

const commandsFile = `
import os, time
from agent_sandbox.server import *

@command()
def echo(v: str = "x"): return v

@command()
def nan(): return [float("nan"), "\u0085\u2028"]

@command(description="typed")
def typed(i: int = 3, f: float = 1.5, b: bool = True, o: str = None): return [i, f, b, o]

@command()
def pid(): return os.getpid()

@command()
def boom(): raise LookupError("nothing here")

@command()
def big(n: int): return "x" * n

@command()
def die(): os._exit(1)

@command()
def refuse_late():
    time.sleep(1.2)
    raise PolicyDenied("not today", code="too_late")

@command()
def getenv(name): return os.environ.get(name)

table = default_table()

@table.route("GET", "/mine/{id}/x", group="commands", scopes=["mine:read"], summary="Mine.")
def mine(req): return {"id": req.path_params["id"], "q": req.query, "who": req.context, "auth": [k for k in req.headers if k in ("Authorization", "X-Access-Token")]}

@table.route("POST", "/mine", group="commands", auth_required=False)
def post(req): return ServerResponse(422, {"got": req.body}, {"X-Mine": "1", "Content-Length": "3", "Content-Type": "application/problem+json"})

@table.route("DELETE", "/mine", group="dev_tools")
def delete(req): return ServerResponse(204, None)

@table.route("GET", "/health", group="commands")
def health(req): return "never"

@table.route("POST", "/commands/special", group="commands", name="health")
def special(req): return "never"

@table.route("GET", "/wëird path/{id}", group="commands", name="shell")
def weird(req): return req.path_params

@table.route("GET", "/events", group="commands", streaming=True)
def events(req):
    def items():
        yield "event: a\ndata: 1\n\n"
        while True:
            time.sleep(0.01)
            yield b"data: 2\n\n"
    return SSEResponse(event_iterator=items(), headers={"X-Mine": "2"})

@table.route("GET", "/broken", group="commands")
def broken(req): raise ValueError("inside")
`

// withCommands loads a manifest and a Python file.
func withCommands(t *testing.T, o rigOptions) *rig {
	t.Helper()
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = "python3"
	}
	o.prepare = func(s *Server) {
		dir := t.TempDir()
		items := []string{filepath.Join(dir, "m.yaml"), filepath.Join(dir, "app.py")}
		for i, text := range []string{commandsManifest, commandsFile} {
			if err := os.WriteFile(items[i], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { null.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Commands, err = registry.Load(ctx, registry.Options{
			Items: items, Procs: s.Procs, Env: s.Env, Workdir: s.Workdir, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
			Python: python, Stdout: null, Stderr: null, Version: "test",
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Env.Watch(s.Commands.SetEnv)
	}
	return newRig(t, o)
}

func TestCommandsAreListedWithTheirSchema(t *testing.T) {
	r := withCommands(t, rigOptions{})
	status, out := r.call("GET", "/commands", nil)
	if status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	var names []string
	for _, c := range out["commands"].([]any) {
		names = append(names, c.(map[string]any)["name"].(string))
	}
	want := []string{"greet", "loud", "fails", "slow", "deploy", "secrets", "pretty", "here", "héllo", "wait", "echo", "nan", "typed", "pid", "boom", "big", "die", "refuse_late", "getenv"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	for name, want := range map[string]string{
		"greet": `{"name":"greet","description":"Say hello","args":[{"name":"name","type":"string","required":true,"default":null,"description":"who"},` +
			`{"name":"times","type":"integer","required":false,"default":"2","description":"","choices":["1","2"]},` +
			`{"name":"tags","type":"string_array","required":false,"default":"[\"a\"]","description":"","choices":["a","b"]}],"scopes":[],"source":"manifest",` +
			`"schema":{"type":"object","properties":{"name":{"type":"string","description":"who"},` +
			`"tags":{"type":"array","items":{"type":"string","enum":["a","b"]},"default":["a"]},"times":{"type":"integer","enum":[1,2],"default":2}},` +
			`"required":["name"],"additionalProperties":false}}`,
		"typed": `{"name":"typed","description":"typed","args":[{"name":"i","type":"integer","required":false,"default":"3","description":""},` +
			`{"name":"f","type":"float","required":false,"default":"1.5","description":""},{"name":"b","type":"boolean","required":false,"default":"True","description":""},` +
			`{"name":"o","type":"string","required":false,"default":null,"description":""}],"scopes":[],"source":"python","schema":{"type":"object","properties":{` +
			`"b":{"type":"boolean","default":true},"f":{"type":"number","default":1.5},"i":{"type":"integer","default":3},"o":{"type":"string"}},"required":[],"additionalProperties":false}}`,
		"trapdoor":   `{"name":"trapdoor","description":"","args":[],"scopes":[],"source":"manifest","schema":{"type":"object","properties":{},"required":[],"additionalProperties":false}}`,
		"h%C3%A9llo": `{"name":"héllo","description":"","args":[],"scopes":[],"source":"manifest","schema":{"type":"object","properties":{},"required":[],"additionalProperties":false}}`,
	} {
		res := r.do("GET", "/commands/"+name, nil)
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || string(got) != want {
			t.Errorf("%s: %d %s, %v\nwant %s", name, res.StatusCode, got, err, want)
		}
	}
}

func TestCommandsAnswerTheirResult(t *testing.T) {
	r := withCommands(t, rigOptions{})
	for _, c := range []struct{ path, body, want string }{
		{"greet", `{"name":"Bob"}`, `{"result":"hi Bob|2|a|"}`},
		{"greet", "\ufeff{\"name\":\"\\udc80\",\"tags\":[]}", `{"result":"hi \ufffd|2|"}`},
		{"h%C3%A9llo", ``, `{"result":"accent"}`},
		{"trapdoor", `{}`, `{"result":"open"}`},
		{"secrets", `{}`, `{"result":"0"}`},
		{"pretty", `{}`, "{\"result\":{\n \"a\": \"é\"\n}}"},
		{"here", `{}`, `{"result":"` + r.base + `"}`},
		{"echo", `{"v":"a\ud800b","v":"last"}`, `{"result":"last"}`},
		{"echo", "{\r\n\"v\" : \"\u00e9\" }", `{"result":"\u00e9"}`},
		{"nan", ``, `{"result":[NaN,"\u0085\u2028"]}`},
		{"typed", `{"i":1180591620717411303424}`, `{"result":[1180591620717411303424,1.5,true,null]}`},
	} {
		res := r.do("POST", "/commands/"+c.path, c.body)
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || string(got) != c.want || res.ContentLength != int64(len(c.want)) {
			t.Errorf("%s %s: %d %s, %v", c.path, c.body, res.StatusCode, got, err)
		}
	}
}

func TestFailuresOfCommandsAreTyped(t *testing.T) {
	r := withCommands(t, rigOptions{})
	for _, c := range []struct {
		name, body string
		status     int
		typ, code  string
	}{
		{"greet", `{}`, 400, "ValueError", "argument_invalid"},
		{"greet", `{"name":"x","times":3}`, 400, "ValueError", "argument_invalid"},
		{"greet", `{"name":[1]}`, 400, "TypeError", "argument_invalid"},
		{"fails", `{}`, 500, "CommandFailed", "command_failed"},
		{"typed", `{"i":"x"}`, 400, "TypeError", "argument_invalid"},
		{"boom", `{}`, 500, "LookupError", ""},
		{"die", `{}`, 500, "WorkerCrashed", "command_worker_crashed"},
	} {
		status, out := r.call("POST", "/commands/"+c.name, c.body)
		code, _ := out["code"].(string)
		if status != c.status || out["type"] != c.typ || code != c.code || out["error"] == "" || code != "" && out["endpoint"] != "run_command" {
			t.Errorf("%s %s: %d %v", c.name, c.body, status, out)
		}
	}
	_, out := r.call("POST", "/commands/fails", `{}`)
	if out["exit_code"] != 3.0 || out["stderr"] != "why\n" || out["stdout"] != "before\n" {
		t.Errorf("%v", out)
	}
}

// TestUnknownCommandTellsNothingHidden: who may not see a command does not
// learn its name from a mistake.
func TestUnknownCommandTellsNothingHidden(t *testing.T) {
	tokens := fmt.Sprintf(`{"auth":{"tokens":[{"id":"low","scopes":["commands:*"],"token_sha256":"%s"},{"id":"ops","scopes":["commands:*","deploy:*"],"token_sha256":"%s"}]}}`,
		digest("low"), digest("ops"))
	r := withCommands(t, rigOptions{policy: tokens})
	r.token = "low"
	for _, method := range []string{"GET", "POST"} {
		status, out := r.call(method, "/commands/nope", nil)
		text, _ := out["error"].(string)
		if status != 404 || out["type"] != "ValueError" || out["code"] != nil || out["endpoint"] != nil ||
			!strings.HasPrefix(text, "Unknown command 'nope'; available: big, boom, die, echo, fails") || strings.Contains(text, "deploy") || strings.Contains(text, "trapdoor") {
			t.Errorf("%s: %d %v", method, status, out)
		}
		status, out = r.call(method, "/commands/deploy", nil)
		if status != 403 || out["code"] != "missing_scope" || out["scope"] != "deploy:run" || out["identity"] != nil {
			t.Errorf("%s: %d %v", method, status, out)
		}
	}
	r.token = "ops"
	if status, out := r.call("POST", "/commands/deploy", nil); status != 200 || out["result"] != "deployed" {
		t.Errorf("%d %v", status, out)
	}
	if _, out := r.call("POST", "/commands/nope", nil); !strings.Contains(fmt.Sprint(out["error"]), "deploy") {
		t.Errorf("%v", out)
	}
}

// TestTheBodyIsCheckedBeforeTheCommandIs, as on every endpoint.
func TestTheBodyIsCheckedBeforeTheCommandIs(t *testing.T) {
	r := withCommands(t, rigOptions{})
	for body, code := range map[string]string{`null`: "body_not_object", `[1]`: "body_not_object", `{"v":NaN}`: "invalid_json", `{"v":1}x`: "invalid_json", "{\"v\":\"\xff\"}": "invalid_json"} {
		status, out := r.call("POST", "/commands/nope", body)
		wantError(t, body, status, out, 400, code)
	}
}

func TestRulesBoundCommands(t *testing.T) {
	var r *rig
	// Each limit by itself: on a busy machine also the quick command takes its time.
	for _, c := range []struct{ limit, name, body, typ, code string }{
		{`"timeout_seconds":0.2`, "slow", `{}`, "TimeoutError", "command_timeout"},
		{`"max_output_bytes":1000`, "big", `{"n":2000}`, "OutputLimitError", "output_limit"},
	} {
		r = withCommands(t, rigOptions{policy: `{"endpoints":{"run_command":{"limits":{` + c.limit + `}}}}`})
		status, out := r.call("POST", "/commands/"+c.name, c.body)
		wantError(t, c.name, status, out, 500, c.code)
		if out["type"] != c.typ {
			t.Errorf("%s: %v", c.name, out)
		}
	}
	if status, out := r.call("POST", "/commands/big", `{"n":900}`); status != 200 {
		t.Errorf("%d %v", status, out)
	}
}

// eventsOf reads a stream: names and data.
func eventsOf(t *testing.T, body io.Reader) [][2]string {
	t.Helper()
	var out [][2]string
	scan := bufio.NewScanner(body)
	name := ""
	for scan.Scan() {
		line := scan.Bytes()
		for _, c := range line {
			if c >= 0x80 {
				t.Fatalf("not ASCII: %q", line)
			}
		}
		if v, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(v)
		} else if v, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			out = append(out, [2]string{name, string(v)})
		}
	}
	return out
}

func TestCommandsCanBeStreamed(t *testing.T) {
	r := withCommands(t, rigOptions{})
	for _, c := range []struct {
		name, body string
		want       [][2]string
	}{
		{"pretty", `{}`, [][2]string{{"stdout", `{"data": "{"}`}, {"stdout", `{"data": " \"a\": \"\u00e9\""}`}, {"stdout", `{"data": "}"}`}, {"result", `{"result":{  "a": "\u00e9" }}`}}},
		{"nan", `{}`, [][2]string{{"result", `{"result":[NaN,"\u0085\u2028"]}`}}},
		{"boom", `{}`, [][2]string{{"error", `{"error":"nothing here","type":"LookupError"}`}}},
		{"here", `{}`, [][2]string{{"stdout", `{"data": "` + r.base + `"}`}, {"result", `{"result":"` + r.base + `"}`}}},
	} {
		res := r.do("POST", "/commands/"+c.name+"?stream=1", c.body)
		got := eventsOf(t, res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d %q\nwant %q", c.name, res.StatusCode, got, c.want)
		}
	}
	res := r.do("POST", "/commands/fails?stream=yes", `{}`)
	got := eventsOf(t, res.Body)
	res.Body.Close()
	if len(got) != 3 || got[2][0] != "error" || !strings.Contains(got[2][1], `"exit_code":3`) || !strings.Contains(got[2][1], `"code":"command_failed"`) {
		t.Errorf("%q", got)
	}
	res = r.do("POST", "/commands/loud?stream=1", `{}`)
	got = eventsOf(t, res.Body)
	res.Body.Close()
	var stdout, stderr []string
	for _, e := range got[:len(got)-1] {
		var d struct{ Data string }
		if err := json.Unmarshal([]byte(e[1]), &d); err != nil {
			t.Error(err)
		}
		if e[0] == "stdout" {
			stdout = append(stdout, d.Data)
		} else {
			stderr = append(stderr, d.Data)
		}
	}
	if !slices.Equal(stdout, []string{"one", "é\u0085edone"}) || !slices.Equal(stderr, []string{"two", "thr"}) {
		t.Errorf("%q %q", stdout, stderr)
	}
	// What is wrong before the first event is an ordinary answer.
	status, out := r.call("POST", "/commands/greet?stream=1", `{}`)
	wantError(t, "greet", status, out, 400, "argument_invalid")
	status, out = r.call("POST", "/commands/typed?stream=1", `{"i":[]}`)
	wantError(t, "typed", status, out, 400, "argument_invalid")
	status, out = r.call("POST", "/commands/nope?stream=1", `{}`)
	wantError(t, "nope", status, out, 404, "")
}

func TestLateRefusalInAStreamSaysWhatItIs(t *testing.T) {
	r := withCommands(t, rigOptions{})
	res := r.do("POST", "/commands/refuse_late?stream=1", `{}`)
	defer res.Body.Close()
	if got := eventsOf(t, res.Body); !slices.Equal(got, [][2]string{{"error", `{"code":"too_late","error":"not today","type":"PolicyDenied"}`}}) {
		t.Errorf("%q", got)
	}
}

// TestOutputIsStreamedWhileTheCommandRuns, and a silent one is accepted soon.
func TestOutputIsStreamedWhileTheCommandRuns(t *testing.T) {
	r := withCommands(t, rigOptions{})
	res := r.do("POST", "/commands/wait?stream=1", `{}`) // answers though the command waits
	defer res.Body.Close()
	if _, err := os.Stat(filepath.Join(r.base, "waiting")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(r.base, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := eventsOf(t, res.Body); !slices.Equal(got, [][2]string{{"stdout", `{"data": "gone"}`}, {"result", `{"result":"gone"}`}}) {
		t.Errorf("%q", got)
	}
}

func TestReadyTellsOfTheCommands(t *testing.T) {
	r := withCommands(t, rigOptions{})
	r.srv.Ready = func() (string, string) {
		if r.srv.Commands.Ready() {
			return "ready", "off"
		}
		return "degraded", "off"
	}
	if status, out := r.call("GET", "/ready", nil); status != 200 || out["commands"] != "ready" {
		t.Errorf("%d %v", status, out)
	}
	if status, _ := r.call("POST", "/commands/die", `{}`); status != 500 {
		t.Errorf("%d", status)
	}
	if status, out := r.call("GET", "/health", nil); status != 200 || len(out) != 1 {
		t.Errorf("%d %v", status, out)
	}
	// It comes again within a moment; a call waits for it.
	if status, out := r.call("POST", "/commands/echo", `{}`); status != 200 {
		t.Errorf("%d %v", status, out)
	}
}

func TestEnvironmentThatIsSetReachesPythonCommands(t *testing.T) {
	r := withCommands(t, rigOptions{})
	if status, out := r.call("POST", "/env", `{"vars":{"SET_BY_CALL":"väl"}}`); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	if _, out := r.call("POST", "/commands/getenv", `{"name":"SET_BY_CALL"}`); out["result"] != "väl" {
		t.Errorf("%v", out)
	}
	if _, out := r.call("POST", "/env", `{"vars":{},"unset":["SET_BY_CALL"]}`); out["removed"] == nil {
		t.Errorf("%v", out)
	}
	if _, out := r.call("POST", "/commands/getenv", `{"name":"SET_BY_CALL"}`); out["result"] != nil {
		t.Errorf("%v", out)
	}
}

func TestTemplateRoutesAreRowsLikeAnyOther(t *testing.T) {
	tokens := fmt.Sprintf(`{"auth":{"tokens":[{"id":"me","scopes":["mine:*"],"token_sha256":"%s"},{"id":"none","scopes":[],"token_sha256":"%s"}]}}`, digest("me"), digest("none"))
	r := withCommands(t, rigOptions{policy: tokens})
	status, out := r.call("GET", "/mine/a/x", nil)
	wantError(t, "stranger", status, out, 401, "unauthorized")
	r.token = "none"
	status, out = r.call("GET", "/mine/a/x", nil)
	wantError(t, "no scope", status, out, 403, "missing_scope")
	if out["endpoint"] != "GET /mine/{id}/x" || out["scope"] != "mine:read" {
		t.Errorf("%v", out)
	}
	r.token = "me"
	res := r.do("GET", "/mine/a%2Fb%20%C3%A9/x?k=v", nil, "X-Request-Id", "rid-1")
	got, _ := io.ReadAll(res.Body)
	res.Body.Close()
	want := `{"id":"a/b \u00e9","q":{"k":["v"]},"who":{"identity":"me","scopes":["mine:*"],"request_id":"rid-1"},"auth":[]}`
	if res.StatusCode != 200 || string(got) != want {
		t.Errorf("%d %s", res.StatusCode, got)
	}
	status, out = r.call("GET", "/mine/a/x?k=1&k=2", nil)
	wantError(t, "twice", status, out, 400, "duplicate_parameter")
	status, out = r.call("DELETE", "/mine", nil)
	wantError(t, "group off", status, out, 404, "endpoint_disabled")
	status, out = r.call("PUT", "/mine", nil)
	wantError(t, "method", status, out, 405, "method_not_allowed")
	status, out = r.call("GET", "/broken", nil)
	wantError(t, "broken", status, out, 500, "")
	if out["type"] != "ValueError" || out["error"] != "inside" {
		t.Errorf("%v", out)
	}
	r.token = ""
	res = r.do("POST", "/mine", `{"a":[1,null]}`)
	got, _ = io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 422 || string(got) != `{"got":{"a":[1,null]}}` || res.Header.Get("X-Mine") != "1" || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s %v", res.StatusCode, got, res.Header)
	}
	if _, out := r.call("GET", "/health", nil); out["status"] != "ok" {
		t.Errorf("a route took the place of ours: %v", out)
	}
	var names []string
	for _, ep := range r.table {
		names = append(names, ep.Name)
	}
	for _, name := range []string{"GET /health", "POST /commands/special"} {
		if slices.Contains(names, name) {
			t.Errorf("%s is a row", name)
		}
	}
	if !slices.Contains(names, "GET /wëird path/{id}") {
		t.Errorf("%v", names)
	}
}

func TestTemplateRoutesAnswerAnyShape(t *testing.T) {
	r := withCommands(t, rigOptions{policy: `{"groups":["dev_tools"]}`})
	res := r.do("DELETE", "/mine", nil)
	got, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 204 || len(got) != 0 {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	if status, out := r.call("GET", "/w%C3%ABird%20path/1", nil); status != 200 || out["id"] != "1" {
		t.Errorf("%d %v", status, out)
	}
	res = r.do("HEAD", "/events", nil)
	res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	res = r.do("GET", "/events", nil)
	if res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Mine") != "2" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", res.Header)
	}
	head := make([]byte, len("event: a\ndata: 1\n\ndata: 2\n\n"))
	if _, err := io.ReadFull(res.Body, head); err != nil || string(head) != "event: a\ndata: 1\n\ndata: 2\n\n" {
		t.Errorf("%q, %v", head, err)
	}
	res.Body.Close() // the generator without end ends with its reader; else closing the rig would hang
	if status, out := r.call("POST", "/commands/echo", `{}`); status != 200 {
		t.Errorf("%d %v", status, out)
	}
}

func TestAThousandCallsOfCommandsAtOnce(t *testing.T) {
	r := withCommands(t, rigOptions{})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"v":"n%d"}`, i)
			req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/commands/echo", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if want := fmt.Sprintf(`{"result":"n%d"}`, i); err != nil || res.StatusCode != 200 || string(got) != want {
				t.Errorf("%d %s, %v; want %s", res.StatusCode, got, err, want)
			}
		})
	}
	wg.Wait()
}
