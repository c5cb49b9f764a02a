package endpoints

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) git() []api.Endpoint {
	if s.Git == nil {
		s.Git = devtools.NewGit(s.Procs)
	}
	read := func(name, path, summary string) api.Row {
		return api.Row{
			Name: name, Method: "GET", Path: path, Group: "dev_tools", Summary: summary,
			Scopes: []string{"devtools:read"}, Paths: true, Op: policy.Read,
		}
	}
	like := func(name, path, summary string) api.Row {
		r := read(name, path, summary)
		r.As = "git_status"
		return r
	}
	return append([]api.Endpoint{
		api.Unary(read("git_status", "/git/status", "Show branch and changed files of a repository."), s.gitStatus),
		api.Unary(read("git_diff", "/git/diff", "Show changes as a patch."), s.gitDiff),
		api.Unary(like("git_log", "/git/log", "List commits, the newest first."), s.gitLog),
		api.Unary(like("git_branches", "/git/branches", "List local branches."), s.gitBranches),
	}, s.gitChanges()...)
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

// repository opens the repository that a call is about. The caller closes it.
func (s *Server) repository(ctx context.Context, c *api.Call, path string) (*devtools.Repo, error) {
	r, err := s.Git.Open(ctx, s.gitCaller(c), cmp.Or(path, "."))
	return r, gitError(err)
}

func (s *Server) gitCaller(c *api.Call) devtools.Caller {
	return devtools.Caller{
		Guard: c.Guard(nil), Op: c.Rule.Row.Op, Denies: c.Rule.Paths.HasDeny() || c.Rule.Paths.DenyHardlinks,
		Env: s.Env.Child(c.Policy, true),
	}
}

func (s *Server) gitStatus(ctx context.Context, c *api.Call, in gitIn) (statusOut, error) {
	r, err := s.repository(ctx, c, in.Path)
	if err != nil {
		return statusOut{}, err
	}
	defer r.Close()
	st, err := r.Status(ctx)
	if err != nil {
		return statusOut{}, gitError(err)
	}
	out := statusOut{
		Branch: cmp.Or(st.Branch, "HEAD (no branch)"), Detached: st.Branch == "", Truncated: st.Truncated,
		Clean: len(st.Files) == 0 && !st.Truncated, Head: orNull(st.Head), Upstream: orNull(st.Upstream),
		Files: make([]fileOut, len(st.Files)),
	}
	if st.Tracked {
		out.Ahead, out.Behind = &st.Ahead, &st.Behind
	}
	for i, f := range st.Files {
		out.Files[i] = fileOut{
			Path: f.Path, Status: statusWord(f), RenamedFrom: f.RenamedFrom,
			IndexStatus: string(f.Index), WorktreeStatus: string(f.Worktree), Staged: f.Index != ' ' && f.Index != '?',
		}
	}
	return out, nil
}

// orNull is nil for "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
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
	Staged  string `query:"staged" doc:"true compares the index instead of the work tree."`
	File    string `query:"file" doc:"Only this file or directory, relative to path."`
	Ref     string `query:"ref" doc:"The commit to compare with; HEAD for the index and the index for the work tree by default."`
	Base    string `query:"base" doc:"With ref: compare base with ref."`
	Context string `query:"context" doc:"Lines around a change; 3 by default."`
}

func (in *diffIn) options() (o devtools.DiffOptions, err error) {
	o = devtools.DiffOptions{Staged: api.Truthy(in.Staged), Ref: in.Ref, Base: in.Base, Context: -1}
	for name, ref := range map[string]string{"ref": in.Ref, "base": in.Base} {
		if !devtools.IsRef(ref) && ref != "" {
			return o, api.Invalidf("Invalid '%s'", name)
		}
	}
	if o.Base != "" && o.Staged {
		return o, api.Invalidf("'base' and 'staged' exclude each other")
	}
	if in.Context != "" {
		if o.Context, err = strconv.Atoi(in.Context); err != nil || o.Context < 0 || o.Context > maxDiffContext {
			return o, api.Invalidf("Invalid 'context': 0 to %d", maxDiffContext)
		}
	}
	return o, nil
}

const maxDiffContext = 100_000

type diffOut struct {
	Diff      string    `json:"diff"`
	Stats     diffStats `json:"stats"`
	Truncated bool      `json:"truncated,omitempty" doc:"The patch is cut; the numbers are those of the whole."`
}

type diffStats struct {
	Files      int `json:"files_changed"`
	Insertions int `json:"insertions"`
	Deletions  int `json:"deletions"`
}

