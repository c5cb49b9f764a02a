package devtools

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// IsBranchName tells whether git would take text as the name of a branch or a
// remote.
func IsBranchName(text string) bool {
	if text == "" || len(text) > 255 || text[0] == '-' || text == "@" || text == "HEAD" ||
		strings.Contains(text, "..") || strings.Contains(text, "@{") ||
		strings.HasSuffix(text, ".") || strings.ContainsAny(text, " ~^:?*[\\\x7f") {
		return false
	}
	for part := range strings.SplitSeq(text, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' })
}

// change runs a git that changes the repository.
func (r *Repo) change(ctx context.Context, v *invocation) error {
	res, err := r.run(ctx, v)
	if e, ok := errors.AsType[*GitError](err); ok && e.Msg == noExplanation {
		// Some commands tell what is wrong where they tell what is right.
		lines := bytes.Split(bytes.TrimSpace(res.Stdout), []byte("\n"))
		if last := string(lines[len(lines)-1]); last != "" {
			e.Msg = shortLine(withoutUser(last))
		}
	}
	return err
}

// Add puts files into the index: those named by absolute paths, or all. What
// the rules deny, submodules and repositories inside the work tree are left
// out.
func (r *Repo) Add(ctx context.Context, files []string, all bool) error {
	specs, err := r.pathspecs(files)
	if err != nil {
		return err
	}
	if all {
		specs = append(specs, ":(top)")
	}
	left, err := r.leftOut(ctx)
	if err != nil {
		return err
	}
	for _, name := range left {
		specs = append(specs, ":(top,exclude,literal)"+strings.TrimSuffix(name, "/"))
	}
	v := r.invoke("add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul")
	v.stdin = []byte(strings.Join(specs, "\x00") + "\x00")
	err = r.change(ctx, v)
	return err
}

func (r *Repo) pathspecs(files []string) ([]string, error) {
	var specs []string
	for _, f := range files {
		spec, err := r.pathspec(f)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

// leftOut lists what must not get into the index by our hands: to look at a
// repository inside the work tree git would follow what that one says.
func (r *Repo) leftOut(ctx context.Context) ([]string, error) {
	var left []string
	take := func(name string, inside bool) {
		if inside || !r.shows(name) {
			left = append(left, name)
		}
	}
	err := r.eachField(ctx, func(f string) error {
		info, name, ok := strings.Cut(f, "\t")
		if !ok {
			return errStatus
		}
		take(name, strings.HasPrefix(info, "160000 "))
		return nil
	}, "ls-files", "-z", "--stage", "--full-name", ":(top)")
	if err != nil {
		return nil, err
	}
	err = r.eachField(ctx, func(name string) error {
		take(name, strings.HasSuffix(name, "/"))
		return nil
	}, "ls-files", "-z", "--others", "--exclude-standard", "--full-name", ":(top)")
	slices.Sort(left)
	return slices.Compact(left), err
}

// eachField calls take for every field of an output that is cut by NULs.
func (r *Repo) eachField(ctx context.Context, take func(string) error, args ...string) error {
	cut := fields{max: maxField}
	return r.stream(ctx, r.invoke(args...), func(data []byte) error {
		return cut.feed(data, func(b []byte) error { return take(string(b)) })
	})
}

// mayWrite refuses a change of the work tree that would touch a denied file.
// args are those of a git diff which lists what will be changed.
func (r *Repo) mayWrite(ctx context.Context, args ...string) error {
	if !r.by.Denies {
		return nil
	}
	args = append([]string{"diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all"}, args...)
	return r.eachField(ctx, func(name string) error {
		if r.shows(name) {
			return nil
		}
		return policy.Refuse(policy.PathDenied, "The change would touch files that are denied by policy").Err()
	}, args...)
}

// CommitOptions say what is committed, and by whom.
type CommitOptions struct {
	Message string
	// Name and Email are author and committer; the configured ones when empty.
	Name, Email string
	AllowEmpty  bool
}

// Commit makes a commit of the index.
func (r *Repo) Commit(ctx context.Context, o CommitOptions) error {
	args := []string{"commit", "--quiet", "--no-verify", "--no-gpg-sign", "--no-status", "--file=-"}
	if o.AllowEmpty {
		args = append(args, "--allow-empty")
	}
	v := r.invoke(args...)
	v.stdin = []byte(o.Message)
	v.more = r.identity(o.Name, o.Email)
	err := r.change(ctx, v)
	return whose(err)
}

// whose tells the caller of a commit by nobody what is missing.
func whose(err error) error {
	if e, ok := errors.AsType[*GitError](err); ok && strings.Contains(e.Msg, "auto-detection is disabled") {
		return gitErrorf("nobody knows who commits: give author_name and author_email, or configure user.name and user.email")
	}
	return err
}

// identity is who commits: as given, else as the repository says, else as the
// settings of the server's user say.
func (r *Repo) identity(name, email string) []setting {
	who := []setting{{section: "user", name: "useconfigonly", value: "true"}}
	for _, s := range r.git.userSettings(r.by.Env) {
		if _, own := lookup(r.format, s.section, s.name); !own && s.section == "user" {
			who = append(who, s)
		}
	}
	for key, value := range map[string]string{"name": name, "email": email} {
		if value != "" {
			who = append(who, setting{section: "user", name: key, value: value})
		}
	}
	return who
}

// userSettings are the harmless settings of the server's user.
func (g *Git) userSettings(env map[string]string) []setting {
	var kept []setting
	for _, file := range []string{userConfig(env, "XDG_CONFIG_HOME", "git/config"), userConfig(env, "HOME", ".gitconfig")} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() <= maxConfig {
			text := make([]byte, info.Size())
			n, _ := f.Read(text)
			all, _ := parseConfig(text[:n])
			for _, s := range all {
				if isHarmless(s) && !s.hasSub && s.section != "core" && s.section != "extensions" {
					kept = append(kept, s)
				}
			}
		}
		_ = f.Close()
	}
	return kept
}

func userConfig(env map[string]string, variable, name string) string {
	if env[variable] == "" {
		return "/dev/null"
	}
	return filepath.Join(env[variable], name)
}

// ResetOptions are those of git reset.
type ResetOptions struct {
	Mode   string   // soft, mixed, hard, merge, keep
	Target string   // HEAD when empty
	Files  []string // absolute paths; only these, and no mode
}

// Reset moves the branch, the index or the work tree to a commit.
func (r *Repo) Reset(ctx context.Context, o ResetOptions) error {
	target := ""
	if o.Target != "" {
		var err error
		if target, err = r.commit(ctx, o.Target); err != nil {
			return err
		}
	}
	specs, err := r.pathspecs(o.Files)
	if err != nil {
		return err
	}
	args := []string{"reset", "--quiet"}
	if len(specs) == 0 {
		args = append(args, "--"+o.Mode, "--no-recurse-submodules")
	}
	if target != "" {
		args = append(args, target)
	}
	if len(specs) == 0 && o.Mode != "soft" && o.Mode != "mixed" {
		head, err := r.Head(ctx)
		if err != nil {
			return err
		}
		if from := orText(target, head); from != "" {
			if err := r.mayWrite(ctx, from, "--"); err != nil {
				return err
			}
		}
	}
	err = r.change(ctx, r.invoke(append(append(args, "--"), specs...)...))
	return err
}

func orText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// RestoreOptions are those of git restore.
type RestoreOptions struct {
	Files            []string // absolute paths
	Staged, Worktree bool
	Source           string // a commit; the usual one when empty
}

// Restore brings files back.
func (r *Repo) Restore(ctx context.Context, o RestoreOptions) error {
	specs, err := r.pathspecs(o.Files)
	if err != nil {
		return err
	}
	args := []string{"restore", "--quiet", "--no-recurse-submodules"}
	var from []string
	if o.Source != "" {
		commit, err := r.commit(ctx, o.Source)
		if err != nil {
			return err
		}
		args, from = append(args, "--source="+commit), []string{commit}
	}
	if o.Staged {
		args = append(args, "--staged")
		if o.Source == "" && o.Worktree {
			from = []string{"HEAD"}
		}
	}
	if o.Worktree {
		args = append(args, "--worktree")
		if err := r.mayWrite(ctx, append(append(from, "--"), specs...)...); err != nil {
			return err
		}
	}
	err = r.change(ctx, r.invoke(append(append(args, "--"), specs...)...))
	return err
}
