package devtools

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// configurable are the settings that callers may read and write: others can
// make git run programs.
func configurable(key string) bool {
	section, name, ok := strings.Cut(strings.ToLower(key), ".")
	if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) {
		return false
	}
	switch section {
	case "user", "pull", "push":
		return true
	case "init":
		return name != "templatedir"
	case "core":
		return name == "autocrlf" || name == "filemode"
	}
	return false
}

// Setting is a configured value.
type Setting struct{ Key, Value string }

var errKey = &GitError{Msg: "only user.*, pull.*, push.*, init.*, core.autocrlf and core.filemode can be configured"}

// Config lists the values of the repository's own configuration that callers
// may see: those of one key, or all.
func (r *Repo) Config(key string) ([]Setting, error) { return shownSettings(r.format, key) }

func shownSettings(all []setting, key string) ([]Setting, error) {
	if key != "" && !configurable(key) {
		return nil, errKey
	}
	out := []Setting{}
	for _, s := range all {
		own := s.section + "." + s.name
		if !s.hasSub && configurable(own) && (key == "" || strings.EqualFold(key, own)) {
			out = append(out, Setting{own, s.value})
		}
	}
	return out, nil
}

// Configure sets a value of the repository's own configuration, or removes it
// when value is nil.
func (r *Repo) Configure(ctx context.Context, key string, value *string) error {
	args, err := configuring(key, value)
	if err != nil {
		return err
	}
	if value == nil && !hasKey(r.format, key) {
		return nil
	}
	return r.edit(ctx, [][]string{args})
}

func configuring(key string, value *string) ([]string, error) {
	switch {
	case !configurable(key):
		return nil, errKey
	case value == nil:
		return []string{"--unset-all", "--", key}, nil
	case strings.ContainsRune(*value, 0):
		return nil, gitErrorf("a value cannot have a NUL byte")
	}
	return []string{"--replace-all", "--", key, *value}, nil
}

func hasKey(all []setting, key string) bool {
	return slices.ContainsFunc(all, func(s setting) bool { return !s.hasSub && strings.EqualFold(s.section+"."+s.name, key) })
}

// UserConfig lists the values of the configuration of the server's user.
func (g *Git) UserConfig(by Caller, key string) ([]Setting, error) {
	file, text, err := userConfigFile(by)
	if err != nil {
		return nil, err
	}
	all, err := parseConfig(text)
	if err != nil {
		return nil, gitErrorf(err.Error() + " in file " + path.Base(file))
	}
	return shownSettings(all, key)
}

// ConfigureUser sets or removes a value in the configuration of the server's
// user, if the caller may write that file.
func (g *Git) ConfigureUser(ctx context.Context, by Caller, key string, value *string) error {
	args, err := configuring(key, value)
	if err != nil {
		return err
	}
	file, text, err := userConfigFile(by)
	if err != nil {
		return err
	}
	if all, _ := parseConfig(text); value == nil && !hasKey(all, key) {
		return nil
	}
	return g.editFile(ctx, by, file, [][]string{args})
}

// userConfigFile is the configuration of the server's user, and what is in it.
func userConfigFile(by Caller) (string, []byte, error) {
	home := by.Env["HOME"]
	if !path.IsAbs(home) {
		return "", nil, gitErrorf("the server's user has no home directory")
	}
	file := path.Join(home, ".gitconfig")
	if _, err := by.Guard.Check(file, by.Op); err != nil {
		return "", nil, err
	}
	r := &Repo{see: by.Guard.Quiet()}
	text, _, err := r.read(file, maxConfig)
	return file, text, err
}

// edit changes the repository's configuration, as git config would with each of
// the argument lists, and takes note.
func (r *Repo) edit(ctx context.Context, edits [][]string) error {
	if err := r.git.editFile(ctx, r.by, path.Join(r.common, "config"), edits); err != nil {
		return r.plain(err)
	}
	all, err := r.settings()
	if err != nil {
		return err
	}
	r.format = all
	return r.writeSettings(nil)
}

