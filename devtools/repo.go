package devtools

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Repo is a repository that was found and judged: its directories, what they
// link to and where its objects come from all lie where the caller may go. Git
// is told where they are and does not look for itself. A Repo serves one call;
// the caller closes it.
type Repo struct {
	git *Git
	by  Caller
	see *guardfs.Guard // for names the call did not give

	dir    *os.File // pinned; what the call named
	start  string   // its resolved path
	gitdir string   // HEAD and index
	common string   // objects, refs and settings
	top    string   // of the work tree
	topDir *os.File // pinned
	format []setting

	shadow  string
	sources map[string]stamp // files that name further objects
	shown   map[string]bool  // what names was found admitted or not
}

// stamp tells whether a file is still the one that was looked at. The zero
// stamp is no file.
type stamp struct {
	dev, ino    uint64
	ctime, size int64
}

var (
	errNoRepo = &GitError{Msg: "not a git repository (or any of the parent directories inside the allowed area)"}
	errNoTree = &GitError{Msg: "this operation must be run in a work tree"}
)

// Open finds the repository around a directory, no further up than the caller
// may go. The errors are *policy.Denied, *GitError and [ErrGitMissing].
func (g *Git) Open(ctx context.Context, by Caller, dir string) (*Repo, error) {
	r := &Repo{git: g, by: by, see: by.Guard.Quiet(), sources: map[string]stamp{}, shown: map[string]bool{}}
	var err error
	if r.dir, r.start, err = by.Guard.Dir(dir, by.Op); err != nil {
		return nil, noDirectory(err)
	}
	if _, err = proc.LookPath("git", by.Env["PATH"], "/"); err != nil {
		err = ErrGitMissing
	}
	for _, step := range []func(context.Context) error{r.find, r.findTree, r.judge, r.cast} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// noDirectory is the error for a directory that cannot be opened.
func noDirectory(err error) error {
	if policy.IsDenied(err) {
		return err
	}
	return errNoRepo
}

// Close gives back what the repository holds.
func (r *Repo) Close() {
	for _, f := range []*os.File{r.dir, r.topDir} {
		if f != nil {
			_ = f.Close()
		}
	}
	if r.shadow != "" {
		_ = os.RemoveAll(r.shadow)
	}
}

// Dir is the resolved path of the directory that [Git.Open] was given.
func (r *Repo) Dir() string { return r.start }

// IsRef tells whether text may be the name of a commit. Git does the rest.
func IsRef(text string) bool {
	return text != "" && text[0] != '-' && len(text) <= 1024 && !strings.ContainsAny(text, "\x00\n")
}

// admit judges a place that the repository names.
func (r *Repo) admit(name string) (string, error) {
	real, err := r.see.Check(name, r.by.Op)
	if err != nil && !policy.IsDenied(err) {
		return "", errNoRepo // a name no file can have
	}
	return real, err
}

// exists tells what is at a place, following links; nothing is no error.
func (r *Repo) exists(name string) (guardfs.Info, error) {
	info, err := r.see.Stat(name, true)
	if err != nil && !policy.IsDenied(err) {
		return guardfs.Info{}, nil // there is nothing that git could use
	}
	return info, err
}

// find looks for the directory git calls GIT_DIR.
func (r *Repo) find(context.Context) error {
	for at := r.start; ; at = path.Dir(at) {
		if _, err := r.see.Check(at, policy.Read); err != nil {
			return errNoRepo
		}
		ok, err := r.findIn(at)
		if ok || err != nil {
			return err
		}
		if at == "/" {
			return errNoRepo
		}
	}
}

func (r *Repo) findIn(at string) (bool, error) {
	dot := path.Join(at, ".git")
	info, err := r.exists(dot)
	if err != nil {
		return false, err
	}
	switch info.Kind {
	case guardfs.Directory:
		r.top = at
		return r.isGitDir(info.Path)
	case guardfs.File:
		text, err := r.readLine(dot)
		if err != nil {
			return false, err
		}
		target, ok := strings.CutPrefix(text, "gitdir: ")
		if !ok || target == "" {
			return false, gitErrorf("invalid .git file")
		}
		r.top = at
		if ok, err = r.isGitDir(absolute(at, target)); err == nil && !ok {
			err = errNoRepo
		}
		return ok, err
	}
	r.top = ""
	return r.isGitDir(at) // a bare repository, or the inside of one
}

// isGitDir tells whether a directory looks like GIT_DIR, as git decides it.
func (r *Repo) isGitDir(dir string) (bool, error) {
	real, err := r.admit(dir)
	if err != nil {
		return false, err
	}
	common := real
	linked, err := r.exists(path.Join(real, "commondir"))
	if err != nil {
		return false, err
	}
	if linked.Kind == guardfs.File {
		text, err := r.readLine(linked.Path)
		if err != nil {
			return false, err
		}
		if common, err = r.admit(absolute(real, text)); err != nil {
			return false, err
		}
	}
	for _, want := range []struct {
		at   string
		kind guardfs.Kind
	}{
		{path.Join(real, "HEAD"), guardfs.File},
		{path.Join(common, "objects"), guardfs.Directory},
		{path.Join(common, "refs"), guardfs.Directory},
	} {
		info, err := r.exists(want.at)
		if err != nil {
			return false, err
		}
		if info.Kind != want.kind {
			return false, nil
		}
	}
	r.gitdir, r.common = real, common
	return true, nil
}

// absolute is a path that a file in dir names.
func absolute(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

const (
	maxPointer = 8 << 10  // bytes of a file that names a directory
	maxConfig  = 1 << 20  // bytes of a configuration
	maxSources = 64 << 10 // bytes of a list of object directories
)

// read is the content of a file of the repository; nil where there is none.
func (r *Repo) read(name string, most int64) ([]byte, stamp, error) {
	f, info, err := r.see.Open(name)
	switch {
	case policy.IsDenied(err):
		return nil, stamp{}, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, stamp{}, nil
	case err != nil:
		return nil, stamp{}, gitErrorf("a file of the repository cannot be read: " + path.Base(name))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil || int64(len(text)) > most {
		return nil, stamp{}, gitErrorf("a file of the repository cannot be read: " + path.Base(name))
	}
	return text, stamp{info.Dev, info.Inode, info.Ctime, info.Size}, nil
}

func (r *Repo) readLine(name string) (string, error) {
	text, _, err := r.read(name, maxPointer)
	return string(bytes.TrimRight(text, "\r\n")), err
}

// findTree reads the settings that say what the repository is, and finds its
// work tree.
func (r *Repo) findTree(context.Context) error {
	all, err := r.settings()
	if err != nil {
		return err
	}
	r.format = all
	if r.gitdir == r.common { // git asks only there
		if tree, ok := lookup(all, "core", "worktree"); ok && tree != "" {
			r.top = absolute(r.gitdir, tree)
		} else if bare, _ := lookup(all, "core", "bare"); isTrue(bare) {
			return errNoTree
		}
	}
	if r.top == "" {
		return errNoTree
	}
	r.topDir, r.top, err = r.see.Dir(r.top, r.by.Op)
	if err != nil && !policy.IsDenied(err) {
		return errNoTree
	}
	return err
}

// settings are the entries of the repository's own configuration.
func (r *Repo) settings() ([]setting, error) {
	var all []setting
	for _, name := range []string{path.Join(r.common, "config"), path.Join(r.gitdir, "config.worktree")} {
		if name == path.Join(r.gitdir, "config.worktree") {
			if on, _ := lookup(all, "extensions", "worktreeconfig"); !isTrue(on) {
				break
			}
		}
		text, _, err := r.read(name, maxConfig)
		if err != nil {
			return nil, err
		}
		some, err := parseConfig(text)
		if err != nil {
			return nil, gitErrorf(err.Error() + " in file " + path.Base(name))
		}
		all = append(all, some...)
	}
	return all, nil
}

// judge looks at everything below the repository's directories that leads
// elsewhere.
func (r *Repo) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	if err := r.judgeLinks(ctx, r.common); err != nil {
		return err
	}
	if !within(r.common, r.gitdir) {
		if err := r.judgeLinks(ctx, r.gitdir); err != nil {
			return err
		}
	}
	return r.judgeSources(ctx, path.Join(r.common, "objects"), 0)
}

// passed over are directories that no run of ours looks into: other work, what
// extensions keep, programs.
var passedOver = map[string]bool{"modules": true, "lfs": true, "hooks": true}

// judgeLinks judges where the links below a directory lead.
func (r *Repo) judgeLinks(ctx context.Context, dir string) error {
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return nil // it vanished, or git cannot read it either
		case d.Type()&fs.ModeNamedPipe != 0:
			return gitErrorf("a file of the repository cannot be read: " + d.Name())
		case d.Type()&fs.ModeSymlink != 0:
			_, err := r.admit(name)
			return err
		case d.IsDir() && passedOver[d.Name()] && path.Dir(name) == dir:
			return fs.SkipDir
		}
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrGitTimeout
	}
	return err
}

