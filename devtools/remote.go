package devtools

import (
	"context"
	"errors"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Transfer is what calls that talk to another repository have in common.
type Transfer struct {
	// Username and Password are for this call only. They are on no command
	// line, in no file and in no message.
	Username, Password string
	// Timeout bounds the call; 5 minutes when 0.
	Timeout time.Duration
}

const transferTimeout = 5 * time.Minute

// link is a way to another repository that was judged. Close gives back what it
// holds.
type link struct {
	address
	protocols string // what git may speak
	more      []setting
	files     []*os.File
	source    *Repo // of a path
	env       map[string]string
}

func (l *link) Close() {
	for _, f := range l.files {
		_ = f.Close()
	}
	if l.source != nil {
		l.source.Close()
	}
}

// secretFD is where the credential helper finds what to say.
const secretFD = 3

// sshCommand asks nobody and reads no settings, which can name programs. Keys
// and known hosts are the usual ones.
const sshCommand = "ssh -F /dev/null -o BatchMode=yes -o PermitLocalCommand=no -o ForwardAgent=no -o ForwardX11=no"

// reach judges an address. dir is where a path starts.
func (g *Git) reach(ctx context.Context, by Caller, dir, text string, t Transfer) (*link, error) {
	a, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	l := &link{address: a, env: map[string]string{}}
	if t.Username != "" || t.Password != "" {
		l.user, l.password = t.Username, t.Password
	}
	switch a.kind {
	case byHTTP:
		err = l.overHTTP()
	case bySSH:
		l.protocols = "ssh"
		l.env["GIT_SSH_COMMAND"], l.env["GIT_SSH_VARIANT"] = sshCommand, "ssh"
	case byPath:
		l.protocols = "file"
		err = l.fromPath(ctx, g, by, absolute(dir, a.url))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	l.env["GIT_ALLOW_PROTOCOL"] = l.protocols
	return l, nil
}

func (l *link) overHTTP() error {
	l.protocols = "https"
	if strings.HasPrefix(l.url, "http:") {
		l.protocols = "http:https"
	}
	if l.user == "" && l.password == "" {
		return nil
	}
	if !l.secure() {
		return gitErrorf("credentials are sent over https only")
	}
	if strings.ContainsAny(l.user+l.password, "\n\r\x00") {
		return gitErrorf("credentials cannot have line breaks")
	}
	secret, err := memoryFile("credentials", []byte("username="+l.user+"\npassword="+l.password+"\n"))
	if err != nil {
		return err
	}
	l.files = []*os.File{secret}
	// Git asks the helper when this server wants to know who calls, and only
	// then; a redirect to another does not get an answer.
	l.more = []setting{
		{section: "credential", hasSub: true, sub: l.origin(), name: "helper", value: `!f() { test "$1" = get && cat /proc/self/fd/` + strconv.Itoa(secretFD) + `; }; f`},
		{section: "http", name: "followredirects", value: "false"},
	}
	return nil
}

// fromPath opens a repository of this machine as any other, so that git sees
// none of its settings and hooks either.
func (l *link) fromPath(ctx context.Context, g *Git, by Caller, name string) error {
	real, err := by.Guard.Check(name, by.Op)
	if err != nil {
		return err
	}
	l.url = real
	if l.source, err = g.openAny(ctx, by, real); err != nil {
		if _, ok := errors.AsType[*GitError](err); ok {
			err = gitErrorf("there is no repository at the path")
		}
		return err
	}
	return nil
}

// place is the address that git is told.
func (l *link) place() string {
	if l.source != nil {
		return l.source.shadow
	}
	return l.url
}

// apply prepares a run of git to use the link.
func (l *link) apply(v *invocation, t Transfer) *invocation {
	maps.Copy(v.env, l.env)
	v.more = append(v.more, l.more...)
	v.files = l.files
	v.timeout = t.Timeout
	if v.timeout <= 0 {
		v.timeout = transferTimeout
	}
	v.killGrace = 2 * time.Second // it takes its locks and half-written files away
	return v
}

// openAny opens a repository by the path of its work tree or of itself, as a
// place to fetch from and push to: its shadow has what a repository needs.
func (g *Git) openAny(ctx context.Context, by Caller, dir string) (*Repo, error) {
	r := &Repo{git: g, by: by, see: by.Guard.Quiet(), sources: map[string]stamp{}, shown: map[string]bool{}}
	var err error
	if r.dir, r.start, err = r.see.Dir(dir, by.Op); err != nil {
		return nil, noDirectory(err)
	}
	ok, err := r.findIn(r.start)
	if err == nil && !ok {
		err = errNoRepo
	}
	if err == nil {
		r.format, err = r.settings()
	}
	for _, step := range []func(context.Context) error{r.judge, r.cast} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err == nil {
		err = r.standAlone()
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// standAlone makes the shadow a repository of its own.
func (r *Repo) standAlone() error {
	if err := r.copyHead(r.gitdir); err != nil {
		return err
	}
	bare := "true"
	if r.top != "" { // then nobody may push to its current branch
		bare = "false"
	}
	return r.writeSettings([]setting{
		{section: "core", name: "bare", value: bare},
		{section: "receive", name: "autogc", value: "false"},
		{section: "core", name: "alternaterefscommand", value: "true"},
	})
}

// CloneOptions say what is cloned and where to.
type CloneOptions struct {
	Transfer
	URL, Path string
	Branch    string // or a tag; the other's current branch when empty
	Depth     int    // commits of history; 0 is all
}

// Clone makes a copy of another repository and opens it. The caller closes it.
// When it fails nothing is left at the path.
func (g *Git) Clone(ctx context.Context, by Caller, o CloneOptions) (*Repo, error) {
	from := by
	from.Op = policy.Read
	l, err := g.reach(ctx, from, "", o.URL, o.Transfer)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	target, err := by.makeDir(o.Path)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	r, err := g.clone(ctx, by, o, l, target)
	if err != nil {
		target.clear(ctx, by)
		return nil, err
	}
	return r, nil
}

func (g *Git) clone(ctx context.Context, by Caller, o CloneOptions, l *link, target *newDir) (*Repo, error) {
	args := []string{"clone", "--quiet", "--no-checkout", "--no-local", "--no-recurse-submodules", "--origin=origin"}
	if o.Branch != "" {
		args = append(args, "--branch="+o.Branch)
	}
	if o.Depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(o.Depth))
	}
	home, err := privateDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	v := l.apply(&invocation{
		args: append(args, "--", l.place(), "."), dir: target.file,
		env: map[string]string{"HOME": home, "XDG_CONFIG_HOME": home},
	}, o.Transfer)
	if _, err := g.run(ctx, by.Env, v); err != nil {
		return nil, l.plain(err)
	}
	r, err := g.Open(ctx, by, target.path)
	if err != nil {
		return nil, err
	}
	if err := r.settle(ctx, l); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// plain takes the name of the shadow out of what git says.
func (l *link) plain(err error) error {
	if l.source != nil {
		return l.source.plain(err)
	}
	return err
}

// settle fills the work tree of a fresh clone.
func (r *Repo) settle(ctx context.Context, l *link) error {
	if l.source != nil {
		if err := r.edit(ctx, [][]string{{"--replace-all", "--", "remote.origin.url", l.url}}); err != nil {
			return err
		}
	}
	head, err := r.Head(ctx)
	if err != nil || head == "" {
		return err
	}
	if r.by.Denies {
		err := r.eachField(ctx, func(name string) error {
			if r.shows(name) {
				return nil
			}
			return policy.Refuse(policy.PathDenied, "The repository has files that are denied by policy").Err()
		}, "ls-tree", "-r", "-z", "--name-only", "--full-tree", head)
		if err != nil {
			return err
		}
	}
	err = r.change(ctx, r.invoke("reset", "--quiet", "--hard", "--no-recurse-submodules"))
	return err
}

// newDir is a directory to make a repository in. It is empty.
type newDir struct {
	file *os.File // pinned
	path string
	made bool
}

func (d *newDir) Close() { _ = d.file.Close() }

// makeDir makes a directory, or takes one that is empty.
func (by *Caller) makeDir(name string) (*newDir, error) {
	real, existed, err := by.Guard.Mkdir(name, guardfs.MkdirOptions{})
	if err != nil {
		return nil, err
	}
	d := &newDir{made: !existed}
	if d.file, d.path, err = by.Guard.Quiet().Dir(real, by.Op); err != nil {
		return nil, err
	}
	if existed {
		entries, err := os.ReadDir("/proc/self/fd/" + strconv.Itoa(int(d.file.Fd())))
		if err == nil && len(entries) > 0 {
			err = gitErrorf("the path already exists and is not an empty directory")
		}
		if err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// clear takes away what a failed clone has left.
func (d *newDir) clear(ctx context.Context, by Caller) {
	ctx = context.WithoutCancel(ctx) // the caller may be gone
	see := by.Guard.Quiet()
	if d.made {
		_, _ = see.Delete(ctx, d.path, guardfs.DeleteOptions{})
		return
	}
	left, err := see.ReadDir(ctx, d.path, 1000)
	if err != nil {
		return
	}
	for _, e := range left.Entries {
		_, _ = see.Delete(ctx, e.Path, guardfs.DeleteOptions{NoFollow: true})
	}
}

// InitOptions say what kind of repository is made.
type InitOptions struct {
	Path   string
	Branch string // the first; as configured when empty
	Bare   bool
}

// Init makes an empty repository in a directory, whatever else is in it.
func (g *Git) Init(ctx context.Context, by Caller, o InitOptions) (dir string, err error) {
	real, _, err := by.Guard.Mkdir(o.Path, guardfs.MkdirOptions{})
	if err != nil {
		return "", err
	}
	file, real, err := by.Guard.Quiet().Dir(real, by.Op)
	if err != nil {
		return "", err
	}
	defer file.Close()
	// What is there may lead git anywhere; a repository needs no making again.
	see := by.Guard.Quiet()
	for _, name := range []string{".git", "HEAD", "objects", "refs"} {
		info, err := see.Stat(path.Join(real, name), false)
		if policy.IsDenied(err) {
			return "", err
		}
		if err == nil && (name == ".git" || o.Bare) && info.Kind != "" {
			return "", gitErrorf("there is a repository at the path already")
		}
	}
	args := []string{"init", "--quiet"}
	if o.Bare {
		args = append(args, "--bare")
	}
	branch := o.Branch
	if branch == "" {
		branch, _ = lookup(g.userSettings(by.Env), "init", "defaultbranch")
	}
	if IsBranchName(branch) {
		args = append(args, "--initial-branch="+branch)
	}
	home, err := privateDir()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	_, err = g.run(ctx, by.Env, &invocation{
		args: append(args, "."), dir: file, env: map[string]string{"HOME": home, "XDG_CONFIG_HOME": home},
	})
	return real, err
}

// PushOptions say what is pushed where.
type PushOptions struct {
	Transfer
	Remote      string // the one the branch follows, or the only one, when empty
	Branch      string // the current one when empty
	SetUpstream bool
	Force       bool // only over what was last seen of it
}

// Push sends a branch to a remote.
func (r *Repo) Push(ctx context.Context, o PushOptions) (remote, branch string, err error) {
	if branch = o.Branch; branch == "" {
		if branch, err = r.Current(ctx); err != nil {
			return "", "", err
		}
	}
	if branch == "" {
		return "", "", gitErrorf("HEAD is detached; name a 'branch' to push")
	}
	l, remote, err := r.reachRemote(ctx, o.Remote, branch, policy.Write, o.Transfer)
	if err != nil {
		return "", "", err
	}
	defer l.Close()
	args := []string{"push", "--quiet", "--no-verify", "--recurse-submodules=no", "--no-signed"}
	if o.Force {
		args = append(args, "--force-with-lease")
	}
	name := "refs/heads/" + branch
	v := l.apply(r.invoke(append(args, "--", remote, name+":"+name)...), o.Transfer)
	if err := r.change(ctx, v); err != nil {
		return "", "", l.plain(err)
	}
	if o.SetUpstream {
		err = r.follow(ctx, branch, remote, branch)
	}
	return remote, branch, err
}

// reachRemote judges the address of a remote and lets git know it under its
// name.
func (r *Repo) reachRemote(ctx context.Context, name, branch string, op policy.Op, t Transfer) (*link, string, error) {
	name, err := r.chooseRemote(name, branch)
	if err != nil {
		return nil, "", err
	}
	known, _ := r.remote(name)
	url := known.URL
	if op == policy.Write && known.PushURL != "" {
		url = known.PushURL
	}
	if url == "" {
		return nil, "", noRemote(name)
	}
	by := r.by
	by.Op = op
	l, err := r.git.reach(ctx, by, r.top, url, t)
	if err != nil {
		return nil, "", err
	}
	err = r.writeSettings([]setting{{section: "remote", hasSub: true, sub: name, name: "url", value: l.place()}})
	if err != nil {
		l.Close()
		return nil, "", err
	}
	return l, name, nil
}

// chooseRemote is the remote a call means.
func (r *Repo) chooseRemote(name, branch string) (string, error) {
	if name == "" {
		for _, s := range r.format {
			if s.section == "branch" && s.hasSub && s.sub == branch && s.name == "remote" {
				name = s.value
			}
		}
	}
	all := r.remotes()
	if name == "" {
		switch {
		case len(all) == 1:
			name = all[0].Name
		case slices.ContainsFunc(all, func(o Remote) bool { return o.Name == "origin" }):
			name = "origin"
		default:
			return "", gitErrorf("name a 'remote': the branch follows none")
		}
	}
	if _, ok := r.remote(name); !ok {
		return "", noRemote(name)
	}
	return name, nil
}

// PullOptions say what is pulled from where.
type PullOptions struct {
	Transfer
	Remote, Branch string // what the current branch follows when empty
}

// Pull fetches a branch and joins it with the current one.
func (r *Repo) Pull(ctx context.Context, o PullOptions) error {
	current, err := r.Current(ctx)
	if err != nil {
		return err
	}
	l, remote, err := r.reachRemote(ctx, o.Remote, current, policy.Read, o.Transfer)
	if err != nil {
		return err
	}
	defer l.Close()
	branch := o.Branch
	for _, s := range r.format {
		if branch == "" && s.section == "branch" && s.hasSub && s.sub == current && s.name == "merge" {
			branch = strings.TrimPrefix(s.value, "refs/heads/")
		}
	}
	if branch == "" {
		return gitErrorf("name a 'branch': the current one follows none")
	}
	spec := "refs/heads/" + branch
	v := r.invoke("fetch", "--quiet", "--no-recurse-submodules", "--no-auto-maintenance", "--", remote, spec)
	if err := r.change(ctx, l.apply(v, o.Transfer)); err != nil {
		return l.plain(err)
	}
	theirs, err := r.commit(ctx, "FETCH_HEAD")
	if err != nil {
		return err
	}
	return r.join(ctx, theirs, remote+"/"+branch)
}

// join merges a commit into the current branch, as the settings of pull say.
func (r *Repo) join(ctx context.Context, commit, name string) error {
	head, err := r.Head(ctx)
	if err != nil {
		return err
	}
	if head == "" {
		if err := r.mayWrite(ctx, "--cached", commit, "--"); err != nil {
			return err
		}
		err := r.change(ctx, r.invoke("reset", "--quiet", "--keep", "--no-recurse-submodules", commit, "--"))
		return err
	}
	if err := r.mayWrite(ctx, head, commit, "--"); err != nil {
		return err
	}
	configured := append(r.git.userSettings(r.by.Env), r.format...)
	rebase, _ := lookup(configured, "pull", "rebase")
	ff, known := lookup(configured, "pull", "ff")
	args := []string{"merge", "--quiet", "--no-edit", "--no-verify", "--no-gpg-sign", "--no-stat", "--no-autostash"}
	switch {
	case isTrue(rebase) || rebase == "merges":
		args = []string{"rebase", "--quiet", "--no-verify", "--no-gpg-sign", "--no-stat", "--no-autostash", commit}
	case ff == "only":
		args = append(args, "--ff-only", commit)
	case known && !isTrue(ff):
		args = append(args, "--no-ff", "-m", "Merge "+name, commit)
	case rebase == "" && !known: // git wants to be told how to join what has diverged
		args = append(args, "--ff-only", commit)
	default:
		args = append(args, "-m", "Merge "+name, commit)
	}
	v := r.invoke(args...)
	v.more = r.identity("", "")
	err = r.change(ctx, v)
	return whose(err)
}
