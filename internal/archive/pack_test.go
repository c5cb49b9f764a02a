package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// yard is a directory to work in.
type yard struct {
	t    testing.TB
	base string
	fs   *guardfs.FS
}

func newYard(t testing.TB) *yard {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t, base, guardfs.New(func() string { return base }, base)}
	t.Cleanup(func() { _ = y.fs.Close() })
	return y
}

func (y *yard) path(name string) string { return filepath.Join(y.base, name) }

func (y *yard) must(err error) {
	y.t.Helper()
	if err != nil {
		y.t.Fatal(err)
	}
}

// write makes files; "-> x" is a link to x, "=> x" another name of x, "|" a FIFO, and a name that
// ends with a slash is a directory.
func (y *yard) write(pairs ...string) {
	y.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		p, text := y.path(pairs[i]), pairs[i+1]
		y.must(os.MkdirAll(filepath.Dir(p), 0o755))
		switch {
		case strings.HasSuffix(pairs[i], "/"):
			y.must(os.MkdirAll(p, 0o755))
		case strings.HasPrefix(text, "-> "):
			y.must(os.Symlink(text[3:], p))
		case strings.HasPrefix(text, "=> "):
			y.must(os.Link(y.path(text[3:]), p))
		case text == "|":
			y.must(unix.Mkfifo(p, 0o600))
		default:
			y.must(os.WriteFile(p, []byte(text), 0o644))
		}
	}
}

func (y *yard) guard(rules *policy.PathRules) *guardfs.Guard { return y.fs.Guard(rules, "", nil) }

func packing(f Format, paths ...string) PackOptions {
	return PackOptions{Format: f, Paths: paths, MaxFiles: 1000, MaxBytes: 1 << 20, MaxInput: 20 << 20}
}

func (y *yard) pack(o PackOptions) ([]byte, []string) {
	y.t.Helper()
	data, skipped, err := y.tryPack(o)
	if err != nil {
		y.t.Fatal(err)
	}
	return data, skipped
}

func (y *yard) tryPack(o PackOptions) ([]byte, []string, error) {
	p, err := Prepare(y.t.Context(), y.guard(nil), o)
	if err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	skipped, err := p.Write(y.t.Context(), &out)
	names := []string{}
	for _, s := range skipped {
		rel, _ := filepath.Rel(y.base, s.Name)
		names = append(names, rel)
	}
	return out.Bytes(), names, err
}

// describe lists an archive by another reader than ours: name, what it is, and content.
func describe(t testing.TB, f Format, data []byte) []string {
	t.Helper()
	out := []string{}
	if f == Zip {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range z.File {
			r, err := e.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, line(e.Name, e.Mode(), text))
		}
		return out
	}
	var src io.Reader = bytes.NewReader(data)
	var err error
	switch f {
	case TarGz:
		src, err = gzip.NewReader(src)
	case TarZst:
		var z *zstd.Decoder
		z, err = zstd.NewReader(src)
		src = z
		defer z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(src); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeLink {
			out = append(out, h.Name+" => "+h.Linkname)
			continue
		}
		if h.Typeflag == tar.TypeSymlink {
			text = []byte(h.Linkname)
		}
		out = append(out, line(h.Name, h.FileInfo().Mode(), text))
	}
}

func line(name string, mode fs.FileMode, text []byte) string {
	switch {
	case mode.IsDir():
		return name
	case mode&fs.ModeSymlink != 0:
		return name + " -> " + string(text)
	}
	return name + ": " + string(text)
}

var formats = []Format{Tar, TarGz, TarZst, Zip}

func TestPackingATree(t *testing.T) {
	y := newYard(t)
	y.write("d/b", "2", "d/a", "1", "d/s/c", "3", "d/empty/", "", "d/only/special", "|", "d/l", "-> a", "d/dl", "-> s", "d/out", "-> /etc/passwd",
		"d/dangling", "-> gone", "d/loop", "-> loop", "d/twin", "=> d/b", "d/pl", "-> only/special", "f", "top")
	want := []string{
		"d/a: 1", "d/b: 2", "d/dangling -> gone", "d/empty/", "d/l -> a", "d/loop -> loop", "d/only/", "d/pl -> only/special", "d/s/c: 3", "d/twin => d/b", "f: top",
	}
	inZip := slices.Clone(want)
	inZip[4], inZip[9] = "d/l: 1", "d/twin: 2"
	for _, f := range formats {
		data, skipped := y.pack(packing(f, "f", "d/", "d", "./d/../d"))
		if f == Zip {
			want = inZip
		}
		if d := cmp.Diff(want, describe(t, f, data)); d != "" {
			t.Errorf("%s (-want +got):\n%s", f, d)
		}
		if d := cmp.Diff([]string{"d/only/special"}, skipped); d != "" {
			t.Errorf("%s skipped (-want +got):\n%s", f, d)
		}
		if again, _ := y.pack(packing(f, "f", "d")); !bytes.Equal(again, data) {
			t.Errorf("%s: not the same a second time", f)
		}
	}
}

