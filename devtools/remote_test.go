package devtools

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const (
	testUser   = "ann"
	testSecret = "s3cret/with:odd@chars %"
)

// hub serves repositories of a directory over HTTP, as git's own server
// program does. Repositories below /private want a password.
type hub struct {
	*httptest.Server
	asked atomic.Int64 // requests with credentials
}

func newHub(t *testing.T, root string) *hub {
	t.Helper()
	git := find(t, "git")
	h := &hub{}
	backend := &cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Dir: root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
			"GIT_CONFIG_KEY_1=http.receivepack", "GIT_CONFIG_VALUE_1=true",
		},
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, ok := req.BasicAuth()
		if ok {
			h.asked.Add(1)
			secretIsNowhere(t)
		}
		if strings.HasPrefix(req.URL.Path, "/private/") && (user != testUser || password != testSecret) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, req)
	}))
	t.Cleanup(h.Close)
	return h
}

// secretIsNowhere looks for the password where other programs could see it.
func secretIsNowhere(t *testing.T) {
	for _, what := range []string{"cmdline", "environ"} {
		files, _ := filepath.Glob("/proc/[0-9]*/" + what)
		for _, f := range files {
			if text, _ := os.ReadFile(f); bytes.Contains(text, []byte(testSecret)) {
				t.Errorf("the password is in %s: %q", f, text)
			}
		}
	}
}

// bare makes a bare repository with the content of a fresh one.
func (y *yard) bare(root, name string) plainRepo {
	y.t.Helper()
	p := y.repo(filepath.Join(root, name+".src"))
	q := plainRepo{y.t, filepath.Join(root, name)}
	p.git("clone", "-q", "--bare", p.dir, q.dir)
	return q
}

func TestCloneOverHTTP(t *testing.T) {
	y := newYard(t)
	served := y.bare(y.outside, "open.git")
	h := newHub(t, y.outside)
	ctx := t.Context()
	r, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/open.git", Path: "deep/copy"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := plainRepo{t, filepath.Join(y.base, "deep/copy")}
	if head, err := r.Head(ctx); err != nil || head != served.git("rev-parse", "HEAD") || p.read("a.txt") != "1\n2\n3\n" {
		t.Errorf("%q %v %q", head, err, p.read("a.txt"))
	}
	if st := y.status("deep/copy"); st.Branch != "main" || st.Upstream != "origin/main" || len(st.Files) != 0 {
		t.Errorf("%+v", st)
	}
	_, err = y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/open.git", Path: "deep/copy"})
	wantGitError(t, "not empty", err, "not an empty directory")
	if p.read("a.txt") == "" {
		t.Error("what was there is gone")
	}
	_, err = y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/nosuch.git", Path: "n"})
	wantGitError(t, "no such repository", err, "not found")
	_, err = y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/open.git", Path: "n", Branch: "nosuch"})
	wantGitError(t, "no such branch", err, "nosuch")
	if _, err := os.Stat(filepath.Join(y.base, "n")); !os.IsNotExist(err) {
		t.Error("a failed clone is left")
	}
	_, err = y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/open.git", Path: "../outside/n"})
	wantDenied(t, "outside", err, policy.PathNotAllowed)
}

func TestClonesIntoOnePathLeaveEachOtherAlone(t *testing.T) {
	y := newYard(t)
	p := y.repo("from")
	for range 5 {
		target := filepath.Join(y.base, "to")
		var done atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				r, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: p.dir, Path: target})
				if err == nil {
					r.Close()
					done.Add(1)
				} else if _, ok := errors.AsType[*GitError](err); !ok {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := done.Load(); n != 1 {
			t.Fatalf("%d of the clones succeeded", n)
		}
		if files := y.status(target).Files; len(files) != 0 {
			t.Fatalf("the clone lacks %v", names(files))
		}
		if err := os.RemoveAll(target); err != nil {
			t.Fatal(err)
		}
	}
}

