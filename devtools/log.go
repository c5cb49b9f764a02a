package devtools

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Commit is one entry of a history. Texts are UTF-8 as far as the commit is.
type Commit struct {
	Hash, AuthorName, AuthorEmail string
	// Date is the author's, in ISO 8601.
	Date          string
	Parents       []string
	Subject, Body string
}

// LogOptions say which commits are listed.
type LogOptions struct {
	Ref   string // where to start; HEAD when empty
	File  string // absolute path; only commits that changed it
	Limit int
}

// Log is a piece of history.
type Log struct {
	Commits []Commit
	// Truncated says that the messages were too long to list all.
	Truncated bool
}

const (
	commitFields = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%s%x00%b"
	maxBody      = 64 << 10 // bytes of a message that are shown
	maxMessages  = 16 << 20 // bytes of all
)

var errLog = errors.New("git log: unreadable output")

// logParser reads records of seven fields.
type logParser struct {
	Log
	fields []string
	size   int
}

func (p *logParser) field(b []byte) error {
	if p.size += len(b); p.size > maxMessages {
		p.Truncated = true
		return errEnough
	}
	text, _ := validText(b, maxBody)
	if p.fields = append(p.fields, text); len(p.fields) < 7 {
		return nil
	}
	f := p.fields
	p.fields = nil
	if f[0] == "" {
		return errLog
	}
	p.Commits = append(p.Commits, Commit{
		Hash: f[0], Parents: strings.Fields(f[1]), AuthorName: f[2], AuthorEmail: f[3], Date: f[4],
		Subject: f[5], Body: strings.TrimSuffix(f[6], "\n"),
	})
	return nil
}

// Log lists commits, the newest first. A repository without any has none.
func (r *Repo) Log(ctx context.Context, o LogOptions) (Log, error) {
	args := []string{
		"log", "-z", "--no-show-signature", "--no-mailmap", "--encoding=UTF-8", "--no-color", "--no-ext-diff",
		"--max-count=" + strconv.Itoa(o.Limit), "--format=" + commitFields,
	}
	if o.Ref != "" {
		commit, err := r.commit(ctx, o.Ref)
		if err != nil {
			return Log{}, err
		}
		args = append(args, commit)
	}
	args = append(args, "--")
	if o.File != "" {
		spec, err := r.pathspec(o.File)
		if err != nil {
			return Log{}, err
		}
		args = append(args, spec)
	}
	p := &logParser{}
	cut := fields{max: maxMessages}
	err := r.stream(ctx, r.invoke(args...), func(data []byte) error { return cut.feed(data, p.field) })
	if e, ok := errors.AsType[*GitError](err); ok && o.Ref == "" && strings.HasSuffix(e.Msg, "does not have any commits yet") {
		return Log{}, nil // only git can tell that from a branch that is broken
	}
	if err == nil && !p.Truncated && len(cut.part)+len(p.fields) > 0 {
		err = errLog
	}
	if err == nil {
		err = r.unchanged()
	}
	return p.Log, err
}

// Head is the commit of HEAD, "" before the first.
func (r *Repo) Head(ctx context.Context) (string, error) {
	head, err := r.commit(ctx, "HEAD")
	if _, ok := errors.AsType[*GitError](err); ok {
		return "", nil
	}
	return head, err
}

// Current is the branch of HEAD, "" when detached.
func (r *Repo) Current(ctx context.Context) (string, error) {
	res, err := r.run(ctx, r.invoke("symbolic-ref", "--quiet", "--short", "HEAD"))
	if _, ok := errors.AsType[*GitError](err); ok {
		return "", nil
	}
	return strings.TrimSpace(string(res.Stdout)), err
}

// Branch is a local branch.
type Branch struct {
	Name, Commit string
	Upstream     string // "" for none
}

// Branches lists local branches by name, and the current one, "" when detached.
func (r *Repo) Branches(ctx context.Context) (current string, all []Branch, err error) {
	if current, err = r.Current(ctx); err != nil {
		return "", nil, err
	}
	res, err := r.run(ctx, r.invoke("for-each-ref", "--format=%(refname:strip=2)%00%(objectname)%00%(upstream:short)", "refs/heads/"))
	if err == nil {
		err = r.unchanged()
	}
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(res.Stdout)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\x00")
		if len(f) == 3 { // the last one may have been cut
			all = append(all, Branch{Name: f[0], Commit: f[1], Upstream: f[2]})
		}
	}
	return current, all, nil
}
