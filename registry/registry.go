// Package registry holds the named commands of a server: what they are called,
// which arguments they take, and how they run. Commands come from manifests,
// which name programs, and from Python files, which a worker process loads;
// callers see no difference.
package registry

import (
	"context"
	"slices"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// Command is one named command as callers may know it. It never changes once a
// registry holds it.
type Command struct {
	Name        string
	Description string
	Hidden      bool     // left out of listings, runs normally
	Scopes      []string // a caller needs all of them
	Args        []Arg
	Source      string // "python" or "manifest"

	run func(context.Context, Call) ([]byte, error)
}

// Run runs the command and returns its result, one JSON value. A failure that
// is the caller's or the command's is a [*Failure]; when ctx ends first, it is
// the error of ctx. It is safe for concurrent use.
func (c *Command) Run(ctx context.Context, call Call) ([]byte, error) { return c.run(ctx, call) }

// Arg is one argument a command declares.
type Arg struct {
	Name        string
	Type        string // string, integer, float, boolean or string_array
	Required    bool
	Default     *string // as text; nil for none
	Description string
	Choices     []string // as text; nil when any value will do
}

// Call is one run of a command.
type Call struct {
	// Object is the text of the arguments, a JSON object.
	Object []byte
	// Values are the same, decoded. Numbers are [encoding/json.Number] as they
	// were written; a string may hold bytes that are not UTF-8.
	Values func() map[string]any
	// Env is the environment of a program that a caller starts.
	Env func() map[string]string
	// Dir is where a program runs that names no directory of its own.
	Dir string
	// Timeout and MaxOutput bound the call from outside; 0 is no bound.
	Timeout   time.Duration
	MaxOutput int64
	// Output, unless nil, is given what a program prints as it comes, before
	// Run returns. An error of it ends the program and is returned.
	Output func(s proc.Stream, data []byte) error
}

// Registry is a set of commands in the order they are listed, and what else
// came with them. The zero Registry is empty. Once loaded it is safe for
// concurrent use.
type Registry struct {
	order  []*Command
	byName map[string]*Command
	groups map[string]bool
	routes []Route
	start  *Start
	python *python
}

// add takes a command in. One of the same name gives up its definition and
// leaves its place in the order.
func (r *Registry) add(c *Command) {
	if r.byName == nil {
		r.byName = map[string]*Command{}
	}
	if old := r.byName[c.Name]; old != nil {
		r.order[slices.Index(r.order, old)] = c
	} else {
		r.order = append(r.order, c)
	}
	r.byName[c.Name] = c
}

// Commands are all commands in the order they are listed.
func (r *Registry) Commands() []*Command { return slices.Clone(r.order) }

// Lookup is the command of a name, nil when there is none.
func (r *Registry) Lookup(name string) *Command { return r.byName[name] }

// Groups are the switches of endpoint groups that manifests and files set.
func (r *Registry) Groups() map[string]bool { return r.groups }

// Routes are the routes that Python files add to the server's own.
func (r *Registry) Routes() []Route { return slices.Clone(r.routes) }

// Start is what a Python file called start with, nil when none did.
func (r *Registry) Start() *Start { return r.start }