func TestPackingKeepsWhatFilesAre(t *testing.T) {
	y := newYard(t)
	y.write("f", "1", "old", "2", "new", "3", "\xff\xfe\n.txt", "4")
	y.must(os.Chmod(y.path("f"), 0o751|fs.ModeSetuid))
	at := time.Date(2023, 11, 14, 22, 13, 20, 999_999_999, time.UTC)
	y.must(os.Chtimes(y.path("f"), at, at))
	before := time.Date(1903, 1, 2, 3, 4, 5, 0, time.UTC)
	y.must(os.Chtimes(y.path("old"), before, before))
	beyond := time.Date(2200, 1, 2, 3, 4, 5, 0, time.UTC)
	y.must(os.Chtimes(y.path("new"), beyond, beyond))
	o := packing(Tar, "f", "old", "new", "\xff\xfe\n.txt")
	o.Owner = func(uint32) string { return "somebody" }
	o.Group = func(id uint32) string { return fmt.Sprint(id) }
	data, _ := y.pack(o)
	got := map[string]*tar.Header{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		got[h.Name] = h
	}
	h := got["f"]
	if h == nil || h.Mode != 0o4751 || !h.ModTime.Equal(at.Truncate(time.Second)) || h.Uid != os.Getuid() || h.Uname != "somebody" || h.Gname != "" {
		t.Errorf("f: %+v", h)
	}
	if h := got["old"]; h == nil || !h.ModTime.Equal(before) {
		t.Errorf("old: %+v", h)
	}
	if got["\xff\xfe\n.txt"] == nil {
		t.Errorf("odd name is missing: %v", got)
	}
	o.Format = Zip
	data, _ = y.pack(o)
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	y.must(err)
	for _, e := range z.File {
		year := e.Modified.Year()
		switch {
		case e.Name == "f" && (e.Mode() != 0o751|fs.ModeSetuid || !e.Modified.Equal(at.Truncate(time.Second))),
			e.Name == "old" && year != 1980, e.Name == "new" && year != 2106:
			t.Errorf("%s: %v %v", e.Name, e.Mode(), e.Modified)
		}
	}
}

func TestNamesInAnArchiveNeverCollide(t *testing.T) {
	y := newYard(t)
	y.write("p/a", "1", "q/a", "2", "r/q/a", "3", "x/q/b", "4", "link", "-> p/a")
	for _, c := range []struct{ paths, want []string }{
		{[]string{"p/a", "q/a", "p/a", "link"}, []string{"a: 1", "q/a: 2"}},
		{[]string{"p/a", "q/a", "r/q/a"}, []string{"a: 1", "q/a: 2", "r/q/a: 3"}},
		{[]string{"p/a", "q/a", "x/q"}, []string{"a: 1", "q/a: 2", "x/q/b: 4"}},
		{[]string{"x/q", "q"}, []string{filepath.Base(y.base) + "/q/a: 2", "q/b: 4"}},
		{[]string{"q", "q/a"}, []string{"a: 2", "q/a: 2"}},
	} {
		data, _ := y.pack(packing(Tar, c.paths...))
		got := describe(t, Tar, data)
		slices.Sort(got)
		slices.Sort(c.want)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.paths, d)
		}
	}
}

