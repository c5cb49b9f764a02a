package template

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const good = `spec_version: 5
name: demo
version: "1.2.0"
env:
  MODE: "on"
ports: [9000, 9001]
provides:
  app:
    protocol: agent-sandbox-server
    version: 2
    port: 9000
    operations: [health, commands.list, commands.run]
start_cmd: agent-sandbox-server serve --port 9000
ready_cmd: agent-sandbox-server healthcheck --port 9000
server:
  version: 1
  preset: read-only
  groups: [dev_tools]
`

// tools stand for the program: the options these tests need, and one variable.
func tools() Tools {
	return Tools{
		Rows: []policy.Row{
			{Name: "files_list", Group: "file_ops", Scopes: []string{"files:read"}, Paths: true, Limits: []string{"max_entries"}},
			{Name: "pty_connect", Group: "terminal", Scopes: []string{"pty:use"}},
			{Name: "list_commands", Group: "commands"},
			{Name: "run_command", Group: "commands"},
		},
		Serve: func(args []string, env map[string]string) (Listen, error) {
			l := Listen{Port: 9000, PTYPort: ptyPort}
			fs := flag.NewFlagSet("serve", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			fs.IntVar(&l.Port, "port", l.Port, "")
			fs.IntVar(&l.PTYPort, "pty-port", l.PTYPort, "")
			fs.StringVar(&l.Policy, "policy", "", "")
			fs.StringVar(&l.Preset, "preset", "", "")
			fs.String("commands", "", "")
			if err := fs.Parse(args); err != nil {
				return l, err
			}
			if text := env["ABX_HTTP_BODY_TIMEOUT"]; text != "" {
				if _, err := strconv.Atoi(text); err != nil {
					return l, errors.New("configuration error: ABX_HTTP_BODY_TIMEOUT: expected seconds")
				}
			}
			return l, nil
		},
		Health: func(args []string) (port int, err error) {
			fs := flag.NewFlagSet("healthcheck", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			fs.IntVar(&port, "port", 9000, "")
			return port, fs.Parse(args)
		},
	}
}

func faults(text string) []string {
	var out []string
	for _, f := range Check([]byte(text), tools()).Faults {
		out = append(out, fmt.Sprintf("%d:%d: %s: %s", f.Line, f.Column, f.Path, f.Message))
	}
	return out
}

func TestGoodTemplateIsSilent(t *testing.T) {
	r := Check([]byte(good), tools())
	if len(r.Faults)+len(r.Warnings) > 0 {
		t.Fatalf("%+v %+v", r.Faults, r.Warnings)
	}
	if r.Policy.Preset() != "read-only" || string(r.Block) != `{"version":1,"preset":"read-only","groups":["dev_tools"]}` {
		t.Errorf("%s %s", r.Policy.Preset(), r.Block)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"spec_version: 5", "spec_version: 5.0", "1:15: spec_version: expected the integer 5"},
		{"name: demo", "name: 2026-01-01", "2:7: name: expected a string, got a date; quote it"},
		{"name: demo", "name: !!str 5\nnoname: x", ""},
		{"name: demo", "description: x", "1:1: name: required, but missing"},
		{`version: "1.2.0"`, "version: 1.2.0", ""},
		{`version: "1.2.0"`, "version: 1_0", "3:10: version: expected a string, got an integer; quote it"},
		{"env:\n  MODE: \"on\"", "env:", "4:5: env: expected a mapping of names to strings, got null"},
		{`MODE: "on"`, "MODE: y", ""},
		{`MODE: "on"`, "MODE:", "5:8: env.MODE: expected a string, got null"},
		{`MODE: "on"`, "on: x", "5:3: env: a name is true, not a string; quote it"},
		{"ports: [9000, 9001]", `ports: [9000, "9001"]`, ""},
		{"ports: [9000, 9001]", "ports: [9000, 9001, 1.5]", "6:21: ports[2]: expected an integer, got a fraction"},
		{"name: demo", `name: demo` + "\n" + `cpu_count: "2.0"`, ""},
		{"name: demo", "name: demo\nmemory_mb: 512MB", "3:12: memory_mb: expected an integer, got a string"},
		{"name: demo", "name: demo\nresources: {cpu: lots}", "3:18: resources.cpu: expected an integer, got a string"},
		{"name: demo", "name: demo\nresources: {cpu: lots}\ncpu_count: 1", ""},
		{"name: demo", "name: demo\nx: {1: [2026-01-01, .inf, 99999999999999999999, !!binary aGk=]}", ""},
		{"name: demo", "name: demo\nx: !custom a", "3:4: x: the tag !custom is not allowed"},
		{"name: demo", "name: demo\nimage: x\nprovider: a\ntemplate_id: b", "5:14: template_id: excludes image"},
		{"port: 9000\n", "port: 65536\n", "11:11: provides.app.port: expected an integer from 1 to 65535"},
		{"start_cmd: agent", "start_cmd: 22:30\nx: agent", "13:12: start_cmd: expected a string that is not blank, got an integer; quote it"},
		{"serve --port 9000", "server --port 9000", "13:12: start_cmd: unknown command 'server' of agent-sandbox-server"},
		{"serve --port 9000", "serve --preset readonly", "13:12: start_cmd: --preset: unknown preset 'readonly' (did you mean 'read-only'?); one of default, transfer-only, read-only, hardened, locked"},
		{"serve --port 9000", "serve --preset ''", ""},
		{"agent-sandbox-server serve --port 9000", "python3.12 -u -m agent_sandbox.server serve --port x", `13:12: start_cmd: invalid value "x" for flag -port: parse error`},
		{"serve --port 9000", "serve --port $PORT || true", ""},
		{"serve --port 9000", "serve --port 9000 >/tmp/log 2>&1", ""},
		{`MODE: "on"`, "ABX_HTTP_BODY_TIMEOUT: soon", "5:26: env.ABX_HTTP_BODY_TIMEOUT: the server does not start with it: expected seconds"},
		{`MODE: "on"`, "ABX_SERVER_POLICY: '{'", "5:22: env.ABX_SERVER_POLICY: the server does not start with it: policy: invalid JSON at line 1, column 1: unexpected end of JSON input"},
		{`MODE: "on"`, "ABX_SERVER_ENABLED_GROUPS: devtools", "5:30: env.ABX_SERVER_ENABLED_GROUPS: the server does not start with it: unknown group 'devtools' (did you mean 'dev_tools'?)"},
		{"groups: [dev_tools]", "endpoints: {files_list: {paths: {hardlinks: deny}}}", "18:36: server.endpoints.files_list.paths.hardlinks: the client refuses this key in templates; use a policy file"},
		{"groups: [dev_tools]", "description: 2026-01-01", "18:16: server.description: a date has no place in a policy; quote it"},
		{"groups: [dev_tools]", "auth: {tokens: [{id: a, scopes: ['*'], token_env: NOT_SET}]}", ""},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the template", c.old)
		}
		got := strings.Join(faults(strings.Replace(good, c.old, c.new, 1)), "\n")
		if got != c.want {
			t.Errorf("%q\n got %s\nwant %s", c.new, got, c.want)
		}
	}
}

