package guardfs

import (
	"context"
	"errors"
	"io/fs"
)

// Listing is what a directory holds.
type Listing struct {
	WalkResult
	Entries []Info
	Errors  []EntryError // what could not be read, at most 100
}

// EntryError tells why something in a tree was left out.
type EntryError struct {
	Path string
	Err  error
}

// maxListErrors bounds Listing.Errors.
const maxListErrors = 100

// List collects what [Guard.Walk] visits. Bound it by opt.Max; opt.Enter and
// opt.Failed are not used. Entries that vanish meanwhile are left out, and a
// directory that cannot be read counts as empty.
func (g *Guard) List(ctx context.Context, name string, opt WalkOptions) (Listing, error) {
	var l Listing
	opt.Stat, opt.Enter = true, nil
	opt.Failed = func(path string, err error) {
		if len(l.Errors) < maxListErrors {
			l.Errors = append(l.Errors, EntryError{path, err})
		}
	}
	var err error
	l.WalkResult, err = g.Walk(ctx, name, opt, func(e *Entry) error {
		info, err := e.Info()
		if err == nil {
			l.Entries = append(l.Entries, info)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	return l, err
}

// ReadDir lists the first max entries of one directory.
func (g *Guard) ReadDir(ctx context.Context, name string, max int) (Listing, error) {
	return g.List(ctx, name, WalkOptions{Depth: 1, Max: max})
}