func TestBaseAndExclude(t *testing.T) {
	y := newYard(t)
	y.write("p/a", "1", "p/s/b", "2", "p/s/c.log", "3", "q", "4")
	o := packing(Tar, "p/s", "p/a", "p/s/b")
	o.Base = "p"
	o.Exclude = func(e *guardfs.Entry) bool { return strings.HasSuffix(e.Name(), ".log") }
	data, _ := y.pack(o)
	if d := cmp.Diff([]string{"a: 1", "s/b: 2"}, describe(t, Tar, data)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	o.Paths = []string{"p"}
	data, _ = y.pack(o)
	if d := cmp.Diff([]string{"a: 1", "s/b: 2"}, describe(t, Tar, data)); d != "" {
		t.Errorf("the base itself (-want +got):\n%s", d)
	}
	for _, paths := range [][]string{{"q"}, {"p", "q"}} {
		o.Paths = paths
		if _, _, err := y.tryPack(o); !errors.Is(err, ErrOutsideBase) {
			t.Errorf("%q: %v", paths, err)
		}
	}
	o.Paths, o.Base = []string{"q"}, "q"
	if _, _, err := y.tryPack(o); !errors.Is(err, ErrOutsideBase) {
		t.Errorf("a file as its own base: %v", err)
	}
}

func TestPackingJudgesAllPathsBeforeItLooks(t *testing.T) {
	y := newYard(t)
	y.write("f", "1")
	if _, _, err := y.tryPack(packing(Tar, "f", "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	_, _, err := y.tryPack(packing(Tar, "none", "/etc/passwd"))
	if !policy.IsDenied(err) {
		t.Errorf("outside: %v", err)
	}
}

func TestPackingLeavesOutWhatTheRulesRefuse(t *testing.T) {
	y := newYard(t)
	y.write("d/a.pem", "secret", "d/ok", "1", "d/l", "-> a.pem", "d/sub/b.pem", "secret")
	rules := policy.NewPathRules(nil, []string{"**/*.pem"}, false, false, false)
	for _, f := range formats {
		p, err := Prepare(t.Context(), y.guard(rules), packing(f, "d"))
		y.must(err)
		var out bytes.Buffer
		_, err = p.Write(t.Context(), &out)
		y.must(err)
		if d := cmp.Diff([]string{"d/ok: 1", "d/sub/"}, describe(t, f, out.Bytes())); d != "" {
			t.Errorf("%s (-want +got):\n%s", f, d)
		}
	}
}

func TestPackingKeepsToItsLimits(t *testing.T) {
	y := newYard(t)
	y.write("a", "1", "b", "2", "c", "3", "d/x", "4", "d/y", "5", "d/z", "6")
	noise := make([]byte, 100_000)
	for i, v := 0, uint32(1); i < len(noise); i++ {
		v = v*1664525 + 1013904223
		noise[i] = byte(v >> 24)
	}
	y.write("noise", string(noise))
	y.must(os.Truncate(y.path("c"), 1<<30))
	for _, paths := range [][]string{{"a", "b", "d/x"}, {"d"}, {"a", "d"}} {
		o := packing(Tar, paths...)
		o.MaxFiles = 2
		_, _, err := y.tryPack(o)
		var many *TooManyError
		if !errors.As(err, &many) || many.Limit != 2 {
			t.Errorf("%q: %v", paths, err)
		}
	}
	for _, f := range formats {
		o := packing(f, "noise")
		o.MaxBytes = 50_000
		_, _, err := y.tryPack(o)
		var big *guardfs.TooLargeError
		if !errors.As(err, &big) || big.Limit != 50_000 {
			t.Errorf("%s: %v", f, err)
		}
		// What would be read is bounded too: a sparse file packs to nearly nothing.
		if _, _, err := y.tryPack(packing(f, "c")); !errors.As(err, &big) || big.Limit != 1<<20 {
			t.Errorf("%s: sparse: %v", f, err)
		}
	}
}

// A file that is cut while it is read must not spoil the rest.
func TestAFileThatShrinksIsFilledUp(t *testing.T) {
	y := newYard(t)
	y.write("d/a", strings.Repeat("x", 300_000), "d/b", "after")
	for _, f := range formats {
		y.must(os.WriteFile(y.path("d/a"), bytes.Repeat([]byte("x"), 300_000), 0o644))
		p, err := Prepare(t.Context(), y.guard(nil), packing(f, "d"))
		y.must(err)
		var out bytes.Buffer
		c, err := newContainer(f, &out, p.PackOptions)
		y.must(err)
		k := &packer{Plan: p, ctx: t.Context(), out: &shrinking{c, y.path("d/a")}, first: map[inode]string{}, buf: make([]byte, 1000)}
		for _, top := range p.tops {
			y.must(k.top(top))
		}
		y.must(c.Close())
		got := describe(t, f, out.Bytes())
		if len(got) != 2 || got[1] != "d/b: after" || len(k.skipped) != 1 || !errors.Is(k.skipped[0].Err, ErrChanged) {
			t.Errorf("%s: %.100q, skipped %v", f, got, k.skipped)
		}
	}
}

// shrinking cuts a file once its header was written.
type shrinking struct {
	container
	path string
}

func (s *shrinking) file(name string, i guardfs.Info) (io.Writer, error) {
	if i.Path == s.path {
		if err := os.Truncate(s.path, 5000); err != nil {
			return nil, err
		}
	}
	return s.container.file(name, i)
}

func TestUnreadableFilesAreSkipped(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	y := newYard(t)
	y.write("d/a", "1", "d/locked/x", "2", "d/no", "3")
	y.must(os.Chmod(y.path("d/no"), 0))
	y.must(os.Chmod(y.path("d/locked"), 0))
	defer func() { _ = os.Chmod(y.path("d/locked"), 0o755) }()
	for _, f := range formats {
		data, skipped := y.pack(packing(f, "d"))
		if d := cmp.Diff([]string{"d/a: 1", "d/locked/"}, describe(t, f, data)); d != "" {
			t.Errorf("%s (-want +got):\n%s", f, d)
		}
		if d := cmp.Diff([]string{"d/locked", "d/no"}, skipped); d != "" {
			t.Errorf("%s skipped (-want +got):\n%s", f, d)
		}
	}
}

func TestPackingEndsWithItsCaller(t *testing.T) {
	y := newYard(t)
	y.write("d/a", "1", "d/b", strings.Repeat("2", 1<<20))
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Prepare(ctx, y.guard(nil), packing(Tar, "d"))
	y.must(err)
	_, err = p.Write(ctx, writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func exchange(a, b string) {
	_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}
