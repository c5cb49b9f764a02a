// Package archive writes archives of trees and unpacks archives into them. It
// touches files only through [guardfs], so what the rules refuse is neither
// packed nor written, and memory does not grow with what is packed.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// Format is a kind of archive, by the name callers use.
type Format string

// The formats that are written and read.
const (
	Tar    Format = "tar"
	TarGz  Format = "tar.gz"
	TarZst Format = "tar.zst"
	Zip    Format = "zip"
)

// ParseFormat finds a format by its name.
func ParseFormat(name string) (Format, bool) {
	f := Format(name)
	return f, f == Tar || f == TarGz || f == TarZst || f == Zip
}

// MediaType is the format's media type.
func (f Format) MediaType() string {
	switch f {
	case TarGz:
		return "application/gzip"
	case TarZst:
		return "application/zstd"
	case Zip:
		return "application/zip"
	}
	return "application/x-tar"
}

// TooManyError tells that a tree has more files, or an archive more entries,
// than allowed.
type TooManyError struct{ Limit int }

func (e *TooManyError) Error() string { return fmt.Sprintf("more than %d entries", e.Limit) }

// Skipped is something that was left out, and why.
type Skipped struct {
	Name string // absolute path, or the name in the archive
	Err  error
}

// mostSkipped bounds a list of what was left out.
const mostSkipped = 1000

// skips collects what is left out, as long as the list is short.
type skips []Skipped

func (s *skips) add(name string, err error) {
	if len(*s) < mostSkipped {
		*s = append(*s, Skipped{name, err})
	}
}

// limitWriter fails once more than its limit has been written.
type limitWriter struct {
	w     io.Writer
	n     int64
	limit int64
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if l.n += int64(len(p)); l.n > l.limit {
		return 0, &guardfs.TooLargeError{Limit: l.limit}
	}
	return l.w.Write(p)
}

// ErrChanged tells that a file was shorter than it had been a moment ago.
var ErrChanged = errors.New("changed while it was read")

// copyUpTo copies at most n bytes in pieces of buf, until ctx ends. It returns
// how many there were; failures to read are told apart from those to write,
// since only the latter spoil an archive.
func copyUpTo(ctx context.Context, dst io.Writer, src io.Reader, n int64, buf []byte) (done int64, readErr, writeErr error) {
	for done < n {
		if err := ctx.Err(); err != nil {
			return done, nil, err
		}
		got, err := src.Read(buf[:min(int64(len(buf)), n-done)])
		if got > 0 {
			if _, werr := dst.Write(buf[:got]); werr != nil {
				return done, nil, werr
			}
			done += int64(got)
		}
		switch {
		case errors.Is(err, io.EOF):
			if done < n {
				return done, ErrChanged, nil
			}
			return done, nil, nil
		case err != nil:
			return done, err, nil
		}
	}
	return done, nil, nil
}
