package pty

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestMain(m *testing.M) {
	proc.Stage()
	goleak.VerifyTestMain(m)
}

// newManager makes a manager that is closed at the end of the test.
func newManager(t testing.TB, o Options) *Manager {
	t.Helper()
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := New(procs, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := procs.Close(ctx); err != nil {
			t.Errorf("Close of processes: %v", err)
		}
	})
	return m
}

// shell is a spec of a plain shell with a short prompt.
func shell(args ...string) Spec {
	return Spec{
		Program: proc.Spec{
			Path: "/bin/sh", Argv: append([]string{"sh"}, args...),
			Env: []string{"PATH=" + os.Getenv("PATH"), "PS1=$ ", "TERM=xterm", "HOME=/nonexistent"},
		},
		Cols: 80, Rows: 24, MaxSessions: 2000,
	}
}

func create(t testing.TB, m *Manager, spec Spec) *Session {
	t.Helper()
	s, _, err := m.Create(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve serves the sessions of m over WebSockets as the real door does.
func serve(t testing.TB, m *Manager) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			return
		}
		q := r.URL.Query()
		s, err := m.Get(q.Get("session_id"), Viewer{All: true})
		if err != nil {
			_ = c.Close(1008, "unknown session")
			return
		}
		since := int64(-1)
		if v := q.Get("since"); v != "" {
			since, _ = strconv.ParseInt(v, 10, 64)
		}
		_ = Serve(r.Context(), c, s, ServeOptions{Since: since, ReadOnly: q.Get("readonly") != ""})
	}))
	t.Cleanup(srv.Close)
	return srv
}

func dial(t testing.TB, srv *httptest.Server, s *Session, extra string, protocols ...string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	u := "ws" + strings.TrimPrefix(srv.URL, "http") + "/pty?session_id=" + s.ID() + extra
	ws, _, err := websocket.Dial(ctx, u, &websocket.DialOptions{Subprotocols: protocols}) //nolint:bodyclose // Dial says that it needs no closing
	if err != nil {
		t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}
