package pty

import (
	"fmt"
	"slices"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// Term is the type of terminal that programs are told of, unless the caller of
// a session chose another.
const Term = "xterm-256color"

// shells are the programs a session may be asked for by name alone.
var shells = []string{
	"/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh",
	"/usr/bin/sh", "/bin/dash", "/bin/ash", "/usr/bin/fish",
}

// Shells lists the programs a session may be asked for by name alone; any
// other is a start of a process too.
func Shells() []string { return slices.Clone(shells) }

// IsShell says that path is one of Shells.
func IsShell(path string) bool { return slices.Contains(shells, path) }

// Spec says what session to make.
type Spec struct {
	Owner string // the identity it belongs to
	Name  string // [A-Za-z0-9._-]{1,64}, unique among the owner's live sessions, or empty
	// AttachExisting returns the live session of that name if there is one.
	AttachExisting bool

	// Program is what runs on the terminal. Its fields for input and output are
	// not used. Its Path is shown as the session's shell.
	Program    proc.Spec
	Cols, Rows int // 0 to 65535
	// Scrollback is how many bytes of output are kept, at most MaxScrollback;
	// 0 means DefaultScrollback.
	Scrollback int
	// IdleTimeout ends the session when it had neither attachment nor input
	// nor output for so long; 0 means the manager's, negative means never.
	IdleTimeout time.Duration
	// MaxSessions is how many may live at once with this one; 0 means
	// DefaultSessions.
	MaxSessions int
}

func (spec *Spec) check() error {
	switch {
	case spec.Name != "" && !nameShape.MatchString(spec.Name):
		return fmt.Errorf("%w: name %q", ErrInvalid, spec.Name)
	case spec.AttachExisting && spec.Name == "":
		return fmt.Errorf("%w: attach_existing needs a name", ErrInvalid)
	case !fits(spec.Cols) || !fits(spec.Rows):
		return fmt.Errorf("%w: %d columns, %d rows", ErrInvalid, spec.Cols, spec.Rows)
	case spec.Scrollback < 0 || spec.Scrollback > MaxScrollback:
		return fmt.Errorf("%w: scrollback_bytes must be at most %d", ErrInvalid, MaxScrollback)
	}
	return nil
}