func TestShallowCloneOfABranch(t *testing.T) {
	y := newYard(t)
	src := y.repo("src")
	src.git("checkout", "-q", "-b", "side")
	src.write("b", "1")
	src.commit("two")
	src.git("checkout", "-q", "main")
	if err := os.Mkdir(filepath.Join(y.base, "to"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: "src", Path: "to", Branch: "side", Depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, err := r.Log(t.Context(), LogOptions{Limit: 9})
	if err != nil || len(l.Commits) != 1 || l.Commits[0].Subject != "two" {
		t.Errorf("%+v %v", l, err)
	}
	p := plainRepo{t, filepath.Join(y.base, "to")}
	if got := p.git("remote", "get-url", "origin"); got != src.dir {
		t.Errorf("origin is %q", got)
	}
}

func TestCredentialsAreUsedAndForgotten(t *testing.T) {
	y := newYard(t)
	y.bare(y.outside, "private/p.git")
	h := newHub(t, y.outside)
	ctx := t.Context()
	url := h.URL + "/private/p.git"
	for name, c := range map[string]Transfer{"none": {}, "wrong": {Username: testUser, Password: "wrong-" + testSecret}} {
		_, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: url, Path: "p", Transfer: c})
		e, ok := errors.AsType[*GitError](err)
		if !ok || !e.Auth || strings.Contains(e.Msg, testSecret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	right := Transfer{Username: testUser, Password: testSecret}
	r, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: url, Path: "p", Transfer: right})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := plainRepo{t, filepath.Join(y.base, "p")}
	p.write("new", "1\n")
	p.commit("mine")
	r = y.open("p", policy.Read)
	_, _, err = r.Push(ctx, PushOptions{})
	if e, ok := errors.AsType[*GitError](err); !ok || !e.Auth {
		t.Errorf("push without: %v", err)
	}
	if _, _, err := r.Push(ctx, PushOptions{Transfer: right}); err != nil {
		t.Errorf("push: %v", err)
	}
	if err := y.open("p", policy.Write).Pull(ctx, PullOptions{Transfer: right}); err != nil {
		t.Errorf("pull: %v", err)
	}
	if h.asked.Load() == 0 {
		t.Error("nobody asked for the password")
	}
	err = filepath.WalkDir(filepath.Dir(y.base), func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte("s3cret")) {
			t.Errorf("the password is in %s", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	// The address may hold them too; they are not stored either.
	u := strings.Replace(url, "http://", "http://ann:s3cret%2Fwith%3Aodd%40chars%20%25@", 1)
	q, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: u, Path: "q"})
	if err != nil {
		t.Fatal(err)
	}
	q.Close()
	if got := (plainRepo{t, filepath.Join(y.base, "q")}).read(".git/config"); strings.Contains(got, "s3cret") || !strings.Contains(got, url) {
		t.Errorf("%s", got)
	}
}

func TestRedirectDoesNotGetThePassword(t *testing.T) {
	y := newYard(t)
	find(t, "git")
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "" {
			t.Error("another server got the password")
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer thief.Close()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, _, ok := req.BasicAuth(); !ok && strings.Contains(req.URL.Path, "asks") {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.Redirect(w, req, thief.URL+req.URL.String(), http.StatusFound)
	}))
	defer h.Close()
	for _, path := range []string{"/asks.git", "/redirects.git"} {
		_, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{
			URL: h.URL + path, Path: "p", Transfer: Transfer{Username: testUser, Password: testSecret},
		})
		if err == nil {
			t.Error("cloned from nowhere")
		}
	}
}

