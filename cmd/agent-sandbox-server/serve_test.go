package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestHangupReadsThePolicyAgain(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "p.json"), `{}`)
	r := serveProcess(t, nil, "--policy", file)
	preset := func(name string) {
		t.Helper()
		if status, text := r.get("/capabilities"); status != 200 || !strings.Contains(text, `"preset":"`+name+`"`) {
			t.Errorf("status %d, want preset %s: %.200s", status, name, text)
		}
	}
	preset("default")

	write(t, file, `{"preset":"locked"}`)
	r.signal(syscall.SIGHUP)
	r.log.await(t, `policy read again.* preset=locked`)
	preset("locked")

	// A bad document is refused and the last good one stays.
	for _, bad := range []string{`{"preset":`, `{"endpoints":{"nosuch":{}}}`, `{"auth":{"tokens":[{"id":"a","scopes":["*"],"token_env":"NOT_SET"}]}}`} {
		before := strings.Count(r.log.String(), "the old one stays")
		write(t, file, bad)
		r.signal(syscall.SIGHUP)
		r.log.await(t, `(?s)(the old one stays.*){`+string(rune('1'+before))+`}`)
		preset("locked")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	r.signal(syscall.SIGHUP)
	r.log.await(t, "no such file")
	preset("locked")

	write(t, file, `{"preset":"read-only","auth":{"tokens":[{"id":"a","scopes":["*"],"token_sha256":"`+strings.Repeat("0", 64)+`"}]}}`)
	r.signal(syscall.SIGHUP)
	r.log.await(t, `policy read again.* preset=read-only`)
	if status, _ := r.get("/capabilities"); status != http.StatusUnauthorized {
		t.Errorf("tokens of the new policy are not asked for: %d", status)
	}
	r.signal(syscall.SIGTERM)
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d", status)
	}
}

// upload begins a request and keeps its body open, so that its handler runs.
func (r *running) upload(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	// The head asks to be told when the server reads: then the handler runs.
	head := "POST /capabilities/check HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 21\r\n\r\n"
	if _, err := c.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReaderSize(c, 16).ReadString('\n')
	if err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q %v", line, err)
	}
	return c
}

func TestStopLetsAnOpenRequestFinish(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "30")
	c := r.upload(t)
	r.signal(syscall.SIGTERM)
	r.log.await(t, "stopping")
	awaitRefused(t, r.url) // it accepts nobody any more
	if _, err := c.Write([]byte(`{"endpoint":"health"}`)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(skipBlank(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d", status)
	}
}

// skipBlank passes over what is left of the interim answer.
func skipBlank(c net.Conn) *bufio.Reader {
	b := bufio.NewReader(c)
	for {
		next, err := b.Peek(1)
		if err != nil || next[0] != '\r' && next[0] != '\n' {
			return b
		}
		_, _ = b.Discard(1)
	}
}

func awaitRefused(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = c.Close()
		}
	}
	t.Fatal("it still accepts connections")
}

func TestStopCutsWhoDoesNotFinish(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "0.1")
	c := r.upload(t)
	r.signal(syscall.SIGINT)
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d\n%s", status, r.log)
	}
	if strings.Contains(r.log.String(), "not everything ended") {
		t.Errorf("%s", r.log)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1<<16)); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// post is the JSON answer to one request.
func (r *running) post(path, body string, header ...string) map[string]any {
	r.t.Helper()
	status, text, err := r.ask(http.MethodPost, path, body, header...)
	var out map[string]any
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil || status != http.StatusOK {
		r.t.Fatalf("POST %s: status %d, %v: %.300s", path, status, err, text)
	}
	return out
}

func pidOf(t *testing.T, out map[string]any) int {
	t.Helper()
	pid, ok := out["pid"].(float64)
	if !ok {
		t.Fatalf("no pid in %v", out)
	}
	return int(pid)
}

// alive tells whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
	}
}

