package registry

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

const programs = `
version: 1
defaults: {timeout: 60}
commands:
  - name: argv
    args:
      - {name: s}
      - {name: i, type: integer, default: 1}
      - {name: b, type: boolean, required: false}
      - {name: t, type: string_array, default: []}
      - {name: o, required: false}
    argv: [printf, "%s|", "a{s}b", "{i}", "{t...}", "o={o}", {when: b, args: ["B={b}", {when: t, args: [T]}]}, {when: o, args: [O]}, "{{}}"]
  - name: vars
    args: [{name: s, required: false}, {name: f, type: float, default: 2}, {name: t, type: string_array, required: false}]
    env: {TWICE: "{s}-{s}", FIXED: "{{x}}", PATH: "/usr/bin:/bin"}
    shell: 'printf "%s;%s;%s;%s;%s;%s" "${ARG_s-no}" "$ARG_f" "${ARG_t-no}" "${TWICE-no}" "$FIXED" "$COMMAND_NAME"'
  - name: input
    args: [{name: s, default: "x\ny"}, {name: i, type: integer, default: 2}, {name: f, type: float, default: .inf}]
    shell: cat
  - name: text
    args: [{name: s}]
    stdin: {arg: s}
    shell: cat
  - name: silent
    args: [{name: s, default: x}]
    stdin: none
    shell: 'wc -c'
  - name: length
    args: [{name: s}]
    shell: 'printf %s "${ARG_s-unset}" | wc -c; wc -c'
    result: lines
  - name: bare
    inherit_env: false
    shell: 'env | sort'
    result: lines
  - name: script
    script: 'echo "$0"; ls -l "$0" | cut -c1-10; exit 0'
    result: lines
  - name: bytes
    shell: 'printf "a\303\251\377\n\n"'
  - name: crlf
    shell: 'printf "a\r\nb\n\nc"'
    result: lines
  - name: signal
    shell: 'kill -9 $$'
  - name: fullsignal
    shell: 'kill -15 $$'
    result: full
  - name: bigjson
    shell: 'printf "\n {\"a\": [1e400, \"\303\251\"]} \n"'
    result: json
  - name: twojson
    shell: 'printf "1 2"'
    result: json
  - name: badutf8
    shell: 'printf "\"\377\""'
    result: json
  - name: jsonerror
    args: [{name: s}]
    shell: 'printf "%s" "$ARG_s"; echo plain >&2; exit 1'
    result: json
  - name: tails
    shell: 'head -c 5000 /dev/zero | tr "\0" x; head -c 5000 /dev/zero | tr "\0" y >&2; exit 2'
  - name: nodir
    workdir: /no/such/dir
    argv: [pwd]
  - name: noprogram
    argv: [/no/such/program]
  - name: noexec
    argv: [./plain.txt]
    workdir: .
  - name: noprog2
    argv: [./noshebang]
    workdir: .
  - name: own
    argv: [./own.sh]
    workdir: .
  - name: here
    argv: [pwd]
  - name: background
    shell: 'sleep 300 & echo $!'
  - name: slow
    shell: 'sleep 300 & echo $! > slow.pid; wait'
    workdir: .
    timeout: 0.3
  - name: stubborn
    shell: 'trap "" TERM; echo $$ > stubborn.pid; while :; do sleep 1; done'
    workdir: .
  - name: polite
    shell: 'trap "echo bye > polite.out; exit 0" TERM; echo $$ > polite.pid; while :; do sleep 0.05; done'
    workdir: .
  - name: flood
    shell: 'echo $$ > flood.pid; exec yes'
    workdir: .
    max_output_bytes: 100000
  - name: errflood
    shell: 'yes >&2'
    max_output_bytes: 1KB
  - name: single
    shell: 'echo > single.on; while [ ! -e single.off ]; do sleep 0.02; done'
    workdir: .
    max_concurrency: 1
    result: none
  - name: lines
    shell: 'echo one; echo two >&2; printf three'
`

