package endpoints

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOutputByCursor(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(script("echo a; sleep 0.1; echo b >&2; sleep 0.1; printf 'c\\377'; exit 3", "capture_output", true))
	r.ended(pid)
	path := processPath(pid, "/output")
	_, whole := r.call("GET", path, nil)
	if whole["next"] != 3.0 || whole["first"] != 0.0 || whole["dropped"] != false || whole["state"] != "exited" || whole["exit_code"] != 3.0 {
		t.Errorf("%v", whole)
	}
	events := whole["events"].([]any)
	want := []any{
		map[string]any{"seq": 0.0, "stream": "stdout", "data": "a\n"},
		map[string]any{"seq": 1.0, "stream": "stderr", "data": "b\n"},
		map[string]any{"seq": 2.0, "stream": "stdout", "data": "c\ufffd"},
	}
	if d := cmp.Diff(want, events); d != "" {
		t.Error(d)
	}
	exact := func(i int, b64 string) any {
		e := maps.Clone(want[i].(map[string]any))
		e["data_base64"] = b64
		return e
	}
	for query, c := range map[string]struct {
		events []any
		next   float64
	}{
		"?since=-7":                       {want, 3},
		"?since=1":                        {want[1:], 3},
		"?since=99":                       {[]any{}, 3},
		"?since=99999999999999999999":     {[]any{}, 3},
		"?limit=1":                        {want[:1], 1},
		"?limit=1&since=1":                {want[1:2], 2},
		"?limit=3":                        {want, 3},
		"?stream=stderr":                  {want[1:2], 3},
		"?stream=stdout&limit=1":          {want[:1], 1},
		"?stream=stdout&since=1&wait=1e9": {want[2:], 3},
		"?since=2&encoding=base64":        {[]any{exact(2, "Y/8=")}, 3},
	} {
		_, out := r.call("GET", path+query, nil)
		if d := cmp.Diff(c.events, out["events"]); d != "" || out["next"] != c.next {
			t.Errorf("%s: next %v\n%s", query, out["next"], d)
		}
	}
	for _, bad := range []string{"since=x", "since=1.5", "since=0x1", "wait=x", "wait=nan", "wait=inf", "limit=0", "limit=x", "stream=stdin", "encoding=hex"} {
		for _, follow := range []string{"", "&follow=1"} {
			status, out := r.call("GET", path+"?"+bad+follow, nil)
			wantError(t, bad+follow, status, out, 400, "")
		}
	}
	pid = r.start(body{"command": "true"})
	status, out := r.call("GET", processPath(pid, "/output"), nil)
	if status != 409 || out["type"] != "ConflictError" {
		t.Errorf("not captured: %d %v", status, out)
	}
}

func TestLongPollAnswersAtTheFirstEvent(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(body{"command": "cat", "capture_output": true, "stdin": true})
	path := processPath(pid, "/output")
	answers := make(chan map[string]any)
	go func() {
		_, out := r.call("GET", path+"?wait=30", nil)
		answers <- out
	}()
	r.call("POST", processPath(pid, "/stdin"), body{"data": "x"})
	if out := <-answers; joined(out) != "x" || out["state"] != "running" || out["exit_code"] != nil {
		t.Errorf("%v", out)
	}
	go func() {
		_, out := r.call("GET", path+"?wait=30&since=1", nil)
		answers <- out
	}()
	r.call("POST", processPath(pid, "/stdin"), body{"eof": true})
	if out := <-answers; joined(out) != "" || out["state"] != "exited" {
		t.Errorf("%v", out)
	}
}

func TestFollowSendsOutputAndThenExit(t *testing.T) {
	r := newRig(t, rigOptions{})
	pid := r.start(script("echo a; sleep 0.2; printf 'b\\377' >&2; kill -TERM $$", "capture_output", true))
	path := processPath(pid, "/output")
	want := []event{
		{"output", map[string]any{"seq": 0.0, "stream": "stdout", "data": "a\n"}},
		{"output", map[string]any{"seq": 1.0, "stream": "stderr", "data": "b\ufffd"}},
		{"exit", map[string]any{"exit_code": -15.0, "signal": "SIGTERM", "reason": "signaled", "next": 2.0}},
	}
	same := func(what string, want, got []event) {
		t.Helper()
		if d := cmp.Diff(want, got, cmp.AllowUnexported(event{})); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	same("live", want, r.events("GET", path+"?follow=1", nil))
	same("afterwards, by Accept", want, r.events("GET", path, nil, "Accept", "text/html, Text/Event-Stream;q=0.9"))
	same("since", want[1:], r.events("GET", path+"?follow=true&since=1", nil))
	same("behind the end", want[2:], r.events("GET", path+"?follow=1&since=2", nil))
	same("one stream", []event{want[0], want[2]}, r.events("GET", path+"?follow=1&stream=stdout", nil))
	same("limit", want[:1], r.events("GET", path+"?follow=1&limit=1", nil))
	got := r.events("GET", path+"?follow=1&encoding=base64&since=1", nil)
	if got[0].data["data_base64"] != base64.StdEncoding.EncodeToString([]byte("b\xff")) {
		t.Errorf("exact: %v", got)
	}
	status, out := r.call("GET", "/process/999999/output?follow=1", nil)
	wantError(t, "unknown", status, out, 404, "")
	res := r.do("HEAD", path+"?follow=1", nil)
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("HEAD: %d", res.StatusCode)
	}
}

