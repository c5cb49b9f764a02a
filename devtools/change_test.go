package devtools

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestChangingARepository(t *testing.T) {
	y := newYard(t)
	ctx := t.Context()
	dir, err := y.git.Init(ctx, y.caller(policy.Write), InitOptions{Path: "deep/r", Branch: "trunk"})
	if err != nil || dir != filepath.Join(y.base, "deep/r") {
		t.Fatal(dir, err)
	}
	p := plainRepo{t, dir}
	_, err = y.git.Init(ctx, y.caller(policy.Write), InitOptions{Path: "deep/r"})
	wantGitError(t, "again", err, "already")
	p.write("a", "1\n")
	p.write("b", "1\n")
	p.write("-c", "1\n")
	p.write(":(glob)*", "1\n")
	r := y.open("deep/r", policy.Write)
	if err := r.Add(ctx, []string{filepath.Join(dir, "a"), filepath.Join(dir, "-c")}, false); err != nil {
		t.Fatal(err)
	}
	if got := p.git("diff", "--cached", "--name-only"); got != "-c\na" {
		t.Errorf("added %q", got)
	}
	wantGitError(t, "missing file", r.Add(ctx, []string{filepath.Join(dir, "nope")}, false), "did not match any files")
	wantGitError(t, "nobody", r.Commit(ctx, CommitOptions{Message: "m"}), "author_name")
	if err := r.Commit(ctx, CommitOptions{Message: "-m\n\nbody\n# no comment", Name: "Bob", Email: "b@x"}); err != nil {
		t.Fatal(err)
	}
	if got := p.git("log", "--format=%an %ae %cn|%B"); got != "Bob b@x Bob|-m\n\nbody\n# no comment" {
		t.Errorf("committed %q", got)
	}
	wantGitError(t, "nothing", r.Commit(ctx, CommitOptions{Message: "m", Name: "B", Email: "b@x"}), "")
	if err := r.Commit(ctx, CommitOptions{Message: "empty", Name: "B", Email: "b@x", AllowEmpty: true}); err != nil {
		t.Error(err)
	}
	if err := r.Add(ctx, nil, true); err != nil {
		t.Error(err)
	}
	if err := r.Reset(ctx, ResetOptions{Mode: "mixed", Files: []string{filepath.Join(dir, "b")}}); err != nil {
		t.Error(err)
	}
	if got := p.git("diff", "--cached", "--name-only"); got != ":(glob)*" {
		t.Errorf("after the reset of a file: %q", got)
	}
	p.write("a", "2\n")
	if err := r.Restore(ctx, RestoreOptions{Files: []string{filepath.Join(dir, "a")}, Worktree: true}); err != nil || p.read("a") != "1\n" {
		t.Errorf("restore: %v %q", err, p.read("a"))
	}
	if err := r.Reset(ctx, ResetOptions{Mode: "soft", Target: "HEAD~1"}); err != nil || p.git("rev-list", "--count", "HEAD") != "1" {
		t.Errorf("reset: %v", err)
	}
	if err := r.Reset(ctx, ResetOptions{Mode: "hard"}); err != nil {
		t.Error(err)
	}
	if got := p.git("fsck", "--strict"); got != "" && !strings.Contains(got, "dangling") {
		t.Errorf("fsck: %s", got)
	}
}

func TestBranches(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	ctx := t.Context()
	r := y.open("r", policy.Write)
	steps := []struct {
		name string
		do   func() error
		want string // branches with * at the current one
	}{
		{"create", func() error { return r.CreateBranch(ctx, "a/b", false) }, "* a/b main"},
		{"checkout", func() error { return r.Checkout(ctx, "main", false) }, "a/b * main"},
		{"checkout itself", func() error { return r.Checkout(ctx, "main", false) }, "a/b * main"},
		{"force", func() error { return r.CreateBranch(ctx, "a/b", true) }, "* a/b main"},
		{"back", func() error { return r.Checkout(ctx, "main", false) }, "a/b * main"},
		{"delete", func() error { return r.DeleteBranch(ctx, "a/b", false) }, "* main"},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if got := strings.Join(strings.Fields(p.git("branch")), " "); got != s.want {
			t.Errorf("%s: %q", s.name, got)
		}
	}
	wantGitError(t, "current", r.DeleteBranch(ctx, "main", true), "current branch")
	wantGitError(t, "unknown", r.DeleteBranch(ctx, "nosuch", true), "not found")
	wantGitError(t, "unknown", r.Checkout(ctx, "nosuch", false), "unknown commit or branch")
	p.git("branch", "other")
	wantGitError(t, "exists", r.CreateBranch(ctx, "other", false), "already exists")
	p.git("checkout", "-q", "other")
	p.write("a.txt", "other\n")
	p.commit("other")
	p.git("checkout", "-q", "main")
	p.write("a.txt", "mine\n")
	wantGitError(t, "changes", r.Checkout(ctx, "other", false), "overwritten by checkout")
	wantGitError(t, "unmerged", r.DeleteBranch(ctx, "other", false), "not fully merged")
	if err := r.Checkout(ctx, "other", true); err != nil || p.read("a.txt") != "other\n" {
		t.Errorf("force: %v %q", err, p.read("a.txt"))
	}
}

