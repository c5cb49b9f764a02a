package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// patience is how long anything may take before a test says it hangs.
const patience = 30 * time.Second

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// body is a request's JSON object.
type body map[string]any

// script is a body that runs a shell script; more sets further members.
func script(text string, more ...any) body {
	b := body{"args": []string{"bash", "-c", text}}
	for i := 0; i+1 < len(more); i += 2 {
		b[more[i].(string)] = more[i+1]
	}
	return b
}

// trial marks everything that a command starts, by its environment.
type trial struct {
	t    *testing.T
	name string
}

func newTrial(t *testing.T) trial {
	t.Helper()
	return trial{t, fmt.Sprintf("TRIAL=%s-%d", t.Name(), time.Now().UnixNano())}
}

func (x trial) env() map[string]string {
	name, value, _ := strings.Cut(x.name, "=")
	return map[string]string{name: value}
}

// living are the processes of the trial that run.
func (x trial) living() []int {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		x.t.Fatal(err)
	}
	var out []int
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if !bytes.Contains(text, []byte(x.name+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if s := processState(pid); s != "" && s != "Z" && s != "X" {
			out = append(out, pid)
		}
	}
	return out
}

func (x trial) gone(when string) {
	x.t.Helper()
	eventually(x.t, "no process left "+when, func() bool { return len(x.living()) == 0 })
}

// processState is the letter of /proc/<pid>/stat, "" when there is none.
func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	return f[0]
}

// event is one server-sent event.
type event struct {
	name string
	data map[string]any
}

func (e event) text() string { s, _ := e.data["data"].(string); return s }

// events reads a stream to its end.
func (r *rig) events(method, path string, in any, header ...string) []event {
	r.t.Helper()
	res := r.do(method, path, in, header...)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(res.Body)
		r.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	out, err := readEvents(res.Body, func(event) bool { return true })
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return out
}

// readEvents reads events until one is not wanted any more. What is cut off in
// the middle is no event.
func readEvents(src io.Reader, more func(event) bool) ([]event, error) {
	var out []event
	var now event
	in := bufio.NewReaderSize(src, 256<<10)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "event: "):
			now.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			if err := json.Unmarshal([]byte(line[len("data: "):]), &now.data); err != nil {
				return out, err
			}
		case line == "" && now.name != "":
			out = append(out, now)
			if !more(now) {
				return out, nil
			}
			now = event{}
		}
	}
}

// opened is an answer that a test may cut.
type opened struct {
	status int // 0: cut before the answer began
	body   io.Reader
	hangUp func()
}

// open begins a request that hangUp cuts. The caller calls it in any case.
func (r *rig) open(method, path string, in any) opened {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	a := r.openIn(ctx, method, path, in)
	closeBody := a.hangUp
	a.hangUp = func() { cancel(); closeBody() }
	return a
}

func (r *rig) openIn(ctx context.Context, method, path string, in any) opened {
	text, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	res, err := r.http.Do(req) //nolint:bodyclose // hangUp closes it
	if err != nil {
		return opened{body: strings.NewReader(""), hangUp: func() {}}
	}
	return opened{res.StatusCode, res.Body, func() { _ = res.Body.Close() }}
}

// start starts a background process.
func (r *rig) start(in body) int {
	r.t.Helper()
	status, out := r.call("POST", "/process/start", in)
	if status != http.StatusOK {
		r.t.Fatalf("start: %d %v", status, out)
	}
	return int(out["pid"].(float64))
}

func processPath(pid int, more ...string) string {
	return "/process/" + strconv.Itoa(pid) + strings.Join(more, "")
}

// ended waits for a process to end and returns its record.
func (r *rig) ended(pid int) map[string]any {
	r.t.Helper()
	status, out := r.call("GET", processPath(pid, "?wait=60"), nil)
	if status != http.StatusOK || out["state"] != "exited" {
		r.t.Fatalf("wait for %d: %d %v", pid, status, out)
	}
	return out
}

// output reads all output of an ended process, joined.
func (r *rig) output(pid int) string {
	r.t.Helper()
	_, out := r.call("GET", processPath(pid, "/output"), nil)
	return joined(out)
}

func joined(page map[string]any) string {
	var text strings.Builder
	list, _ := page["events"].([]any)
	for _, e := range list {
		text.WriteString(e.(map[string]any)["data"].(string))
	}
	return text.String()
}

// exitOf is the last event, if it is the one that ends a stream.
func exitOf(events []event) (event, bool) {
	if len(events) == 0 {
		return event{}, false
	}
	last := events[len(events)-1]
	return last, last.name == "exit"
}

// TestAQuickCommandPastItsOutputLimitIsToldSo: whether the caller heard of the
// limit hung on whether the command had ended before its output was read.
func TestAQuickCommandPastItsOutputLimitIsToldSo(t *testing.T) {
	r := newRig(t, rigOptions{})
	feed := proc.NewFeed()
	p, err := r.srv.Procs.Start(t.Context(), proc.Spec{Path: "/bin/echo", Argv: []string{"echo", "0123456789"}, Dir: r.base, Output: feed})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(t.Context()); err != nil || st.Reason != proc.ReasonExited {
		t.Fatalf("%+v %v", st, err)
	}
	st, err := deliver(t.Context(), p, feed, full{})
	if err != nil || st.Reason != proc.ReasonOutputLimit || st.Code != -9 {
		t.Errorf("%+v %v", st, err)
	}
}

// full is a stream that has reached its limit.
type full struct{}

func (full) put(proc.Stream, []byte) error { return errOutputLimit }
func (full) end() error                    { return nil }

// A wish of the wrong type was taken for none: the caller got text where it
// had asked for bytes, and lines where it had asked for pieces.
func TestAWishOfTheWrongTypeIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, trial := range []struct {
		path, field string
		value       any
	}{
		{"/shell", "encoding", true},
		{"/shell", "keep", []string{"tail"}},
		{"/shell/stream", "mode", 1},
	} {
		status, out := r.call("POST", trial.path, body{"command": "true", trial.field: trial.value})
		if status != http.StatusBadRequest || out["type"] != "ValueError" {
			t.Errorf("%s %s: %d %v", trial.path, trial.field, status, out)
		}
		if status, _ := r.call("POST", "/shell", body{"command": "true", "encoding": nil, "keep": nil}); status != http.StatusOK {
			t.Errorf("null: %d", status)
		}
	}
}