// editFile changes a configuration file: git does it on a copy, which then
// takes the file's place.
func (g *Git) editFile(ctx context.Context, by Caller, file string, edits [][]string) error {
	select {
	case g.edits <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.edits }()
	see := by.Guard.Quiet()
	text, _, err := (&Repo{see: see}).read(file, maxConfig)
	if err != nil {
		return err
	}
	dir, err := privateDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	copied := path.Join(dir, "edited")
	if err := os.WriteFile(copied, text, 0o600); err != nil {
		return fmt.Errorf("copy a configuration: %w", err)
	}
	for _, args := range edits {
		v := &invocation{
			args: append([]string{"config", "--file", copied}, args...),
			env:  map[string]string{"GIT_DIR": dir, "HOME": dir, "XDG_CONFIG_HOME": dir},
		}
		if _, err := g.run(ctx, by.Env, v); err != nil {
			return err
		}
	}
	if text, err = os.ReadFile(copied); err != nil {
		return fmt.Errorf("read a configuration: %w", err)
	}
	w, err := see.Create(file, guardfs.CreateOptions{Max: maxConfig})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(text); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// Remote is a repository that a repository knows by name.
type Remote struct {
	Name string
	// URL and PushURL have no credentials, whatever the configuration says.
	URL, PushURL string
}

// Remotes lists the remotes by name.
func (r *Repo) Remotes() []Remote {
	all := r.remotes()
	for i := range all {
		all[i].URL = withoutUser(all[i].URL)
		all[i].PushURL = withoutUser(all[i].PushURL)
	}
	return all
}

// remotes are the remotes as they are configured, of several addresses the
// first.
func (r *Repo) remotes() []Remote {
	var all []Remote
	for _, s := range r.format {
		if s.section != "remote" || !s.hasSub {
			continue
		}
		i := slices.IndexFunc(all, func(o Remote) bool { return o.Name == s.sub })
		if i < 0 {
			all = append(all, Remote{Name: s.sub})
			i = len(all) - 1
		}
		switch {
		case s.name == "url" && all[i].URL == "":
			all[i].URL = s.value
		case s.name == "pushurl" && all[i].PushURL == "":
			all[i].PushURL = s.value
		}
	}
	slices.SortFunc(all, func(a, b Remote) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (r *Repo) remote(name string) (Remote, bool) {
	all := r.remotes()
	i := slices.IndexFunc(all, func(o Remote) bool { return o.Name == name })
	if i < 0 {
		return Remote{}, false
	}
	return all[i], true
}

// AddRemote names a remote. With overwrite one of that name gets the address.
func (r *Repo) AddRemote(ctx context.Context, name, url string, overwrite bool) error {
	a, err := parseAddress(url)
	if err != nil {
		return err
	}
	if a.hasUser {
		return gitErrorf("credentials in an address would be stored; give them with each call instead")
	}
	if a.kind == byPath {
		if a.url, err = r.by.Guard.Check(absolute(r.start, a.url), r.by.Op); err != nil {
			return err
		}
	}
	if _, there := r.remote(name); there && !overwrite {
		return gitErrorf("remote " + name + " already exists")
	}
	return r.edit(ctx, [][]string{
		{"--replace-all", "--", "remote." + name + ".url", a.url},
		{"--replace-all", "--", "remote." + name + ".fetch", "+refs/heads/*:refs/remotes/" + name + "/*"},
	})
}

// SetRemote changes the address of a remote.
func (r *Repo) SetRemote(ctx context.Context, name, url string) error {
	if _, there := r.remote(name); !there {
		return noRemote(name)
	}
	return r.AddRemote(ctx, name, url, true)
}

func noRemote(name string) error { return gitErrorf("no such remote: " + name) }

// RemoveRemote forgets a remote, what is known of its branches, and who follows
// them.
func (r *Repo) RemoveRemote(ctx context.Context, name string) error {
	if _, there := r.remote(name); !there {
		return noRemote(name)
	}
	edits := [][]string{{"--remove-section", "--", "remote." + name}}
	done := map[string]bool{}
	for _, s := range r.format {
		if s.section == "branch" && s.hasSub && s.name == "remote" && s.value == name && !done[s.sub] {
			done[s.sub] = true
			edits = append(edits, []string{"--remove-section", "--", "branch." + s.sub})
		}
	}
	if err := r.edit(ctx, edits); err != nil {
		return err
	}
	res, err := r.run(ctx, r.invoke("for-each-ref", "--format=delete %(refname)", "refs/remotes/"+name+"/"))
	if err != nil || len(res.Stdout) == 0 {
		return err
	}
	v := r.invoke("update-ref", "--stdin", "--no-deref")
	v.stdin = res.Stdout
	err = r.change(ctx, v)
	return err
}