// TestStopEndsStreamsAndPrograms: SIGTERM used to cut requests and to leave
// every program behind.
func TestStopEndsStreamsAndPrograms(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "3600")
	background := pidOf(t, r.post("/process/start", `{"command":"sleep 3601"}`))
	stubborn := pidOf(t, r.post("/process/start", `{"args":["sh","-c","trap '' TERM; echo ready; while :; do sleep 1; done"],"capture_output":true}`))
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, text := r.get(fmt.Sprintf("/process/%d/output", stubborn)); strings.Contains(text, "ready") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("no output: %s", text)
		}
	}
	detached := pidOf(t, r.post("/process/start", `{"command":"sleep 3602","detach":true}`))
	t.Cleanup(func() { _ = syscall.Kill(detached, syscall.SIGKILL) })

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/shell/stream",
		strings.NewReader(`{"args":["sh","-c","echo $$; exec sleep 3603"],"timeout":3600}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	streamed := 0
	for streamed == 0 {
		line, err := stream.ReadString('\n')
		if err != nil {
			t.Fatalf("%q %v", line, err)
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			var event struct{ Data string }
			if err := json.Unmarshal([]byte(text), &event); err != nil {
				t.Fatalf("%q %v", line, err)
			}
			streamed, _ = strconv.Atoi(event.Data)
		}
	}

	r.signal(syscall.SIGTERM)
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d\n%s", status, r.log)
	}
	for _, pid := range []int{background, stubborn, streamed} {
		awaitEnd(t, pid)
	}
	if !alive(detached) {
		t.Error("a detached program was ended too")
	}
}

// TestStopAsksACommandWhoseAnswerIsCut: a command that somebody still waited
// for was killed when the time for open requests was over, and could not clean
// up as those in the background could.
func TestStopAsksACommandWhoseAnswerIsCut(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "0.1")
	dir := t.TempDir()
	script := `trap 'echo asked > asked; exit' TERM; echo $$ > began; while :; do sleep 0.05; done`
	body, err := json.Marshal(map[string]any{"args": []string{"sh", "-c", "cd " + dir + "; " + script}, "timeout": 3600})
	if err != nil {
		t.Fatal(err)
	}
	cut := make(chan error, 1)
	go func() {
		_, _, err := r.ask(http.MethodPost, "/shell", string(body))
		cut <- err
	}()
	awaitFile(t, filepath.Join(dir, "began"))
	r.signal(syscall.SIGTERM)
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d\n%s", status, r.log)
	}
	if err := <-cut; err == nil {
		t.Error("the request was not cut")
	}
	if _, err := os.Stat(filepath.Join(dir, "asked")); err != nil {
		t.Error("the command was killed without being asked to end")
	}
}

func awaitFile(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(name); err == nil && len(text) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s", name)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "3600")
	r.upload(t)
	r.signal(syscall.SIGTERM)
	r.log.await(t, "stopping")
	r.signal(syscall.SIGHUP) // is no reason to hurry
	r.signal(syscall.SIGINT)
	if status := r.wait(); status != exitFailed {
		t.Errorf("status %d", status)
	}
}

// TestSecondSignalLeavesNothingBehind: programs that do not heed SIGTERM used
// to outlive a server that was told twice to stop.
func TestSecondSignalLeavesNothingBehind(t *testing.T) {
	r := serveProcess(t, nil, "--shutdown-timeout", "3600")
	stubborn := pidOf(t, r.post("/process/start", `{"args":["sh","-c","trap '' TERM; while :; do sleep 1; done"]}`))
	detached := pidOf(t, r.post("/process/start", `{"command":"sleep 3604","detach":true}`))
	t.Cleanup(func() { _ = syscall.Kill(detached, syscall.SIGKILL) })
	r.upload(t)
	r.signal(syscall.SIGTERM)
	r.log.await(t, "stopping")
	r.signal(syscall.SIGTERM)
	if status := r.wait(); status != exitFailed {
		t.Errorf("status %d", status)
	}
	awaitEnd(t, stubborn)
	if !alive(detached) {
		t.Error("a detached program was ended too")
	}
}

func TestHealthAnswersWhileAHandlerWaits(t *testing.T) {
	r := serveProcess(t, nil)
	r.upload(t)
	if err := waitHealthy(r.url); err != nil {
		t.Error(err)
	}
}

func TestDefaultTerminalPortGivesWay(t *testing.T) {
	busy, err := listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := portOf(busy)
	for _, c := range []struct {
		name              string
		pty, http         int
		named             bool
		wantMoved, failed bool
	}{
		{"free", 0, 1, true, false, false},
		{"default is busy", taken, 1, false, true, false},
		{"default is the HTTP port", taken, taken, false, true, false},
		{"named and busy", taken, 1, true, false, true},
		{"named and the HTTP port", taken, taken, true, false, true},
	} {
		l, moved, err := listenPTY(t.Context(), &config{host: "127.0.0.1", ptyPort: c.pty, ptyNamed: c.named}, c.http)
		if (err != nil) != c.failed || moved != c.wantMoved {
			t.Errorf("%s: moved %v, %v", c.name, moved, err)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "listen error: ") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if portOf(l) == taken || portOf(l) == 0 {
			t.Errorf("%s: port %d", c.name, portOf(l))
		}
		_ = l.Close()
	}
	if l, _, err := listenPTY(t.Context(), &config{host: "192.0.2.1", ptyPort: 0}, 1); err == nil {
		_ = l.Close()
		t.Error("an address of others was listened on")
	}
}

// TestTerminalsAreWhereTheySay: the address in an answer used to be the default
// one wherever terminals were.
func TestTerminalsAreWhereTheySay(t *testing.T) {
	r := serveProcess(t, nil, "--pty-port", "0")
	port := r.log.await(t, `pty=127\.0\.0\.1:(\d+)`)[1]
	status, text, err := r.ask(http.MethodPost, "/pty/sessions", `{"shell":"/bin/sh"}`)
	if err != nil || status >= 300 {
		t.Fatalf("status %d, %v: %s", status, err, text)
	}
	if !strings.Contains(text, ":"+port+"/pty") {
		t.Errorf("terminals are at port %s, the answer says %s", port, text)
	}
	plain, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = plain.Close()
	r.signal(syscall.SIGTERM)
	if status := r.wait(); status != exitOK {
		t.Errorf("status %d", status)
	}
}

// 0.0.0.0 names the IPv4 addresses; the library would take all IPv6 too.
func TestListenTakesNoOtherFamily(t *testing.T) {
	l, err := listen(t.Context(), "0.0.0.0", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := l.Addr().String(); !strings.HasPrefix(got, "0.0.0.0:") {
		t.Errorf("listening on %s", got)
	}
}

func TestCallsAreAwaited(t *testing.T) {
	var c calls
	inside, leave := make(chan struct{}), make(chan struct{})
	ts := httptest.NewServer(c.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(inside)
		<-leave
	})))
	defer ts.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answered := make(chan error, 1)
	go func() {
		res, err := client.Get(ts.URL)
		if err == nil {
			err = res.Body.Close()
		}
		answered <- err
	}()
	<-inside
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("drain ended with a call inside: %v", err)
	}
	if c.enter() {
		t.Error("a call was let in after drain")
	}
	close(leave)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	select {
	case <-c.idle:
	case <-time.After(patience):
		t.Error("the last call was not noticed")
	}
	if res, err := client.Get(ts.URL); err == nil {
		_ = res.Body.Close()
		t.Errorf("a late call was answered: %d", res.StatusCode)
	}
}
