// Package registry holds the named commands of a server: what they are called,
// which arguments they take, and how they run. Commands come from manifests
// and from Python files; callers see no difference.
package registry

import (
	"maps"
	"slices"
)

// Command is one named command as callers may know it. It never changes once a
// registry holds it.
type Command struct {
	Name        string
	Description string
	Hidden      bool     // left out of listings, runs normally
	Scopes      []string // a caller needs all of them
	Args        []Arg
}

// Arg is one argument a command declares.
type Arg struct {
	Name        string
	Type        string // string, integer, float, boolean or string_array
	Required    bool
	Default     *string // as text; nil for none
	Description string
}

// Registry is a set of commands in the order they are listed. The zero
// Registry is empty. Once commands were added it is safe for concurrent use.
type Registry struct {
	order  []*Command
	byName map[string]*Command
}

// Add takes a command in. One of the same name gives up its definition and
// leaves its place in the order.
func (r *Registry) Add(c *Command) {
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

// Names are the names of all commands, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// Lookup is the command of a name, nil when there is none.
func (r *Registry) Lookup(name string) *Command { return r.byName[name] }