// Without start_cmd the image starts the server, in the same environment.
func TestTheEnvironmentCountsWithoutStartCommand(t *testing.T) {
	text := strings.NewReplacer("start_cmd:", "x-start_cmd:", `MODE: "on"`, "ABX_HTTP_BODY_TIMEOUT: soon").Replace(good)
	if got := faults(text); len(got) != 1 || !strings.HasPrefix(got[0], "5:26: env.ABX_HTTP_BODY_TIMEOUT: ") {
		t.Errorf("%q", got)
	}
}

// A wrong server block passes every check of the client and surfaces as a
// launch that times out.
func TestEveryFaultIsToldInTheOrderOfTheFile(t *testing.T) {
	text := strings.NewReplacer("port: 9000\n", "port: 0\n", "read-only", "readonly", `"1.2.0"`, "1", "[dev_tools]", "[a, b]").Replace(good)
	var paths []string
	for _, f := range Check([]byte(text), tools()).Faults {
		paths = append(paths, f.Path)
	}
	want := []string{"version", "provides.app.port", "server.preset", "server.groups[0]", "server.groups[1]"}
	if !slices.Equal(paths, want) {
		t.Errorf("%q, not %q", paths, want)
	}
}

func TestWarnings(t *testing.T) {
	const token = "groups: [dev_tools]\n  auth: {tokens: [{id: a, scopes: ['*'], %s}]}"
	for _, c := range []struct{ old, new, want string }{
		{"name: demo", "name: demo\nx-strat_cmd: a\nstrat_cmd: b", "T1:4"},
		{"name: demo", "name: demo\nsomething_else: a", ""},
		{"serve --port 9000", "serve", ""},
		{"serve --port 9000", "serve --port=9100", "T2:13"},
		{"healthcheck --port 9000", "healthcheck --port 1", "T2:14"},
		{"    version: 2", "    version: 3", "T3:10"},
		{"start_cmd:", "  b: {protocol: agent-sandbox-server, version: 2, port: 9001, operations: []}\nstart_cmd:", "T3:13"},
		{"ports: [9000, 9001]", "ports: []", "T4:6"},
		{"ports: [9000, 9001]", "ports: [9000, 9001, true, 0]", "T4:6"},
		{"start_cmd:", "  b: {protocol: http, version: 1, port: 9000, operations: []}\nstart_cmd:", "T4:13"},
		{"preset: read-only", "preset: default", "T4:6?"},
		{"serve --port 9000", "serve --port 9000 --pty-port 49999", "T5:13"},
		{"start_cmd: agent-sandbox-server serve --port 9000\n", "", "T6:1"},
		{"serve --port 9000", "serve --commands '/a b/$x.py'", ""},
		{"serve --port 9000", `serve --commands "/$x.py"`, "T7:13"},
		{"serve --port 9000", "serve --commands /a/*.py", "T7:13"},
		{"serve --port 9000", "serve --commands ~/c.py", "T7:13"},
		{"ready_cmd: agent", "ready_cmd: \"[ -f /x ]\"\nx-ready_cmd: agent", ""},
		{"ready_cmd: agent", "ready_cmd: export A=1\nx-ready_cmd: agent", "T7:14"},
		{"serve --port 9000", "serve --commands my.commands", ""},
		{"serve --port 9000", "serve --commands=app/commands.yaml", "T8:13"},
		{"start_cmd: agent-sandbox-server serve", "start_cmd: cd /app && exec agent-sandbox-server serve --commands c.py", ""},
		{"start_cmd: agent-sandbox-server serve --port 9000", "start_cmd: python -u app.py", "T8:13"},
		{"start_cmd: agent-sandbox-server serve --port 9000", "start_cmd: python -m http.server", ""},
		{"serve --port 9000", "serve --policy /p.json", "T9:13"},
		{`MODE: "on"`, "ABX_SERVER_POLICY_FILE: ''", "T9:5"},
		{`MODE: "on"`, "DB_PASSWORD: ''", ""},
		{`MODE: "on"`, "db_password: x", "T10:5"},
		{"groups: [dev_tools]", fmt.Sprintf(token, "token_env: OTHER"), "T11:19"},
		{"groups: [dev_tools]", fmt.Sprintf(token, "token_sha256: '"+strings.Repeat("0", 64)+"'"), ""},
		{"groups: [dev_tools]", "endpoints: {run_command: {enabled: false}}", "T12:12"},
		{"name: demo", "name: demo\nimage: a@sha256:" + strings.Repeat("a", 64), ""},
		{"name: demo", "name: demo\nimage: a@sha256:abc", "T13:3"},
		{"name: demo", "name: demo\napplication: {}", "T13:3"},
		{"name: demo", "name: demo\nmemory_mb: '0'", "T14:3"},
		{"name: demo", "name: demo\nmemory_mb: null", ""},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%q is not in the template", c.old)
		}
		r := Check([]byte(strings.Replace(good, c.old, c.new, 1)), tools())
		if len(r.Faults) > 0 {
			t.Errorf("%q: %+v", c.new, r.Faults)
			continue
		}
		var got []string
		for _, w := range r.Warnings {
			got = append(got, fmt.Sprintf("%s:%d", w.Code, w.Line))
		}
		want, none := strings.CutSuffix(c.want, "?")
		if none { // the ports are listed
			want = ""
		}
		if want == "" && len(got) > 0 || want != "" && !slices.Contains(got, want) {
			t.Errorf("%q: %q, not %q (%+v)", c.new, got, want, r.Warnings)
		}
	}
}

