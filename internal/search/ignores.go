package search

import (
	"io"
	"path"
	"slices"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// maxIgnoreRules bounds what the ignore files of one search may hold.
const maxIgnoreRules = 100_000

// ignores are the ignore files of the directories entered so far.
type ignores struct {
	files map[string]*ignoreFile // by directory
	top   *ignoreFile            // what holds for the start of the search
	rules int
}

// enter reads the ignore file of a directory and returns the rules that hold
// for its entries. Directories above it were entered before.
func (i *ignores) enter(g *guardfs.Guard, d *guardfs.Dir) *ignoreFile {
	if d.Depth() == 0 {
		i.files = map[string]*ignoreFile{}
		i.top = i.outer(g, d)
	}
	if f := i.read(d, i.above(d)); f != nil {
		i.files[d.Path()] = f
		return f
	}
	return i.above(d)
}

// above finds the rules that hold for a directory without its own.
func (i *ignores) above(d *guardfs.Dir) *ignoreFile {
	at := d.Path()
	for range d.Depth() {
		at = path.Dir(at)
		if f := i.files[at]; f != nil {
			return f
		}
	}
	return i.top
}

// outer reads the ignore files between the start of a search and the top of
// the repository it lies in, as far as the rules let us see.
func (i *ignores) outer(g *guardfs.Guard, d *guardfs.Dir) *ignoreFile {
	var held []*guardfs.Dir
	defer func() {
		for _, d := range held {
			_ = d.Close()
		}
	}()
	at := d
	for {
		if _, err := at.Lookup(".git"); err == nil {
			break
		}
		up := path.Dir(at.Path())
		next, err := g.OpenDir(up)
		if err != nil || next.Path() != up || up == at.Path() {
			if err == nil {
				_ = next.Close()
			}
			return nil // in no repository that we can see
		}
		held = append(held, next)
		at = next
	}
	var top *ignoreFile
	for _, d := range slices.Backward(held) {
		if f := i.read(d, top); f != nil {
			top = f
		}
	}
	return top
}

// read returns the rules of a directory's own ignore file, nil when it has
// none.
func (i *ignores) read(d *guardfs.Dir, above *ignoreFile) *ignoreFile {
	e, err := d.Lookup(ignoreName)
	if err != nil || e.Kind() != guardfs.File || i.rules > maxIgnoreRules {
		return nil
	}
	f, _, err := e.Open()
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, ignoreSize))
	if err != nil {
		return nil
	}
	rules := parseIgnore(text)
	if len(rules) == 0 {
		return nil
	}
	i.rules += len(rules)
	return &ignoreFile{above: above, dir: d.Path(), rules: rules}
}