func loadPrograms(t *testing.T) *rig {
	t.Helper()
	r := load(t, map[string]string{"m.yaml": programs, "plain.txt": "x", "noshebang": "\x01\x02", "own.sh": "#!/bin/sh\necho own\n"}, nil, "m.yaml")
	for _, name := range []string{"noshebang", "own.sh"} {
		if err := os.Chmod(filepath.Join(r.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestArgumentsReachProgramsUnchanged(t *testing.T) {
	r := loadPrograms(t)
	for _, c := range []struct{ name, args, want string }{
		{"argv", `{"s":""}`, `"ab|1|{}|"`},
		{"argv", `{"s":"$(id) 'x' {i} \n","i":-5,"t":["","-n","a b"],"o":"","b":true}`, `"a$(id) 'x' {i} \nb|-5||-n|a b|o=|B=true|T|{}|"`},
		{"argv", `{"s":"é","b":false,"o":"v"}`, `"aéb|1|o=v|O|{}|"`},
		{"argv", `{"s":"x","b":"yes"}`, `"axb|1|B=true|{}|"`},
		{"vars", `{}`, `"no;2.0;no;no;{x};vars"`},
		{"vars", `{"s":"a'\"$b","f":"1e3","t":["é","\""]}`, `"a'\"$b;1000.0;[\"é\",\"\\\"\"];a'\"$b-a'\"$b;{x};vars"`},
		{"input", `{}`, `"{\"s\":\"x\\u000ay\",\"i\":2,\"f\":Infinity}"`},
		{"text", `{"s":"line\nnext\n\n"}`, `"line\nnext\n"`},
		{"silent", `{}`, `"0"`},
		{"own", `{}`, `"own"`},
		{"bytes", `{}`, `"aé\ufffd\n"`},
		{"crlf", `{}`, `["a","b","","c"]`},
		{"bigjson", `{}`, `{"a": [1e400, "é"]}`},
		{"fullsignal", `{}`, `{"stdout":"","stderr":"","exit_code":-15}`},
	} {
		r.want(c.name, c.args, c.want)
	}
	got, err := r.run("here", "{}")
	if dir, _ := filepath.EvalSymlinks(r.dir); err != nil || got != strconv.Quote(r.dir) && got != strconv.Quote(dir) {
		t.Errorf("here: %s, %v", got, err)
	}
}

func TestLongValuesGoThroughStandardInput(t *testing.T) {
	r := loadPrograms(t)
	long := strings.Repeat("x", maxVariable)
	r.want("length", `{"s":"`+long+`"}`, `["65536","`+strconv.Itoa(len(long)+len(`{"s":""}`)+1)+`"]`)
	r.want("length", `{"s":"`+long+`x"}`, `["5","`+strconv.Itoa(len(long)+1+len(`{"s":""}`)+1)+`"]`)
	f := r.fails("argv", `{"s":"`+strings.Repeat("x", maxPlaceholder+1)+`"}`, 400, "ValueError", "argument_invalid")
	if f.Extra["argument"] != "s" {
		t.Errorf("%v", f.Extra)
	}
	r.fails("argv", `{"s":"a\u0000b"}`, 400, "ValueError", "argument_invalid")
	r.fails("argv", `{"s":"a","t":["b\u0000"]}`, 400, "ValueError", "argument_invalid")
	r.fails("vars", `{"s":"a\u0000b"}`, 400, "ValueError", "argument_invalid")
}

func TestArgumentMistakesComeInOrder(t *testing.T) {
	r := loadPrograms(t)
	f := r.fails("argv", `{"zz":1,"i":"x","aa":2}`, 400, "ValueError", "")
	if !strings.Contains(f.Text, "['aa', 'zz']") || !strings.Contains(f.Text, "['s', 'i', 'b', 't', 'o']") {
		t.Errorf("%s", f.Text)
	}
	f = r.fails("argv", `{"i":"x"}`, 400, "ValueError", "argument_invalid")
	if f.Text != "Required argument 's' missing" {
		t.Errorf("%s", f.Text)
	}
	f = r.fails("argv", `{"s":"a","i":"x","b":7}`, 400, "TypeError", "argument_invalid")
	if f.Text != `Cannot convert argument 'i' to integer: "x"` {
		t.Errorf("%s", f.Text)
	}
}

func TestEnvironmentCanBeLeftOut(t *testing.T) {
	r := loadPrograms(t)
	got, err := r.run("bare", `{}`)
	var lines []string
	if err != nil || json.Unmarshal([]byte(got), &lines) != nil {
		t.Fatalf("%s, %v", got, err)
	}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "TERM", "USER", "COMMAND_NAME", "PWD", "SHLVL", "_", "OLDPWD"}, name) {
			t.Errorf("%s", line)
		}
	}
}

func TestScriptIsPrivateAndRemoved(t *testing.T) {
	r := loadPrograms(t)
	got, err := r.run("script", `{}`)
	var lines []string
	if err != nil || json.Unmarshal([]byte(got), &lines) != nil || len(lines) != 2 {
		t.Fatalf("%s, %v", got, err)
	}
	if lines[1] != "-rwx------" {
		t.Errorf("mode %s", lines[1])
	}
	if _, err := os.Stat(lines[0]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", lines[0], err)
	}
}

func TestFailuresSayWhatHappened(t *testing.T) {
	r := loadPrograms(t)
	f := r.fails("signal", "{}", 500, "CommandFailed", "command_failed")
	if f.Extra["exit_code"] != -9 || f.Text != "killed by signal 9 (killed)" {
		t.Errorf("%s %v", f.Text, f.Extra)
	}
	f = r.fails("tails", "{}", 500, "CommandFailed", "command_failed")
	if f.Extra["stdout"] != strings.Repeat("x", tail) || f.Extra["stderr"] != strings.Repeat("y", tail) || f.Extra["exit_code"] != 2 {
		t.Errorf("%v", f.Extra)
	}
	r.fails("twojson", "{}", 500, "ResultError", "result_not_json")
	r.fails("badutf8", "{}", 500, "ResultError", "result_not_json")
	r.fails("nodir", "{}", 500, "NotADirectoryError", "command_not_runnable")
	r.fails("noprogram", "{}", 500, "FileNotFoundError", "command_not_runnable")
	r.fails("noexec", "{}", 500, "PermissionError", "command_not_runnable")
	r.fails("noprog2", "{}", 500, "OSError", "command_not_runnable")
	for said, want := range map[string][2]string{
		`{"error":"mine"}`:                {"CommandFailed", "mine"},
		`{"error":"mine","type":"Kind"}`:  {"Kind", "mine"},
		`{"error":"","type":"Kind"}`:      {"Kind", ""},
		`{"error":1}`:                     {"CommandFailed", "plain"},
		`{"type":"Kind"}`:                 {"CommandFailed", "plain"},
		`no json`:                         {"CommandFailed", "plain"},
		`{"error":"mine","type":"Kind"}x`: {"CommandFailed", "plain"},
	} {
		args, _ := json.Marshal(map[string]string{"s": said})
		if f := r.fails("jsonerror", string(args), 500, want[0], "command_failed"); f.Text != want[1] {
			t.Errorf("%s: %q", said, f.Text)
		}
	}
}

// TestBackgroundChildDoesNotHoldUpTheAnswer: what a command leaves in the
// background keeps its output open; the answer comes all the same.
func TestBackgroundChildDoesNotHoldUpTheAnswer(t *testing.T) {
	r := loadPrograms(t)
	got, err := r.run("background", "{}")
	pid, convErr := strconv.Atoi(strings.Trim(got, `"`))
	if err != nil || convErr != nil {
		t.Fatalf("%s, %v", got, err)
	}
	if !alive(pid) {
		t.Error("what was left in the background is gone")
	}
}

func pidIn(t *testing.T, r *rig, name string) int {
	t.Helper()
	pid := 0
	eventually(t, name, func() bool {
		text, _ := os.ReadFile(filepath.Join(r.dir, name))
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	return pid
}

// TestTimeLimitLeavesNoOrphans: the whole group is ended, not its leader.
func TestTimeLimitLeavesNoOrphans(t *testing.T) {
	r := loadPrograms(t)
	f := r.fails("slow", "{}", 500, "TimeoutError", "command_timeout")
	if f.Extra["timeout"] != 0.3 {
		t.Errorf("%v", f.Extra)
	}
	pid := pidIn(t, r, "slow.pid")
	eventually(t, "the child is gone", func() bool { return !alive(pid) })
	call := r.call("{}")
	call.Timeout = 200 * time.Millisecond
	_, err := r.runCall(context.Background(), "polite", call)
	if f := wantFailure(t, "polite", "", err, 500, "TimeoutError", "command_timeout"); f.Extra["timeout"] != 0.2 {
		t.Errorf("%v", f.Extra)
	}
	eventually(t, "it was asked first", func() bool {
		text, _ := os.ReadFile(filepath.Join(r.dir, "polite.out"))
		return string(text) == "bye\n"
	})
}

// TestCallerThatLeavesEndsTheProgram: it is asked to end, and then made to.
func TestCallerThatLeavesEndsTheProgram(t *testing.T) {
	r := loadPrograms(t)
	for _, name := range []string{"polite", "stubborn"} {
		ctx, leave := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := r.runCall(ctx, name, r.call("{}"))
			done <- err
		}()
		pid := pidIn(t, r, name+".pid")
		leave()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if alive(pid) {
			t.Errorf("%s still runs", name)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(r.dir, "polite.out")); string(text) != "bye\n" {
		t.Errorf("the polite one was not asked: %q", text)
	}
}

// TestMemoryDoesNotFollowTheOutput: a flood ends the command at its limit.
func TestMemoryDoesNotFollowTheOutput(t *testing.T) {
	r := loadPrograms(t)
	f := r.fails("flood", "{}", 500, "OutputLimitError", "output_limit")
	if f.Extra["limit"] != int64(100000) {
		t.Errorf("%v", f.Extra)
	}
	if pid := pidIn(t, r, "flood.pid"); alive(pid) {
		t.Error("it still runs")
	}
	r.fails("errflood", "{}", 500, "OutputLimitError", "output_limit")
	call := r.call("{}")
	call.MaxOutput = 5
	_, err := r.runCall(context.Background(), "own", call)
	if err != nil {
		t.Errorf("own is 4 bytes long: %v", err)
	}
	call.MaxOutput = 3
	_, err = r.runCall(context.Background(), "own", call)
	wantFailure(t, "own", "", err, 500, "OutputLimitError", "output_limit")
}

func TestCommandRunsOnlyAsOftenAsItMay(t *testing.T) {
	r := loadPrograms(t)
	done := make(chan error, 1)
	go func() {
		_, err := r.run("single", "{}")
		done <- err
	}()
	eventually(t, "the first runs", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "single.on"))
		return err == nil
	})
	f := r.fails("single", "{}", 429, "RateLimited", "concurrency_limited")
	if f.Extra["retry_after"] != int64(1) {
		t.Errorf("%v", f.Extra)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "single.off"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.want("single", "{}", "null")
}

func TestOutputCanBeFollowed(t *testing.T) {
	r := loadPrograms(t)
	call := r.call("{}")
	seen := map[proc.Stream]string{}
	call.Output = func(s proc.Stream, data []byte) error {
		seen[s] += string(data)
		return nil
	}
	got, err := r.runCall(context.Background(), "lines", call)
	if err != nil || got != `"one\nthree"` || seen[proc.Stdout] != "one\nthree" || seen[proc.Stderr] != "two\n" {
		t.Errorf("%s, %v, %q", got, err, seen)
	}
	gone := errors.New("gone")
	call.Output = func(proc.Stream, []byte) error { return gone }
	if _, err := r.runCall(context.Background(), "flood", call); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

func TestManyProgramsAtOnce(t *testing.T) {
	r := loadPrograms(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			s := strconv.Itoa(i)
			got, err := r.run("text", `{"s":"`+s+`"}`)
			if err != nil || got != `"`+s+`"` {
				t.Errorf("%d: %s, %v", i, got, err)
			}
		})
	}
	wg.Wait()
}
