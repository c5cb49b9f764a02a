package archive

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gunzip reads the members of a gzip file one behind the other. What follows
// the last and is none, such as padding, is left out, as other programs do;
// the library's own reader takes it for damage.
type gunzip struct {
	src *bufio.Reader
	z   *gzip.Reader
}

var gzipMagic = []byte("\x1f\x8b")

func newGunzip(r io.Reader) (*gunzip, error) {
	src := bufio.NewReaderSize(r, 64<<10)
	z, err := gzip.NewReader(src)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	return &gunzip{src, z}, nil
}

// Read implements [io.Reader]. It says io.EOF only when all checksums were right.
func (g *gunzip) Read(p []byte) (int, error) {
	for {
		n, err := g.z.Read(p)
		if n > 0 || len(p) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil // of this member; the next call sees it again
			}
			return n, err
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
		if err := g.next(); err != nil {
			return 0, err
		}
	}
}

// next goes on to the next member; io.EOF says that there is none.
func (g *gunzip) next() error {
	head, err := g.src.Peek(len(gzipMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(head, gzipMagic) {
		return io.EOF
	}
	if err := g.z.Reset(g.src); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	g.z.Multistream(false)
	return nil
}
