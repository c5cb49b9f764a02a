package devtools

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// Status is the state of a work tree.
type Status struct {
	Head     string // commit; "" before the first
	Branch   string // "" when detached
	Upstream string
	// Ahead and Behind count commits against the upstream; Tracked tells that
	// they are known.
	Ahead, Behind int
	Tracked       bool
	Files         []FileStatus
	// Truncated says that there are more files.
	Truncated bool
}

// FileStatus is one changed file. Names are raw bytes.
type FileStatus struct {
	Path        string // from the top of the work tree; untracked directories end in "/"
	RenamedFrom string // of a rename or copy, where it was
	// Index and Worktree are git's letters, ' ' for no change. Untracked is '?'
	// in both, ignored '!'.
	Index, Worktree byte
	Submodule       bool
}

// maxStatusFiles bounds the files of one answer.
const maxStatusFiles = 100_000

// Status tells the branch and what is changed. Files that the rules deny are
// left out.
func (r *Repo) Status(ctx context.Context) (Status, error) {
	p := &statusParser{}
	cut := fields{max: maxField}
	err := r.stream(ctx, r.invoke(
		"status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--find-renames",
	), func(data []byte) error {
		if err := cut.feed(data, p.field); err != nil {
			return err
		}
		if len(p.Files) > maxStatusFiles {
			p.Truncated = true
			return errEnough
		}
		return nil
	})
	if err == nil && !p.Truncated {
		err = p.end(cut)
	}
	if err == nil {
		err = r.unchanged()
	}
	if err != nil {
		return Status{}, err
	}
	p.Files = p.Files[:min(len(p.Files), maxStatusFiles)]
	p.Files = slices.DeleteFunc(p.Files, func(f FileStatus) bool {
		return !r.showsChange(change{path: f.Path, submodule: f.Submodule})
	})
	for i, f := range p.Files {
		if f.RenamedFrom != "" && !r.shows(f.RenamedFrom) {
			p.Files[i].RenamedFrom = ""
		}
	}
	return p.Status, nil
}

var errStatus = errors.New("git status: unreadable output")

// statusParser reads the fields of `git status --porcelain=v2 --branch -z`, one
// at a time: records end in NUL, and the old name of a rename is a field of its
// own.
type statusParser struct {
	Status
	renamed bool // the next field is the old name of the last file
}

// field takes one field without its NUL.
func (p *statusParser) field(b []byte) error {
	if p.renamed {
		p.renamed = false
		p.Files[len(p.Files)-1].RenamedFrom = string(b)
		return nil
	}
	kind, rest, ok := strings.Cut(string(b), " ")
	if !ok {
		return errStatus
	}
	switch kind {
	case "#":
		return p.header(rest)
	case "1":
		return p.changed(rest, 6)
	case "2":
		p.renamed = true
		return p.changed(rest, 7)
	case "u":
		return p.changed(rest, 8)
	case "?", "!":
		if rest == "" {
			return errStatus
		}
		p.Files = append(p.Files, FileStatus{Path: rest, Index: kind[0], Worktree: kind[0]})
		return nil
	}
	return errStatus
}

// end tells whether the output was whole.
func (p *statusParser) end(cut fields) error {
	if p.renamed || len(cut.part) > 0 {
		return errStatus
	}
	return nil
}

// changed reads "XY sub …" with that many further words before the name.
func (p *statusParser) changed(rest string, words int) error {
	letters, rest, ok := strings.Cut(rest, " ")
	if !ok || len(letters) != 2 {
		return errStatus
	}
	sub, rest, ok := strings.Cut(rest, " ")
	if !ok || sub == "" {
		return errStatus
	}
	for range words - 1 {
		if _, rest, ok = strings.Cut(rest, " "); !ok {
			return errStatus
		}
	}
	if rest == "" {
		return errStatus
	}
	letter := func(c byte) byte {
		if c == '.' {
			return ' '
		}
		return c
	}
	p.Files = append(p.Files, FileStatus{
		Path: rest, Index: letter(letters[0]), Worktree: letter(letters[1]), Submodule: sub[0] == 'S',
	})
	return nil
}

// header reads "branch.x value"; unknown ones are passed over.
func (p *statusParser) header(s string) error {
	name, value, _ := strings.Cut(s, " ")
	switch name {
	case "branch.oid":
		if value != "(initial)" {
			p.Head = value
		}
	case "branch.head":
		if value != "(detached)" {
			p.Branch = value
		}
	case "branch.upstream":
		p.Upstream = value
	case "branch.ab":
		ahead, behind, _ := strings.Cut(value, " ")
		a, err1 := strconv.Atoi(strings.TrimPrefix(ahead, "+"))
		b, err2 := strconv.Atoi(strings.TrimPrefix(behind, "-"))
		if err1 != nil || err2 != nil || a < 0 || b < 0 {
			return errStatus
		}
		p.Ahead, p.Behind, p.Tracked = a, b, true
	}
	return nil
}

// fields cuts a stream at its NULs, for whatever pieces it comes in.
type fields struct {
	part []byte
	max  int
}

var errLongField = errors.New("git: unreadable output: a field is too long")

// feed calls take for every field that data completes.
func (f *fields) feed(data []byte, take func([]byte) error) error {
	for {
		i := bytes.IndexByte(data, 0)
		if i < 0 {
			break
		}
		field := data[:i]
		if len(f.part) > 0 {
			field = append(f.part, field...)
			f.part = f.part[:0]
		}
		if err := take(field); err != nil {
			return err
		}
		data = data[i+1:]
	}
	if len(f.part)+len(data) > f.max {
		return errLongField
	}
	f.part = append(f.part, data...)
	return nil
}
