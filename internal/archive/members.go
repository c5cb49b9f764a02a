package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// ErrInvalid is wrapped by errors about bytes that are no archive, or no whole
// one. Their texts are fit to be shown.
var ErrInvalid = errors.New("not a valid archive")

// invalid makes the failure of a decoder an [ErrInvalid], unless it comes from
// reading the bytes.
func invalid(err error) error {
	if err == nil || errors.Is(err, ErrInvalid) || isOurs(err) {
		return err
	}
	return fmt.Errorf("%w: %s", ErrInvalid, strings.ToValidUTF8(err.Error(), "\uFFFD"))
}

func isOurs(err error) bool {
	var big *guardfs.TooLargeError
	var many *TooManyError
	var path *fs.PathError
	return errors.As(err, &big) || errors.As(err, &many) || errors.As(err, &path) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Bounds on what an archive may make us hold.
const (
	maxDirectory = 16 << 20 // bytes of a zip's directory
	maxLinkText  = 4095     // bytes, as in the kernel
	maxWindow    = 32 << 20 // bytes of a zstd window
	perMember    = 2 << 10  // bytes of a tar around each member
)

// member is one thing in an archive.
type member struct {
	name  string
	kind  memberKind
	link  string  // text of a link, or the name of the first twin
	mode  *uint32 // permission bits; nil where the archive has none
	mtime time.Time
	size  int64 // as the archive says

	content io.Reader // of a file; valid until the next member, opened on first use
}

type memberKind uint8

const (
	aFile memberKind = iota
	aDir
	aLink
	aTwin
	aSpecial
)

// source is an archive to be read, from its start each time.
type source struct {
	ctx    context.Context
	at     io.ReaderAt
	size   int64
	format Format

	most    int64 // bytes of all members together
	members int
}

// guess finds the format by the first bytes.
func (s *source) guess() error {
	head := make([]byte, 512)
	n, err := s.at.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		s.format = TarGz
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		s.format = TarZst
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		s.format = Zip
	case n == cap(head):
		s.format = Tar // its reader knows better
	default:
		return fmt.Errorf("%w: the format is not known", ErrInvalid)
	}
	return nil
}

// each gives the members to visit, in order.
func (s *source) each(visit func(*member) error) error {
	if s.format == Zip {
		return s.eachZip(visit)
	}
	var src io.Reader = io.NewSectionReader(s.withContext(), 0, s.size)
	switch s.format {
	case TarGz:
		z, err := newGunzip(src)
		if err != nil {
			return invalid(err)
		}
		src = z
	case TarZst:
		z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return invalid(err)
		}
		defer z.Close()
		src = z
	}
	// What is between the members is bounded too: skipping costs time.
	src = &limitReader{src, s.most + int64(s.members)*perMember, s.most}
	if err := s.eachTar(src, visit); err != nil || s.format == Tar {
		return err
	}
	// The checksum of the whole stands behind the end of the tar.
	_, err := io.Copy(io.Discard, src)
	return invalid(err)
}

// withContext reads until the caller has gone.
func (s *source) withContext() io.ReaderAt { return contextReaderAt{s.ctx, s.at} }

type contextReaderAt struct {
	ctx context.Context
	at  io.ReaderAt
}

func (c contextReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.at.ReadAt(p, off)
}

// limitReader fails when more than left bytes come.
type limitReader struct {
	r     io.Reader
	left  int64
	limit int64 // to be told
}

func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, &guardfs.TooLargeError{Limit: l.limit}
	}
	return n, err
}

func (s *source) eachTar(src io.Reader, visit func(*member) error) error {
	r := tar.NewReader(src)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return invalid(err)
		}
		if n >= s.members {
			return &TooManyError{s.members}
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := visit(tarMember(h, r)); err != nil {
			return err
		}
	}
}