func TestPushAndPull(t *testing.T) {
	y := newYard(t)
	hubDir := y.bare(y.outside, "open.git")
	h := newHub(t, y.outside)
	ctx := t.Context()
	work := map[string]plainRepo{}
	for _, name := range []string{"a", "b"} {
		r, err := y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/open.git", Path: name})
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		work[name] = plainRepo{t, filepath.Join(y.base, name)}
	}
	a, b := work["a"], work["b"]
	a.write("new", "1\n")
	a.commit("from a")
	remote, branch, err := y.open("a", policy.Read).Push(ctx, PushOptions{})
	if err != nil || remote != "origin" || branch != "main" || hubDir.git("log", "-1", "--format=%s") != "from a" {
		t.Fatalf("%s %s %v", remote, branch, err)
	}
	if st := y.status("a"); st.Ahead != 0 || st.Behind != 0 {
		t.Errorf("what was pushed is not known: %+v", st)
	}
	if err := y.open("b", policy.Write).Pull(ctx, PullOptions{}); err != nil || b.read("new") != "1\n" {
		t.Errorf("pull: %v %q", err, b.read("new"))
	}
	// Both go on, apart.
	a.write("new", "2\n")
	a.commit("a again")
	b.write("other", "1\n")
	b.commit("from b")
	if _, _, err := y.open("a", policy.Read).Push(ctx, PushOptions{Branch: "main"}); err != nil {
		t.Fatal(err)
	}
	_, _, err = y.open("b", policy.Read).Push(ctx, PushOptions{})
	wantGitError(t, "rejected", err, "failed to push")
	wantGitError(t, "diverged", y.open("b", policy.Write).Pull(ctx, PullOptions{}), "fast-forward")
	b.git("config", "pull.rebase", "false")
	wantGitError(t, "by nobody", y.open("b", policy.Write).Pull(ctx, PullOptions{}), "author_name")
	b.git("config", "user.name", "Bob")
	b.git("config", "user.email", "b@x")
	if err := y.open("b", policy.Write).Pull(ctx, PullOptions{Remote: "origin", Branch: "main"}); err != nil || b.read("new") != "2\n" {
		t.Errorf("merge: %v %q", err, b.read("new"))
	}
	if got := b.git("log", "-1", "--format=%s %cn"); got != "Merge origin/main Bob" {
		t.Errorf("merged as %q", got)
	}
	a.write("more", "1")
	a.commit("a rebases")
	a.git("config", "pull.rebase", "true")
	a.git("config", "user.name", "Al")
	a.git("config", "user.email", "a@x")
	if _, _, err := y.open("b", policy.Read).Push(ctx, PushOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := y.open("a", policy.Write).Pull(ctx, PullOptions{}); err != nil || a.git("log", "-1", "--format=%s") != "a rebases" || a.read("other") != "1\n" {
		t.Errorf("rebase: %v", err)
	}
	a.git("checkout", "-q", "-b", "feature")
	if _, _, err := y.open("a", policy.Write).Push(ctx, PushOptions{SetUpstream: true}); err != nil || y.status("a").Upstream != "origin/feature" {
		t.Errorf("upstream: %v %+v", err, y.status("a"))
	}
	a.git("commit", "-q", "--amend", "--allow-empty", "-m", "amended")
	_, _, err = y.open("a", policy.Read).Push(ctx, PushOptions{})
	wantGitError(t, "amended", err, "failed to push")
	if _, _, err := y.open("a", policy.Read).Push(ctx, PushOptions{Force: true}); err != nil {
		t.Errorf("force: %v", err)
	}
	_, _, err = y.open("a", policy.Read).Push(ctx, PushOptions{Remote: "nosuch"})
	wantGitError(t, "no remote", err, "no such remote")
	wantGitError(t, "no branch", y.open("a", policy.Write).Pull(ctx, PullOptions{Branch: "nosuch"}), "find remote ref")
}

func TestPullFollowsNothingButABranch(t *testing.T) {
	y := newYard(t)
	from, p := y.repo("from"), y.repo("r")
	p.git("branch", "other")
	p.git("config", "remote.origin.url", from.dir)
	p.git("config", "branch.main.remote", "origin")
	for _, merge := range []string{"refs/heads/main:refs/heads/new", "refs/heads/*", "refs/heads/main:main"} {
		p.git("config", "branch.main.merge", merge)
		wantGitError(t, merge, y.open("r", policy.Write).Pull(t.Context(), PullOptions{}), "is none")
		if all := p.git("branch", "--format=%(refname:short)"); all != "main\nother" {
			t.Errorf("%s: branches are %q", merge, all)
		}
	}
}

func TestPushToAPath(t *testing.T) {
	y := newYard(t)
	p, busy, bare := y.repo("r"), y.repo("busy"), y.bare(y.base, "bare.git")
	p.git("remote", "add", "busy", "../busy")
	p.git("remote", "add", "bare", bare.dir)
	p.git("remote", "add", "out", y.outside)
	p.git("branch", "side")
	ctx := t.Context()
	if _, _, err := y.open("r", policy.Read).Push(ctx, PushOptions{Remote: "bare", Branch: "side"}); err != nil {
		t.Error(err)
	}
	if got := bare.git("branch", "--list", "side", "--format=%(refname:short)"); got != "side" {
		t.Errorf("pushed %q", got)
	}
	p.git("commit", "-q", "--allow-empty", "-m", "next")
	_, _, err := y.open("r", policy.Read).Push(ctx, PushOptions{Remote: "busy", Branch: "main"})
	wantGitError(t, "current branch of a work tree", err, "checked out branch")
	if _, _, err := y.open("r", policy.Read).Push(ctx, PushOptions{Remote: "busy", Branch: "side"}); err != nil || busy.git("rev-parse", "side") != p.git("rev-parse", "side") {
		t.Error(err)
	}
	_, _, err = y.open("r", policy.Read).Push(ctx, PushOptions{Remote: "out", Branch: "main"})
	wantDenied(t, "outside", err, policy.PathNotAllowed)
	wantDenied(t, "outside", y.open("r", policy.Write).Pull(ctx, PullOptions{Remote: "out", Branch: "main"}), policy.PathNotAllowed)
	y.rules = policy.NewPathRules(nil, nil, true, false, false)
	_, _, err = y.open("r", policy.Read).Push(ctx, PushOptions{Remote: "bare", Branch: "main"})
	wantDenied(t, "read-only", err, policy.ReadOnlyPath)
}

func TestAddressesThatRunPrograms(t *testing.T) {
	y := newYard(t)
	mark := filepath.Join(y.base, "mark")
	p := y.repo("r")
	for _, url := range []string{
		"ext::sh -c 'touch " + mark + "'", "ext::touch " + mark, "fd::3", "testgit::x", "EXT::x", "file:///etc", "file://" + y.base + "/r",
		"git://127.0.0.1/x", "ftp://127.0.0.1/x", "--upload-pack=touch " + mark, "-u", "ssh://-oProxyCommand=touch%20x/y", "ssh://-oX@h/y",
		"ssh://h/-x", "ssh://u:p@h/x", "ssh://h:-1/x", "-oProxyCommand=x:y", "u@-oX:y", "-u@h:y", "h:-x", "h:", ":x", "a@b@c:d", "ssh://", "https://",
		"https:///x", "https://h", "https://h/x?y", "https://h/x#y", "https://h h/x", "https://h\n/x", "https://$(touch x)/y", "git+ssh://h/x", "ssh+git://h/x",
		"http+unix://x/y", "https:h/x", "", "[::1]:x", "h;touch x:y", "$(x):y",
	} {
		_, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: url, Path: "copy"})
		wantGitError(t, url, err, "must be https, ssh or a path")
		wantGitError(t, url, y.open("r", policy.Write).AddRemote(t.Context(), "x", url, true), "must be https, ssh or a path")
		if url == "" {
			continue
		}
		if out, err := p.run("config", "remote.evil.url", url); err != nil {
			t.Fatal(err, out)
		}
		wantGitError(t, "remote "+url, y.open("r", policy.Write).Pull(t.Context(), PullOptions{Remote: "evil", Branch: "main"}), "must be https, ssh or a path")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program ran")
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]address{
		"https://example.org/a/b.git":      {kind: byHTTP, url: "https://example.org/a/b.git"},
		"HTTPS://u:p%40@example.org:444/a": {kind: byHTTP, url: "https://example.org:444/a", user: "u", password: "p@", hasUser: true},
		"https://token@example.org/a":      {kind: byHTTP, url: "https://example.org/a", user: "token", hasUser: true},
		"http://[::1]:80/a":                {kind: byHTTP, url: "http://[::1]:80/a"},
		"ssh://git@example.org:22/~x/y":    {kind: bySSH, url: "ssh://git@example.org:22/~x/y"},
		"git@example.org:x/y.git":          {kind: bySSH, url: "git@example.org:x/y.git"},
		"example.org:x":                    {kind: bySSH, url: "example.org:x"},
		"/a/b":                             {kind: byPath, url: "/a/b"},
		"../a b":                           {kind: byPath, url: "../a b"},
		"./h:x":                            {kind: byPath, url: "./h:x"},
		"é":                                {kind: byPath, url: "é"},
	} {
		got, err := parseAddress(text)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(address{})); d != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, d)
		}
	}
	for url, want := range map[string]bool{
		"https://example.org/x": true, "http://example.org/x": false, "http://localhost:3000/x": true, "http://127.1.2.3/x": true, "http://[::1]/x": true,
		"ssh://example.org/x": false, "/x": false, "http://localhost.example.org/x": false,
	} {
		if a, err := parseAddress(url); err != nil || a.secure() != want {
			t.Errorf("%s: %v %v", url, a.secure(), err)
		}
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"https://u:p@h/x", "git@h:x", "ssh://h:22/x", "/x", "ext::x", "-x", "h:-x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAddress(text)
		if err != nil {
			return
		}
		if strings.HasPrefix(a.url, "-") || strings.Contains(a.url, "\n") || helper.MatchString(a.url) {
			t.Errorf("%q: %+v", text, a)
		}
		if a.kind == byHTTP && (!strings.HasPrefix(a.url, "http://") && !strings.HasPrefix(a.url, "https://") || strings.Contains(strings.SplitN(a.url, "/", 4)[2], "@")) {
			t.Errorf("%q: %+v", text, a)
		}
		again, err := parseAddress(a.url)
		if err != nil || again.kind != a.kind || again.url != a.url {
			t.Errorf("%q: %+v is read as %+v, %v", text, a, again, err)
		}
	})
}

