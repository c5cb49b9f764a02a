// Package childenv builds the environment of every program the server starts,
// in this one place: the server's own environment with what callers set, and
// without what is secret.
package childenv

import (
	"errors"
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

	turn  sync.Mutex // one change at a time, the telling included
	watch func(set map[string]string, unset []string)

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

// MaxBytes bounds the whole environment, each variable with its "=" and its
// end: the kernel takes no more than twice that for variables and arguments
// together, and starts nothing when there is more.
const MaxBytes = 1 << 20

// ErrTooLarge says that a change would make the environment larger than
// MaxBytes.
var ErrTooLarge = errors.New("the environment would be too large")

// Watch has f called with every change before Change returns, one after the
// other. It is called once, before the first change.
func (s *Store) Watch(f func(set map[string]string, unset []string)) { s.watch = f }

// Change sets variables and then unsets others, in one step, and returns the
// sorted names of those that were there and are no more. On an error, which is
// [ErrTooLarge], nothing has changed.
func (s *Store) Change(set map[string]string, unset []string) (removed []string, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if removed, err = s.change(set, unset); err == nil && s.watch != nil {
		s.watch(set, unset)
	}
	return removed, err
}

func (s *Store) change(set map[string]string, unset []string) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := merge(s.start, s.overlay, everything)
	next := maps.Clone(s.overlay) // readers hold the old map
	for name, value := range set {
		next[name] = &value
	}
	for _, name := range unset {
		if _, ok := s.start[name]; ok {
			next[name] = nil
		} else {
			delete(next, name)
		}
		if _, ok := before[name]; ok && !slices.Contains(removed, name) {
			removed = append(removed, name)
		}
	}
	if size := sizeOf(merge(s.start, next, everything)); size > MaxBytes && size > sizeOf(before) {
		return nil, ErrTooLarge
	}
	s.overlay = next
	slices.Sort(removed)
	return removed, nil
}

func sizeOf(env map[string]string) int {
	size := 0
	for name, value := range env {
		size += len(name) + len(value) + 2
	}
	return size
}

// Now is the whole environment with the overlay, secrets included: only for
// code that filters it.
func (s *Store) Now() map[string]string { return s.merged(everything) }

// Start is the environment the server was started with, without secrets: for
// interpreters and managers that are asked for facts, whose answers callers
// must not be able to choose.
func (s *Store) Start(p *policy.Policy) map[string]string {
	env := maps.Clone(s.start)
	maps.DeleteFunc(env, func(name, _ string) bool { return hidden(p, name) })
	return env
}

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

// Added is what callers have set over the environment of the start, without
// secrets and, with ownUse, without variables that make programs load code:
// for programs that get nothing else of the server's own environment.
func (s *Store) Added(p *policy.Policy, ownUse bool) map[string]string {
	s.mu.RLock()
	overlay := s.overlay
	s.mu.RUnlock()
	env := map[string]string{}
	for name, value := range overlay {
		if value == nil || hidden(p, name) || ownUse && policy.IsLoaderName(name) {
			continue
		}
		env[name] = *value
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

// everything skips nothing.
func everything(string) bool { return false }

func (s *Store) merged(skip func(name string) bool) map[string]string {
	s.mu.RLock()
	overlay := s.overlay
	s.mu.RUnlock()
	return merge(s.start, overlay, skip)
}

func merge(start map[string]string, overlay map[string]*string, skip func(name string) bool) map[string]string {
	env := maps.Clone(start)
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