func TestRemoteBranchIsMadeAndFollowed(t *testing.T) {
	y := newYard(t)
	origin := y.repo("origin")
	origin.git("branch", "feature")
	p := y.repo("r")
	p.git("remote", "add", "origin", origin.dir)
	p.git("fetch", "-q", "origin")
	r := y.open("r", policy.Write)
	if err := r.Checkout(t.Context(), "feature", false); err != nil {
		t.Fatal(err)
	}
	if got := p.git("rev-parse", "--abbrev-ref", "feature@{upstream}"); got != "origin/feature" {
		t.Errorf("follows %q", got)
	}
	if st := y.status("r"); st.Branch != "feature" || st.Upstream != "origin/feature" || !st.Tracked {
		t.Errorf("%+v", st)
	}
	if err := r.Checkout(t.Context(), "main", false); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteBranch(t.Context(), "feature", true); err != nil {
		t.Fatal(err)
	}
	if got := p.read(".git/config"); strings.Contains(got, "feature") {
		t.Errorf("left: %s", got)
	}
}

func TestHarmlessSettingsOnly(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	ctx := t.Context()
	r := y.open("r", policy.Write)
	set := func(key, value string) error { return r.Configure(ctx, key, &value) }
	for key, value := range map[string]string{
		"user.name": "-Ann \"é\"; # x", "User.Email": "a@x", "pull.rebase": "true", "push.default": "current",
		"init.defaultBranch": "trunk", "core.autocrlf": "input", "core.fileMode": "false",
	} {
		if err := set(key, value); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		if got := p.git("config", "--local", key); got != value {
			t.Errorf("%s: git reads %q", key, got)
		}
		if got, err := r.Config(key); err != nil || len(got) != 1 || got[0].Value != value {
			t.Errorf("%s: we read %v %v", key, got, err)
		}
	}
	for _, key := range []string{
		"core.fsmonitor", "core.hooksPath", "core.sshCommand", "alias.x", "filter.x.clean", "credential.helper", "init.templateDir",
		"user", "user.", ".name", "user.a.b", "user.na me", "user.\n", "include.path", "remote.origin.url", "core.autocrlf\n[alias]x", "",
	} {
		if err := set(key, "x"); err == nil {
			t.Errorf("%q was set", key)
		} else {
			wantGitError(t, key, err, "only user")
		}
		if _, err := r.Config(key); err == nil && key != "" {
			t.Errorf("%q is shown", key)
		}
	}
	if err := errors.Join(r.Configure(ctx, "user.name", nil), r.Configure(ctx, "user.name", nil)); err != nil {
		t.Errorf("unset: %v", err)
	}
	if all, err := r.Config(""); err != nil || len(all) != 6 {
		t.Errorf("all: %v %v", all, err)
	}
	y.rules = policy.NewPathRules(nil, nil, true, false, false)
	by := y.caller(policy.Read)
	by.Op = policy.Write
	_, err := y.git.Open(ctx, by, "r")
	wantDenied(t, "read-only", err, policy.ReadOnlyPath)
}

