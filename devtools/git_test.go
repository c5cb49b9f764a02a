package devtools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// yard is a Git with an allowed directory, and a directory outside of it.
type yard struct {
	t             *testing.T
	git           *Git
	fs            *guardfs.FS
	base, outside string
	rules         *policy.PathRules
	env           map[string]string
}

func newYard(t *testing.T, deny ...string) *yard {
	t.Helper()
	find(t, "git")
	top := t.TempDir()
	y := &yard{
		t: t, git: NewGit(newManager(t)), base: filepath.Join(top, "base"), outside: filepath.Join(top, "outside"),
		rules: policy.NewPathRules(nil, deny, false, false, false),
		env:   map[string]string{"PATH": os.Getenv("PATH"), "HOME": filepath.Join(top, "home")},
	}
	for _, dir := range []string{y.base, y.outside, y.env["HOME"]} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	y.fs = guardfs.New(func() string { return y.base }, y.base)
	t.Cleanup(func() { _ = y.fs.Close() })
	return y
}

func (y *yard) caller(op policy.Op) Caller {
	return Caller{Guard: y.fs.Guard(y.rules, "", nil), Op: op, Denies: y.rules.HasDeny(), Env: y.env}
}

// open opens a repository and closes it with the test.
func (y *yard) open(path string, op policy.Op) *Repo {
	y.t.Helper()
	r, err := y.git.Open(y.t.Context(), y.caller(op), path)
	if err != nil {
		y.t.Fatalf("open %s: %v", path, err)
	}
	y.t.Cleanup(r.Close)
	return r
}

// repo makes a repository with one commit of a.txt in base or, with an absolute
// path, elsewhere.
func (y *yard) repo(name string) plainRepo {
	y.t.Helper()
	p := plainRepo{y.t, filepath.Join(y.base, name)}
	if filepath.IsAbs(name) {
		p.dir = name
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		y.t.Fatal(err)
	}
	p.git("init", "-q", "-b", "main")
	p.write("a.txt", "1\n2\n3\n")
	p.commit("first")
	return p
}

// plainRepo is a repository as its user sees it.
type plainRepo struct {
	t   *testing.T
	dir string
}

