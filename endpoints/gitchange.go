package endpoints

import (
	"context"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// gitChanges are the endpoints that change repositories: of the published set,
// only who may run code may use them.
func (s *Server) gitChanges() []api.Endpoint {
	row := func(name, summary string) api.Row {
		return api.Row{
			Name: "git_" + name, Method: "POST", Path: "/git/" + name, Group: "dev_tools", Summary: summary,
			Scopes: []string{"devtools:run"}, Paths: true, Op: policy.Write, Mutates: true, Follows: "code_run",
		}
	}
	push, pull, clone := row("push", "Send a branch to a remote."), row("pull", "Fetch a branch and join it with the current one."), row("clone", "Copy a repository.")
	push.Exec, pull.Exec, clone.Exec = true, true, true
	push.Op = policy.Read
	return []api.Endpoint{
		api.Unary(clone, s.gitClone),
		api.Unary(row("init", "Make an empty repository."), s.gitInit),
		api.Unary(row("branch", "Make, check out or delete a branch."), s.gitBranch),
		api.Unary(row("add", "Put files into the index."), s.gitAdd),
		api.Unary(row("commit", "Commit the index."), s.gitCommit),
		api.Unary(row("reset", "Move branch, index or work tree to a commit."), s.gitReset),
		api.Unary(row("restore", "Bring files back."), s.gitRestore),
		api.Unary(push, s.gitPush),
		api.Unary(pull, s.gitPull),
		api.Unary(row("remotes", "List, add, change or remove remotes."), s.gitRemotes),
		api.Unary(row("config", "Read or write harmless settings."), s.gitConfig),
	}
}

// repoIn names the repository of a change.
type repoIn struct {
	Path api.Field[string] `json:"path" doc:"A directory in the repository; . by default."`
}

// change opens the repository, does something and tells where HEAD is then.
func (s *Server) change(ctx context.Context, c *api.Call, in repoIn, do func(*devtools.Repo) error) (headOut, error) {
	path, err := in.Path.Optional("path", ".")
	if err != nil {
		return headOut{}, err
	}
	r, err := s.repository(ctx, c, path)
	if err != nil {
		return headOut{}, err
	}
	defer r.Close()
	if err := do(r); err != nil {
		return headOut{}, gitError(err)
	}
	return headOf(ctx, r)
}

// headOut is where HEAD is after a change.
type headOut struct {
	Head   *string `json:"head" doc:"The commit, or null before the first."`
	Branch *string `json:"branch" doc:"null when HEAD is detached."`
}

func headOf(ctx context.Context, r *devtools.Repo) (headOut, error) {
	head, err := r.Head(ctx)
	if err != nil {
		return headOut{}, gitError(err)
	}
	branch, err := r.Current(ctx)
	return headOut{orNull(head), orNull(branch)}, gitError(err)
}

// files are the absolute paths of files that a call lists.
func files(c *api.Call, r *devtools.Repo, name string, in api.Field[[]string]) ([]string, error) {
	list, err := in.Optional(name, nil)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, f := range list {
		if f == "" {
			return nil, api.Invalidf("Invalid '%s'", name)
		}
		if out[i], err = fileIn(c, r, f); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ref is a field that names a commit; "" where there is none.
func ref(name string, in api.Field[string]) (string, error) {
	v, err := in.Optional(name, "")
	if err == nil && v != "" && !devtools.IsRef(v) {
		err = api.Invalidf("Invalid '%s'", name)
	}
	return v, err
}

// branchName is a field that names a branch or remote; "" where there is none.
func branchName(name string, in api.Field[string]) (string, error) {
	v, err := in.Optional(name, "")
	if err == nil && v != "" && !devtools.IsBranchName(v) {
		err = api.Invalidf("Invalid '%s'", name)
	}
	return v, err
}

type gitInitIn struct {
	Path   api.Field[string] `json:"path" doc:"Where; made if it is not there."`
	Branch api.Field[string] `json:"initial_branch" doc:"Name of the first branch."`
	Bare   api.Field[any]    `json:"bare" doc:"Without a work tree."`
}

type gitInitOut struct {
	Path string  `json:"path"`
	Head *string `json:"head" doc:"Always null."`
}

func (s *Server) gitInit(ctx context.Context, c *api.Call, in gitInitIn) (gitInitOut, error) {
	path, err := in.Path.Optional("path", ".")
	if err != nil {
		return gitInitOut{}, err
	}
	o := devtools.InitOptions{Path: path}
	if o.Branch, err = branchName("initial_branch", in.Branch); err != nil {
		return gitInitOut{}, err
	}
	if o.Bare, err = flag(in.Bare, "bare"); err != nil {
		return gitInitOut{}, err
	}
	dir, err := s.Git.Init(ctx, s.gitCaller(c), o)
	return gitInitOut{Path: dir}, gitError(err)
}

type gitBranchIn struct {
	repoIn
	Name   api.Field[string] `json:"name" doc:"The branch."`
	Action api.Field[string] `json:"action" doc:"create (and check out; the default), checkout or delete."`
	Force  api.Field[any]    `json:"force" doc:"Move a branch that is there, throw changes away, delete what is not merged."`
}

func (s *Server) gitBranch(ctx context.Context, c *api.Call, in gitBranchIn) (headOut, error) {
	name, err := branchName("name", in.Name)
	if err != nil || name == "" {
		return headOut{}, api.Invalidf("Missing or invalid 'name'")
	}
	action, err := in.Action.Optional("action", "create")
	if err != nil {
		return headOut{}, err
	}
	force, err := flag(in.Force, "force")
	if err != nil {
		return headOut{}, err
	}
	var do func(*devtools.Repo) error
	switch action {
	case "create":
		do = func(r *devtools.Repo) error { return r.CreateBranch(ctx, name, force) }
	case "checkout":
		do = func(r *devtools.Repo) error { return r.Checkout(ctx, name, force) }
	case "delete":
		do = func(r *devtools.Repo) error { return r.DeleteBranch(ctx, name, force) }
	default:
		return headOut{}, api.Invalidf("Invalid 'action': create, checkout or delete")
	}
	return s.change(ctx, c, in.repoIn, do)
}

type gitAddIn struct {
	repoIn
	Files api.Field[[]string] `json:"files" doc:"Files and directories, relative to path."`
	All   api.Field[any]      `json:"all" doc:"Everything; the default without files."`
}

func (s *Server) gitAdd(ctx context.Context, c *api.Call, in gitAddIn) (headOut, error) {
	all, err := flag(in.All, "all")
	if err != nil {
		return headOut{}, err
	}
	return s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
		list, err := files(c, r, "files", in.Files)
		if err != nil {
			return err
		}
		return r.Add(ctx, list, all || len(list) == 0)
	})
}

type gitCommitIn struct {
	repoIn
	Message    api.Field[string] `json:"message" doc:"The message."`
	Name       api.Field[string] `json:"author_name" doc:"Author and committer; as configured by default."`
	Email      api.Field[string] `json:"author_email" doc:"Their address."`
	AllowEmpty api.Field[any]    `json:"allow_empty" doc:"Commit without any change."`
}

func (s *Server) gitCommit(ctx context.Context, c *api.Call, in gitCommitIn) (headOut, error) {
	var o devtools.CommitOptions
	var err error
	if o.Message, err = in.Message.Want("message"); err != nil || strings.TrimSpace(o.Message) == "" || strings.ContainsRune(o.Message, 0) {
		return headOut{}, api.Invalidf("Missing or invalid 'message'")
	}
	if o.Name, err = oneLine("author_name", in.Name); err != nil {
		return headOut{}, err
	}
	if o.Email, err = oneLine("author_email", in.Email); err != nil {
		return headOut{}, err
	}
	if o.AllowEmpty, err = flag(in.AllowEmpty, "allow_empty"); err != nil {
		return headOut{}, err
	}
	return s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error { return r.Commit(ctx, o) })
}

