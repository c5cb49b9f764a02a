package devtools

import (
	"bytes"
	"context"
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// MaxDiff is how many bytes of a patch are shown.
const MaxDiff = 1 << 20

// DiffOptions say what is compared with what.
type DiffOptions struct {
	// Staged compares the index instead of the work tree.
	Staged bool
	// Ref is the commit to compare with: HEAD for the index and the index for
	// the work tree when empty. With Base, Base is compared with Ref.
	Ref, Base string
	// File is the absolute path of a file or directory to look at only.
	File string
	// Context is the number of unchanged lines around a change; negative is
	// the usual three.
	Context int
}

// Diff is a comparison.
type Diff struct {
	// Patch is UTF-8, at most MaxDiff bytes of it.
	Patch string
	// Truncated says that the patch is longer. The numbers are those of the
	// whole.
	Truncated                    bool
	Files, Insertions, Deletions int
}

// Diff compares. Files that the rules deny are left out.
func (r *Repo) Diff(ctx context.Context, o DiffOptions) (Diff, error) {
	args := []string{
		"diff", "--raw", "--numstat", "-z", "--patch", "--no-ext-diff", "--no-textconv", "--no-color",
		"--no-relative", "--src-prefix=a/", "--dst-prefix=b/", "--find-renames", "--ignore-submodules=dirty", "--submodule=short",
	}
	if o.Context >= 0 {
		args = append(args, "--unified="+strconv.Itoa(o.Context))
	}
	if o.Staged {
		args = append(args, "--cached")
	}
	for _, ref := range []string{o.Base, o.Ref} {
		if ref == "" {
			continue
		}
		commit, err := r.commit(ctx, ref)
		if err != nil {
			return Diff{}, err
		}
		args = append(args, commit)
	}
	args = append(args, "--")
	if o.File != "" {
		spec, err := r.pathspec(o.File)
		if err != nil {
			return Diff{}, err
		}
		args = append(args, spec)
	}
	return r.diff(ctx, args)
}

// diff runs the comparison, and once more when there was something in it that
// the caller may not see. What git says it compared is what is judged.
func (r *Repo) diff(ctx context.Context, args []string) (Diff, error) {
	for range 2 {
		p := &diffParser{admit: r.showsChange}
		err := r.stream(ctx, r.invoke(args...), p.feed)
		if err == nil {
			err = p.end()
		}
		if err == nil {
			err = r.unchanged()
		}
		if err == nil {
			return p.Diff, nil
		}
		if !errors.Is(err, errRefused) {
			return Diff{}, err
		}
		for _, name := range p.refused {
			args = append(args, ":(top,exclude,literal)"+name)
		}
	}
	return Diff{}, policy.Refuse(policy.PathDenied, "Some of the changes are denied by policy").Err()
}

// showsChange tells whether a change of a file may be shown.
func (r *Repo) showsChange(c change) bool {
	return r.shows(c.path) && (!c.submodule || r.submoduleInside(c.path))
}

// pathspec is the way to name one path of the work tree to git, and nothing
// else.
func (r *Repo) pathspec(file string) (string, error) {
	if !within(r.top, file) {
		return "", gitErrorf("the path is outside the repository")
	}
	if file == r.top {
		return ":(top)", nil
	}
	return ":(top,literal)" + strings.TrimPrefix(strings.TrimPrefix(file, r.top), "/"), nil
}

// submoduleInside tells whether what git would read of a submodule lies where
// the caller may go. One that is not there is.
func (r *Repo) submoduleInside(name string) bool {
	sub := &Repo{git: r.git, by: r.by, see: r.see}
	at := path.Join(r.top, name)
	dot, err := sub.exists(path.Join(at, ".git"))
	if err != nil {
		return false
	}
	if dot.Kind == "" {
		return true
	}
	ok, err := sub.findIn(at)
	return ok && err == nil
}

// commit resolves what a caller calls a commit.
func (r *Repo) commit(ctx context.Context, ref string) (string, error) {
	res, err := r.run(ctx, r.invoke("rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}"))
	hash := string(bytes.TrimSpace(res.Stdout))
	if err == nil && !isHash.MatchString(hash) { // "^main" names what to leave out
		err = &GitError{}
	}
	if e, ok := errors.AsType[*GitError](err); ok {
		e.Msg = "unknown commit or branch: " + shortLine(ref)
	}
	return hash, err
}

var isHash = lazyregexp.New(`^[0-9a-f]+$`)

// change is one changed file of a comparison.
type change struct {
	path      string
	submodule bool
}

var (
	errDiff    = errors.New("git diff: unreadable output")
	errRefused = errors.New("git diff: a change may not be shown")
)

// maxRefused bounds the files left out of one comparison.
const maxRefused = 1000

// diffParser reads the output of git diff --raw --numstat -z --patch as it
// comes: records of raw, of numstat, an empty one, and the patch as text.
type diffParser struct {
	Diff
	admit   func(change) bool
	refused []string

	cut   fields
	names int  // names that still belong to the last record
	sub   bool // the last raw record is of a submodule
	text  bool // the patch has begun
	patch []byte
}

func (p *diffParser) feed(data []byte) error {
	for len(data) > 0 && !p.text {
		i := bytes.IndexByte(data, 0)
		if i < 0 {
			i = len(data) - 1
		}
		p.cut.max = maxField
		if err := p.cut.feed(data[:i+1], p.record); err != nil {
			return err
		}
		data = data[i+1:]
	}
	if len(data) == 0 {
		return nil
	}
	if len(p.refused) > 0 {
		return errRefused
	}
	room := MaxDiff + utf8.UTFMax - len(p.patch)
	p.patch = append(p.patch, data[:min(len(data), room)]...)
	if len(data) > room {
		return errEnough // the numbers came before
	}
	return nil
}

const maxField = 64 << 10

// record takes one field of the part that is cut by NULs.
func (p *diffParser) record(b []byte) error {
	s := string(b)
	switch {
	case p.names > 0:
		p.names--
		return p.name(s)
	case s == "":
		p.text = true
		return nil
	case s[0] == ':':
		return p.raw(s)
	}
	p.sub = false // it was judged by its raw record
	added, rest, ok := strings.Cut(s, "\t")
	deleted, name, ok2 := strings.Cut(rest, "\t")
	if !ok || !ok2 {
		return errDiff
	}
	if name == "" { // of a rename: two names follow
		p.names = 2
	}
	p.Files++
	for _, n := range []struct {
		text string
		to   *int
	}{{added, &p.Insertions}, {deleted, &p.Deletions}} {
		if n.text == "-" { // binary
			continue
		}
		v, err := strconv.Atoi(n.text)
		if err != nil || v < 0 {
			return errDiff
		}
		*n.to += v
	}
	if name == "" {
		return nil
	}
	return p.name(name)
}

// raw reads ":mode mode hash hash letter", which one or two names follow.
func (p *diffParser) raw(s string) error {
	words := strings.Fields(s[1:])
	if len(words) != 5 {
		return errDiff
	}
	p.names = 1
	if words[4][0] == 'R' || words[4][0] == 'C' {
		p.names = 2
	}
	p.sub = words[0] == "160000" || words[1] == "160000"
	return nil
}

// name judges one name of a record.
func (p *diffParser) name(name string) error {
	if p.admit(change{path: name, submodule: p.sub}) {
		return nil
	}
	if p.refused = append(p.refused, name); len(p.refused) > maxRefused {
		return errRefused
	}
	return nil
}

// end finishes the patch.
func (p *diffParser) end() error {
	switch {
	case len(p.refused) > 0:
		return errRefused
	case p.names > 0 || len(p.cut.part) > 0:
		return errDiff
	}
	p.Patch, p.Truncated = validText(p.patch, MaxDiff)
	p.patch = nil
	return nil
}

// validText is text with U+FFFD for every byte that is no UTF-8, cut to most
// bytes between characters.
func validText(b []byte, most int) (text string, cut bool) {
	var out strings.Builder
	out.Grow(min(len(b), most))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if out.Len()+utf8.RuneLen(r) > most {
			return out.String(), true
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String(), false
}
