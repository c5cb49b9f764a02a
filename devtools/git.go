package devtools

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// ErrGitMissing says that there is no git program.
var ErrGitMissing = errors.New("git is not installed")

// GitError is a failure that git, or what stands for it here, can explain to
// the caller in one line.
type GitError struct {
	Msg string
	// Auth says that credentials are missing or were refused.
	Auth bool
}

func (e *GitError) Error() string { return e.Msg }

// gitTimeout bounds every call of git that touches no network.
const gitTimeout = 30 * time.Second

// ErrGitTimeout says that git took too long.
var ErrGitTimeout = errors.New("git timed out")

func runGit(ctx context.Context, m *proc.Manager, env map[string]string, dir *os.File, limit int, args ...string) (proc.Result, error) {
	path, err := proc.LookPath("git", env["PATH"], "/")
	if err != nil {
		return proc.Result{}, ErrGitMissing
	}
	spec := proc.Spec{Path: path, Argv: append([]string{"git"}, args...), DirFile: dir, Timeout: gitTimeout}
	for k, v := range env {
		if !strings.HasPrefix(k, "GIT_") {
			spec.Env = append(spec.Env, k+"="+v)
		}
	}
	spec.Env = append(spec.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	return m.Run(ctx, spec, limit)
}

// ReadStatus is the state of the work tree around dir.
func ReadStatus(ctx context.Context, m *proc.Manager, env map[string]string, dir *os.File) (Status, error) {
	res, err := runGit(ctx, m, env, dir, 32<<20, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null",
		"status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty")
	if err != nil {
		return Status{}, err
	}
	if res.Code != 0 {
		return Status{}, &GitError{Msg: "not a git repository"}
	}
	p := &statusParser{}
	f := fields{max: 1 << 20}
	if err := f.feed(res.Stdout, p.field); err != nil {
		return Status{}, err
	}
	return p.Status, nil
}
