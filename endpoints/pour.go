package endpoints

import (
	"context"
	"errors"
	"io"
	"sync"
)

// pieceSize is how much of a body is taken at a time: each piece costs system
// calls, and while it is gathered nothing else holds it.
const pieceSize = 256 << 10

var pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}

// pour copies a body in long pieces. When it breaks off, what has come is
// written before the error is returned.
func pour(ctx context.Context, dst io.Writer, src io.Reader) error {
	piece := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(piece)
	for {
		n, err := fill(src, piece[:])
		if n > 0 {
			if _, err := dst.Write(piece[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// fill reads until the piece is full or the source has no more.
func fill(src io.Reader, piece []byte) (n int, err error) {
	for n < len(piece) && err == nil {
		var k int
		k, err = src.Read(piece[n:])
		n += k
	}
	return n, err
}
