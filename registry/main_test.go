package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestMain(m *testing.M) {
	proc.Stage()
	goleak.VerifyTestMain(m)
}

// patience is the deadline of everything that is waited for.
const patience = 60 * time.Second

// python3 is a real interpreter: a wrapper would start anew what it starts.
// TEST_PYTHON names another than the usual one.
func python3(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("TEST_PYTHON"); path != "" {
		return path
	}
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := proc.LookPath("python3", os.Getenv("PATH"), "/")
	if err != nil {
		t.Skip("no python3 here")
	}
	return path
}

func newProcs(t testing.TB) *proc.Manager {
	t.Helper()
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := procs.Close(ctx); err != nil {
			t.Errorf("closing the process manager: %v", err)
		}
	})
	return procs
}

// logged collects what is logged and what workers print.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rig is a loaded registry in a directory of its own.
type rig struct {
	*Registry
	t      testing.TB
	dir    string
	env    *childenv.Store
	log    *logged
	stdout string // a file
}

// files are written to the directory before items are loaded; items that are
// names of files are made absolute.
func load(t testing.TB, files map[string]string, change func(*Options), items ...string) *rig {
	t.Helper()
	r, err := tryLoad(t, files, change, items...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryLoad(t testing.TB, files map[string]string, change func(*Options), items ...string) (*rig, error) {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &logged{}}
	for name, text := range files {
		file := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, item := range items {
		if _, ok := files[item]; ok {
			items[i] = filepath.Join(r.dir, item)
		}
	}
	r.env = childenv.New(append(os.Environ(), "ABX_SERVER_TOKEN=never-shown"))
	r.stdout = filepath.Join(r.dir, "stdout.log")
	out, err := os.Create(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	o := Options{
		Items: items, Procs: newProcs(t), Env: r.env, Workdir: r.dir, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Stdout: out, Stderr: out, Version: "test",
		Secret: func(name string) bool { return name == "ABX_SERVER_TOKEN" },
	}
	for _, item := range items {
		if !isManifest(item) {
			o.Python = python3(t)
		}
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.Registry, err = Load(ctx, o); err != nil {
		return nil, err
	}
	r.env.Watch(r.SetEnv)
	t.Cleanup(r.close)
	return r, nil
}

func (r *rig) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.Errorf("closing: %v", err)
	}
}

// printed is what Python code printed so far.
func (r *rig) printed() string {
	text, err := os.ReadFile(r.stdout)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// call is a call with arguments in JSON.
func (r *rig) call(args string) Call {
	var values map[string]any
	dec := json.NewDecoder(strings.NewReader(args))
	dec.UseNumber()
	if err := dec.Decode(&values); err != nil {
		r.t.Fatalf("%s: %v", args, err)
	}
	return Call{
		Object: []byte(args), Values: func() map[string]any { return values },
		Env: func() map[string]string { return r.env.Now() }, Dir: r.dir,
	}
}

func (r *rig) run(name, args string) (string, error) {
	r.t.Helper()
	return r.runCall(context.Background(), name, r.call(args))
}

func (r *rig) runCall(ctx context.Context, name string, call Call) (string, error) {
	r.t.Helper()
	cmd := r.Lookup(name)
	if cmd == nil {
		r.t.Fatalf("no command %q", name)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result, err := cmd.Run(ctx, call)
	return string(result), err
}

// want runs a command and compares its result.
func (r *rig) want(name, args, want string) {
	r.t.Helper()
	got, err := r.run(name, args)
	if err != nil || got != want {
		r.t.Errorf("%s %s: %s, %v; want %s", name, args, got, err, want)
	}
}

// fails runs a command that must fail.
func (r *rig) fails(name, args string, status int, typ, code string) seen {
	r.t.Helper()
	got, err := r.run(name, args)
	return wantFailure(r.t, name+" "+args, got, err, status, typ, code)
}

func wantFailure(t testing.TB, what, got string, err error, status int, typ, code string) seen {
	t.Helper()
	f, ok := errors.AsType[*Failure](err)
	if !ok {
		t.Fatalf("%s: %s, %v; want a failure", what, got, err)
	}
	if f.Status != status || f.Type != typ || f.Code != code {
		t.Errorf("%s: %d %s %q (%s); want %d %s %q", what, f.Status, f.Type, f.Code, f.Text, status, typ, code)
	}
	return seen{f.Text, f.Extra}
}

// seen is the rest of a failure, for those who look closer.
type seen struct {
	Text  string
	Extra map[string]any
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
