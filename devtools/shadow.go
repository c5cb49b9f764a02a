package devtools

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// A shadow is a directory of our own that git takes for the common directory
// of a repository. Objects, refs and what else belongs to all work trees are
// links to the real ones, as git's own contrib script for further work trees
// makes them. The settings are not: they hold what is known to be harmless, by
// a list. So no filter, hook, helper, include or odd address in a repository
// has to be found and switched off, and none can appear between look and use.

// shared are the entries of the common directory that the shadow links to.
var shared = []string{"objects", "refs", "packed-refs", "reftable", "logs", "info", "shallow", "worktrees"}

// harmless are the settings of a repository that its runs see, by section.
// Those of "*" sections have a subsection.
var harmless = map[string][]string{
	"core": {
		"repositoryformatversion", "filemode", "symlinks", "ignorecase", "precomposeunicode", "autocrlf", "eol",
		"safecrlf", "checkroundtripencoding", "logallrefupdates", "trustctime", "checkstat", "compression",
		"loosecompression", "bigfilethreshold", "sparsecheckout", "sparsecheckoutcone", "protecthfs", "protectntfs",
		"sharedrepository", "multipackindex", "commitgraph",
	},
	"extensions": {"objectformat", "refstorage", "compatobjectformat", "noop", "preciousobjects", "relativeworktrees"},
	"user":       {"name", "email", "useconfigonly"},
	"author":     {"name", "email"},
	"committer":  {"name", "email"},
	"pull":       {"rebase", "ff"},
	"merge":      {"ff", "conflictstyle", "renames", "renamelimit"},
	"push":       {"default", "followtags", "autosetupremote"},
	"init":       {"defaultbranch"},
	"branch":     {"autosetupmerge", "autosetuprebase"},
	"branch*":    {"remote", "merge", "rebase", "pushremote"},
	"remote":     {"pushdefault"},
	"remote*":    {"fetch", "prune", "tagopt"},
	"i18n":       {"commitencoding"},
	"index":      {"version"},
}

// isHarmless tells whether a setting may be seen by git.
func isHarmless(s setting) bool {
	section := s.section
	if s.hasSub {
		section += "*"
	}
	return slices.Contains(harmless[section], s.name)
}

// memoryDir is where no call can reach a file by its path.
const memoryDir = "/dev/shm"

// memoryRoom is what a call may need there; containers often have little, and
// programs that fill it.
const memoryRoom = 4 << 20

// privateDir makes a directory for one call.
func privateDir() (string, error) {
	return privateDirIn(memoryDir)
}

func privateDirIn(memory string) (dir string, err error) {
	var fs unix.Statfs_t
	if err = unix.Statfs(memory, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		err = unix.ENOSPC
	}
	if err == nil {
		dir, err = os.MkdirTemp(memory, ".abx-git-")
	}
	if err != nil {
		dir, err = os.MkdirTemp("", ".abx-git-")
	}
	if err != nil {
		return "", fmt.Errorf("make a directory for git: %w", err)
	}
	return dir, nil
}

// cast makes the shadow of the repository.
func (r *Repo) cast(context.Context) error {
	var err error
	if r.shadow, err = privateDir(); err != nil {
		return err
	}
	for _, name := range shared {
		// Directories that git would make when it needs them; it makes them in
		// the shadow then, and what is lost are notes of where refs have been.
		if info, err := r.exists(path.Join(r.common, name)); name == "logs" && (err != nil || info.Kind != guardfs.Directory) {
			continue
		}
		if err := os.Symlink(path.Join(r.common, name), path.Join(r.shadow, name)); err != nil {
			return fmt.Errorf("fill the directory for git: %w", err)
		}
	}
	if r.gitdir != r.common {
		// So that git knows what the main work tree is on.
		if err := r.copyHead(r.common); err != nil {
			return err
		}
	}
	return r.writeSettings(nil)
}

// copyHead gives the shadow the HEAD of a directory. Git takes no link for it.
func (r *Repo) copyHead(from string) error {
	text, _, err := r.read(path.Join(from, "HEAD"), maxPointer)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path.Join(r.shadow, "HEAD"), text, 0o600); err != nil {
		return fmt.Errorf("fill the directory for git: %w", err)
	}
	return nil
}

// writeSettings gives the shadow the harmless settings of the repository, those
// of all runs, and more.
func (r *Repo) writeSettings(more []setting) error {
	var kept []setting
	for _, s := range r.format {
		if isHarmless(s) {
			kept = append(kept, s)
		}
	}
	kept = append(append(kept, fixed...), more...)
	if err := os.WriteFile(path.Join(r.shadow, "config"), writeConfig(kept), 0o600); err != nil {
		return fmt.Errorf("fill the directory for git: %w", err)
	}
	return nil
}
