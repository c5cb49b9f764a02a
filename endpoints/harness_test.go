package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
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

// rig is a whole server without the program around it: the real table behind
// the real gate on a loopback listener.
type rig struct {
	t     *testing.T
	base  string
	url   string
	table []api.Endpoint
	srv   *Server
	gate  *api.Gate
	audit *lockedBuffer
	http  *http.Client
	token string
}

type rigOptions struct {
	policy  string // a JSON document; "" is {}
	env     map[string]string
	origins api.Allowlist
	prepare func(*Server) // before the table is made
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	base := t.TempDir()
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	env := append(os.Environ(), "ABX_SERVER_TOKEN=never-shown")
	for k, v := range o.env {
		env = append(env, k+"="+v)
	}
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files := guardfs.New(func() string { return base }, base)
	hub := watch.New()
	terminals := pty.New(procs, pty.Options{})
	contexts := devtools.NewContexts(procs, devtools.ContextOptions{})
	s := &Server{Version: "test", Files: files, Procs: procs, Watches: hub, Terminals: terminals, Contexts: contexts, Env: childenv.New(env), Workdir: base}
	if o.prepare != nil {
		o.prepare(s)
	}
	table := s.Table()
	doc := policy.Empty()
	if o.policy != "" {
		if doc, err = policy.Parse([]byte(o.policy), policy.JSON); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.Compile(doc, api.Rows(table), policy.Options{Getenv: func(n string) string { return o.env[n] }})
	if err != nil {
		t.Fatal(err)
	}
	lines := &lockedBuffer{}
	audit := api.NewAudit(lines, log)
	stopping := make(chan struct{})
	gate := &api.Gate{
		Policy: func() *policy.Policy { return p }, Limiter: &policy.Limiter{}, Brake: &policy.GuessBrake{},
		Files: files, Audit: audit, Log: log, Origins: o.origins,
		MaxUpload: func() int64 { return 100 << 20 }, BodyTimeout: time.Minute, Stopping: stopping,
	}
	ts := httptest.NewServer(api.Mount(table, gate))
	t.Cleanup(func() {
		close(stopping)
		ts.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := terminals.Close(ctx); err != nil {
			t.Errorf("closing the terminals: %v", err)
		}
		if err := s.Commands.Close(ctx); err != nil {
			t.Errorf("closing the commands: %v", err)
		}
		if err := contexts.Close(ctx); err != nil {
			t.Errorf("closing the contexts: %v", err)
		}
		if err := procs.Close(ctx); err != nil {
			t.Errorf("closing the process manager: %v", err)
		}
		hub.Close()
		_ = files.Close()
		_ = audit.Close(ctx)
	})
	return &rig{t: t, base: base, url: ts.URL, table: table, srv: s, gate: gate, audit: lines, http: ts.Client()}
}

// do sends one request; body may be nil, a string sent as it is, or a value
// sent as JSON.
func (r *rig) do(method, path string, body any, header ...string) *http.Response {
	r.t.Helper()
	var src io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		src = strings.NewReader(b)
	case io.Reader:
		src = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		src = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, src)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.http.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// call is do for a JSON answer.
func (r *rig) call(method, path string, body any, header ...string) (int, map[string]any) {
	r.t.Helper()
	res := r.do(method, path, body, header...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	out := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			r.t.Fatalf("%s %s: %d %v: %.200q", method, path, res.StatusCode, err, text)
		}
	}
	return res.StatusCode, out
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// unsized hides the length of a body, so that it is sent in chunks.
func unsized(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }
