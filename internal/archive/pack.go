package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// skipDir keeps a walk out of a directory.
var skipDir = fs.SkipDir

// container is an archive being written.
type container interface {
	// dir, link and twin add an entry without content; a twin is a second
	// name of a file stored before.
	dir(name string, i guardfs.Info) error
	link(name string, i guardfs.Info) error
	twin(name, first string, i guardfs.Info) error
	// file adds a file of which exactly i.Size bytes follow, or fewer where
	// the format allows; done ends it.
	file(name string, i guardfs.Info) (io.Writer, error)
	done(missing int64) error
	// copies tells that links to files are stored as the files.
	copies() bool
	Close() error
}

// packer writes the entries of a plan.
type packer struct {
	*Plan
	ctx     context.Context
	out     container
	skipped skips
	first   map[inode]string // names of files with several, as stored
	files   int
	input   int64
	buf     []byte
	pending []pendingDir
}

// pendingDir is a directory of which it is not known yet whether it is empty.
type pendingDir struct {
	rel, name string
	info      guardfs.Info
	used      bool
}

// Write writes the archive, names ascending by bytes within each directory,
// and returns what was left out: files that could not be read or have gone,
// and what is no file. An error means that what was written is no archive;
// the limits of the plan are [*guardfs.TooLargeError] and [*TooManyError].
func (p *Plan) Write(ctx context.Context, w io.Writer) ([]Skipped, error) {
	out, err := newContainer(p.Format, &limitWriter{w: w, limit: p.MaxBytes}, p.PackOptions)
	if err != nil {
		return nil, err
	}
	k := &packer{Plan: p, ctx: ctx, out: out, first: map[inode]string{}, buf: make([]byte, 128<<10)}
	for _, t := range p.tops {
		if err := k.top(t); err != nil {
			_ = out.Close()
			return nil, err
		}
	}
	return k.skipped, out.Close()
}

func (k *packer) top(t top) error {
	if t.info.IsDir() {
		return k.tree(t)
	}
	if err := k.counted(); err != nil {
		return err
	}
	if t.info.Kind != guardfs.File {
		k.skipped.add(t.info.Path, guardfs.ErrNotRegular)
		return nil
	}
	return k.store(t.name, t.info.Path, func() (*os.File, guardfs.Info, error) { return k.guard.Open(t.info.Path) })
}

func (k *packer) tree(t top) error {
	k.pending = append(k.pending[:0], pendingDir{name: t.name, info: t.info})
	opt := guardfs.WalkOptions{Failed: func(path string, err error) { k.skipped.add(path, err) }}
	_, err := k.guard.Walk(k.ctx, t.info.Path, opt, func(e *guardfs.Entry) error { return k.entry(t, e) })
	if errors.Is(err, fs.ErrNotExist) {
		k.skipped.add(t.info.Path, err)
		return nil
	}
	if err == nil {
		err = k.leave(0)
	}
	return err
}

func (k *packer) entry(t top, e *guardfs.Entry) error {
	if k.excludes(e) {
		return skipDir
	}
	// Whatever the entry is not in has been left.
	n := 1
	for n < len(k.pending) && within(k.pending[n].rel, e.Rel()) {
		n++
	}
	if err := k.leave(n); err != nil {
		return err
	}
	name := strings.TrimPrefix(t.name+"/"+e.Rel(), "/")
	if e.Kind() == guardfs.Directory {
		info, err := e.Info()
		if err != nil {
			k.skipped.add(e.Path(), err)
			return skipDir
		}
		k.pending = append(k.pending, pendingDir{rel: e.Rel(), name: name, info: info})
		return nil
	}
	if err := k.counted(); err != nil {
		return err
	}
	switch e.Kind() {
	case guardfs.File:
		return k.store(name, e.Path(), e.Open)
	case guardfs.Symlink:
		return k.link(name, e)
	}
	k.skipped.add(e.Path(), guardfs.ErrNotRegular)
	return nil
}

// counted holds the limit for what has come since the plan was made.
func (k *packer) counted() error {
	if k.files++; k.files > k.MaxFiles {
		return &TooManyError{k.MaxFiles}
	}
	return nil
}

// leave stores the directories from the nth pending one on if nothing in them
// was.
func (k *packer) leave(n int) error {
	for len(k.pending) > n {
		d := k.pending[len(k.pending)-1]
		k.pending = k.pending[:len(k.pending)-1]
		if d.used || d.name == "" {
			continue
		}
		if err := k.out.dir(d.name, d.info); err != nil {
			return err
		}
		k.use()
	}
	return nil
}

// use notes that something is in all pending directories.
func (k *packer) use() {
	for i := range k.pending {
		k.pending[i].used = true
	}
}

// link stores a link as a link, or where the format wants it as what it leads
// to. Links to directories are left out.
func (k *packer) link(name string, e *guardfs.Entry) error {
	to, err := k.guard.Stat(e.Path(), true)
	if err == nil && to.IsDir() {
		return nil
	}
	if err == nil && to.Kind == guardfs.File && k.out.copies() {
		return k.store(name, e.Path(), func() (*os.File, guardfs.Info, error) { return k.guard.Open(e.Path()) })
	}
	info, err := e.Info()
	if err == nil && info.Kind != guardfs.Symlink {
		err = ErrChanged
	}
	if err != nil {
		k.skipped.add(e.Path(), err)
		return nil
	}
	k.use()
	return k.out.link(name, info)
}

// store adds a regular file.
func (k *packer) store(name, path string, open func() (*os.File, guardfs.Info, error)) error {
	f, info, err := open()
	if err != nil {
		k.skipped.add(path, err)
		return nil
	}
	defer f.Close()
	k.use()
	if info.Nlink > 1 && !k.out.copies() {
		if first, ok := k.first[inodeOf(info)]; ok {
			return k.out.twin(name, first, info)
		}
		k.first[inodeOf(info)] = name
	}
	if k.input += info.Size; k.input > k.MaxInput {
		return &guardfs.TooLargeError{Limit: k.MaxBytes}
	}
	w, err := k.out.file(name, info)
	if err != nil {
		return err
	}
	n, readErr, err := copyUpTo(k.ctx, w, f, info.Size, k.buf)
	if err != nil {
		return err
	}
	if readErr != nil {
		k.skipped.add(path, readErr)
	}
	return k.out.done(info.Size - n)
}
