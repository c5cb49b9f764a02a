package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// environment is the test's own as a map.
func environment() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		name, v, _ := strings.Cut(kv, "=")
		env[name] = v
	}
	return env
}

// needBrowser skips a test where there is no browser, unless one is promised.
func needBrowser(t testing.TB) {
	t.Helper()
	if find(environment()) != "" {
		return
	}
	if os.Getenv("BROWSER_TESTS") == "1" || os.Getenv("CI") == "true" {
		t.Fatal("no browser is installed, and BROWSER_TESTS=1 or CI=true says that there is one")
	}
	t.Skip("no browser is installed (BROWSER_TESTS=1 makes this a failure)")
}

// rig is a browser with an internet of its own, in which two public sites are,
// page.test and other.test, both served by one handler.
type rig struct {
	t    testing.TB
	b    *Browser
	net  *internet
	rule *policy.Rule
	mux  *http.ServeMux

	mu   sync.Mutex
	hits []string // "host path"
}

const (
	pageAddr  = "93.184.216.34"
	otherAddr = "93.184.216.35"
)

func newRig(t testing.TB, params string, o Options) *rig {
	t.Helper()
	needBrowser(t)
	r := &rig{t: t, net: newInternet(), rule: ruleOf(t, params), mux: http.NewServeMux()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.hits = append(r.hits, q.Host+" "+q.URL.Path)
		r.mu.Unlock()
		w.Header().Set("Access-Control-Allow-Origin", "*")
		r.mux.ServeHTTP(w, q)
	}))
	for name, addr := range map[string]string{"page.test": pageAddr, "other.test": otherAddr} {
		r.net.names[name] = [][]string{{addr}}
		r.net.hosts[net.JoinHostPort(addr, "80")] = srv.Listener.Addr().String()
	}
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Names, o.Dialer = r.net, r.net
	o.Log = slog.New(slog.NewTextHandler(logTo{t}, nil))
	r.b = New(procs, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		profile := r.b.profile
		if err := r.b.Close(ctx); err != nil {
			t.Errorf("closing the browser: %v", err)
		}
		if profile != "" {
			if left := using(profile); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
			if _, err := os.Stat(profile); err == nil {
				t.Errorf("%s is left", profile)
			}
		}
		if err := procs.Close(ctx); err != nil {
			t.Errorf("closing the process manager: %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
		if wrong := r.net.wrong(); len(wrong) > 0 {
			t.Errorf("dialled what is forbidden: %v", wrong)
		}
	})
	return r
}

type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// using lists the processes that have a word in their arguments.
func using(word string) []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), word) {
			out = append(out, filepath.Base(filepath.Dir(f)))
		}
	}
	return out
}

// serve gives a path of both sites an HTML page.
func (r *rig) serve(path, html string) {
	r.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html>"+html)
	})
}

func (r *rig) seen(hit string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, h := range r.hits {
		if h == hit {
			n++
		}
	}
	return n
}

func (r *rig) ask(tab string) Ask { return Ask{Rule: r.rule, Env: environment, Tab: tab} }

// do is Browser.Do with a generous time.
func (r *rig) do(act func(context.Context, *Page) error) error {
	return r.b.Do(r.t.Context(), r.ask(""), 30*time.Second, act)
}

func (r *rig) open(url string, until Until) (v Visit, err error) {
	err = r.do(func(ctx context.Context, p *Page) (err error) {
		v, err = p.Navigate(ctx, url, until)
		return err
	})
	return v, err
}

func (r *rig) mustOpen(url string) Visit {
	r.t.Helper()
	v, err := r.open(url, Load)
	if err != nil {
		r.t.Fatalf("%s: %v", url, err)
	}
	return v
}

// js runs a script and decodes its value.
func (r *rig) js(script string) any {
	r.t.Helper()
	var got any
	err := r.do(func(ctx context.Context, p *Page) error {
		text, err := p.Evaluate(ctx, script)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &got)
	})
	if err != nil {
		r.t.Fatalf("%s: %v", script, err)
	}
	return got
}

// eventually waits for what must come.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
