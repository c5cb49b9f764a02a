package archive

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// PackOptions say what goes into an archive.
type PackOptions struct {
	Format  Format
	Paths   []string
	Base    string                    // directory that names are made relative to; "": each path is stored under its own name
	Exclude func(*guardfs.Entry) bool // leaves out an entry and what is below; nil: none

	MaxFiles int   // in all
	MaxBytes int64 // of the archive
	MaxInput int64 // of the files that are read for it

	Owner, Group func(id uint32) string // names, or the numbers as text
}

// ErrOutsideBase is a path that does not lie below [PackOptions].Base.
var ErrOutsideBase = errors.New("a path does not lie below the base")

// maxDirs bounds the directories of one archive, in files allowed.
const maxDirs = 10

// top is a file or directory that the call named.
type top struct {
	info guardfs.Info
	name string // in the archive; "" for the base itself
}

// Plan is an archive about to be written: everything the call named has been
// judged and was there.
type Plan struct {
	PackOptions
	guard *guardfs.Guard // tells nobody: the names were judged before
	tops  []top
}

// Prepare judges all paths, then looks at each, then counts what is in them.
// Too many files are a [*TooManyError], too much to read is a
// [*guardfs.TooLargeError] with MaxBytes.
func Prepare(ctx context.Context, g *guardfs.Guard, o PackOptions) (*Plan, error) {
	for _, name := range o.Paths {
		if _, err := g.Check(name, policy.Read); err != nil {
			return nil, err
		}
	}
	p := &Plan{PackOptions: o, guard: g.Quiet()}
	base := ""
	if o.Base != "" {
		var err error
		if base, err = g.Check(o.Base, policy.Read); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	most := (maxDirs + 1) * max(o.MaxFiles, 1)
	for _, name := range o.Paths {
		info, err := p.guard.Stat(name, true)
		if err != nil {
			return nil, err
		}
		if len(seen) > most {
			return nil, &TooManyError{o.MaxFiles}
		}
		if !seen[info.Path] {
			seen[info.Path] = true
			p.tops = append(p.tops, top{info: info})
		}
	}
	if err := p.name(base); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.tops, func(a, b top) int { return strings.Compare(a.name, b.name) })
	return p, p.count(ctx)
}

// name gives every top the name it is stored under.
func (p *Plan) name(base string) error {
	if base == "" {
		given := names{}
		for i := range p.tops {
			p.tops[i].name = given.free(p.tops[i].info.Path)
		}
		return nil
	}
	slices.SortFunc(p.tops, func(a, b top) int { return strings.Compare(a.info.Path, b.info.Path) })
	kept := p.tops[:0]
	for _, t := range p.tops {
		if !within(base, t.info.Path) || t.info.Path == base && !t.info.IsDir() {
			return ErrOutsideBase
		}
		if slices.ContainsFunc(kept, func(k top) bool { return k.info.IsDir() && within(k.info.Path, t.info.Path) }) {
			continue // comes with its directory
		}
		t.name = strings.TrimPrefix(t.info.Path[len(base):], "/")
		kept = append(kept, t)
	}
	p.tops = kept
	return nil
}

// names are those given so far, true, and the directories they lie in, false.
type names map[string]bool

// free gives a path its last component, with as many above it as are needed so
// that it neither is, nor holds, nor lies in a name given before.
func (n names) free(real string) string {
	parts := strings.Split(strings.Trim(real, "/"), "/")
	if real == "/" {
		parts = []string{"root"}
	}
	name := ""
	for _, part := range slices.Backward(parts) {
		if name = path.Join(part, name); n.take(name) {
			return name
		}
	}
	for {
		if name += "~"; n.take(name) {
			return name
		}
	}
}

func (n names) take(name string) bool {
	if _, taken := n[name]; taken {
		return false
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n[dir] {
			return false
		}
	}
	n[name] = true
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		n[dir] = false
	}
	return true
}

// within tells whether p is dir or below it.
func within(dir, p string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || dir == "/" || p[len(dir)] == '/')
}

// count looks how much there is, so that what is too much is refused before
// anything is sent.
func (p *Plan) count(ctx context.Context) error {
	files, dirs, input := 0, 0, int64(0)
	links := map[inode]bool{}
	add := func(i guardfs.Info) error {
		if i.IsDir() {
			if dirs++; dirs > maxDirs*p.MaxFiles+1 {
				return &TooManyError{p.MaxFiles}
			}
			return nil
		}
		if files++; files > p.MaxFiles {
			return &TooManyError{p.MaxFiles}
		}
		if i.Kind != guardfs.File || i.Nlink > 1 && links[inodeOf(i)] {
			return nil
		}
		if i.Nlink > 1 {
			links[inodeOf(i)] = true
		}
		if input += i.Size; input > p.MaxInput {
			return &guardfs.TooLargeError{Limit: p.MaxBytes}
		}
		return nil
	}
	for _, t := range p.tops {
		if err := add(t.info); err != nil {
			return err
		}
		if !t.info.IsDir() {
			continue
		}
		_, err := p.guard.Walk(ctx, t.info.Path, guardfs.WalkOptions{Stat: true}, func(e *guardfs.Entry) error {
			if p.excludes(e) {
				return skipDir
			}
			i, err := e.Info()
			if err != nil {
				return nil
			}
			return add(i)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) excludes(e *guardfs.Entry) bool { return p.Exclude != nil && p.Exclude(e) }

// inode names a file whatever its names are.
type inode struct{ dev, ino uint64 }

func inodeOf(i guardfs.Info) inode { return inode{i.Dev, i.Inode} }
