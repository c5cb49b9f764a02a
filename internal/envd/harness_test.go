package envd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/endpoints"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

func TestMain(m *testing.M) {
	proc.Stage()
	goleak.VerifyTestMain(m)
}

// rig is the listener over real rooms, and the HTTP listener beside it.
type rig struct {
	t        *testing.T
	base     string
	url      string // of this dialect
	http     string // of the other
	client   *http.Client
	s        *Server
	rooms    *endpoints.Server
	audit    *lines
	token    string
	stopping chan struct{}
}

type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// newRig serves under a policy document; the base directory is the boundary.
func newRig(t *testing.T, document string, env ...string) *rig {
	t.Helper()
	r := &rig{t: t, base: t.TempDir(), audit: &lines{}, stopping: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files := guardfs.New(func() string { return r.base }, r.base)
	hub := watch.New()
	terminals := pty.New(procs, pty.Options{})
	r.rooms = &endpoints.Server{
		Version: "test", Files: files, Procs: procs, Watches: hub, Terminals: terminals,
		Env: childenv.New(append(os.Environ(), env...)), Workdir: r.base,
	}
	table := r.rooms.Table()
	doc, err := policy.Parse([]byte(document), policy.JSON)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(doc, api.Rows(table), policy.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	audit := api.NewAudit(r.audit, log)
	gate := &api.Gate{
		Policy: func() *policy.Policy { return p }, Limiter: &policy.Limiter{}, Brake: &policy.GuessBrake{},
		Files: files, Audit: audit, Log: log, MaxUpload: func() int64 { return 100 << 20 },
		BodyTimeout: time.Minute, Stopping: r.stopping,
	}
	r.s, err = New(Options{
		Gate: gate, Processes: r.rooms.Background, Terminals: terminals, Watches: hub, Env: r.rooms.Env,
		Confined: true, ReplayBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	ts, other := httptest.NewServer(r.s.Handler()), httptest.NewServer(api.Mount(table, gate))
	r.url, r.http, r.client = ts.URL, other.URL, ts.Client()
	t.Cleanup(func() {
		close(r.stopping)
		ts.Close()
		other.Close()
		r.s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := terminals.Close(ctx); err != nil {
			t.Errorf("closing the terminals: %v", err)
		}
		if err := r.rooms.Contexts.Close(ctx); err != nil {
			t.Errorf("closing the contexts: %v", err)
		}
		if err := procs.Close(ctx); err != nil {
			t.Errorf("closing the process manager: %v", err)
		}
		hub.Close()
		_ = files.Close()
		_ = audit.Close(ctx)
	})
	return r
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// send makes one request and reads the whole answer.
func (r *rig) send(method, url, kind, body string, header ...string) (status int, text string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if r.token != "" {
		req.Header.Set("X-Access-Token", r.token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

type object = map[string]any

// rpc makes a unary call; failed is the code of the failure.
func (r *rig) rpc(method, body string, header ...string) (out object, failed string) {
	r.t.Helper()
	status, text := r.send(http.MethodPost, r.url+"/"+method, "application/json", body, header...)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		r.t.Fatalf("%s: %d %q", method, status, text)
	}
	if status != http.StatusOK {
		return out, out["code"].(string)
	}
	return out, ""
}

// stream makes a streaming call with the messages given and reads it to its
// end; failed is the code of the failure.
func (r *rig) stream(method string, bodies []string, header ...string) (out []object, end object, failed string) {
	r.t.Helper()
	var in []byte
	for _, body := range bodies {
		in = append(binary.BigEndian.AppendUint32(append(in, 0), uint32(len(body))), body...)
	}
	status, text := r.send(http.MethodPost, r.url+"/"+method, "application/connect+json", string(in), header...)
	if status != http.StatusOK {
		r.t.Fatalf("%s: a stream answers %d", method, status)
	}
	for len(text) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32([]byte(text[1:5])))
		var m object
		if err := json.Unmarshal([]byte(text[5:n]), &m); err != nil {
			r.t.Fatalf("%s: %q", method, text[5:n])
		}
		if text[0] == 2 {
			end = m
			if e, ok := m["error"].(object); ok {
				failed = e["code"].(string)
			}
		} else {
			out = append(out, m)
		}
		text = text[n:]
	}
	return out, end, failed
}

// run starts a command and returns what it printed and its end event.
func (r *rig) run(cmd string, header ...string) (stdout string, end object) {
	r.t.Helper()
	body, _ := json.Marshal(object{"process": object{"cmd": "/bin/sh", "args": []string{"-c", cmd}}, "stdin": false})
	out, _, failed := r.stream("process.Process/Start", []string{string(body)}, header...)
	if failed != "" {
		r.t.Fatalf("%s: %s", cmd, failed)
	}
	for _, m := range out {
		e := m["event"].(object)
		if data, ok := e["data"].(object); ok {
			if text, ok := data["stdout"].(string); ok {
				plain, _ := base64.StdEncoding.DecodeString(text)
				stdout += string(plain)
			}
		}
		if over, ok := e["end"].(object); ok {
			end = over
		}
	}
	return stdout, end
}
