package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// Options say what to load, and what commands stand on.
type Options struct {
	// Items are manifests (.yaml, .yml, .json), Python files and Python modules,
	// in order: of commands of the same name the last counts.
	Items []string
	// Attached are the pipes to a Python program that started the server and
	// runs its commands: what it says, and what it is told. The registry takes
	// them over.
	Attached [2]*os.File

	Procs   *proc.Manager
	Env     *childenv.Store
	Workdir string // the server's
	Log     *slog.Logger

	// Python is the interpreter to use, a path or a name; "" looks for one.
	Python string
	// Stdout and Stderr take what Python code prints.
	Stdout, Stderr *os.File
	// Secret tells which variables Python code may not see.
	Secret func(name string) bool
	// Threads is how many Python functions may run at once; 0 is 256.
	Threads int
	// Timeout is the time limit of Python commands that have no other; 0 is none.
	Timeout time.Duration
	// Version is what the Python side says it is.
	Version string

	// Tests do not wait as long; 0 is the constants of the same name.
	pauseMost, waitMost, exitPatience time.Duration
}

// host is what commands stand on.
type host struct {
	procs   *proc.Manager
	workdir string
}

// LoadError is an item that cannot be loaded.
type LoadError struct {
	Item  string
	Text  string
	Trace string // a Python traceback, "" when there is none
	Err   error
}

func (e *LoadError) Error() string { return e.Item + ": " + e.Text }
func (e *LoadError) Unwrap() error { return e.Err }

// Load loads all items. Python files are loaded by a worker process, which
// must be there before manifests are used too, so that nothing is half
// loaded; this may take as long as their imports do. When it fails, or ctx
// ends, nothing is left running. The error is a [*LoadError], a
// [*ManifestError] or that of ctx. Close ends what Load started.
func Load(ctx context.Context, o Options) (*Registry, error) {
	h := &host{procs: o.Procs, workdir: o.Workdir}
	r := &Registry{groups: map[string]bool{}}
	manifests := make([]*manifest, len(o.Items))
	var python []string
	var at []int // where the Python items stand among all
	for i, item := range o.Items {
		if !isManifest(item) {
			python, at = append(python, item), append(at, i)
			continue
		}
		m, err := h.loadManifest(item)
		if err != nil {
			return nil, err
		}
		manifests[i] = m
	}
	if len(python) > 0 && o.Attached[0] != nil {
		return nil, &LoadError{Item: python[0], Text: "Python files are loaded by the program that started the server"}
	}
	said := &hello{}
	if len(python) > 0 || o.Attached[0] != nil {
		p, first, err := startPython(ctx, o, python)
		if err != nil {
			return nil, err
		}
		r.python, said = p, first
	}
	r.merge(manifests, said, at)
	return r, nil
}

// merge takes the commands of all items in, as if each item registered its own
// in turn.
func (r *Registry) merge(manifests []*manifest, said *hello, at []int) {
	// Item 0 is what was registered before any item: an attached program's.
	for item := 0; item <= len(at); item++ {
		if item > 0 {
			for i := before(at, item); i < at[item-1]; i++ {
				r.addManifest(manifests[i])
			}
		}
		for _, c := range said.Commands {
			// A command registered again later takes its place here already; the
			// definition that counts comes with its own item.
			if c.First == item || c.Item == item {
				r.add(r.python.command(c))
			}
		}
	}
	for i := before(at, len(at)+1); i < len(manifests); i++ {
		r.addManifest(manifests[i])
	}
	maps.Copy(r.groups, said.Groups)
	for _, route := range said.Routes {
		r.routes = append(r.routes, r.python.route(route))
	}
	r.start = said.Start
}

// before is the first item after Python item number n-1.
func before(at []int, n int) int {
	if n <= 1 {
		return 0
	}
	return at[n-2] + 1
}

func (r *Registry) addManifest(m *manifest) {
	if m == nil {
		return
	}
	for _, c := range m.commands {
		r.add(c)
	}
	maps.Copy(r.groups, m.groups)
}

// Start is what a Python file called start with.
type Start struct {
	Port    *int            `json:"port"`
	Host    *string         `json:"host"`
	PTYPort *int            `json:"pty_port"`
	Policy  json.RawMessage `json:"policy"` // a document, or nil
}

// Ready tells whether commands can run now: false while the Python worker
// starts anew.
func (r *Registry) Ready() bool { return r.python == nil || r.python.ready() }

// Ended is closed when Python code wants the server to stop, or the program it
// serves has ended. It is nil when there is no Python.
func (r *Registry) Ended() <-chan struct{} {
	if r.python == nil {
		return nil
	}
	return r.python.stopAsked
}

// SetEnv makes a change of the server's variables known to Python code.
func (r *Registry) SetEnv(set map[string]string, unset []string) {
	if r.python != nil {
		r.python.setEnv(set, unset)
	}
}

// Close ends the Python worker: it is told to, so that code after start()
// runs, and ended when it has not in a moment or when ctx ends.
func (r *Registry) Close(ctx context.Context) error {
	if r.python == nil {
		return nil
	}
	return r.python.close(ctx)
}

func (o *Options) environment() map[string]string {
	env := o.Env.Now()
	maps.DeleteFunc(env, func(name, _ string) bool { return o.Secret != nil && o.Secret(name) })
	return env
}

// FindPython finds an interpreter on a PATH: the one that is named, a path or a
// name, or else the usual ones. dir is where relative names begin.
func FindPython(named, path, dir string) (string, error) {
	names := []string{"python3", "python"}
	if named != "" {
		names = []string{named}
	}
	for _, name := range names {
		if file, err := proc.LookPath(name, path, dir); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("needs a Python interpreter; there is no %s", strings.Join(names, " or "))
}
