package archive

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// UnpackOptions say how an archive is unpacked.
type UnpackOptions struct {
	Destination string // the directory, made if it is missing
	Format      Format // "": by the first bytes
	Strip       int    // leading components of names that are dropped
	Keep        bool   // a file that is there already is an error
	MaxBytes    int64  // of all files together
	MaxEntries  int    // members, and directories made for them
	// Judge, if not nil, is asked about the resolved path of every file and
	// link besides the path rules.
	Judge func(real string) error
}

// Unpacked tells what was unpacked.
type Unpacked struct {
	Destination string // resolved
	Files       int    // and links
	Directories int    // that were made
	Bytes       int64
	Skipped     []Skipped // what is no file, directory or link
}

// UnsafeError is a member that leads out of the destination.
type UnsafeError struct{ Name string }

func (e *UnsafeError) Error() string { return "an entry leads out of the destination" }

// MemberError is a refusal or failure that belongs to a member.
type MemberError struct {
	Name string
	Err  error
}

func (e *MemberError) Error() string { return e.Err.Error() }
func (e *MemberError) Unwrap() error { return e.Err }

// Unpack unpacks an archive of size bytes. The whole of it is judged before
// anything is written: names, links, limits, what may be replaced, and of tars
// also that they are whole. Bits above 0777 and owners are not restored.
//
// The errors are an [*UnsafeError], [ErrInvalid], a [*guardfs.TooLargeError], a
// [*TooManyError], a [*MemberError] and those of [guardfs.Tree]. When writing
// fails, what has been written stays, but for the links: they were judged as
// what they are among all others.
func Unpack(ctx context.Context, g *guardfs.Guard, at io.ReaderAt, size int64, o UnpackOptions) (Unpacked, error) {
	tree, err := g.Tree(o.Destination)
	if err != nil {
		return Unpacked{}, err
	}
	defer tree.Close()
	tree.Judge = o.Judge
	s := &source{ctx: ctx, at: at, size: size, format: o.Format, most: o.MaxBytes, members: o.MaxEntries}
	if size == 0 {
		return Unpacked{}, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	if s.format == "" {
		if err := s.guess(); err != nil {
			return Unpacked{}, err
		}
	}
	u := &unpacker{UnpackOptions: o, tree: tree, twins: map[int]string{}}
	if err := u.check(s); err != nil {
		return Unpacked{}, err
	}
	if err := tree.Make(); err != nil {
		return Unpacked{}, err
	}
	err = u.write(ctx, s)
	u.out.Destination, u.out.Directories = tree.Path(), len(tree.Made)
	return u.out, err
}

type unpacker struct {
	UnpackOptions
	tree *guardfs.Tree
	out  Unpacked

	planned planned
	skipped skips
	at      int            // members seen in this pass
	twins   map[int]string // text of those that are twins of links
}

// cleanName makes the name of a member relative to the destination. An empty
// rel means that nothing is left of it; ok is false when it leads out.
func cleanName(name string, strip int) (rel string, ok bool) {
	if name == "" || name[0] == '/' || strings.IndexByte(name, 0) >= 0 {
		return "", false
	}
	rel = path.Clean(name)
	switch {
	case rel == "..", strings.HasPrefix(rel, "../"):
		return "", false
	case rel == ".":
		return "", true
	}
	for range strip {
		var more bool
		if _, rel, more = strings.Cut(rel, "/"); !more {
			return "", true
		}
	}
	return rel, true
}

// members gives all members with their cleaned names to do.
func (u *unpacker) members(s *source, do func(m *member, rel string) error) error {
	u.at = 0
	return s.each(func(m *member) error {
		u.at++
		rel, ok := cleanName(m.name, u.Strip)
		if !ok {
			return &UnsafeError{m.name}
		}
		if rel == "" {
			return nil
		}
		if m.kind == aTwin {
			if m.link, ok = cleanName(m.link, u.Strip); !ok || m.link == "" {
				return &UnsafeError{m.name}
			}
		}
		return about(m, do(m, rel))
	})
}

// about tells which member an error is about.
func about(m *member, err error) error {
	switch {
	case err == nil, isLimit(err), errors.Is(err, ErrInvalid), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, guardfs.ErrEscapes):
		return &UnsafeError{m.name}
	}
	return &MemberError{m.name, err}
}

func isLimit(err error) bool {
	var big *guardfs.TooLargeError
	var many *TooManyError
	return errors.As(err, &big) || errors.As(err, &many)
}

// planned is what the members judged so far will have made.
type planned struct {
	links map[string]string // text by place; "" where a link was replaced
	names map[string]string // name of the member by place of a link
	dirs  map[string]bool
	seen  map[uint64]bool // hashes of places, only with Keep
	seed  maphash.Seed
	held  int // bytes of the names above
}

const maxPlanned = 16 << 20

func (p *planned) hold(n int) error {
	if p.held += n; p.held > maxPlanned {
		return &guardfs.TooLargeError{Limit: maxPlanned}
	}
	return nil
}

func (p *planned) link(rel string) (string, bool) {
	text, known := p.links[rel]
	return text, known
}

