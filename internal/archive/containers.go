package archive

import (
	"archive/tar"
	"archive/zip"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

func newContainer(f Format, w io.Writer, o PackOptions) (container, error) {
	var squeeze io.WriteCloser
	var err error
	switch f {
	case Zip:
		return newZip(w), nil
	case TarGz:
		squeeze = gzip.NewWriter(w)
	case TarZst:
		// One goroutine and little memory: several archives may be made at once.
		squeeze, err = zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	default:
		squeeze = plain{w}
	}
	if err != nil {
		return nil, err
	}
	return &tarFile{Writer: tar.NewWriter(squeeze), squeeze: squeeze, o: o}, nil
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// tarFile writes a tar, squeezed or not.
type tarFile struct {
	*tar.Writer
	squeeze io.WriteCloser
	o       PackOptions
}

func (t *tarFile) Close() error {
	err := t.Writer.Close()
	if closeErr := t.squeeze.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (t *tarFile) copies() bool { return false }

// header has whole seconds: finer times would double the size of small files.
func (t *tarFile) header(kind byte, name string, i guardfs.Info) *tar.Header {
	return &tar.Header{
		Typeflag: kind, Name: name, Mode: int64(i.Mode),
		Uid: int(i.UID), Gid: int(i.GID), Uname: named(t.o.Owner, i.UID), Gname: named(t.o.Group, i.GID),
		ModTime: time.Unix(floorSeconds(i.Mtime), 0),
	}
}

// named is the name of an id, "" where it has none.
func named(lookup func(uint32) string, id uint32) string {
	if lookup == nil {
		return ""
	}
	name := lookup(id)
	if name == strconv.FormatUint(uint64(id), 10) {
		return ""
	}
	return name
}

func floorSeconds(ns int64) int64 {
	s := ns / 1e9
	if ns < s*1e9 {
		s--
	}
	return s
}

func (t *tarFile) dir(name string, i guardfs.Info) error {
	return t.WriteHeader(t.header(tar.TypeDir, name+"/", i))
}

func (t *tarFile) link(name string, i guardfs.Info) error {
	h := t.header(tar.TypeSymlink, name, i)
	h.Linkname = i.Target
	return t.WriteHeader(h)
}

func (t *tarFile) twin(name, first string, i guardfs.Info) error {
	h := t.header(tar.TypeLink, name, i)
	h.Linkname = first
	return t.WriteHeader(h)
}

func (t *tarFile) file(name string, i guardfs.Info) (io.Writer, error) {
	h := t.header(tar.TypeReg, name, i)
	h.Size = i.Size
	return t.Writer, t.WriteHeader(h)
}

// done fills what a file that shrank leaves open: the header has its size.
func (t *tarFile) done(missing int64) error {
	var zeros [32 << 10]byte
	for missing > 0 {
		n, err := t.Write(zeros[:min(missing, int64(len(zeros)))])
		if err != nil {
			return err
		}
		missing -= int64(n)
	}
	return nil
}

// zipFile writes a zip.
type zipFile struct {
	*zip.Writer
	deflate *flate.Writer
}

func newZip(w io.Writer) *zipFile {
	z := &zipFile{Writer: zip.NewWriter(w)}
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		// Files come one after the other, so one compressor does for all.
		if z.deflate != nil {
			z.deflate.Reset(w)
			return z.deflate, nil
		}
		var err error
		z.deflate, err = flate.NewWriter(w, flate.DefaultCompression)
		return z.deflate, err
	})
	return z
}

func (z *zipFile) copies() bool { return true }

// The years a zip can name.
var (
	zipFirst = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	zipLast  = time.Date(2106, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (z *zipFile) header(name string, method uint16, i guardfs.Info) *zip.FileHeader {
	t := i.Modified()
	switch {
	case t.Before(zipFirst):
		t = zipFirst
	case t.After(zipLast):
		t = zipLast
	}
	h := &zip.FileHeader{Name: name, Method: method, Modified: t}
	mode := fs.FileMode(i.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if i.Mode&bit != 0 {
			mode |= flag
		}
	}
	switch i.Kind {
	case guardfs.Directory:
		mode |= fs.ModeDir
	case guardfs.Symlink:
		mode |= fs.ModeSymlink
	}
	h.SetMode(mode)
	return h
}

func (z *zipFile) dir(name string, i guardfs.Info) error {
	_, err := z.CreateHeader(z.header(name+"/", zip.Store, i))
	return err
}

func (z *zipFile) link(name string, i guardfs.Info) error {
	w, err := z.CreateHeader(z.header(name, zip.Store, i))
	if err == nil {
		_, err = io.WriteString(w, i.Target)
	}
	return err
}

func (z *zipFile) twin(string, string, guardfs.Info) error { panic("archive: zip has no second names") }

func (z *zipFile) file(name string, i guardfs.Info) (io.Writer, error) {
	return z.CreateHeader(z.header(name, zip.Deflate, i))
}

func (z *zipFile) done(int64) error { return nil }