func (s *Server) gitDiff(ctx context.Context, c *api.Call, in diffIn) (diffOut, error) {
	o, err := in.options()
	if err != nil {
		return diffOut{}, err
	}
	r, err := s.repository(ctx, c, in.Path)
	if err != nil {
		return diffOut{}, err
	}
	defer r.Close()
	if in.File != "" {
		if o.File, err = fileIn(c, r, in.File); err != nil {
			return diffOut{}, err
		}
	} else if c.Rule.Paths.HasDeny() {
		return diffOut{}, policy.Refuse(policy.PathDenied, "Where paths are denied, a diff needs 'file'").Err()
	}
	d, err := r.Diff(ctx, o)
	if err != nil {
		return diffOut{}, gitError(err)
	}
	if d.Truncated {
		d.Patch = strings.TrimSuffix(d.Patch, "\n") + "\n... (truncated at 1MB)"
	}
	return diffOut{Diff: d.Patch, Stats: diffStats{d.Files, d.Insertions, d.Deletions}, Truncated: d.Truncated}, nil
}

// fileIn is the absolute path of a file that a call names relative to the
// directory it named.
func fileIn(c *api.Call, r *devtools.Repo, name string) (string, error) {
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", api.Invalidf("'file' must not have a '..' component")
	}
	if !filepath.IsAbs(name) {
		name = r.Dir() + "/" + name
	}
	if _, err := c.Guard(nil).Check(name, c.Rule.Row.Op); err != nil {
		if d, ok := errors.AsType[*policy.Denied](err); ok {
			return "", d.Prefix("file: ")
		}
		return "", err
	}
	return filepath.Clean(name), nil
}

type logIn struct {
	gitIn
	Ref   string `query:"ref" doc:"Where to start; HEAD by default."`
	Limit string `query:"limit" doc:"1 to 1000; 50 by default."`
	File  string `query:"file" doc:"Only commits that changed this file or directory."`
}

const (
	defaultLog = 50
	maxLog     = 1000
)

type logOut struct {
	Commits   []commitOut `json:"commits"`
	Truncated bool        `json:"truncated,omitempty" doc:"The messages were too long to list all."`
}

type commitOut struct {
	Hash        string   `json:"hash"`
	Parents     []string `json:"parents"`
	AuthorName  string   `json:"author_name"`
	AuthorEmail string   `json:"author_email"`
	Date        string   `json:"date" doc:"ISO 8601."`
	Subject     string   `json:"subject"`
	Body        string   `json:"body"`
}

func (s *Server) gitLog(ctx context.Context, c *api.Call, in logIn) (logOut, error) {
	o := devtools.LogOptions{Ref: in.Ref, Limit: defaultLog}
	if in.Ref != "" && !devtools.IsRef(in.Ref) {
		return logOut{}, api.Invalidf("Invalid 'ref'")
	}
	if in.Limit != "" {
		n, err := strconv.Atoi(in.Limit)
		if err != nil || n < 1 {
			return logOut{}, api.Invalidf("Invalid 'limit': 1 to %d", maxLog)
		}
		o.Limit = min(n, maxLog)
	}
	r, err := s.repository(ctx, c, in.Path)
	if err != nil {
		return logOut{}, err
	}
	defer r.Close()
	if in.File != "" {
		if o.File, err = fileIn(c, r, in.File); err != nil {
			return logOut{}, err
		}
	}
	l, err := r.Log(ctx, o)
	if err != nil {
		return logOut{}, gitError(err)
	}
	out := logOut{Commits: make([]commitOut, len(l.Commits)), Truncated: l.Truncated}
	for i, k := range l.Commits {
		out.Commits[i] = commitOut{k.Hash, k.Parents, k.AuthorName, k.AuthorEmail, k.Date, k.Subject, k.Body}
	}
	return out, nil
}

type branchesOut struct {
	Current  *string     `json:"current" doc:"null when HEAD is detached."`
	Branches []branchOut `json:"branches"`
}

type branchOut struct {
	Name     string  `json:"name"`
	Commit   string  `json:"commit"`
	Upstream *string `json:"upstream"`
}

func (s *Server) gitBranches(ctx context.Context, c *api.Call, in gitIn) (branchesOut, error) {
	r, err := s.repository(ctx, c, in.Path)
	if err != nil {
		return branchesOut{}, err
	}
	defer r.Close()
	current, all, err := r.Branches(ctx)
	if err != nil {
		return branchesOut{}, gitError(err)
	}
	out := branchesOut{Current: orNull(current), Branches: make([]branchOut, len(all))}
	for i, b := range all {
		out.Branches[i] = branchOut{b.Name, b.Commit, orNull(b.Upstream)}
	}
	return out, nil
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
	case err == nil:
		return nil
	case errors.Is(err, devtools.ErrGitMissing):
		return api.Errorf(500, "FileNotFoundError", "", "Git is not installed")
	case errors.Is(err, devtools.ErrGitTimeout):
		return api.Errorf(408, "TimeoutError", "", "Git took too long")
	case proc.NoRoom(err):
		return noRoom(err)
	}
	return err
}
