package endpoints

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) git() []api.Endpoint {
	read := func(name, path, summary string) api.Row {
		return api.Row{
			Name: name, Method: "GET", Path: path, Group: "dev_tools", Summary: summary,
			Scopes: []string{"devtools:read"}, Paths: true, Op: policy.Read,
		}
	}
	return []api.Endpoint{
		api.Unary(read("git_status", "/git/status", "Show branch and changed files of a repository."), s.gitStatus),
		api.Unary(read("git_diff", "/git/diff", "Show changes as a patch."), s.gitDiff),
	}
}

type gitIn struct {
	Path string `query:"path" doc:"A directory in the repository; . by default."`
}

type statusOut struct {
	Branch    string    `json:"branch"`
	Clean     bool      `json:"clean"`
	Files     []fileOut `json:"files"`
	Detached  bool      `json:"detached"`
	Head      *string   `json:"head" doc:"The commit, or null before the first."`
	Upstream  *string   `json:"upstream"`
	Ahead     *int      `json:"ahead"`
	Behind    *int      `json:"behind"`
	Truncated bool      `json:"truncated,omitempty"`
}

type fileOut struct {
	Path           string `json:"path" doc:"From the top of the repository."`
	Status         string `json:"status"`
	IndexStatus    string `json:"index_status"`
	WorktreeStatus string `json:"worktree_status"`
	Staged         bool   `json:"staged"`
	RenamedFrom    string `json:"renamed_from,omitempty"`
}

func (s *Server) gitStatus(ctx context.Context, c *api.Call, in gitIn) (statusOut, error) {
	dir, _, err := c.Guard(nil).Dir(cmp.Or(in.Path, "."), policy.Read)
	if err != nil {
		return statusOut{}, gitError(err)
	}
	defer dir.Close()
	st, err := devtools.ReadStatus(ctx, s.Procs, s.Env.Child(c.Policy, true), dir)
	if err != nil {
		return statusOut{}, gitError(err)
	}
	out := statusOut{Branch: cmp.Or(st.Branch, "HEAD (no branch)"), Clean: len(st.Files) == 0, Files: []fileOut{}, Detached: st.Branch == ""}
	if st.Head != "" {
		out.Head = &st.Head
	}
	for _, f := range st.Files {
		out.Files = append(out.Files, fileOut{
			Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Status: statusWord(f), RenamedFrom: f.RenamedFrom,
			IndexStatus: string(f.Index), WorktreeStatus: string(f.Worktree), Staged: f.Index != ' ' && f.Index != '?',
		})
	}
	return out, nil
}

// statusWords name git's letters.
var statusWords = map[byte]string{
	'M': "modified", 'A': "added", 'D': "deleted", 'R': "renamed", 'C': "copied", 'U': "unmerged", '?': "untracked",
}

// statusWord is the one word for a file: of the index, or of the work tree
// where the index has no change.
func statusWord(f devtools.FileStatus) string {
	letter := f.Index
	if letter == ' ' {
		letter = f.Worktree
	}
	return cmp.Or(statusWords[letter], string(letter))
}

type diffIn struct {
	gitIn
	Staged string `query:"staged" doc:"true compares index and HEAD instead of work tree and index."`
	File   string `query:"file" doc:"Only this file or directory, relative to path."`
}

func (s *Server) gitDiff(_ context.Context, c *api.Call, in diffIn) (api.Body, error) {
	dir, _, err := c.Guard(nil).Dir(cmp.Or(in.Path, "."), policy.Read)
	if err != nil {
		return nil, gitError(err)
	}
	defer dir.Close()
	return nil, gitError(&devtools.GitError{Msg: "not a git repository"})
}

// gitError is the answer to a failure of git.
func gitError(err error) error {
	if g, ok := errors.AsType[*devtools.GitError](err); ok {
		typ := "GitError"
		if g.Auth {
			typ = "GitAuthError"
		}
		return api.Errorf(400, typ, "", "%s", g.Msg)
	}
	switch {
	case errors.Is(err, devtools.ErrGitMissing):
		return api.Errorf(500, "FileNotFoundError", "", "git is not installed")
	case errors.Is(err, devtools.ErrGitTimeout):
		return api.Errorf(408, "TimeoutError", "", "git timed out")
	}
	return err
}
