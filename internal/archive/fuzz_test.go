package archive

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// fuzzUnpack unpacks whatever it is given beside a file that must not change.
func fuzzUnpack(t *testing.T, format Format, data []byte) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fs := guardfs.New(func() string { return base }, base)
	defer fs.Close()
	y := &yard{t, base, fs}
	y.write("out/f", "old", "o/there", "-> ../out", "o/d/x", "1")
	o := UnpackOptions{Destination: "o", Format: format, MaxBytes: 1 << 16, MaxEntries: 50}
	done, err := Unpack(context.Background(), fs.Guard(nil, "", nil), bytes.NewReader(data), int64(len(data)), o)
	if err == nil && (done.Bytes > o.MaxBytes || done.Directories > o.MaxEntries) {
		t.Errorf("%+v", done)
	}
	names, err := os.ReadDir(base)
	if err != nil || len(names) != 2 {
		t.Errorf("beside the destination: %v %v", names, err)
	}
	if got := y.tree("out"); len(got) != 1 || got[0] != "f: old" {
		t.Errorf("outside: %q", got)
	}
	// Whatever links were made stay inside.
	_ = filepath.WalkDir(filepath.Join(base, "o"), func(p string, e os.DirEntry, err error) error {
		if err != nil || e.Type()&os.ModeSymlink == 0 || p == filepath.Join(base, "o/there") {
			return nil
		}
		if real, err := filepath.EvalSymlinks(p); err == nil && real != filepath.Join(base, "o") && !strings.HasPrefix(real, filepath.Join(base, "o")+"/") {
			t.Errorf("%s leads to %s", p, real)
		}
		return nil
	})
}

func FuzzTarEntry(f *testing.F) {
	y := newYard(f)
	for _, items := range hostile {
		f.Add(y.tar(items...))
	}
	f.Add(gz(y.tar(file("a", "1"), symlink("l", "a"), twin("t", "a"))))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzUnpack(t, "", data) })
}

func FuzzZipEntry(f *testing.F) {
	y := newYard(f)
	for _, items := range hostile {
		f.Add(y.zip(items...))
	}
	f.Add(endOf(0xffff, 0xffffffff))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzUnpack(t, Zip, data) })
}

// FuzzLinks builds archives of links from a few names, which random bytes
// never would.
func FuzzLinks(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05"))
	f.Fuzz(func(t *testing.T, data []byte) {
		names := []string{"a", "b", "a/b", "b/a", "a/b/a", "there", "there/a", "d", "d/b"}
		texts := []string{".", "..", "a", "b", "../a", "b/..", "a/../..", "../..", "there", "d/../..", "a/b", "../out", "../o"}
		y := newYard(t)
		var items []item
		for i := 0; i+1 < len(data) && i < 24; i += 2 {
			name, text := names[int(data[i])%len(names)], texts[int(data[i+1])%len(texts)]
			switch data[i] >> 6 {
			case 0, 1:
				items = append(items, symlink(name, text))
			case 2:
				items = append(items, file(name, "new"))
			default:
				items = append(items, twin(name, names[int(data[i+1])%len(names)]))
			}
		}
		fuzzUnpack(t, "", y.tar(items...))
	})
}

func FuzzCleanName(f *testing.F) {
	f.Add("a/../b", 1)
	f.Fuzz(func(t *testing.T, name string, strip int) {
		rel, ok := cleanName(name, strip%10)
		if !ok {
			return
		}
		if strings.HasPrefix(rel, "/") || rel == ".." || strings.HasPrefix(rel, "../") || strings.Contains(rel, "/../") || strings.HasSuffix(rel, "/") || strings.Contains(rel, "\x00") {
			t.Errorf("%q, %d: %q", name, strip, rel)
		}
	})
}
