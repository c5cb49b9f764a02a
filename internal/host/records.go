package host

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// record is one paragraph of a package database.
type record struct {
	Package
	installed bool
}

// mostRecordLines bounds the lines of a database.
const mostRecordLines = 1 << 23

// readRecords adds the installed packages of a database, paragraphs of lines
// that empty lines separate; set takes one line of a paragraph. What cannot be
// read ends it; only the end of ctx is an error.
func readRecords(ctx context.Context, r io.Reader, to *Packages, set func(rec *record, line []byte)) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var rec record
	room := true
	flush := func() {
		if rec.installed {
			room = to.add(rec.Package)
		}
		rec = record{}
	}
	for n := 0; n < mostRecordLines && room; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, over, err := nextLine(lines)
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch {
		case len(line) > 0:
			set(&rec, line)
		case !over:
			flush()
		}
		if err != nil {
			flush()
			break
		}
	}
	return nil
}

// value is what follows a key at the beginning of a line.
func value(line []byte, key string) (string, bool) {
	v, ok := bytes.CutPrefix(line, []byte(key))
	return strings.ToValidUTF8(string(bytes.TrimSpace(v)), "\uFFFD"), ok
}

// dpkgInstalled are the states of a package that is all there; the last two
// wait for others.
var dpkgInstalled = []string{"installed", "triggers-pending", "triggers-awaited"}

// dpkgLine reads a line of dpkg's status file. Text that goes on begins with a
// blank and so has none of these keys.
func dpkgLine(rec *record, line []byte) {
	if v, ok := value(line, "Package:"); ok {
		rec.Name = v
	} else if v, ok := value(line, "Version:"); ok {
		rec.Version = v
	} else if v, ok := value(line, "Architecture:"); ok {
		rec.Arch = v
	} else if v, ok := value(line, "Status:"); ok {
		// "install ok installed": what is wanted, whether it is well, what it is.
		words := strings.Fields(v)
		rec.installed = len(words) == 3 && slices.Contains(dpkgInstalled, words[2])
	}
}

// dpkgPieceLine reads a line of a file in status.d, which has installed
// packages only and does not say so.
func dpkgPieceLine(rec *record, line []byte) {
	dpkgLine(rec, line)
	rec.installed = true
}

// apkLine reads a line of apk's database.
func apkLine(rec *record, line []byte) {
	if v, ok := value(line, "P:"); ok {
		rec.Name, rec.installed = v, true
	} else if v, ok := value(line, "V:"); ok {
		rec.Version = v
	} else if v, ok := value(line, "A:"); ok {
		rec.Arch = v
	}
}

// DebianPackages lists what dpkg has installed, also in images that have the
// database of single packages and no dpkg. The error is that of ctx.
func (h *Host) DebianPackages(ctx context.Context) (Packages, error) {
	var out Packages
	err := h.database(ctx, "/var/lib/dpkg/status", &out, dpkgLine)
	pieces := folderNames(h.root + "/var/lib/dpkg/status.d")
	for _, name := range pieces {
		if err != nil {
			break
		}
		if !strings.HasSuffix(name, ".md5sums") {
			err = h.database(ctx, filepath.Join("/var/lib/dpkg/status.d", name), &out, dpkgPieceLine)
		}
	}
	return out.sorted(), err
}

// AlpinePackages lists what apk has installed. The error is that of ctx.
func (h *Host) AlpinePackages(ctx context.Context) (Packages, error) {
	var out Packages
	for _, path := range []string{"/lib/apk/db/installed", "/usr/lib/apk/db/installed"} {
		if err := h.database(ctx, path, &out, apkLine); err != nil {
			return Packages{}, err
		}
	}
	return out.sorted(), nil
}

func (h *Host) database(ctx context.Context, path string, to *Packages, set func(*record, []byte)) error {
	f, err := openRegular(h.root + path)
	if err != nil {
		return nil // not a system of that kind
	}
	defer f.Close()
	return readRecords(ctx, f, to, set)
}
