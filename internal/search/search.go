// Package search finds entries of a tree by their names and by what is in
// them. It reads files only through [guardfs.Guard]; what the rules refuse does
// not exist for it.
package search

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// Type says which entries are wanted.
type Type uint8

// The types of a [Query]. Links to directories are never found.
const (
	Files       Type = iota // all that is no directory
	Directories             // directories only
	Any
)

// Query says what to look for.
type Query struct {
	Path      string // the directory
	Name      Pattern
	Exclude   []Pattern // not found, and not entered
	Type      Type
	Depth     int           // levels; 1 is the directory itself; 0 or less: nothing
	Max       int           // hits; 0 or less: none
	Timeout   time.Duration // more than 0
	NoHidden  bool          // leave out names that begin with a dot
	GitIgnore bool          // leave out what .gitignore files name, and .git

	Content *Content // nil: names are enough
}

// Content says what must be in a file.
type Content struct {
	Expression *Expression
	// Guard is the view that must permit reading too; files it refuses are
	// passed over.
	Guard         *guardfs.Guard
	Before, After int   // lines of context
	MaxMatches    int   // in one file
	MaxSize       int64 // bytes; larger files are passed over; at most [MaxContentSize]
	Binary        bool  // look into files with a NUL in their first 8 KiB too
}

// Hit is an entry that was found.
type Hit struct {
	Info    guardfs.Info
	Matches []Match // only in searches for content
}

// Summary tells how a search ended.
type Summary struct {
	Truncated bool // there were more hits, or more matches in one
	TimedOut  bool
	Files     int   // looked into
	Bytes     int64 // read from them
}

// Run gives every hit to emit, directory by directory, level by level, names
// ascending by bytes. emit is called by the caller's goroutine; false ends the
// search. A path that is no directory is reported as not existing; directories
// that cannot be read count as empty. When Run returns nothing of it goes on.
func Run(ctx context.Context, g *guardfs.Guard, q Query, emit func(Hit) bool) (Summary, error) {
	timed, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	s := &search{Query: q, ctx: timed, guard: g, follow: g.Quiet(), emit: emit}
	if q.Content != nil {
		s.scan = startScanners(timed, q.Content)
		defer s.scan.stop()
	}
	err := s.run()
	if err == nil && s.scan != nil {
		err = s.finishScans(0)
	}
	switch {
	case errors.Is(err, errEnough):
		err = nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case timed.Err() != nil:
		s.sum.TimedOut, err = true, nil
	}
	return s.sum, err
}

// errEnough ends a search early.
var errEnough = errors.New("enough")

type search struct {
	Query
	ctx    context.Context
	guard  *guardfs.Guard
	follow *guardfs.Guard // for where links lead
	emit   func(Hit) bool
	hits   int
	sum    Summary
	scan   *scanners

	ignore   ignores
	ignoring *ignoreFile // the rules for the directory being visited
}

func (s *search) run() error {
	opt := guardfs.WalkOptions{Depth: s.Depth, NoHidden: s.NoHidden, Breadth: true, Enter: s.enter}
	_, err := s.guard.Walk(s.ctx, s.Path, opt, s.visit)
	return err
}

func (s *search) enter(d *guardfs.Dir) error {
	if s.Depth <= 0 || s.Max <= 0 {
		return fs.SkipDir
	}
	if s.GitIgnore {
		s.ignoring = s.ignore.enter(s.follow, d)
	}
	return nil
}

func (s *search) visit(e *guardfs.Entry) error {
	dir := e.Kind() == guardfs.Directory
	if s.leavesOut(e, dir) {
		return fs.SkipDir
	}
	if dir && s.Type == Files || !dir && s.Type == Directories || !s.Name.Matches(e) {
		return nil
	}
	if e.Kind() == guardfs.Symlink {
		if to, err := s.follow.Stat(e.Path(), true); err == nil && to.IsDir() {
			return nil
		}
	}
	if s.Content != nil {
		return s.look(e)
	}
	info, err := e.Info()
	if err != nil {
		return nil // it has gone
	}
	return s.found(Hit{Info: info})
}

func (s *search) leavesOut(e *guardfs.Entry, dir bool) bool {
	if len(s.Exclude) > 0 && MatchesAny(s.Exclude, e) {
		return true
	}
	return s.GitIgnore && (dir && e.Name() == ".git" || s.ignoring != nil && s.ignoring.ignores(e.Path(), e.Name(), dir))
}

func (s *search) found(h Hit) error {
	if s.hits >= s.Max || !s.emit(h) {
		s.sum.Truncated = true
		return errEnough
	}
	s.hits++
	return nil
}

// look hands a file to the scanners.
func (s *search) look(e *guardfs.Entry) error {
	j := s.open(e)
	if j == nil {
		return nil
	}
	if err := s.finishScans(maxAhead - 1); err != nil {
		_ = j.file.Close()
		return err
	}
	s.scan.add(j)
	return nil
}

// open opens what may be looked into, nil when that is nothing.
func (s *search) open(e *guardfs.Entry) *job {
	j := &job{done: make(chan struct{})}
	var opened guardfs.Info
	var err error
	switch e.Kind() {
	case guardfs.File:
		j.file, opened, err = e.Open()
		j.info = opened
	case guardfs.Symlink: // what it leads to is read, the link itself is reported
		if j.info, err = e.Info(); err == nil {
			j.file, opened, err = s.follow.Open(e.Path())
		}
	default:
		return nil
	}
	if err != nil {
		return nil // unreadable, refused or gone
	}
	if j.size = opened.Size; j.size > s.Content.MaxSize || !s.Content.Guard.Permits(e.Path(), opened) {
		_ = j.file.Close()
		return nil
	}
	return j
}

// finishScans reports the files looked into, in the order they were met, until
// only keep are under way.
func (s *search) finishScans(keep int) error {
	for len(s.scan.ahead) > keep {
		j := s.scan.ahead[0]
		select {
		case <-j.done:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
		s.scan.ahead = s.scan.ahead[1:]
		s.sum.Files++
		s.sum.Bytes += j.bytes
		if len(j.found) > 0 {
			if err := s.found(Hit{j.info, j.found}); err != nil {
				return err
			}
		}
		s.sum.Truncated = s.sum.Truncated || j.full
	}
	return nil
}
