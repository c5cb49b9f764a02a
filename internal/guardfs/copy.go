package guardfs

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// CopyOptions say how something is copied.
type CopyOptions struct {
	Flat        bool // a directory is ErrIsDirectory
	NoOverwrite bool // something of the final name is policy.FileExists
	Preserve    bool // owner, times and extended attributes too; the mode always

	// Each, if not nil, is asked about the final path of every file and link,
	// before anything is written. Its error is returned as it is.
	Each func(real string, source Info) error
}

// CopyResult tells what was copied where.
type CopyResult struct {
	Source, Destination, Path string // as in MoveResult
	Files                     int    // files and links
	Bytes                     int64
}

// Copy copies source under the rules of from to destination under those of to.
// Links are copied as links, FIFOs, sockets and devices are left out. An
// existing directory as destination receives the copy under the source's name;
// an existing file is replaced. A tree with an entry that either side denies is
// refused before anything is written. The copy appears at once, as a whole.
func Copy(ctx context.Context, from *Guard, source string, to *Guard, destination string, opt CopyOptions) (CopyResult, error) {
	src, err := from.absolute(source)
	if err != nil {
		return CopyResult{}, from.side("source: ", source, policy.Read, err)
	}
	dst, err := to.absolute(destination)
	if err != nil {
		return CopyResult{}, to.side("destination: ", destination, policy.Write, err)
	}
	for i := range looks {
		k := &copying{mover: mover{g: to, first: i == 0}, from: from, opt: opt}
		res, err := k.copy(ctx, src, dst)
		k.close()
		if !errors.Is(err, errMoved) {
			return res, err
		}
	}
	return CopyResult{}, from.side("source: ", src, policy.Read, errSwapped())
}

// copying is one try to copy something.
type copying struct {
	mover
	from  *Guard
	opt   CopyOptions
	there error // why the destination may not hold an entry
}

func (k *copying) copy(ctx context.Context, from, to string) (CopyResult, error) {
	var err error
	if k.src, err = (&mover{g: k.from, first: k.first}).take(from, policy.Read, itself, "source: "); err != nil {
		return CopyResult{}, err
	}
	if k.dst, err = k.take(to, policy.Write, target, "destination: "); err != nil {
		return CopyResult{}, err
	}
	if k.src.why != nil {
		return CopyResult{}, missing("copy", k.src.path, k.src.why)
	}
	res := CopyResult{Source: k.src.path, Destination: k.dst.path}
	if k.same(to) {
		return CopyResult{}, pathError("copy", k.src.path, ErrInvalidMove)
	}
	if err := k.findFinal(); err != nil {
		return CopyResult{}, k.g.side("destination: ", to, policy.Write, err)
	}
	res.Path = k.final.path
	if err := k.check(ctx); err != nil {
		return CopyResult{}, err
	}
	made, err := k.final.prepare(false)
	if err != nil {
		return CopyResult{}, k.g.side("destination: ", to, policy.Write, err)
	}
	c := &copier{fs: k.g.fs, preserve: k.opt.Preserve}
	err = k.place(ctx, c)
	made.finish(err == nil)
	if err != nil {
		return CopyResult{}, err
	}
	res.Files, res.Bytes = c.files, c.bytes
	return res, nil
}

// check asks everything that may forbid the copy, before anything is written.
func (k *copying) check(ctx context.Context) error {
	src, final := k.src, k.final
	switch kind := src.kind(); {
	case kind == Directory && k.opt.Flat:
		return pathError("copy", src.path, ErrIsDirectory)
	case kind != Directory && kind != File && kind != Symlink:
		return pathError("copy", src.path, ErrNotRegular)
	}
	if err := checkNew(final.path); err != nil {
		return k.g.side("destination: ", k.dst.clean, policy.Write, err)
	}
	if err := src.allowsLinks(); err != nil {
		return k.from.side("source: ", src.clean, policy.Read, err)
	}
	if k.opt.Each != nil && src.kind() != Directory {
		if err := k.opt.Each(final.path, newInfo(src.path, &src.st)); err != nil {
			return err
		}
	}
	if err := k.checkTaken(); err != nil {
		return err
	}
	if src.kind() != Directory {
		return nil
	}
	err := src.judgeTree(ctx, k.checkEntry)
	if k.there != nil {
		return k.there
	}
	return k.from.side("source: ", src.clean, policy.Read, err)
}

// checkTaken refuses a final name that may not be replaced.
func (k *copying) checkTaken() error {
	src, final := k.src, k.final
	if final.why != nil {
		return nil
	}
	switch kind := final.kind(); {
	case final == k.dst && kind == Symlink:
		return errMoved
	case k.opt.NoOverwrite:
		return errFileExists()
	case kind == Directory, src.kind() == Directory && final != k.dst:
		return pathError("copy", final.path, ErrAlreadyExists)
	case src.kind() == Directory:
		return pathError("copy", final.path, ErrNotDirectory)
	case kind != File && kind != Symlink:
		return pathError("copy", final.path, ErrNotRegular)
	case final.st.Ino == src.st.Ino && final.st.Dev == src.st.Dev:
		return pathError("copy", src.path, ErrInvalidMove)
	case kind == File:
		if err := final.writable(); err != nil {
			return err
		}
	}
	return final.allowsLinks()
}

// checkEntry judges one entry of the tree at the path its copy will have.
func (k *copying) checkEntry(e *Entry) error {
	at := Dir{g: k.g, path: join(k.final.path, e.dir.rel), clean: join(k.final.clean, e.dir.rel)}
	if at.denies(e.name) {
		err := refuse(policy.PathDenied, "Directory would hold an entry that is denied by policy")
		k.there = k.g.side("destination: ", k.dst.clean, policy.Write, err)
		return k.there
	}
	if e.kind == Directory || !k.from.rules.DenyHardlinks && k.opt.Each == nil {
		return nil
	}
	info, err := e.Info()
	if err != nil {
		return err
	}
	if err := k.from.allowsLinks(&e.st); err != nil {
		return err
	}
	if k.opt.Each == nil || info.Kind != File && info.Kind != Symlink {
		return nil
	}
	k.there = k.opt.Each(at.path+"/"+e.name, info)
	return k.there
}

// place makes the copy and gives it its name.
func (k *copying) place(ctx context.Context, c *copier) error {
	final := k.final
	tmp, err := c.stage(ctx, k.src, final)
	if err != nil {
		return err
	}
	if final.why == nil {
		err = unix.Renameat(final.dir, tmp, final.dir, final.name)
	} else {
		err = renameNew(final.dir, tmp, final.dir, final.name)
	}
	if err != nil {
		c.drop(ctx, k.g, final.dir, tmp)
		if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
			return errMoved
		}
		return writing("copy", final.path, err)
	}
	k.g.fs.temps.Delete(tmp)
	letForksPass()
	return nil
}
