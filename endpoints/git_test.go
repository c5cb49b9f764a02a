package endpoints

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// userRepo is a repository in the base directory, as its user sees it.
type userRepo struct {
	t   *testing.T
	dir string
}

func (r *rig) repo(name string) userRepo {
	r.t.Helper()
	needs(r.t, "git")
	u := userRepo{r.t, filepath.Join(r.base, name)}
	if err := os.MkdirAll(u.dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	u.git("init", "-q", "-b", "main")
	u.write("a.txt", "1\n2\n3\n")
	u.write("dir/f", "1\n")
	u.git("add", "-A")
	u.git("commit", "-q", "-m", "first")
	return u
}

func (u userRepo) git(args ...string) string {
	u.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = u.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + u.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=a@x",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (u userRepo) write(name, text string) {
	u.t.Helper()
	file := filepath.Join(u.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// ask is a GET with query parameters.
func (r *rig) ask(path string, params ...string) (int, map[string]any) {
	r.t.Helper()
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	return r.call("GET", path+"?"+q.Encode(), nil)
}

func TestGitStatusAnswer(t *testing.T) {
	r := devRig(t, "")
	u := r.repo("r")
	u.write("a.txt", "x\n")
	u.write("new \xff", "")
	u.git("mv", "dir/f", "dir/g")
	status, out := r.ask("/git/status", "path", "r/dir")
	want := map[string]any{
		"branch": "main", "clean": false, "detached": false, "head": u.git("rev-parse", "HEAD"), "upstream": nil, "ahead": nil, "behind": nil,
		"files": []any{
			map[string]any{"path": "a.txt", "status": "modified", "index_status": " ", "worktree_status": "M", "staged": false},
			map[string]any{"path": "dir/g", "status": "renamed", "index_status": "R", "worktree_status": " ", "staged": true, "renamed_from": "dir/f"},
			map[string]any{"path": "new \ufffd", "status": "untracked", "index_status": "?", "worktree_status": "?", "staged": false},
		},
	}
	if d := cmp.Diff(want, out); d != "" || status != 200 {
		t.Error(status, d)
	}
}

func TestGitDiffAnswer(t *testing.T) {
	r := devRig(t, "")
	u := r.repo("r")
	u.write("a.txt", "1\n2\n4\n5\n")
	u.git("add", "a.txt")
	u.write("dir/f", "2\n")
	stats := func(files, plus, minus float64) map[string]any {
		return map[string]any{"files_changed": files, "insertions": plus, "deletions": minus}
	}
	for _, c := range []struct {
		params []string
		want   map[string]any
		part   string
	}{
		{nil, stats(1, 1, 1), "+2"},
		{[]string{"staged", "YES"}, stats(1, 2, 1), "@@ -1,3 +1,4 @@\n 1\n 2\n-3\n+4\n+5\n"},
		{[]string{"staged", "on"}, stats(1, 1, 1), "+2"},
		{[]string{"staged", "1", "context", "0"}, stats(1, 2, 1), "@@ -3 +3,2 @@\n"},
		{[]string{"ref", "HEAD"}, stats(2, 3, 2), "+5"},
		{[]string{"file", "a.txt"}, stats(0, 0, 0), ""},
		{[]string{"file", "nope"}, stats(0, 0, 0), ""},
		{[]string{"file", "dir"}, stats(1, 1, 1), "+2"},
		{[]string{"file", "*"}, stats(0, 0, 0), ""},
		{[]string{"file", "--output=" + r.base + "/m3"}, stats(0, 0, 0), ""},
	} {
		status, out := r.ask("/git/diff", append(c.params, "path", "r")...)
		if text, _ := out["diff"].(string); status != 200 || !strings.Contains(text, c.part) || (text == "") != (c.part == "") {
			t.Errorf("%v: %d %v", c.params, status, out)
		}
		if d := cmp.Diff(c.want, out["stats"]); d != "" {
			t.Errorf("%v: %s", c.params, d)
		}
	}
	if status, out := r.ask("/git/diff", "path", "r/dir", "file", "f"); status != 200 || cmp.Diff(stats(1, 1, 1), out["stats"]) != "" {
		t.Errorf("from a subdirectory: %d %v", status, out)
	}
	if _, err := os.Stat(r.base + "/m3"); err == nil {
		t.Error("an option was taken")
	}
}

func TestGitMistakes(t *testing.T) {
	r := devRig(t, "")
	u := r.repo("r")
	if err := os.Mkdir(filepath.Join(r.base, "plain"), 0o755); err != nil {
		t.Fatal(err)
	}
	u.git("init", "-q", "--bare", "../bare.git")
	for _, path := range []string{"/git/status", "/git/diff", "/git/log", "/git/branches"} {
		for _, dir := range []string{"plain", "missing", "bare.git", "r/a.txt", "-C/tmp"} {
			status, out := r.ask(path, "path", dir)
			wantError(t, path+" "+dir, status, out, 400, "")
			if text, _ := out["error"].(string); out["type"] != "GitError" || len(text) > 300 || strings.Contains(text, "\n") {
				t.Errorf("%s %s: %v", path, dir, out)
			}
		}
		status, out := r.ask(path, "path", "/etc")
		wantError(t, path, status, out, 403, "path_not_allowed")
		if want := map[string]string{"/git/diff": "git_diff"}[path]; want != "" && out["endpoint"] != want {
			t.Errorf("%s: %v", path, out)
		}
	}
	for _, c := range []struct {
		path   string
		params []string
		status int
		code   string
		typ    string
	}{
		{"/git/diff", []string{"file", "dir/../a.txt"}, 400, "", "ValueError"},
		{"/git/diff", []string{"file", "/etc/passwd"}, 403, "path_not_allowed", "PolicyDenied"},
		{"/git/diff", []string{"file", "/proc/self/environ"}, 403, "path_not_allowed", "PolicyDenied"},
		{"/git/diff", []string{"ref", "--output=x"}, 400, "", "ValueError"},
		{"/git/diff", []string{"base", "-x"}, 400, "", "ValueError"},
		{"/git/diff", []string{"ref", "nosuch"}, 400, "", "GitError"},
		{"/git/diff", []string{"context", "-1"}, 400, "", "ValueError"},
		{"/git/diff", []string{"context", "x"}, 400, "", "ValueError"},
		{"/git/log", []string{"ref", "--output=x"}, 400, "", "ValueError"},
		{"/git/log", []string{"limit", "0"}, 400, "", "ValueError"},
		{"/git/log", []string{"file", "../x"}, 400, "", "ValueError"},
	} {
		status, out := r.ask(c.path, append(c.params, "path", "r")...)
		wantError(t, strings.Join(append(c.params, c.path), " "), status, out, c.status, c.code)
		if out["type"] != c.typ {
			t.Errorf("%s %v: %v", c.path, c.params, out)
		}
	}
	_, out := r.ask("/git/diff", "path", "r", "file", "/etc/passwd")
	if text, _ := out["error"].(string); !strings.HasPrefix(text, "file: ") {
		t.Errorf("%v", out)
	}
	r = newRig(t, rigOptions{policy: `{"groups":["dev_tools"]}`, env: map[string]string{"PATH": "/nonexistent"}})
	status, out := r.ask("/git/status")
	wantError(t, "without git", status, out, 500, "")
	if out["type"] != "FileNotFoundError" {
		t.Errorf("%v", out)
	}
}

// What a user saw: a repository's settings ran a program when its status or
// its changes were read.
func TestReadingARepositoryRunsNothing(t *testing.T) {
	r := devRig(t, "")
	u := r.repo("r")
	u.write("a.txt", "changed\n")
	marks := []string{}
	mark := func(name string) string {
		marks = append(marks, filepath.Join(r.base, name))
		return "touch " + marks[len(marks)-1]
	}
	u.git("config", "core.fsmonitor", mark("m1")+"; false")
	if status, out := r.ask("/git/status", "path", "r"); status != 200 || len(out["files"].([]any)) != 1 {
		t.Errorf("status: %d %v", status, out)
	}
	u.git("config", "diff.external", mark("m2")+"; true")
	if status, out := r.ask("/git/diff", "path", "r"); status != 200 || !strings.Contains(out["diff"].(string), "+changed") {
		t.Errorf("diff: %d %v", status, out)
	}
	// Nor do variables that a caller sets.
	status, out := r.call("POST", "/env", body{"vars": body{"GIT_EXTERNAL_DIFF": mark("m3"), "GIT_DIR": "/nowhere", "PAGER": mark("m4"), "GIT_SSH_COMMAND": mark("m5")}})
	if status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	for _, path := range []string{"/git/status", "/git/diff", "/git/log", "/git/branches"} {
		if status, out := r.ask(path, "path", "r"); status != 200 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
	for _, m := range marks {
		if _, err := os.Stat(m); err == nil {
			t.Errorf("%s was made", m)
		}
	}
}

func TestDenyRulesHoldForGit(t *testing.T) {
	rule := `{"paths":{"deny":["**/*.pem"]}}`
	r := devRig(t, `,"endpoints":{"git_*":`+rule+`}`)
	u := r.repo("r")
	u.write("s/k.pem", "old\n")
	u.write("s/ok", "1\n")
	u.git("add", "-A")
	u.git("commit", "-q", "-m", "all")
	u.write("s/k.pem", "HIDDEN\n")
	u.write("s/ok", "2\n")
	for _, params := range [][]string{nil, {"file", "s/k.pem"}} {
		status, out := r.ask("/git/diff", append(params, "path", "r")...)
		wantError(t, strings.Join(params, " "), status, out, 403, "path_denied")
	}
	for _, file := range []string{"s", "*", ":(top)", ":(glob)**", "s/*", "s/k.pe?"} {
		status, out := r.ask("/git/diff", "path", "r", "file", file)
		text, _ := out["diff"].(string)
		if status != 200 || strings.Contains(text, "HIDDEN") || strings.Contains(text, "pem") || (file == "s") != strings.Contains(text, "+2") {
			t.Errorf("%s: %d %v", file, status, out)
		}
	}
	_, out := r.ask("/git/status", "path", "r")
	if list := out["files"].([]any); len(list) != 1 {
		t.Errorf("status: %v", list)
	}
	status, out := r.call("POST", "/git/add", body{"path": "r", "files": []string{"s/k.pem"}})
	wantError(t, "add", status, out, 403, "path_denied")
	if status, out = r.call("POST", "/git/add", body{"path": "r"}); status != 200 || u.git("diff", "--cached", "--name-only") != "s/ok" {
		t.Errorf("add: %d %v", status, out)
	}
}

func TestGitFromInitToPull(t *testing.T) {
	needs(t, "git")
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools"]}`, env: map[string]string{"HOME": t.TempDir(), "XDG_CONFIG_HOME": ""}})
	post := func(name string, in body, want int) map[string]any {
		t.Helper()
		status, out := r.call("POST", "/git/"+name, in)
		if status != want {
			t.Errorf("%s %v: %d %v", name, in, status, out)
		}
		return out
	}
	if out := post("init", body{"path": "a", "initial_branch": "trunk"}, 200); out["path"] != filepath.Join(r.base, "a") || out["head"] != nil {
		t.Errorf("%v", out)
	}
	a := userRepo{t, filepath.Join(r.base, "a")}
	a.write("f", "1\n")
	post("add", body{"path": "a", "files": []string{"f"}}, 200)
	if out := post("commit", body{"path": "a", "message": "m"}, 400); out["type"] != "GitError" {
		t.Errorf("%v", out)
	}
	for key, value := range map[string]string{"user.name": "Bob", "user.email": "b@x"} {
		if out := post("config", body{"path": "a", "key": key, "value": value}, 200); out["value"] != value {
			t.Errorf("%v", out)
		}
	}
	if out := post("commit", body{"path": "a", "message": "m"}, 200); out["head"] != a.git("rev-parse", "HEAD") || out["branch"] != "trunk" {
		t.Errorf("%v", out)
	}
	if out := post("clone", body{"url": "a", "path": "b"}, 200); out["path"] != filepath.Join(r.base, "b") || out["branch"] != "trunk" || out["head"] != a.git("rev-parse", "HEAD") {
		t.Errorf("%v", out)
	}
	if out := post("branch", body{"path": "b", "name": "side"}, 200); out["branch"] != "side" {
		t.Errorf("%v", out)
	}
	b := userRepo{t, filepath.Join(r.base, "b")}
	b.write("g", "1\n")
	post("add", body{"path": "b", "all": true}, 200)
	post("commit", body{"path": "b", "message": "two", "author_name": "Al", "author_email": "al@x"}, 200)
	if out := post("push", body{"path": "b", "set_upstream": true}, 200); out["remote"] != "origin" || out["pushed"] != "side" {
		t.Errorf("%v", out)
	}
	post("branch", body{"path": "a", "name": "side", "action": "checkout"}, 200)
	a.git("commit", "-q", "--allow-empty", "-m", "three")
	if out := post("pull", body{"path": "b"}, 200); out["head"] != a.git("rev-parse", "HEAD") {
		t.Errorf("%v", out)
	}
	post("reset", body{"path": "b", "mode": "hard", "target": "HEAD~1"}, 200)
	b.write("g", "2\n")
	post("restore", body{"path": "b", "paths": []string{"g"}}, 200)
	if text, _ := os.ReadFile(filepath.Join(b.dir, "g")); string(text) != "1\n" {
		t.Errorf("restored %q", text)
	}
	out := post("remotes", body{"path": "b", "action": "add", "name": "up", "url": "https://example.org/x"}, 200)
	want := []any{
		map[string]any{"name": "origin", "url": a.dir, "push_url": nil},
		map[string]any{"name": "up", "url": "https://example.org/x", "push_url": nil},
	}
	if d := cmp.Diff(want, out["remotes"]); d != "" {
		t.Error(d)
	}
	post("branch", body{"path": "b", "name": "trunk", "action": "delete", "force": true}, 200)
	for _, c := range []struct {
		name string
		in   body
		typ  string
	}{
		{"clone", body{"url": "ext::touch x", "path": "c"}, "GitError"},
		{"clone", body{"url": "a", "path": "b"}, "GitError"},
		{"clone", body{"path": "c"}, "ValueError"},
		{"clone", body{"url": "a", "path": "c", "depth": 0}, "ValueError"},
		{"clone", body{"url": "a", "path": "c", "branch": "--upload-pack=x"}, "ValueError"},
		{"branch", body{"path": "b", "name": "-D"}, "ValueError"},
		{"branch", body{"path": "b", "name": "x", "action": "rename"}, "ValueError"},
		{"commit", body{"path": "b", "message": " "}, "ValueError"},
		{"commit", body{"path": "b", "message": "m", "author_name": "a\nb"}, "ValueError"},
		{"reset", body{"path": "b", "mode": "worse"}, "ValueError"},
		{"reset", body{"path": "b", "target": "--hard"}, "ValueError"},
		{"restore", body{"path": "b"}, "ValueError"},
		{"restore", body{"path": "b", "paths": []string{"../a/f"}}, "ValueError"},
		{"push", body{"path": "b", "remote": "--exec=x"}, "ValueError"},
		{"pull", body{"path": "b", "branch": "nosuch"}, "GitError"},
		{"remotes", body{"path": "b", "action": "add"}, "ValueError"},
		{"remotes", body{"path": "b", "action": "add", "name": "x", "url": "https://u:p@h/x"}, "GitError"},
		{"config", body{"path": "b", "key": "core.fsmonitor", "value": "x"}, "GitError"},
		{"config", body{"path": "b", "key": "alias.x"}, "GitError"},
		{"config", body{"path": "b", "value": "x"}, "ValueError"},
		{"init", body{"path": "b"}, "GitError"},
	} {
		if out := post(c.name, c.in, 400); out["type"] != c.typ {
			t.Errorf("%s %v: %v", c.name, c.in, out)
		}
	}
	status, out := r.call("POST", "/git/clone", body{"url": "/etc", "path": "c"})
	wantError(t, "a path outside", status, out, 403, "path_not_allowed")
}

func TestNewGitEndpointsFollowCodeRun(t *testing.T) {
	for rule, on := range map[string]bool{
		``: true,
		`,"endpoints":{"code_run":{"enabled":false}}`:                             false,
		`,"endpoints":{"code_run":{"enabled":false},"git_init":{"enabled":true}}`: true,
		`,"endpoints":{"git_init":{"scopes":["devtools:read"]}}`:                  true,
	} {
		r := devRig(t, rule)
		needs(t, "git")
		status, out := r.call("POST", "/git/init", body{"path": "x"})
		if on && status != 200 {
			t.Errorf("%s: %d %v", rule, status, out)
		}
		if !on {
			wantError(t, rule, status, out, 404, "endpoint_disabled")
		}
	}
}

func TestPasswordsOfGitAreNotLogged(t *testing.T) {
	needs(t, "git")
	r := devRig(t, `,"defaults":{"audit":"all"}`)
	const secret = "s3cret-of-a-call"
	status, out := r.call("POST", "/git/clone", body{"url": "http://u:" + secret + "@127.0.0.1:1/x", "path": "c", "password": secret})
	if text, _ := out["error"].(string); status != 400 || strings.Contains(text, secret) {
		t.Errorf("%d %v", status, out)
	}
	eventually(t, "an audit line", func() bool { return strings.Contains(r.audit.String(), "git_clone") })
	if strings.Contains(r.audit.String(), secret) {
		t.Errorf("audit: %s", r.audit.String())
	}
}
