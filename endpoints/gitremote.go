package endpoints

import (
	"context"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// transferIn is what calls that talk to another repository have in common.
type transferIn struct {
	Username api.Field[string] `json:"username" doc:"For this call only; https."`
	Password api.Field[string] `json:"password" doc:"Password or token, for this call only; https."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Seconds; 300 by default, at most 3600."`
}

const maxTransfer = 3600 // seconds

func (in *transferIn) transfer() (t devtools.Transfer, err error) {
	if t.Username, err = in.Username.Optional("username", ""); err != nil {
		return t, err
	}
	if t.Password, err = in.Password.Optional("password", ""); err != nil {
		return t, err
	}
	if f, ok := api.Lenient(in.Timeout.V); ok && in.Timeout.State == api.Good && f > 0 {
		t.Timeout = time.Duration(min(f, maxTransfer) * float64(time.Second))
	}
	return t, nil
}

type gitCloneIn struct {
	URL    api.Field[string]     `json:"url" doc:"https, ssh or a path."`
	Path   api.Field[string]     `json:"path" doc:"Where to; must be empty or not there."`
	Branch api.Field[string]     `json:"branch" doc:"A branch or tag; the other's current branch by default."`
	Depth  api.Field[api.Number] `json:"depth" doc:"Commits of history; all by default."`
	transferIn
}

type gitCloneOut struct {
	Path string `json:"path"`
	headOut
}

func (s *Server) gitClone(ctx context.Context, c *api.Call, in gitCloneIn) (gitCloneOut, error) {
	var o devtools.CloneOptions
	var err error
	if o.URL, err = in.URL.Want("url"); err != nil {
		return gitCloneOut{}, err
	}
	if o.Path, err = in.Path.Want("path"); err != nil {
		return gitCloneOut{}, err
	}
	if o.Branch, err = branchName("branch", in.Branch); err != nil {
		return gitCloneOut{}, err
	}
	depth, err := in.Depth.Optional("depth", "0")
	if err != nil || in.Depth.Set() && (depth.Int() < 1 || depth.Int() > 1<<30) {
		return gitCloneOut{}, api.Invalidf("Invalid 'depth'")
	}
	o.Depth = int(depth.Int())
	if o.Transfer, err = in.transfer(); err != nil {
		return gitCloneOut{}, err
	}
	r, err := s.Git.Clone(ctx, s.gitCaller(c), o)
	if err != nil {
		return gitCloneOut{}, gitError(err)
	}
	defer r.Close()
	head, err := headOf(ctx, r)
	return gitCloneOut{r.Dir(), head}, err
}

type gitPushIn struct {
	repoIn
	Remote   api.Field[string] `json:"remote" doc:"The one the branch follows, or the only one, by default."`
	Branch   api.Field[string] `json:"branch" doc:"The current one by default."`
	Upstream api.Field[any]    `json:"set_upstream" doc:"Let the branch follow the remote's."`
	Force    api.Field[any]    `json:"force" doc:"Replace the remote's branch, if it is as it was last seen."`
	transferIn
}

type gitPushOut struct {
	headOut
	Remote string `json:"remote"`
	Pushed string `json:"pushed" doc:"The branch."`
}

func (s *Server) gitPush(ctx context.Context, c *api.Call, in gitPushIn) (out gitPushOut, err error) {
	var o devtools.PushOptions
	if o.Remote, err = branchName("remote", in.Remote); err != nil {
		return out, err
	}
	if o.Branch, err = branchName("branch", in.Branch); err != nil {
		return out, err
	}
	if o.SetUpstream, err = flag(in.Upstream, "set_upstream"); err != nil {
		return out, err
	}
	if o.Force, err = flag(in.Force, "force"); err != nil {
		return out, err
	}
	if o.Transfer, err = in.transfer(); err != nil {
		return out, err
	}
	out.headOut, err = s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
		var err error
		out.Remote, out.Pushed, err = r.Push(ctx, o)
		return err
	})
	return out, err
}

type gitPullIn struct {
	repoIn
	Remote api.Field[string] `json:"remote" doc:"The one the branch follows by default."`
	Branch api.Field[string] `json:"branch" doc:"The one the current branch follows by default."`
	transferIn
}

func (s *Server) gitPull(ctx context.Context, c *api.Call, in gitPullIn) (out headOut, err error) {
	var o devtools.PullOptions
	if o.Remote, err = branchName("remote", in.Remote); err != nil {
		return out, err
	}
	if o.Branch, err = branchName("branch", in.Branch); err != nil {
		return out, err
	}
	if o.Transfer, err = in.transfer(); err != nil {
		return out, err
	}
	return s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error { return r.Pull(ctx, o) })
}