func TestFollowTellsWhatIsLost(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"limits":{"max_output_bytes":20000}}}}`})
	pid := r.start(body{"command": "seq 1 40000", "capture_output": true})
	r.ended(pid)
	events := r.events("GET", processPath(pid, "/output?follow=1"), nil)
	if events[0].name != "dropped" || events[0].data["since"] != 0.0 || events[0].data["first"] != events[1].data["seq"] {
		t.Errorf("begins with %v, %v", events[0], events[1])
	}
	text := ""
	for _, e := range events {
		text += e.text()
	}
	if len(text) == 0 || len(text) > 20_000 || !strings.HasSuffix(text, "\n39999\n40000\n") {
		t.Errorf("%d bytes kept", len(text))
	}
	_, out := r.call("GET", processPath(pid, "/output"), nil)
	if out["dropped"] != true || out["first"] != events[1].data["seq"] || joined(out) != text {
		t.Errorf("page: dropped %v, first %v", out["dropped"], out["first"])
	}
}

// rereader follows a process through connections that are cut again and again,
// and comes back with its cursor each time.
type rereader struct {
	r    *rig
	path string
	next int64
	got  bytes.Buffer
	cuts int
}

// read takes up to n events in one connection; over says that the end came.
func (x *rereader) read(n int) (over bool, err error) {
	a := x.r.open("GET", x.path+"&since="+strconv.FormatInt(x.next, 10), nil)
	defer a.hangUp()
	if a.status != http.StatusOK {
		return false, fmt.Errorf("status %d", a.status)
	}
	var bad error
	_, err = readEvents(a.body, func(e event) bool {
		switch e.name {
		case "exit":
			over = true
		case "output":
			if seq := int64(e.data["seq"].(float64)); seq != x.next {
				bad = fmt.Errorf("event %d, want %d", seq, x.next)
			}
			x.next++
			x.got.WriteString(e.text())
		default:
			bad = fmt.Errorf("event %v", e)
		}
		n--
		return n > 0 && bad == nil
	})
	x.cuts++
	return over, errors.Join(bad, err)
}

func TestReaderThatComesBackGetsEveryByteOnce(t *testing.T) {
	cuts := 500
	if testing.Short() {
		cuts = 50
	}
	r := newRig(t, rigOptions{policy: `{"endpoints":{"process_start":{"limits":{"max_output_bytes":8388608}}}}`})
	// The program prints as long as readers come and go.
	pid := r.start(script(`i=0; while [ ! -e stop ]; do i=$((i+1)); echo "$i é☃"; sleep 0.001; done; echo end`, "capture_output", true, "cwd", r.base, "env", body{"LC_ALL": "C.UTF-8"}))
	path := processPath(pid, "/output?follow=1")
	readers := make([]*rereader, 4)
	errs := make(chan error)
	for i := range readers {
		x := &rereader{r: r, path: path}
		readers[i] = x
		go func() {
			over, err := false, error(nil)
			for !over && err == nil {
				n := 1 + x.cuts%7
				if x.cuts >= cuts/len(readers) {
					n = 1 << 30 // to the end
				}
				over, err = x.read(n)
				if x.cuts == cuts/len(readers) {
					r.tryWrite("stop"+strconv.Itoa(i), "")
				}
			}
			errs <- err
		}()
	}
	eventually(t, "every reader has had its cuts", func() bool {
		for i := range readers {
			if _, err := os.Stat(r.base + "/stop" + strconv.Itoa(i)); err != nil {
				return false
			}
		}
		return true
	})
	r.tryWrite("stop", "")
	for range readers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	var want strings.Builder
	text := readers[0].got.String()
	for i := 1; i < strings.Count(text, "\n"); i++ {
		fmt.Fprintf(&want, "%d é☃\n", i)
	}
	want.WriteString("end\n")
	for i, x := range readers {
		if got := x.got.String(); got != want.String() {
			t.Errorf("reader %d: %d bytes after %d cuts, want %d", i, len(got), x.cuts, want.Len())
		}
	}
}

// tryWrite writes a file below the base; a test sees by its effect that it
// failed.
func (r *rig) tryWrite(name, content string) {
	_ = os.WriteFile(r.base+"/"+name, []byte(content), 0o600)
}

func TestMemoryStaysFlatWhateverIsFollowed(t *testing.T) {
	size := 256 << 20
	if os.Getenv("ABX_TEST_LARGE") != "" {
		size = 1 << 30
	} else if testing.Short() {
		size = 32 << 20
	}
	r := newRig(t, rigOptions{})
	stop := make(chan struct{})
	peak := make(chan uint64)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		var most uint64
		for {
			select {
			case <-stop:
				peak <- most
				return
			default:
			}
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			time.Sleep(5 * time.Millisecond) // between two looks
		}
	}()
	pid := r.start(script("yes 0123456789abcdef | head -c "+strconv.Itoa(size), "capture_output", true))
	res := r.do("GET", processPath(pid, "/output?follow=1"), nil)
	tail := &lastBytes{}
	n, err := io.Copy(tail, res.Body)
	res.Body.Close()
	close(stop)
	grown := int64(<-peak) - int64(before.HeapInuse)
	if err != nil || n == 0 || !bytes.Contains(tail.b, []byte("event: exit")) {
		t.Errorf("%d bytes, %v, ends with %q", n, err, tail.b)
	}
	if grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if over := len(l.b) - 256; over > 0 {
		l.b = l.b[:copy(l.b, l.b[over:])]
	}
	return len(p), nil
}