// check judges the whole archive without writing anything.
func (u *unpacker) check(s *source) error {
	u.planned = planned{
		links: map[string]string{}, names: map[string]string{}, dirs: map[string]bool{}, seen: map[uint64]bool{}, seed: maphash.MakeSeed(),
	}
	total := int64(0)
	err := u.members(s, func(m *member, rel string) error {
		if m.kind == aSpecial {
			_, err := u.tree.Place(rel, true, u.planned.link)
			return err
		}
		if m.kind == aFile {
			if m.size > u.MaxBytes-total {
				return &guardfs.TooLargeError{Limit: u.MaxBytes}
			}
			total += m.size
		}
		return u.plan(m, rel)
	})
	if err != nil {
		return err
	}
	// A link may be made to lead elsewhere by one that came after it.
	for real, text := range u.planned.links {
		if text != "" && u.tree.Leads(real, text, u.planned.link) != nil {
			return &UnsafeError{u.planned.names[real]}
		}
	}
	return nil
}

// plan judges one member as things will be when it is written.
func (u *unpacker) plan(m *member, rel string) error {
	p := &u.planned
	real, err := u.tree.Place(rel, m.kind == aDir, p.link)
	if err != nil {
		return err
	}
	if err := u.planDirs(real, m.kind == aDir); err != nil || m.kind == aDir {
		return err
	}
	if u.Keep {
		hash := maphash.String(p.seed, real)
		if p.seen[hash] || u.tree.Exists(real) {
			return policy.Refuse(policy.FileExists, "File already exists").Err()
		}
		p.seen[hash] = true
	}
	text := m.link
	if m.kind == aTwin {
		first, err := u.tree.Place(m.link, false, p.link)
		if err != nil {
			return err
		}
		// A link has no second name here, but can have a double.
		if text = p.links[first]; text != "" {
			u.twins[u.at] = text
		}
	}
	if text != "" || m.kind == aLink {
		if err := u.tree.Leads(real, text, p.link); err != nil {
			return err
		}
		p.links[real], p.names[real] = text, m.name
		return p.hold(len(real) + len(text) + len(m.name) + 128)
	}
	if _, was := p.links[real]; was {
		p.links[real] = ""
	}
	return nil
}

// planDirs counts the directories a member needs: a name can ask for thousands.
func (u *unpacker) planDirs(real string, dir bool) error {
	p, share := &u.planned, len(real) // which all its parents share
	for at := real; at != "."; at = path.Dir(at) {
		if at == real && !dir {
			continue
		}
		if p.dirs[at] {
			break
		}
		if len(p.dirs) >= u.MaxEntries {
			return &TooManyError{u.MaxEntries}
		}
		if err := p.hold(64 + share); err != nil {
			return err
		}
		share = 0
		p.dirs[at] = true
	}
	return nil
}

// dirFacts are what a directory gets once everything is in it.
type dirFacts struct {
	rel   string
	mode  *uint32
	mtime time.Time
}

// write writes the archive.
func (u *unpacker) write(ctx context.Context, s *source) error {
	u.planned = planned{}
	buf := make([]byte, 128<<10)
	var dirs []dirFacts
	var links []string
	err := u.members(s, func(m *member, rel string) error {
		switch m.kind {
		case aDir:
			if err := u.tree.Mkdir(rel); err != nil {
				return err
			}
			if u.tree.Made[rel] {
				dirs = append(dirs, dirFacts{rel, m.mode, m.mtime})
			}
			return nil
		case aSpecial:
			u.skipped.add(m.name, guardfs.ErrNotRegular)
			return nil
		}
		u.out.Files++
		text, double := u.twins[u.at]
		switch {
		case double, m.kind == aLink:
			if !double {
				text = m.link
			}
			links = append(links, rel)
			return u.tree.Symlink(text, rel, u.Keep)
		case m.kind == aTwin:
			err := u.tree.Link(m.link, rel, u.Keep)
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: a hard link leads to nothing", ErrInvalid)
			}
			return err
		}
		return u.file(ctx, m, rel, buf)
	})
	u.out.Skipped = u.skipped
	// The deepest first: a mode may close what is above.
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
		err = u.tree.SetDir(dirs[i].rel, dirs[i].mode, dirs[i].mtime)
	}
	for i := len(links) - 1; i >= 0 && err != nil; i-- {
		u.tree.Unlink(links[i])
	}
	return err
}

// file writes one file, whatever the archive said of its size.
func (u *unpacker) file(ctx context.Context, m *member, rel string, buf []byte) error {
	f, err := u.tree.Create(rel, u.Keep)
	if err != nil {
		return err
	}
	left := u.MaxBytes - u.out.Bytes
	n, readErr, err := copyUpTo(ctx, f, m.content, left+1, buf)
	u.out.Bytes += n
	switch {
	case err != nil:
	case n > left:
		err = &guardfs.TooLargeError{Limit: u.MaxBytes}
	case readErr != nil && !errors.Is(readErr, ErrChanged):
		err = invalid(readErr)
	case n != m.size:
		err = fmt.Errorf("%w: an entry has another size than announced", ErrInvalid)
	}
	if err != nil {
		f.Abort()
		return err
	}
	return f.Commit(m.mode, m.mtime)
}