// What the client's reader of command lines does was found by running it.
func TestWhichLinesGoToAShell(t *testing.T) {
	for line, want := range map[string]bool{
		"a b":           false,
		"a\nb":          false,
		"a '; x'\nb":    false,
		"a; b":          true,
		"a 'b; c'":      false,
		`a "b && c"`:    false,
		"a 2>&1":        true,
		`find \;`:       true, // a word of nothing but operators
		"a ';'":         true,
		"a #; b":        false,
		"a b#c & d":     false,
		"a '#' & b":     true,
		"a $(b)":        true,
		"a `b`":         false,
		"(a)":           true,
		"A=1 a":         false,
		"a &":           true,
		`a \& b`:        true,
		`a x\&y`:        false,
		`a "x" 'y' z>w`: true,
	} {
		words, err := split(line)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if got := needsShell(words); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
	for _, line := range []string{"a 'b", `a "b`, `a \`, `a "b\"`} {
		if _, err := split(line); err == nil {
			t.Errorf("%q can be split", line)
		}
	}
}

// Words are those the policy engine makes of a command.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", `a 'b c' "d\"e" f\ g`, "a\tb\r\nc", `""`, "a;b", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words, err := split(s)
		if strings.ContainsAny(s, operators) {
			return
		}
		want, wantErr := policy.SplitWords(s)
		words = slices.DeleteFunc(words, func(w word) bool { return w.op })
		if len(words) == 0 && err == nil || len(words) > policy.MaxArguments {
			return // what is blank or too long is an error there
		}
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%q: %v, %v", s, err, wantErr)
		}
		if got := texts(words); err == nil && !slices.Equal(got, want) {
			t.Fatalf("%q: %q, not %q", s, got, want)
		}
	})
}

// FuzzCheck: no text makes the check panic, every fault is one located line,
// and what has none has a policy.
func FuzzCheck(f *testing.F) {
	f.Add(good)
	for _, s := range []string{"", "[1]", "a: [", "x: &a [*a]", "a: 1\n--- \nb: 2", "provides: {1: 2}", "server: {groups: {1: 2}}", "env: {<<: {A: b}}"} {
		f.Add(s)
		f.Add(good + s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := Check([]byte(text), tools())
		for _, e := range r.Faults {
			if e.Line < 1 || e.Column < 1 || e.Path == "" || e.Message == "" || strings.ContainsAny(e.Message, "\r\n") {
				t.Fatalf("%+v", e)
			}
		}
		if (r.Policy == nil) != (len(r.Faults) > 0) {
			t.Fatalf("policy %v with %d faults", r.Policy, len(r.Faults))
		}
	})
}

func TestOwnTemplateHasTheStampOfTheRelease(t *testing.T) {
	text, err := os.ReadFile("../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root, errs := policy.ReadYAML(text, maxDepth)
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	if _, err := os.Stat("../../changelog/" + root.Get("version").Text + ".md"); err != nil {
		t.Errorf("template.yaml has a version without a change log: %v", err)
	}
}
