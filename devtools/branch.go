package devtools

import (
	"context"
	"strings"
)

// hasRef tells whether there is a ref of that full name.
func (r *Repo) hasRef(ctx context.Context, name string) (bool, error) {
	res, err := r.run(ctx, r.invoke("for-each-ref", "--format=%(refname)", name))
	return strings.TrimSpace(string(res.Stdout)) == name, err
}

// CreateBranch makes a branch at HEAD and goes to it. With force one that is
// there is moved.
func (r *Repo) CreateBranch(ctx context.Context, name string, force bool) error {
	option := "-b"
	if force {
		option = "-B"
	}
	err := r.change(ctx, r.invoke("checkout", "--quiet", "--no-track", option, name, "--"))
	return err
}

// Checkout goes to a branch or a commit. A branch that is only a remote's is
// made, and follows it. With force changes of the work tree are thrown away.
func (r *Repo) Checkout(ctx context.Context, name string, force bool) error {
	there, err := r.hasRef(ctx, "refs/heads/"+name)
	if err != nil {
		return err
	}
	args := []string{"checkout", "--quiet", "--no-guess", "--no-recurse-submodules"}
	if force {
		args = append(args, "--force")
	}
	target, remote := name, ""
	if there {
		target = "refs/heads/" + name
	} else if remote, err = r.remoteWith(ctx, name); err != nil {
		return err
	} else if remote != "" {
		target = "refs/remotes/" + remote + "/" + name
	}
	commit, err := r.commit(ctx, target)
	if err != nil {
		return err
	}
	from := []string{commit, "--"}
	if head, err := r.Head(ctx); err != nil {
		return err
	} else if head != "" && !force {
		from = []string{head, commit, "--"}
	}
	if err := r.mayWrite(ctx, from...); err != nil {
		return err
	}
	if remote != "" {
		err = r.change(ctx, r.invoke(append(args, "--no-track", "-b", name, commit, "--")...))
		if err != nil {
			return err
		}
		return r.follow(ctx, name, remote, name)
	}
	err = r.change(ctx, r.invoke(append(args, name, "--")...))
	return err
}

// remoteWith finds the one remote that has a branch; "" for none or several.
func (r *Repo) remoteWith(ctx context.Context, branch string) (string, error) {
	found := ""
	for _, remote := range r.remotes() {
		there, err := r.hasRef(ctx, "refs/remotes/"+remote.Name+"/"+branch)
		if err != nil {
			return "", err
		}
		if there && found != "" {
			return "", nil
		}
		if there {
			found = remote.Name
		}
	}
	return found, nil
}

// DeleteBranch removes a branch; without force only one that is merged.
func (r *Repo) DeleteBranch(ctx context.Context, name string, force bool) error {
	current, err := r.Current(ctx)
	if err != nil {
		return err
	}
	if current == name { // git would not know: it sees the shadow of the repository
		return gitErrorf("cannot delete the current branch")
	}
	option := "--delete"
	if force {
		option = "-D"
	}
	err = r.change(ctx, r.invoke("branch", "--quiet", option, "--", name))
	if err != nil {
		return err
	}
	for _, s := range r.format {
		if s.section == "branch" && s.hasSub && s.sub == name {
			return r.edit(ctx, [][]string{{"--remove-section", "--", "branch." + name}})
		}
	}
	return nil
}

// follow writes down which branch of a remote a branch follows.
func (r *Repo) follow(ctx context.Context, branch, remote, theirs string) error {
	return r.edit(ctx, [][]string{
		{"--replace-all", "--", "branch." + branch + ".remote", remote},
		{"--replace-all", "--", "branch." + branch + ".merge", "refs/heads/" + theirs},
	})
}