func (p plainRepo) run(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = p.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=a@x",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=protocol.file.allow", "GIT_CONFIG_VALUE_1=always",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %v: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (p plainRepo) git(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

func (p plainRepo) write(name, text string) {
	p.t.Helper()
	writeFile(p.t, filepath.Join(p.dir, name), text)
}

func (p plainRepo) read(name string) string {
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(b)
}

func (p plainRepo) commit(message string) {
	p.t.Helper()
	p.git("add", "-A")
	p.git("commit", "-q", "--no-verify", "-m", message)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (y *yard) status(path string) Status {
	y.t.Helper()
	st, err := y.open(path, policy.Read).Status(y.t.Context())
	if err != nil {
		y.t.Fatal(err)
	}
	return st
}

func names(files []FileStatus) []string {
	out := []string{}
	for _, f := range files {
		out = append(out, string(f.Index)+string(f.Worktree)+" "+f.Path)
	}
	return out
}

func wantGitError(t *testing.T, what string, err error, part string) {
	t.Helper()
	e, ok := errors.AsType[*GitError](err)
	if !ok || !strings.Contains(e.Msg, part) || strings.Contains(e.Msg, "\n") || len(e.Msg) > 300 {
		t.Errorf("%s: got %v, want a GitError with %q", what, err, part)
	}
}

func wantDenied(t *testing.T, what string, err error, code policy.Code) {
	t.Helper()
	if d, ok := errors.AsType[*policy.Denied](err); !ok || d.Code != code {
		t.Errorf("%s: got %v, want %s", what, err, code)
	}
}

func TestStatusOfEveryKind(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	for _, name := range []string{"mod", "del", "staged", "both"} {
		p.write(name, name+"\n")
	}
	p.write("ren", "moved\nmoved\nmoved\n")
	p.write(".gitignore", "ign\n")
	p.commit("more")
	p.write("mod", "x")
	p.write("staged", "x")
	p.write("both", "x")
	p.git("add", "staged", "both")
	p.write("both", "y")
	p.git("mv", "ren", "new name")
	if err := os.Remove(filepath.Join(p.dir, "del")); err != nil {
		t.Fatal(err)
	}
	p.write("ign", "")
	p.write("dir/untracked", "")
	p.write("é\t\"q\\\n", "")
	st := y.status("r/dir")
	want := []string{"MM both", " D del", " M mod", "R  new name", "M  staged", "?? dir/", "?? é\t\"q\\\n"}
	if d := cmp.Diff(want, names(st.Files)); d != "" {
		t.Error(d)
	}
	if st.Branch != "main" || st.Head != p.git("rev-parse", "HEAD") || st.Upstream != "" || st.Tracked {
		t.Errorf("%+v", st)
	}
	if st.Files[3].RenamedFrom != "ren" {
		t.Errorf("%+v", st.Files[3])
	}
}

func TestUnbornAndDetachedHeads(t *testing.T) {
	y := newYard(t)
	p := plainRepo{t, filepath.Join(y.base, "new")}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.git("init", "-q", "-b", "trunk")
	r := y.open("new", policy.Read)
	if st, err := r.Status(t.Context()); err != nil || st.Branch != "trunk" || st.Head != "" || len(st.Files) != 0 {
		t.Errorf("%+v %v", st, err)
	}
	if l, err := r.Log(t.Context(), LogOptions{Limit: 5}); err != nil || len(l.Commits) != 0 {
		t.Errorf("%+v %v", l, err)
	}
	if current, all, err := r.Branches(t.Context()); err != nil || current != "trunk" || len(all) != 0 {
		t.Errorf("%q %v %v", current, all, err)
	}
	if d, err := r.Diff(t.Context(), DiffOptions{Context: -1, Staged: true}); err != nil || d.Files != 0 {
		t.Errorf("%+v %v", d, err)
	}
	q := y.repo("old")
	q.git("checkout", "-q", "--detach")
	if st := y.status("old"); st.Branch != "" || st.Head == "" {
		t.Errorf("%+v", st)
	}
}

func TestWorktreesAndSubmodulesInsideWork(t *testing.T) {
	y := newYard(t)
	lib, p := y.repo("lib"), y.repo("r")
	p.git("submodule", "--quiet", "add", lib.dir, "sub")
	p.commit("with sub")
	p.git("worktree", "add", "-q", "-b", "side", filepath.Join(y.base, "side"))
	writeFile(t, filepath.Join(y.base, "side", "a.txt"), "side\n")
	st := y.status("side")
	if d := cmp.Diff([]string{" M a.txt"}, names(st.Files)); d != "" || st.Branch != "side" {
		t.Errorf("%s %+v", d, st)
	}
	sub := plainRepo{t, filepath.Join(p.dir, "sub")}
	sub.write("a.txt", "changed\n")
	if st := y.status("r"); len(st.Files) != 0 {
		t.Errorf("dirty submodule: %v", names(st.Files))
	}
	sub.commit("in sub")
	if d := cmp.Diff([]string{" M sub"}, names(y.status("r").Files)); d != "" {
		t.Error(d)
	}
	if d, err := y.open("r", policy.Read).Diff(t.Context(), DiffOptions{Context: -1}); err != nil || !strings.Contains(d.Patch, "+Subproject commit "+sub.git("rev-parse", "HEAD")) {
		t.Errorf("%v %v", d, err)
	}
	if st := y.status("r/sub"); st.Branch == "" && st.Head == "" || len(st.Files) != 0 {
		t.Errorf("the submodule itself: %+v", st)
	}
	ctx := t.Context()
	r := y.open("side", policy.Write)
	if err := errors.Join(r.Add(ctx, nil, true), r.Commit(ctx, CommitOptions{Message: "m", Name: "B", Email: "b@x"})); err != nil {
		t.Error(err)
	}
	if got := p.git("log", "-1", "--format=%s %an", "side"); got != "m B" {
		t.Errorf("committed in the other work tree: %q", got)
	}
	if err := r.Checkout(ctx, "main", false); err == nil {
		t.Error("a branch that another work tree is on was checked out")
	}
	// Nothing of a submodule gets into the index by our hands.
	if err := y.open("r", policy.Write).Add(ctx, nil, true); err != nil {
		t.Error(err)
	}
	if got := p.git("diff", "--cached", "--name-only"); got != "" {
		t.Errorf("added: %q", got)
	}
}

func TestDiffOfOddThings(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	p.write("bin", "\x00\x01")
	p.write("name\twith \"odd\" é", "1\n")
	p.write("run.sh", "x\n")
	p.commit("odd")
	p.write("bin", "\x00\x02")
	p.write("a.txt", "caf\xe9\n")
	p.write("name\twith \"odd\" é", "2\n")
	if err := os.Chmod(filepath.Join(p.dir, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := y.open("r", policy.Read).Diff(t.Context(), DiffOptions{Context: 0})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+caf\ufffd\n", "Binary files a/bin and b/bin differ", "old mode 100644\nnew mode 100755\n", `"b/name\twith \"odd\" é"`, "@@ -1,3 +1 @@"} {
		if !strings.Contains(d.Patch, want) {
			t.Errorf("%q is not in %s", want, d.Patch)
		}
	}
	if d.Files != 4 || d.Insertions != 2 || d.Deletions != 4 {
		t.Errorf("%+v", d)
	}
}

func TestDiffBetweenCommits(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	p.write("b.txt", "b\n")
	p.commit("second")
	p.write("a.txt", "9\n")
	r := y.open("r", policy.Read)
	for _, c := range []struct {
		o    DiffOptions
		want []string
	}{
		{DiffOptions{}, []string{"a.txt"}},
		{DiffOptions{Ref: "HEAD~1"}, []string{"a.txt", "b.txt"}},
		{DiffOptions{Ref: "HEAD", Base: "HEAD~1"}, []string{"b.txt"}},
		{DiffOptions{Base: "HEAD~1"}, []string{"a.txt", "b.txt"}},
		{DiffOptions{Ref: "HEAD~1", Staged: true}, []string{"b.txt"}},
		{DiffOptions{Ref: "HEAD~1", File: filepath.Join(p.dir, "b.txt")}, []string{"b.txt"}},
		{DiffOptions{File: filepath.Join(p.dir, "nope")}, nil},
		{DiffOptions{File: p.dir}, []string{"a.txt"}},
	} {
		c.o.Context = -1
		d, err := r.Diff(t.Context(), c.o)
		var got []string
		for line := range strings.Lines(d.Patch) {
			if rest, ok := strings.CutPrefix(line, "diff --git a/"); ok {
				got = append(got, strings.Fields(rest)[0])
			}
		}
		if !slices.Equal(got, c.want) || err != nil || d.Files != len(c.want) {
			t.Errorf("%+v: %v %v", c.o, got, err)
		}
	}
	_, err := r.Diff(t.Context(), DiffOptions{Ref: "nosuch"})
	wantGitError(t, "unknown ref", err, "unknown commit or branch: nosuch")
	_, err = r.Diff(t.Context(), DiffOptions{Ref: "--output=/tmp/x"})
	wantGitError(t, "an option", err, "unknown commit")
	_, err = r.Diff(t.Context(), DiffOptions{File: y.base})
	wantGitError(t, "outside", err, "outside the repository")
}

func TestLargeDiffIsCutAndItsNumbersAreWhole(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	p.write("a.txt", strings.Repeat("中文\n", 400_000))
	d, err := y.open("r", policy.Read).Diff(t.Context(), DiffOptions{Context: -1})
	if err != nil || !d.Truncated || len(d.Patch) > MaxDiff || len(d.Patch) < MaxDiff-4 || d.Insertions != 400_000 || d.Deletions != 3 {
		t.Errorf("%d bytes, %v, %d %d, %v", len(d.Patch), d.Truncated, d.Insertions, d.Deletions, err)
	}
}

func TestHistory(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	p.write("b", "1")
	p.git("add", "b")
	p.git("commit", "-q", "-m", "second: é\n\nbody line\n\x1e and more")
	p.git("checkout", "-q", "-b", "side", "HEAD~1")
	p.write("c", "1")
	p.commit("third")
	p.git("merge", "-q", "--no-edit", "main")
	r := y.open("r", policy.Read)
	l, err := r.Log(t.Context(), LogOptions{Limit: 10})
	if err != nil || len(l.Commits) != 4 || len(l.Commits[0].Parents) != 2 {
		t.Fatalf("%+v %v", l, err)
	}
	l, err = r.Log(t.Context(), LogOptions{Limit: 10, Ref: "main"})
	if err != nil || len(l.Commits) != 2 {
		t.Fatalf("%+v %v", l, err)
	}
	got := l.Commits[0]
	when, dateErr := time.Parse(time.RFC3339, got.Date)
	if got.Subject != "second: é" || got.Body != "body line\n\x1e and more" || got.AuthorName != "Ann" || got.AuthorEmail != "a@x" || dateErr != nil || time.Since(when) > time.Hour {
		t.Errorf("%+v", got)
	}
	if l, err = r.Log(t.Context(), LogOptions{Limit: 1}); len(l.Commits) != 1 || err != nil {
		t.Errorf("%+v %v", l, err)
	}
	if l, err = r.Log(t.Context(), LogOptions{Limit: 9, File: filepath.Join(p.dir, "c")}); len(l.Commits) != 1 || err != nil {
		t.Errorf("%+v %v", l, err)
	}
	current, all, err := r.Branches(t.Context())
	if err != nil || current != "side" || len(all) != 2 || all[0].Name != "main" || all[0].Commit != p.git("rev-parse", "main") {
		t.Errorf("%q %v %v", current, all, err)
	}
}

func TestHistoryOfABrokenRepositoryIsNotEmpty(t *testing.T) {
	for name, breakIt := range map[string]func(p plainRepo){
		"branch":  func(p plainRepo) { p.write(".git/refs/heads/main", "garbage\n") },
		"commit":  func(p plainRepo) { p.write(".git/refs/heads/main", strings.Repeat("01", 20)+"\n") },
		"HEAD":    func(p plainRepo) { p.write(".git/HEAD", "ref: ../../x\n") },
		"setting": func(p plainRepo) { p.git("config", "core.filemode", "maybe") },
		"packed":  func(p plainRepo) { p.write(".git/packed-refs", "what is this\n") },
	} {
		y := newYard(t)
		p := y.repo("r")
		p.git("pack-refs", "--all")
		breakIt(p)
		l, err := y.open("r", policy.Read).Log(t.Context(), LogOptions{Limit: 10})
		if _, ok := errors.AsType[*GitError](err); !ok {
			t.Errorf("%s: %+v %v", name, l, err)
		}
	}
}

func TestFullMemoryDirectoryIsPassedOver(t *testing.T) {
	full := filepath.Join(t.TempDir(), "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no file system of our own: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(full, unix.MNT_DETACH) })
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := privateDirIn(full)
	if err != nil || filepath.Dir(dir) != os.Getenv("TMPDIR") {
		t.Errorf("got %q %v", dir, err)
	}
}

func TestExcludedCommitIsNoPlaceToStart(t *testing.T) {
	y := newYard(t)
	y.repo("r")
	r := y.open("r", policy.Write)
	_, err := r.Log(t.Context(), LogOptions{Limit: 10, Ref: "^HEAD"})
	wantGitError(t, "log", err, "unknown commit or branch: ^HEAD")
	_, err = r.Diff(t.Context(), DiffOptions{Ref: "^HEAD"})
	wantGitError(t, "diff", err, "unknown commit or branch: ^HEAD")
	wantGitError(t, "reset", r.Reset(t.Context(), ResetOptions{Mode: "hard", Target: "^HEAD"}), "unknown commit or branch: ^HEAD")
}

// hostile makes a repository run touch wherever its settings, hooks and
// attributes can.
func hostile(p plainRepo, mark string) {
	touch := "touch " + mark
	for key, value := range map[string]string{
		"core.fsmonitor":             touch + "; false",
		"core.hooksPath":             filepath.Join(p.dir, "hooks"),
		"core.pager":                 touch + "; cat",
		"core.editor":                touch,
		"core.sshCommand":            touch,
		"core.askPass":               touch,
		"core.gitProxy":              touch,
		"credential.helper":          "!" + touch,
		"diff.external":              touch + "; true",
		"diff.y.textconv":            touch + "; cat",
		"diff.y.command":             touch,
		"filter.x.clean":             touch + "; cat",
		"filter.x.smudge":            touch + "; cat",
		"filter.x.process":           touch,
		"filter.x.required":          "true",
		"merge.z.driver":             touch + "; true",
		"gpg.program":                touch,
		"commit.gpgSign":             "true",
		"log.showSignature":          "true",
		"alias.status":               "!" + touch,
		"alias.log":                  "!" + touch,
		"sequence.editor":            touch,
		"gc.auto":                    "1",
		"uploadpack.packObjectsHook": touch,
		"remote.origin.uploadpack":   touch,
		"remote.origin.receivepack":  touch,
		"remote.origin.vcs":          "ext",
		"remote.ext.url":             "ext::sh -c '" + touch + "'",
		"url.ext::sh -c '" + touch + "' #.insteadOf": "https://",
		"protocol.allow":            "always",
		"protocol.ext.allow":        "always",
		"submodule.recurse":         "true",
		"core.alternateRefsCommand": touch,
		"color.ui":                  "always",
		"diff.noprefix":             "true",
		"status.showUntrackedFiles": "no",
	} {
		p.git("config", key, value)
	}
	for _, dir := range []string{".git/hooks", "hooks"} {
		for _, hook := range []string{
			"pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-checkout", "post-merge", "pre-push", "pre-rebase",
			"post-index-change", "reference-transaction", "post-rewrite", "pre-auto-gc", "pre-receive", "update", "post-receive",
			"post-update", "fsmonitor-watchman", "push-to-checkout", "proc-receive", "pre-merge-commit",
		} {
			p.write(dir+"/"+hook, "#!/bin/sh\n"+touch+"\n")
			_ = os.Chmod(filepath.Join(p.dir, dir, hook), 0o755)
		}
	}
	p.write(".git/info/attributes", "* filter=x diff=y merge=z\n")
	p.write(".gitattributes", "* filter=x diff=y merge=z\n")
	p.write(".git/info/exclude", "/hooks/\n/.gitattributes\n")
}

func TestRepositoryRunsNoPrograms(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	origin := y.repo("origin")
	origin.git("checkout", "-q", "--detach")
	p.write("b.txt", "b\n")
	p.commit("second")
	p.git("remote", "add", "origin", origin.dir)
	mark := filepath.Join(y.base, "mark")
	hostile(p, mark)
	hostile(origin, mark)
	_ = os.Remove(mark)
	// The user's settings are no better.
	writeFile(t, filepath.Join(y.env["HOME"], ".gitconfig"), "[core]\nfsmonitor = touch "+mark+"\n[alias]\nstatus = !touch "+mark+"\n[user]\nname = Home\n")
	for _, name := range []string{"GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_SSH_COMMAND", "EDITOR"} {
		y.env[name] = "touch " + mark
	}
	p.write("a.txt", "changed\n")
	ctx := t.Context()
	steps := []struct {
		name string
		do   func(*Repo) error
	}{
		{"status", func(r *Repo) error {
			st, err := r.Status(ctx)
			if err == nil && !slices.Contains(names(st.Files), " M a.txt") {
				err = fmt.Errorf("%v", names(st.Files))
			}
			return err
		}},
		{"diff", func(r *Repo) error {
			d, err := r.Diff(ctx, DiffOptions{Context: -1})
			if err == nil && (!strings.Contains(d.Patch, "+changed") || !strings.HasPrefix(d.Patch, "diff --git a/a.txt b/a.txt\n")) {
				err = errors.New(d.Patch)
			}
			return err
		}},
		{"log", func(r *Repo) error { _, err := r.Log(ctx, LogOptions{Limit: 5}); return err }},
		{"branches", func(r *Repo) error { _, _, err := r.Branches(ctx); return err }},
		{"add", func(r *Repo) error { return r.Add(ctx, nil, true) }},
		{"commit", func(r *Repo) error { return r.Commit(ctx, CommitOptions{Message: "m", Email: "e@x"}) }},
		{"create", func(r *Repo) error { return r.CreateBranch(ctx, "side", false) }},
		{"checkout", func(r *Repo) error { return r.Checkout(ctx, "main", true) }},
		{"delete", func(r *Repo) error { return r.DeleteBranch(ctx, "side", true) }},
		{"reset", func(r *Repo) error { return r.Reset(ctx, ResetOptions{Mode: "hard", Target: "HEAD~1"}) }},
		{"restore", func(r *Repo) error {
			return r.Restore(ctx, RestoreOptions{Files: []string{filepath.Join(p.dir, "a.txt")}, Worktree: true, Staged: true, Source: "HEAD"})
		}},
		{"push", func(r *Repo) error {
			_, _, err := r.Push(ctx, PushOptions{Remote: "origin", Branch: "main"})
			return err
		}},
		{"pull", func(r *Repo) error { return r.Pull(ctx, PullOptions{Remote: "origin", Branch: "main"}) }},
		{"config", func(r *Repo) error { v := "x"; return r.Configure(ctx, "user.name", &v) }},
		{"add remote", func(r *Repo) error { return r.AddRemote(ctx, "other", "https://example.org/x", false) }},
		{"remove remote", func(r *Repo) error { return r.RemoveRemote(ctx, "other") }},
	}
	for _, s := range steps {
		r := y.open("r", policy.Write)
		if err := s.do(r); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if _, err := os.Stat(mark); err == nil {
			t.Errorf("%s ran a program", s.name)
			_ = os.Remove(mark)
		}
	}
	if r, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: "r", Path: "copy"}); err != nil {
		t.Errorf("clone: %v", err)
	} else {
		r.Close()
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("clone ran a program")
	}
	if got := p.read(".git/config"); !strings.Contains(got, "fsmonitor") {
		t.Errorf("the configuration was rewritten: %s", got)
	}
}

func TestNothingOutsideIsShown(t *testing.T) {
	const secret = "OUTSIDE"
	for name, prepare := range map[string]func(y *yard, out plainRepo){
		"work tree outside":  func(y *yard, out plainRepo) { y.repo("r").git("config", "core.worktree", out.dir) },
		"work tree relative": func(y *yard, _ plainRepo) { y.repo("r").git("config", "core.worktree", "../../../outside") },
		".git file outside": func(y *yard, out plainRepo) {
			writeFile(y.t, filepath.Join(y.base, "r/.git"), "gitdir: "+out.dir+"/.git\n")
		},
		".git link outside": func(y *yard, out plainRepo) {
			_ = os.Mkdir(filepath.Join(y.base, "r"), 0o755)
			_ = os.Symlink(out.dir+"/.git", filepath.Join(y.base, "r/.git"))
		},
		"common directory outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			p.write(".git/commondir", out.dir+"/.git\n")
		},
		"objects link outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			_ = os.RemoveAll(filepath.Join(p.dir, ".git/objects"))
			_ = os.Symlink(out.dir+"/.git/objects", filepath.Join(p.dir, ".git/objects"))
			p.write(".git/refs/heads/main", out.git("rev-parse", "HEAD")+"\n")
		},
		"pack link outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			_ = os.RemoveAll(filepath.Join(p.dir, ".git/objects/pack"))
			_ = os.Symlink(out.dir+"/.git/objects/pack", filepath.Join(p.dir, ".git/objects/pack"))
		},
		"index link outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			_ = os.Remove(filepath.Join(p.dir, ".git/index"))
			_ = os.Symlink(out.dir+"/.git/index", filepath.Join(p.dir, ".git/index"))
		},
		"refs link outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			_ = os.RemoveAll(filepath.Join(p.dir, ".git/refs/heads"))
			_ = os.Symlink(out.dir+"/.git/refs/heads", filepath.Join(p.dir, ".git/refs/heads"))
		},
		"alternates outside": func(y *yard, out plainRepo) {
			p := y.repo("r")
			p.write(".git/objects/info/alternates", out.dir+"/.git/objects\n")
			p.write(".git/refs/heads/main", out.git("rev-parse", "HEAD")+"\n")
		},
		"alternates of alternates outside": func(y *yard, out plainRepo) {
			p, q := y.repo("r"), y.repo("q")
			p.write(".git/objects/info/alternates", "../../../q/.git/objects\n")
			q.write(".git/objects/info/alternates", out.dir+"/.git/objects\n")
			p.write(".git/refs/heads/main", out.git("rev-parse", "HEAD")+"\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			out := y.repo(y.outside)
			out.write("a.txt", secret+"\n")
			out.commit(secret)
			out.write("a.txt", secret+"\nmore\n")
			prepare(y, out)
			r, err := y.git.Open(t.Context(), y.caller(policy.Read), "r")
			if err == nil {
				r.Close()
			}
			wantDenied(t, name, err, policy.PathNotAllowed)
		})
	}
}

func TestIncludesAreNotRead(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	writeFile(t, filepath.Join(y.outside, "config"), "[remote \"secret\"]\nurl = https://OUTSIDE/\nfetch = x\n[user]\nname = OUTSIDE\n")
	p.git("config", "include.path", filepath.Join(y.outside, "config"))
	r := y.open("r", policy.Write)
	if all := r.Remotes(); len(all) != 0 {
		t.Errorf("%v", all)
	}
	err := r.Commit(t.Context(), CommitOptions{Message: "m", AllowEmpty: true, Email: "e@x"})
	wantGitError(t, "a name from outside", err, "")
}

func TestRepositoryAroundTheAllowedDirectoryIsNotSeen(t *testing.T) {
	y := newYard(t)
	y.repo(filepath.Dir(y.base))
	_, err := y.git.Open(t.Context(), y.caller(policy.Read), ".")
	wantGitError(t, "above the base", err, "not a git repository")
	if err := os.MkdirAll(filepath.Join(y.base, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = y.git.Open(t.Context(), y.caller(policy.Read), "a/b")
	wantGitError(t, "above the base", err, "not a git repository")
	y.repo("")
	if st := y.status("a/b"); st.Branch != "main" {
		t.Errorf("the base itself: %+v", st)
	}
}

func TestObjectsExchangedMeanwhileAreNotShown(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	r := y.open("r", policy.Read)
	p.write(".git/objects/info/alternates", filepath.Join(y.outside, "objects")+"\n")
	_, err := r.Status(t.Context())
	wantGitError(t, "status", err, "changed while it was read")
	_, err = r.Log(t.Context(), LogOptions{Limit: 1})
	wantGitError(t, "log", err, "changed while it was read")
}

func TestOddRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(p plainRepo)
		want    string
	}{
		"bare":         {func(p plainRepo) { p.git("config", "core.bare", "true") }, "work tree"},
		"bad config":   {func(p plainRepo) { p.write(".git/config", "[core\n") }, "bad config line"},
		"empty file":   {func(p plainRepo) { _ = os.RemoveAll(filepath.Join(p.dir, ".git")); p.write(".git", "") }, "invalid .git file"},
		"file to none": {func(p plainRepo) { _ = os.RemoveAll(filepath.Join(p.dir, ".git")); p.write(".git", "gitdir: nope\n") }, "not a git repository"},
		"no head":      {func(p plainRepo) { _ = os.Remove(filepath.Join(p.dir, ".git/HEAD")) }, "not a git repository"},
		"huge config":  {func(p plainRepo) { p.write(".git/config", strings.Repeat("# x\n", 1<<19)) }, "cannot be read"},
		"format 7":     {func(p plainRepo) { p.git("config", "core.repositoryformatversion", "7") }, ""},
		"lazy fetching": {func(p plainRepo) {
			p.git("config", "core.repositoryformatversion", "1")
			p.git("config", "extensions.partialClone", "origin")
			p.git("config", "remote.origin.url", "https://127.0.0.1:1/")
			p.git("config", "remote.origin.promisor", "true")
			hash := p.git("rev-parse", "HEAD^{tree}")
			_ = os.Remove(filepath.Join(p.dir, ".git/objects", hash[:2], hash[2:]))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			p := y.repo("r")
			c.prepare(p)
			r, err := y.git.Open(t.Context(), y.caller(policy.Read), "r")
			if err == nil {
				defer r.Close()
				_, err = r.Diff(t.Context(), DiffOptions{Staged: true, Context: -1})
			}
			wantGitError(t, name, err, c.want)
		})
	}
	y := newYard(t)
	_, err := y.git.Open(t.Context(), y.caller(policy.Read), "missing")
	wantGitError(t, "missing", err, "not a git repository")
	_, err = y.git.Open(t.Context(), y.caller(policy.Read), "/etc")
	wantDenied(t, "outside", err, policy.PathNotAllowed)
	y.env["PATH"] = "/nonexistent"
	if _, err = y.git.Open(t.Context(), y.caller(policy.Read), "."); !errors.Is(err, ErrGitMissing) {
		t.Errorf("without git: %v", err)
	}
}

func TestPipeInARepositoryDoesNotHang(t *testing.T) {
	find(t, "mkfifo")
	y := newYard(t)
	p := y.repo("r")
	if err := os.Remove(filepath.Join(p.dir, ".git/index")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", filepath.Join(p.dir, ".git/index")).CombinedOutput(); err != nil {
		t.Skipf("%s", out)
	}
	_, err := y.git.Open(t.Context(), y.caller(policy.Read), "r")
	wantGitError(t, "pipe", err, "cannot be read")
}

func TestForeignOwnersRepositoryWorks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	y := newYard(t)
	p := y.repo("r")
	err := filepath.WalkDir(p.dir, func(name string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, 12345, 12345))
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := y.status("r"); st.Branch != "main" {
		t.Errorf("%+v", st)
	}
	if r, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: "r", Path: "copy"}); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

func TestDeniedFilesAreNeverShown(t *testing.T) {
	y := newYard(t, "**/*.pem", "/x/abs", "secret")
	p := y.repo("r")
	for _, name := range []string{"k.pem", "s/k.pem", "s/ok", "secret/deep/x", "moved.txt"} {
		p.write(name, "old\nold\nold\n")
	}
	p.commit("all")
	for _, name := range []string{"k.pem", "s/k.pem", "secret/deep/x"} {
		p.write(name, "HIDDEN\n")
	}
	p.write("s/ok", "shown\n")
	p.write("new.pem", "HIDDEN\n")
	p.git("mv", "moved.txt", "moved.pem")
	r := y.open("r", policy.Read)
	st, err := r.Status(t.Context())
	if d := cmp.Diff([]string{" M s/ok"}, names(st.Files)); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, o := range []DiffOptions{{File: filepath.Join(p.dir, "s")}, {}, {Ref: "HEAD"}, {File: p.dir, Ref: "HEAD", Staged: true}} {
		o.Context = -1
		d, err := r.Diff(t.Context(), o)
		if err != nil || strings.Contains(d.Patch, "HIDDEN") || strings.Contains(d.Patch, ".pem") || strings.Contains(d.Patch, "deep") {
			t.Errorf("%+v: %v %s", o, err, d.Patch)
		}
		if !o.Staged && (d.Files < 1 || !strings.Contains(d.Patch, "+shown")) {
			t.Errorf("%+v: what may be shown is not: %+v", o, d)
		}
	}
	w := y.open("r", policy.Write)
	if err := w.Add(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	if got := p.git("diff", "--cached", "--name-only", "--no-renames"); got != "moved.pem\nmoved.txt\ns/ok" {
		t.Errorf("added: %q", got)
	}
	wantDenied(t, "reset", w.Reset(t.Context(), ResetOptions{Mode: "hard"}), policy.PathDenied)
	wantDenied(t, "restore", w.Restore(t.Context(), RestoreOptions{Files: []string{filepath.Join(p.dir, "s")}, Worktree: true}), policy.PathDenied)
	if got := p.read("s/k.pem"); got != "HIDDEN\n" {
		t.Errorf("a denied file was written: %q", got)
	}
	_, err = y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: "r", Path: "copy"})
	wantDenied(t, "clone", err, policy.PathDenied)
	if _, err := os.Stat(filepath.Join(y.base, "copy")); !os.IsNotExist(err) {
		t.Errorf("a refused clone is left: %v", err)
	}
}

func TestFilesWithAnotherNameOutsideAreNotShown(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	writeFile(t, filepath.Join(y.outside, "secret"), "OUTSIDE\n")
	if err := errors.Join(os.Remove(filepath.Join(p.dir, "a.txt")), os.Link(filepath.Join(y.outside, "secret"), filepath.Join(p.dir, "a.txt"))); err != nil {
		t.Skip(err)
	}
	y.rules = policy.NewPathRules(nil, nil, false, false, true)
	by := y.caller(policy.Read)
	by.Denies = true
	r, err := y.git.Open(t.Context(), by, "r")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if d, err := r.Diff(t.Context(), DiffOptions{Context: -1}); err != nil || strings.Contains(d.Patch, "OUTSIDE") {
		t.Errorf("%v %s", err, d.Patch)
	}
}

func TestReadsChangeNothing(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	p.write("a.txt", "1\n2\n3\n") // the same, with another time
	before := tree(t, p.dir)
	r := y.open("r", policy.Read)
	if _, err := r.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Diff(t.Context(), DiffOptions{Context: -1}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, tree(t, p.dir)); d != "" {
		t.Error(d)
	}
	shadow := r.shadow
	r.Close()
	if _, err := os.Stat(shadow); !os.IsNotExist(err) {
		t.Errorf("the shadow is left: %v", err)
	}
}

// tree describes all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && !d.IsDir() {
			out[name] = fmt.Sprint(info.Size(), info.ModTime(), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestGitThatTakesTooLongIsEnded(t *testing.T) {
	y := newYard(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "git"), "#!/bin/sh\nsleep 60\n")
	if err := os.Chmod(filepath.Join(dir, "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	y.repo("r")
	r := y.open("r", policy.Read)
	r.by.Env = map[string]string{"PATH": dir + ":" + os.Getenv("PATH")}
	v := r.invoke("status")
	v.timeout = 100 * time.Millisecond
	if err := r.stream(t.Context(), v, func([]byte) error { return nil }); !errors.Is(err, ErrGitTimeout) {
		t.Errorf("stream: %v", err)
	}
	if _, err := r.run(t.Context(), v); !errors.Is(err, ErrGitTimeout) {
		t.Errorf("run: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.run(ctx, r.invoke("status")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that leaves: %v", err)
	}
}