func TestSettingThatGitCannotReadIsRefused(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	for _, c := range [][2]string{{"core.filemode", "maybe"}, {"core.autocrlf", "x"}, {"push.default", "x"}, {"Core.FileMode", "maybe"}} {
		err := y.open("r", policy.Write).Configure(t.Context(), c[0], &c[1])
		wantGitError(t, c[0], err, strings.ToLower(c[0]))
		y.status("r") // as before
	}
	// A repository that has such a setting can be repaired.
	p.git("config", "core.autocrlf", "x")
	p.git("config", "core.filemode", "maybe")
	for _, c := range [][2]string{{"core.filemode", "true"}, {"core.autocrlf", "input"}} {
		if err := y.open("r", policy.Write).Configure(t.Context(), c[0], &c[1]); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	y.status("r")
}

func TestSettingsOfTheUser(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	ctx := t.Context()
	name := "Home"
	err := y.git.ConfigureUser(ctx, y.caller(policy.Write), "user.name", &name)
	wantDenied(t, "a home outside", err, policy.PathNotAllowed)
	y.env["HOME"] = y.base
	if err := y.git.ConfigureUser(ctx, y.caller(policy.Write), "user.name", &name); err != nil {
		t.Fatal(err)
	}
	if got, err := y.git.UserConfig(y.caller(policy.Write), ""); err != nil || len(got) != 1 || got[0].Value != "Home" {
		t.Errorf("%v %v", got, err)
	}
	r := y.open("r", policy.Write)
	if err := r.Commit(ctx, CommitOptions{Message: "m", AllowEmpty: true, Email: "e@x"}); err != nil {
		t.Fatal(err)
	}
	if got := p.git("log", "-1", "--format=%an %ae"); got != "Home e@x" {
		t.Errorf("%q", got)
	}
	if err := y.git.ConfigureUser(ctx, y.caller(policy.Write), "user.name", nil); err != nil {
		t.Error(err)
	}
}

func TestRemotesAreNamed(t *testing.T) {
	y := newYard(t)
	p := y.repo("r")
	other := y.repo("other")
	ctx := t.Context()
	r := y.open("r", policy.Write)
	if err := errors.Join(
		r.AddRemote(ctx, "origin", "https://example.org/a b.git", false),
		r.AddRemote(ctx, "near", "../other", false),
		r.AddRemote(ctx, "ssh", "git@example.org:x/y.git", false),
		r.SetRemote(ctx, "ssh", "ssh://git@example.org:2222/x"),
	); err != nil {
		t.Fatal(err)
	}
	want := []Remote{{"near", other.dir, ""}, {"origin", "https://example.org/a%20b.git", ""}, {"ssh", "ssh://git@example.org:2222/x", ""}}
	if d := cmp.Diff(want, r.Remotes()); d != "" {
		t.Error(d)
	}
	if got := p.git("remote", "get-url", "near"); got != other.dir {
		t.Errorf("git reads %q", got)
	}
	p.git("fetch", "-q", "near")
	wantGitError(t, "twice", r.AddRemote(ctx, "origin", "https://example.org/c", false), "already exists")
	wantGitError(t, "none", r.SetRemote(ctx, "nope", "https://example.org/c"), "no such remote")
	wantGitError(t, "none", r.RemoveRemote(ctx, "nope"), "no such remote")
	wantGitError(t, "credentials", r.AddRemote(ctx, "c", "https://u:secret@example.org/c", false), "would be stored")
	wantDenied(t, "outside", r.AddRemote(ctx, "o", y.outside, false), policy.PathNotAllowed)
	if err := r.RemoveRemote(ctx, "near"); err != nil {
		t.Error(err)
	}
	if got := p.git("for-each-ref", "refs/remotes"); got != "" {
		t.Errorf("left: %q", got)
	}
	p.git("remote", "add", "leaky", "https://u:secret@example.org/c")
	if got := y.open("r", policy.Read).Remotes(); got[0].URL != "https://example.org/c" {
		t.Errorf("credentials are shown: %v", got)
	}
}

func TestNamesOfBranches(t *testing.T) {
	find(t, "git")
	dir := t.TempDir()
	for _, name := range []string{
		"a", "a/b", "a-b", "-a", "a..b", "a.", ".a", "a/.b", "a.lock", "a.lock/b", "a//b", "/a", "a/", "a@{b", "a b", "a~", "a^", "a:b", "a?",
		"a*", "a[", `a\b`, "a\x7f", "a\n", "é", "HEAD", "", "a@b", "refs/heads/x", "--output=x", "a.b",
	} {
		err := exec.Command("git", "-C", dir, "check-ref-format", "--branch", name).Run()
		if want := err == nil && name != "HEAD"; IsBranchName(name) != want {
			t.Errorf("%q: %v, git says %v", name, IsBranchName(name), want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOf(rapid.RuneFrom([]rune("ab./-@{}~^:?*[\\ \n.lock"))).Draw(t, "name")
		if IsBranchName(name) && exec.Command("git", "check-ref-format", "refs/heads/"+name).Run() != nil {
			t.Errorf("git refuses %q", name)
		}
	})
}

func TestFailedInitLeavesNoOddities(t *testing.T) {
	y := newYard(t)
	ctx := t.Context()
	_, err := y.git.Init(ctx, y.caller(policy.Write), InitOptions{Path: "../outside/x"})
	wantDenied(t, "outside", err, policy.PathNotAllowed)
	if err := os.MkdirAll(filepath.Join(y.base, "link"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(y.outside, "g"), filepath.Join(y.base, "link/.git")); err != nil {
		t.Fatal(err)
	}
	if _, err = y.git.Init(ctx, y.caller(policy.Write), InitOptions{Path: "link"}); err == nil {
		t.Error("made through a link")
	}
	if _, err := os.Stat(filepath.Join(y.outside, "g")); !os.IsNotExist(err) {
		t.Error("something was made outside")
	}
	dir, err := y.git.Init(ctx, y.caller(policy.Write), InitOptions{Path: "bare.git", Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := (plainRepo{t, dir}).git("rev-parse", "--is-bare-repository"); got != "true" {
		t.Errorf("bare: %s", got)
	}
}
