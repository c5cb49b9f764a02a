// Package childenv builds the environment of every program the server starts,
// in this one place: the server's own environment with what callers set, and
// without what is secret.
package childenv

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Store holds the server's environment as it was at start and the overlay
// that callers of POST /env wrote over it. Its methods are safe for concurrent
// use; each answer is one consistent state.
type Store struct {
	start map[string]string

	mu      sync.RWMutex
	overlay map[string]*string // nil: unset
}

// New takes the environment as "NAME=value" items; a later one wins.
func New(environ []string) *Store {
	s := &Store{start: map[string]string{}, overlay: map[string]*string{}}
	for _, item := range environ {
		if name, value, ok := strings.Cut(item, "="); ok && name != "" {
			s.start[name] = value
		}
	}
	return s
}

// AtStart is the value a variable had when the server started, whatever
// callers have set since.
func (s *Store) AtStart(name string) string { return s.start[name] }

// Change sets and unsets variables in one step.
func (s *Store) Change(set map[string]string, unset []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := maps.Clone(s.overlay) // readers hold the old map
	for name, value := range set {
		next[name] = &value
	}
	for _, name := range unset {
		next[name] = nil
	}
	s.overlay = next
}

// Now is the whole environment with the overlay, secrets included: only for
// code that filters it.
func (s *Store) Now() map[string]string { return s.merged(func(string) bool { return false }) }

// Child is the environment of a program that policy p lets a caller start.
// With ownUse the program runs on the server's own account, or under an allow
// list of commands: then variables that make programs load other code are
// taken from the server's start, not from callers.
func (s *Store) Child(p *policy.Policy, ownUse bool) map[string]string {
	env := s.merged(func(name string) bool { return ownUse && policy.IsLoaderName(name) })
	for name := range env {
		if hidden(p, name) {
			delete(env, name)
		}
	}
	return env
}

// hidden names are the server's business and no child's.
func hidden(p *policy.Policy, name string) bool {
	switch upper := strings.ToUpper(name); {
	case strings.HasPrefix(upper, "ABX_SERVER_"), upper == "ABX_ENVD_PORT", upper == "ABX_PTY_PORT":
		return true
	}
	return p.SecretEnv(name)
}

func (s *Store) merged(skip func(name string) bool) map[string]string {
	s.mu.RLock()
	overlay := s.overlay
	s.mu.RUnlock()
	env := maps.Clone(s.start)
	for name, value := range overlay {
		switch {
		case skip(name):
		case value == nil:
			delete(env, name)
		default:
			env[name] = *value
		}
	}
	return env
}

// List is env as sorted "NAME=value" items.
func List(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}