func tarMember(h *tar.Header, r io.Reader) *member {
	mode := uint32(h.Mode & 0o777)
	m := &member{name: h.Name, link: h.Linkname, mode: &mode, mtime: h.ModTime, size: h.Size, kind: aSpecial}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		m.kind, m.content = aFile, r
	case tar.TypeDir:
		m.kind = aDir
	case tar.TypeSymlink:
		m.kind = aLink
	case tar.TypeLink:
		m.kind = aTwin
	}
	return m
}

// directoryReader bounds what opening a zip reads, and counts the entries in
// it: the library holds all of them.
type directoryReader struct {
	io.ReaderAt
	opened bool
	left   int64
	most   int // entries
	count  int
	end    int64
	tail   []byte // the last bytes before end
}

var (
	zipEntry = []byte("PK\x01\x02")
	zipEnd64 = []byte("PK\x06\x06")
)

func (d *directoryReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.ReaderAt.ReadAt(p, off)
	if d.opened {
		return n, err
	}
	if d.left -= int64(n); d.left < 0 {
		return 0, &guardfs.TooLargeError{Limit: maxDirectory}
	}
	// Room is made for as many entries as this record says.
	const countAt = 32
	if bytes.HasPrefix(p[:n], zipEnd64) && n >= countAt+8 && binary.LittleEndian.Uint64(p[countAt:]) > uint64(d.most) {
		return 0, &TooManyError{d.most}
	}
	if off != d.end {
		d.tail = nil
	}
	text := append(d.tail, p[:n]...)
	d.count += bytes.Count(text, zipEntry)
	d.end = off + int64(n)
	d.tail = bytes.Clone(text[max(0, len(text)-len(zipEntry)+1):])
	// The end of the archive is read twice, so the count is an upper bound.
	if d.count > 2*d.most {
		return 0, &TooManyError{d.most}
	}
	return n, err
}

func (s *source) eachZip(visit func(*member) error) error {
	dir := &directoryReader{ReaderAt: s.withContext(), left: maxDirectory, most: s.members}
	z, err := zip.NewReader(dir, s.size)
	dir.opened = true
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return invalid(err)
	}
	if len(z.File) > s.members {
		return &TooManyError{s.members}
	}
	inflate := &inflater{}
	z.RegisterDecompressor(zip.Deflate, inflate.open)
	for _, f := range z.File {
		m, err := zipMember(f)
		if err == nil {
			err = visit(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inflater keeps one decompressor for all members, which come one by one.
type inflater struct{ r io.ReadCloser }

func (i *inflater) open(src io.Reader) io.ReadCloser {
	if i.r == nil {
		i.r = flate.NewReader(src)
	} else if err := i.r.(flate.Resetter).Reset(src, nil); err != nil {
		i.r = flate.NewReader(src)
	}
	return io.NopCloser(i.r)
}

func zipMember(f *zip.File) (*member, error) {
	mode := f.Mode()
	m := &member{name: f.Name, mtime: f.Modified, size: int64(min(f.UncompressedSize64, 1<<62))}
	if perm := uint32(mode.Perm()); perm != 0 {
		m.mode = &perm
	}
	switch {
	case strings.HasSuffix(f.Name, "/") || mode.IsDir():
		m.kind = aDir
	case mode&fs.ModeSymlink != 0:
		m.kind = aLink
		text, err := io.ReadAll(io.LimitReader(&lazyFile{f: f}, maxLinkText+1))
		if err != nil {
			return nil, invalid(err)
		}
		m.link = string(text)
	case mode.IsRegular():
		m.content = &lazyFile{f: f}
	default:
		m.kind = aSpecial
	}
	if f.Flags&1 != 0 && m.kind != aDir {
		return nil, fmt.Errorf("%w: it is encrypted", ErrInvalid)
	}
	return m, nil
}

// lazyFile opens a member when it is first read.
type lazyFile struct {
	f *zip.File
	r io.ReadCloser
}

func (l *lazyFile) Read(p []byte) (int, error) {
	if l.r == nil {
		var err error
		if l.r, err = l.f.Open(); err != nil {
			return 0, err
		}
	}
	return l.r.Read(p)
}