type gitRemotesIn struct {
	repoIn
	Action    api.Field[string] `json:"action" doc:"list (default), add, set or remove."`
	Name      api.Field[string] `json:"name" doc:"The remote."`
	URL       api.Field[string] `json:"url" doc:"https, ssh or a path, without credentials."`
	Overwrite api.Field[any]    `json:"overwrite" doc:"With add: change one that is there."`
}

type gitRemotesOut struct {
	Remotes []remoteOut `json:"remotes"`
}

type remoteOut struct {
	Name    string  `json:"name"`
	URL     string  `json:"url"`
	PushURL *string `json:"push_url"`
}

func (s *Server) gitRemotes(ctx context.Context, c *api.Call, in gitRemotesIn) (gitRemotesOut, error) {
	action, err := in.Action.Optional("action", "list")
	if err != nil {
		return gitRemotesOut{}, err
	}
	name, err := branchName("name", in.Name)
	if err != nil {
		return gitRemotesOut{}, err
	}
	url, err := in.URL.Optional("url", "")
	if err != nil {
		return gitRemotesOut{}, err
	}
	overwrite, err := flag(in.Overwrite, "overwrite")
	if err != nil {
		return gitRemotesOut{}, err
	}
	var do func(*devtools.Repo) error
	switch action {
	case "list":
		do = func(*devtools.Repo) error { return nil }
	case "add":
		do = func(r *devtools.Repo) error { return r.AddRemote(ctx, name, url, overwrite) }
	case "set":
		do = func(r *devtools.Repo) error { return r.SetRemote(ctx, name, url) }
	case "remove":
		do = func(r *devtools.Repo) error { return r.RemoveRemote(ctx, name) }
	default:
		return gitRemotesOut{}, api.Invalidf("Invalid 'action': list, add, set or remove")
	}
	if action != "list" && name == "" {
		return gitRemotesOut{}, api.Invalidf("Missing or invalid 'name'")
	}
	out := gitRemotesOut{Remotes: []remoteOut{}}
	_, err = s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
		if err := do(r); err != nil {
			return err
		}
		for _, k := range r.Remotes() {
			out.Remotes = append(out.Remotes, remoteOut{k.Name, k.URL, orNull(k.PushURL)})
		}
		return nil
	})
	return out, err
}

type gitConfigIn struct {
	repoIn
	Key    api.Field[string] `json:"key" doc:"user.*, pull.*, push.*, init.*, core.autocrlf or core.filemode; all by default."`
	Value  api.Field[string] `json:"value" doc:"Set this value; without it the values are read."`
	Unset  api.Field[any]    `json:"unset" doc:"Remove the key."`
	Global api.Field[string] `json:"scope" doc:"local (default) is the repository's, global the server's user's."`
}

type gitConfigOut struct {
	Settings map[string]string `json:"settings"`
	Value    *string           `json:"value" doc:"Of the key, or null."`
}

func (s *Server) gitConfig(ctx context.Context, c *api.Call, in gitConfigIn) (gitConfigOut, error) {
	key, err := in.Key.Optional("key", "")
	if err != nil {
		return gitConfigOut{}, err
	}
	scope, err := in.Global.Optional("scope", "local")
	if err != nil || scope != "local" && scope != "global" {
		return gitConfigOut{}, api.Invalidf("Invalid 'scope': local or global")
	}
	value, err := in.Value.Optional("value", "")
	if err != nil {
		return gitConfigOut{}, err
	}
	unset, err := flag(in.Unset, "unset")
	if err != nil {
		return gitConfigOut{}, err
	}
	sets := in.Value.Set() || unset
	if sets && key == "" || in.Value.Set() && unset {
		return gitConfigOut{}, api.Invalidf("Missing or invalid 'key'")
	}
	to := &value
	if unset {
		to = nil
	}
	var settings []devtools.Setting
	if scope == "global" {
		by := s.gitCaller(c)
		if sets {
			err = s.Git.ConfigureUser(ctx, by, key, to)
		}
		if err == nil {
			settings, err = s.Git.UserConfig(by, key)
		}
	} else {
		_, err = s.change(ctx, c, in.repoIn, func(r *devtools.Repo) error {
			if sets {
				if err := r.Configure(ctx, key, to); err != nil {
					return err
				}
			}
			var err error
			settings, err = r.Config(key)
			return err
		})
	}
	if err != nil {
		return gitConfigOut{}, gitError(err)
	}
	out := gitConfigOut{Settings: map[string]string{}}
	for _, k := range settings {
		out.Settings[k.Key] = k.Value
	}
	if key != "" && len(settings) > 0 {
		out.Value = &settings[len(settings)-1].Value
	}
	return out, nil
}