func TestPasswordsNeedASafeWay(t *testing.T) {
	y := newYard(t)
	_, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{
		URL: "http://example.org/x", Path: "p", Transfer: Transfer{Username: "u", Password: "p"},
	})
	wantGitError(t, "plain http", err, "https only")
	_, err = y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{
		URL: "https://example.org/x", Path: "p", Transfer: Transfer{Username: "u\nhost=evil", Password: "p"},
	})
	wantGitError(t, "line break", err, "line breaks")
	if _, err := os.Stat(filepath.Join(y.base, "p")); !os.IsNotExist(err) {
		t.Error("a directory is left")
	}
}

// An ssh that says how it was called.
func TestSSHAsksNobodyAndReadsNoSettings(t *testing.T) {
	y := newYard(t)
	bin := t.TempDir()
	said := filepath.Join(bin, "said")
	writeFile(t, filepath.Join(bin, "ssh"), "#!/bin/sh\nprintf '%s\\n' \"$@\" >> "+said+"\necho 'git@example.org: Permission denied (publickey).' >&2\nexit 255\n")
	if err := os.Chmod(filepath.Join(bin, "ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	y.env["PATH"] = bin + ":" + y.env["PATH"]
	_, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: "git@example.org:x/y.git", Path: "p"})
	if e, ok := errors.AsType[*GitError](err); !ok || !e.Auth {
		t.Errorf("got %v", err)
	}
	text, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-F\n/dev/null\n", "BatchMode=yes", "git@example.org\ngit-upload-pack 'x/y.git'\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
}

func TestServerThatSaysNothing(t *testing.T) {
	y := newYard(t)
	stop := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-stop:
		case <-req.Context().Done():
		}
	}))
	defer h.Close()
	defer close(stop)
	_, err := y.git.Clone(t.Context(), y.caller(policy.Write), CloneOptions{URL: h.URL + "/x", Path: "p", Transfer: Transfer{Timeout: 300 * time.Millisecond}})
	if !errors.Is(err, ErrGitTimeout) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err = y.git.Clone(ctx, y.caller(policy.Write), CloneOptions{URL: h.URL + "/x", Path: "p"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(y.base, "p")); !os.IsNotExist(err) {
		t.Error("a directory is left")
	}
	out, _ := exec.Command("pgrep", "-f", h.URL).Output()
	if len(out) > 0 {
		t.Errorf("still running: %s", out)
	}
}