// maxDepth is how far git follows lists of object directories.
const maxDepth = 5

// judgeSources judges the directories that an object directory borrows from.
func (r *Repo) judgeSources(ctx context.Context, objects string, depth int) error {
	list := path.Join(objects, "info", "alternates")
	text, seen, err := r.read(list, maxSources)
	if err != nil {
		return err
	}
	r.sources[list] = seen
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '"' || depth >= maxDepth {
			return gitErrorf("the object directories of the repository are nested too deeply")
		}
		other, err := r.admit(absolute(objects, line))
		if err != nil {
			return err
		}
		if _, done := r.sources[path.Join(other, "info", "alternates")]; done {
			continue
		}
		if err := r.judgeLinks(ctx, other); err != nil {
			return err
		}
		if err := r.judgeSources(ctx, other, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// unchanged tells that the repository still borrows objects from where it did
// when it was judged; else an answer could show what lies outside.
func (r *Repo) unchanged() error {
	for list, seen := range r.sources {
		if _, now, err := r.read(list, maxSources); err != nil || now != seen {
			return gitErrorf("the repository changed while it was read")
		}
	}
	return nil
}

// within tells whether name is root or lies below it.
func within(root, name string) bool {
	return name == root || root == "/" || strings.HasPrefix(name, root+"/")
}

// shows tells whether the rules let the caller know of a file, by its path from
// the top of the work tree.
func (r *Repo) shows(name string) bool {
	if !r.by.Denies {
		return true
	}
	name = strings.TrimSuffix(name, "/")
	if known, ok := r.shown[name]; ok {
		return known
	}
	parent, base := path.Split(name)
	parent = strings.TrimSuffix(parent, "/")
	ok := (parent == "" || r.shows(parent)) && r.see.Shows(path.Join(r.top, parent), base, false)
	if ok { // a file may be denied for having another name somewhere
		_, err := r.see.Stat(path.Join(r.top, name), false)
		ok = !policy.IsDenied(err)
	}
	r.shown[name] = ok
	return ok
}

// invoke makes one run of git on the repository, in the directory of the call
// where that is in the work tree.
func (r *Repo) invoke(args ...string) *invocation {
	dir := r.dir
	if !within(r.top, r.start) {
		dir = r.topDir
	}
	return &invocation{args: args, dir: dir, env: map[string]string{
		"GIT_DIR": r.gitdir, "GIT_COMMON_DIR": r.shadow, "GIT_WORK_TREE": r.top,
		// Settings of the user are no more to be trusted than the repository's.
		"HOME": r.shadow, "XDG_CONFIG_HOME": r.shadow,
	}}
}

// run runs git on the repository.
func (r *Repo) run(ctx context.Context, v *invocation) (proc.Result, error) {
	res, err := r.git.run(ctx, r.by.Env, v)
	return res, r.plain(err)
}

// plain takes the shadow's name out of what git says.
func (r *Repo) plain(err error) error {
	if e, ok := errors.AsType[*GitError](err); ok && strings.Contains(e.Msg, r.shadow) {
		e.Msg = strings.ReplaceAll(e.Msg, r.shadow, r.common)
	}
	return err
}

// stream runs git and hands its output to take as it comes. The run ends when
// take returns an error, which is returned; [errEnough] is none.
func (r *Repo) stream(ctx context.Context, v *invocation, take func([]byte) error) error {
	spec, err := v.spec(r.by.Env)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, spec.Timeout+5*time.Second)
	defer cancel()
	feed := proc.NewFeed()
	spec.Output = feed
	p, err := r.git.procs.Start(ctx, spec)
	if err != nil {
		return startFailure(err)
	}
	defer func() {
		feed.Close()
		p.End(proc.ReasonOutputLimit)
		<-p.Done()
	}()
	var stderr []byte
	for {
		from, data, err := feed.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			st, _ := p.Status()
			return r.plain(ended(ctx, st, stderr))
		case err != nil:
			return err
		case from == proc.Stderr:
			stderr = append(stderr, data[:min(len(data), maxStderr-len(stderr))]...)
			continue
		}
		if err := take(data); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// maxStderr bounds what is kept of git's complaints.
const maxStderr = 64 << 10

// errEnough ends the reading of an output.
var errEnough = errors.New("enough was read")