// oneLine is an optional text without control characters.
func oneLine(name string, in api.Field[string]) (string, error) {
	v, err := in.Optional(name, "")
	if err == nil && strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		err = api.Invalidf("Invalid '%s'", name)
	}
	return v, err
}

type gitResetIn struct {
	repoIn
	Mode   api.Field[string]   `json:"mode" doc:"soft, mixed (default), hard, merge or keep."`
	Target api.Field[string]   `json:"target" doc:"A commit; HEAD by default."`
	Paths  api.Field[[]string] `json:"paths" doc:"Only these, in the index only."`
}

func (s *Server) gitReset(ctx context.Context, c *api.Call, in gitResetIn) (headOut, error) {
	var o devtools.ResetOptions
	var err error
	if o.Mode, err = in.Mode.Optional("mode", "mixed"); err != nil {
		return headOut{}, err
	}
	switch o.Mode {
	case "soft", "mixed", "hard", "merge", "keep":
	default:
		return headOut{}, api.Invalidf("Invalid 'mode': soft, mixed, hard, merge or keep")
	}
	if o.Target, err = ref("target", in.Target); err != nil {
		return headOut{}, err
	}
	if len(in.Paths.V) > 0 && in.Mode.Set() && o.Mode != "mixed" {
		return headOut{}, api.Invalidf("'mode' and 'paths' exclude each other")
	}
	return s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
		var err error
		if o.Files, err = files(c, r, "paths", in.Paths); err != nil {
			return err
		}
		return r.Reset(ctx, o)
	})
}

type gitRestoreIn struct {
	repoIn
	Paths    api.Field[[]string] `json:"paths" doc:"Files and directories, relative to path."`
	Staged   api.Field[any]      `json:"staged" doc:"Bring the index back."`
	Worktree api.Field[any]      `json:"worktree" doc:"Bring the work tree back; the default without staged."`
	Source   api.Field[string]   `json:"source" doc:"The commit to take from."`
}

func (s *Server) gitRestore(ctx context.Context, c *api.Call, in gitRestoreIn) (headOut, error) {
	var o devtools.RestoreOptions
	var err error
	if in.Paths.State != api.Good || len(in.Paths.V) == 0 {
		return headOut{}, api.Invalidf("Missing or invalid 'paths'")
	}
	if o.Staged, err = flag(in.Staged, "staged"); err != nil {
		return headOut{}, err
	}
	if o.Worktree, err = flag(in.Worktree, "worktree"); err != nil {
		return headOut{}, err
	}
	if !o.Staged && !in.Worktree.Set() {
		o.Worktree = true
	}
	if !o.Staged && !o.Worktree {
		return headOut{}, api.Invalidf("One of 'staged' and 'worktree' must be true")
	}
	if o.Source, err = ref("source", in.Source); err != nil {
		return headOut{}, err
	}
	return s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
		var err error
		if o.Files, err = files(c, r, "paths", in.Paths); err != nil {
			return err
		}
		return r.Restore(ctx, o)
	})
}
