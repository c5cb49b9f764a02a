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
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// item is a member to put into an archive made by hand.
type item struct {
	name, text string
	kind       byte // of tar; 0 is a file
	link       string
	mode       int64
}

func file(name, text string) item  { return item{name: name, text: text} }
func dir(name string) item         { return item{name: name, kind: tar.TypeDir, mode: 0o755} }
func symlink(name, to string) item { return item{name: name, kind: tar.TypeSymlink, link: to} }
func twin(name, of string) item    { return item{name: name, kind: tar.TypeLink, link: of} }

var moment = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

func (y *yard) tar(items ...item) []byte {
	y.t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Linkname: i.link, Mode: i.mode, Size: int64(len(i.text)), ModTime: moment}
		if h.Mode == 0 {
			h.Mode = 0o640
		}
		y.must(w.WriteHeader(h))
		_, err := io.WriteString(w, i.text)
		y.must(err)
	}
	y.must(w.Close())
	return out.Bytes()
}

func (y *yard) zip(items ...item) []byte {
	y.t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate, Modified: moment}
		mode := fs.FileMode(0o640)
		if i.mode != 0 {
			mode = fs.FileMode(i.mode & 0o777)
		}
		text := i.text
		switch i.kind {
		case tar.TypeDir:
			mode |= fs.ModeDir
			h.Name = strings.TrimSuffix(h.Name, "/") + "/"
		case tar.TypeSymlink:
			mode |= fs.ModeSymlink
			text = i.link
		case tar.TypeFifo:
			mode |= fs.ModeNamedPipe
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		y.must(err)
		if i.kind != tar.TypeDir {
			_, err = io.WriteString(f, text)
			y.must(err)
		}
	}
	y.must(w.Close())
	return out.Bytes()
}

func gz(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

func zst(data []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func unpacking() UnpackOptions {
	return UnpackOptions{Destination: "o", MaxBytes: 1 << 20, MaxEntries: 5000}
}

func (y *yard) unpack(data []byte, o UnpackOptions) (Unpacked, error) {
	return Unpack(y.t.Context(), y.guard(nil), bytes.NewReader(data), int64(len(data)), o)
}

// tree lists what is below a directory.
func (y *yard) tree(name string) []string {
	y.t.Helper()
	out := []string{}
	top := y.path(name)
	err := filepath.WalkDir(top, func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == top {
			return err
		}
		rel, _ := filepath.Rel(top, p)
		var text []byte
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			y.must(err)
			text = []byte(to)
		case e.IsDir():
			rel += "/"
		default:
			text, err = os.ReadFile(p)
			y.must(err)
		}
		out = append(out, line(rel, e.Type(), text))
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		y.t.Fatal(err)
	}
	return out
}

func TestUnpackingEveryFormat(t *testing.T) {
	items := []item{
		file("./top/a", "1"), dir("top/empty"), file("top/s//t/b", "22"), symlink("top/l", "s/t/b"), symlink("top/dl", "./s"), file("top/dl/c", "3"),
		file("top/x/../y", "4"),
		{name: "top/p", kind: tar.TypeFifo},
		file("top/a", "5"), dir("./"),
	}
	want := []string{"a: 5", "dl -> ./s", "empty/", "l -> s/t/b", "s/", "s/c: 3", "s/t/", "s/t/b: 22", "y: 4"}
	for name, make := range map[string]func(*yard) []byte{
		"tar": func(y *yard) []byte { return y.tar(items...) }, "tar.gz": func(y *yard) []byte { return gz(y.tar(items...)) },
		"tar.zst": func(y *yard) []byte { return zst(y.tar(items...)) }, "zip": func(y *yard) []byte { return y.zip(items...) },
		"two gzip members": func(y *yard) []byte { d := y.tar(items...); return append(gz(d[:700]), gz(d[700:])...) },
	} {
		y := newYard(t)
		o := unpacking()
		o.Strip = 1
		done, err := y.unpack(make(y), o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, y.tree("o")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if done.Destination != y.path("o") || done.Files != 7 || done.Directories != 3 || done.Bytes != 6 || len(done.Skipped) != 1 || done.Skipped[0].Name != "top/p" {
			t.Errorf("%s: %+v", name, done)
		}
	}
}

func TestUnpackingGivesBackWhatWasPacked(t *testing.T) {
	y := newYard(t)
	y.write("d/a", "1", "d/s/b", strings.Repeat("22", 100_000), "d/empty/", "", "d/l", "-> s/b", "d/gone", "-> nowhere", "d/\xff\xfe\n", "odd")
	y.must(os.Chmod(y.path("d/a"), 0o751|fs.ModeSetuid))
	y.must(os.Chtimes(y.path("d/a"), moment, moment))
	want := y.tree("d")
	for _, f := range formats {
		data, _ := y.pack(packing(f, "d"))
		o := unpacking()
		o.Destination, o.Strip = "o-"+string(f), 1
		if _, err := y.unpack(data, o); err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		got := y.tree(o.Destination)
		if f == Zip { // which has copies for links to files
			i := slices.Index(got, "l: "+strings.Repeat("22", 100_000))
			if i < 0 {
				t.Errorf("zip: no copy for the link")
				continue
			}
			got[i] = "l -> s/b"
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", f, d)
		}
		i, err := os.Stat(y.path(o.Destination + "/a"))
		y.must(err)
		if i.Mode() != 0o751 || !i.ModTime().Equal(moment) {
			t.Errorf("%s: %v %v", f, i.Mode(), i.ModTime())
		}
	}
}

// hostile are archives that try to write, or to lead, out of the destination.
var hostile = map[string][]item{
	"up":                      {file("ok", "1"), file("../esc", "1")},
	"up after down":           {file("a/../../esc", "1")},
	"absolute":                {file("/esc", "1")},
	"only up":                 {dir("..")},
	"nothing":                 {file("a/../..", "1")},
	"link up":                 {file("ok", "1"), symlink("l", "..")},
	"link far up":             {symlink("l", "../../..")},
	"absolute link":           {symlink("l", "/etc")},
	"link to the base":        {symlink("a/l", "../..")},
	"link through nothing":    {symlink("l", "no/no/../../..")},
	"link through a link":     {symlink("a", "b"), symlink("b/l", ".."), symlink("c", "a/l/..")},
	"link made to lead out":   {symlink("l", "d/e/../.."), symlink("d/e", "..")},
	"file through a link out": {symlink("l", ".."), file("l/esc", "1")},
	"chain of links":          {symlink("a", "."), symlink("b", "a/.."), file("b/esc", "1")},
	"link to itself":          {symlink("l", "l"), file("l/x", "1")},
	"two links in a circle":   {symlink("a", "b"), symlink("b", "a")},
	"existing link out":       {file("there/esc", "1")},
	"existing link, dir":      {dir("there")},
	"link via existing link":  {symlink("l", "there/x")},
	"directory over a link":   {symlink("l", "there"), file("l/esc", "1")},
	"twin of the outside":     {twin("t", "../secret")},
	"twin, absolute":          {twin("t", "/etc/passwd")},
	"twin through a link":     {twin("t", "there/secret")},
	"special outside":         {{name: "../p", kind: tar.TypeFifo}},
}

func TestNothingLeavesTheDestination(t *testing.T) {
	for what, items := range hostile {
		for _, format := range []string{"tar", "tar.gz", "zip"} {
			y := newYard(t)
			y.write("o/keep", "old", "o/there", "-> ..", "secret", "outside")
			before := y.tree("o")
			var data []byte
			switch format {
			case "tar":
				data = y.tar(items...)
			case "tar.gz":
				data = gz(y.tar(items...))
			default:
				if slices.ContainsFunc(items, func(i item) bool { return i.kind == tar.TypeLink }) {
					continue
				}
				data = y.zip(items...)
			}
			_, err := y.unpack(data, unpacking())
			var bad *UnsafeError
			if !errors.As(err, &bad) || bad.Name == "" {
				t.Errorf("%s, %s: %v", what, format, err)
			}
			// Everything was judged first, so nothing has changed at all.
			if d := cmp.Diff(before, y.tree("o")); d != "" {
				t.Errorf("%s, %s (-before +after):\n%s", what, format, d)
			}
			if _, err := os.Lstat(y.path("esc")); err == nil {
				t.Errorf("%s, %s: escaped", what, format)
			}
		}
	}
}

func TestARefusedArchiveDoesNotEvenMakeTheDestination(t *testing.T) {
	y := newYard(t)
	for _, data := range [][]byte{y.tar(file("a", "1"), file("../x", "2")), y.zip(file("a", "1"), file("../x", "2")), []byte("nonsense"), nil} {
		if _, err := y.unpack(data, unpacking()); err == nil {
			t.Error("was unpacked")
		}
		if _, err := os.Lstat(y.path("o")); err == nil {
			t.Fatal("the destination was made")
		}
	}
}

func TestUnpackingOverWhatIsThere(t *testing.T) {
	y := newYard(t)
	y.write("o/f", "old", "o/twin", "=> o/f", "o/l", "-> f", "o/d/x", "kept")
	data := y.tar(file("f", "new"), file("l", "file now"), symlink("n", "f"), twin("h", "f"), file("d/y", "1"))
	if _, err := y.unpack(data, unpacking()); err != nil {
		t.Fatal(err)
	}
	want := []string{"d/", "d/x: kept", "d/y: 1", "f: new", "h: new", "l: file now", "n -> f", "twin: old"}
	if d := cmp.Diff(want, y.tree("o")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A second time over itself.
	if _, err := y.unpack(data, unpacking()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, y.tree("o")); d != "" {
		t.Errorf("again (-want +got):\n%s", d)
	}
	o := unpacking()
	o.Keep = true
	for _, data := range [][]byte{y.tar(file("new", "1"), file("f", "2")), y.tar(symlink("new", "f"), symlink("l", "f")), y.tar(file("new", "1"), file("new", "2"))} {
		_, err := y.unpack(data, o)
		d, ok := errors.AsType[*policy.Denied](err)
		if !ok || d.Code != policy.FileExists {
			t.Errorf("keep: %v", err)
		}
	}
	if _, err := os.Lstat(y.path("o/new")); err == nil {
		t.Error("keep: written before the conflict was seen")
	}
}

func TestUnpackingKeepsTheRules(t *testing.T) {
	y := newYard(t)
	y.write("o/k.pem", "secret")
	rules := policy.NewPathRules(nil, []string{"**/*.pem"}, false, false, false)
	for what, data := range map[string][]byte{
		"file": y.tar(file("a", "1"), file("b.pem", "1")), "directory": y.zip(file("x.pem/a", "1")), "twin": y.tar(file("a", "1"), twin("k", "k.pem")), "link": y.zip(symlink("l.pem", "a")),
	} {
		_, err := Unpack(t.Context(), y.guard(rules), bytes.NewReader(data), int64(len(data)), unpacking())
		var m *MemberError
		if !policy.IsDenied(err) || !errors.As(err, &m) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(y.path("o/a")); err == nil {
			t.Errorf("%s: something was written", what)
		}
	}
	o := unpacking()
	o.Judge = func(real string) error { return policy.ExtensionDecision(real, nil, []string{".exe"}).Err() }
	for _, i := range []item{file("a.exe", "1"), symlink("l.exe", "a"), twin("t.exe", "k.pem")} {
		if _, err := y.unpack(y.tar(i), o); !policy.IsDenied(err) {
			t.Errorf("%s: %v", i.name, err)
		}
	}
	if _, err := y.unpack(y.tar(dir("d.exe")), o); err != nil {
		t.Errorf("a directory has no extension: %v", err)
	}
}

// Bits above 0777 are dropped, and a closed directory is closed last.
func TestModesOfWhatIsUnpacked(t *testing.T) {
	y := newYard(t)
	locked := dir("locked")
	locked.mode = 0o2555
	su := file("locked/su", "1")
	su.mode = 0o6755
	for _, data := range [][]byte{y.tar(locked, su), y.zip(locked, su)} {
		if _, err := y.unpack(data, unpacking()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]fs.FileMode{"o/locked": fs.ModeDir | 0o555, "o/locked/su": 0o755} {
			i, err := os.Lstat(y.path(name))
			y.must(err)
			if i.Mode() != want || !i.ModTime().Equal(moment) {
				t.Errorf("%s: %v %v", name, i.Mode(), i.ModTime())
			}
		}
		y.must(os.Chmod(y.path("o/locked"), 0o755))
		y.must(os.RemoveAll(y.path("o")))
	}
}

func wantTooLarge(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*guardfs.TooLargeError](err); !ok {
		t.Errorf("%s: %v", what, err)
	}
}

func wantTooMany(t *testing.T, what string, err error) {
	t.Helper()
	var many *TooManyError
	if !errors.As(err, &many) || many.Limit != 5000 {
		t.Errorf("%s: %v", what, err)
	}
}

func TestBombsAreRefused(t *testing.T) {
	y := newYard(t)
	zeros := strings.Repeat("\x00", 3<<20)
	o := unpacking()
	for what, data := range map[string][]byte{
		"tar": y.tar(file("z", zeros)), "gzip": gz(y.tar(file("z", zeros))), "zstd": zst(y.tar(file("z", zeros))), "zip": y.zip(file("z", zeros)),
		"many": gz(y.tar(file("a", zeros[:1<<19]), file("b", zeros[:1<<19]), file("c", "1"))),
	} {
		_, err := y.unpack(data, o)
		wantTooLarge(t, what, err)
	}
	if got := y.tree("o"); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	// A hole in a sparse file costs the archive nothing.
	var sparse bytes.Buffer
	w := tar.NewWriter(&sparse)
	y.must(w.WriteHeader(&tar.Header{Name: "s", Typeflag: tar.TypeReg, Size: 1 << 40, Format: tar.FormatGNU}))
	_, err := y.unpack(sparse.Bytes(), o)
	wantTooLarge(t, "announced size", err)
}

// What lies between the members of a tar is bounded as well.
func TestABombOfPaddingIsRefused(t *testing.T) {
	y := newYard(t)
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	y.must(w.WriteHeader(&tar.Header{Name: "label", Typeflag: 'V', Size: 1 << 30}))
	_, err := z.Write(make([]byte, 1<<20))
	y.must(err)
	y.must(z.Close())
	o := unpacking()
	o.MaxBytes, o.MaxEntries = 10, 100
	_, err = y.unpack(out.Bytes(), o)
	wantTooLarge(t, "padding", err)
}

func TestZipsThatLieAboutSizes(t *testing.T) {
	y := newYard(t)
	good := y.zip(file("f", strings.Repeat("x", 5000)))
	dirAt := bytes.LastIndex(good, zipEntry)
	for _, size := range []uint32{0, 1, 4999, 5001, 1 << 19} {
		data := bytes.Clone(good)
		binary.LittleEndian.PutUint32(data[dirAt+24:], size)
		_, err := y.unpack(data, unpacking())
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("announced %d: %v", size, err)
		}
	}
	data := bytes.Clone(good)
	binary.LittleEndian.PutUint32(data[dirAt+24:], 5)
	o := unpacking()
	o.MaxBytes = 100
	if _, err := y.unpack(data, o); err == nil {
		t.Error("more was unpacked than allowed")
	}
	if got := y.tree("o"); len(got) > 0 {
		t.Errorf("left behind: %.80q", got)
	}
	data = bytes.Clone(good)
	data[dirAt+8] |= 1
	if _, err := y.unpack(data, unpacking()); !errors.Is(err, ErrInvalid) {
		t.Errorf("encrypted: %v", err)
	}
}

func TestDamagedArchivesAreTheCallersMistake(t *testing.T) {
	y := newYard(t)
	items := []item{file("a", strings.Repeat("1", 3000)), file("b", "2")}
	for format, data := range map[Format][]byte{Tar: y.tar(items...), TarGz: gz(y.tar(items...)), TarZst: zst(y.tar(items...)), Zip: y.zip(items...)} {
		cut := data[:len(data)*2/3]
		if format == Tar {
			cut = data[:2000]
		}
		for what, bad := range map[string][]byte{"cut": cut, "empty": nil, "text": []byte(strings.Repeat("text ", 200))} {
			for _, named := range []Format{"", format} {
				o := unpacking()
				o.Format = named
				if _, err := y.unpack(bad, o); !errors.Is(err, ErrInvalid) {
					t.Errorf("%s as %q, %s: %v", format, named, what, err)
				}
			}
		}
	}
	if _, err := y.unpack(y.tar(twin("t", "none")), unpacking()); !errors.Is(err, ErrInvalid) {
		t.Errorf("twin of nothing: %v", err)
	}
}

// However many entries there are, they are neither written nor held.
func TestTooManyEntriesAreRefused(t *testing.T) {
	y := newYard(t)
	var tarred, zipped bytes.Buffer
	z := gzip.NewWriter(&tarred)
	w := tar.NewWriter(z)
	for i := range 5000 + 1 {
		y.must(w.WriteHeader(&tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg, Mode: 0o644}))
	}
	y.must(w.Close())
	y.must(z.Close())
	_, err := y.unpack(tarred.Bytes(), unpacking())
	wantTooMany(t, "tar", err)
	zw := zip.NewWriter(&zipped)
	for i := range 5000 + 1 {
		_, err := zw.CreateHeader(&zip.FileHeader{Name: fmt.Sprint(i)})
		y.must(err)
	}
	y.must(zw.Close())
	_, err = y.unpack(zipped.Bytes(), unpacking())
	wantTooMany(t, "zip", err)

	// A directory that goes on and on, whatever its end says.
	entry := zipped.Bytes()[bytes.Index(zipped.Bytes(), zipEntry):][:47]
	endless := append(bytes.Repeat(entry, 2*5000+1000), endOf(1, 47*(2*5000+1000))...)
	o := unpacking()
	o.Format = Zip
	_, err = y.unpack(endless, o)
	wantTooMany(t, "endless directory", err)

	// Directories count as well, or a few names would make millions.
	deep := []item{}
	for i := range 200 {
		deep = append(deep, file(fmt.Sprintf("%d/%s", i, strings.Repeat("d/", 1000)+"x"), "1"))
	}
	_, err = y.unpack(gz(y.tar(deep...)), unpacking())
	wantTooMany(t, "deep names", err)
	if got := y.tree("o"); len(got) > 0 {
		t.Errorf("left behind %d entries", len(got))
	}
}

// endOf is the end record of a zip.
func endOf(entries uint16, size uint32) []byte {
	b := append([]byte("PK\x05\x06\x00\x00\x00\x00"), make([]byte, 14)...)
	binary.LittleEndian.PutUint16(b[8:], entries)
	binary.LittleEndian.PutUint16(b[10:], entries)
	binary.LittleEndian.PutUint32(b[12:], size)
	return b
}

// An end record that claims a billion entries must not make room for them.
func TestAZipThatClaimsABillionEntries(t *testing.T) {
	y := newYard(t)
	const size = 1 << 36
	end64 := make([]byte, 56)
	copy(end64, zipEnd64)
	binary.LittleEndian.PutUint64(end64[4:], 44)
	binary.LittleEndian.PutUint64(end64[24:], 1<<30)
	binary.LittleEndian.PutUint64(end64[32:], 1<<30)
	locator := make([]byte, 20)
	copy(locator, "PK\x06\x07")
	binary.LittleEndian.PutUint32(locator[16:], 1)
	end := endOf(0xffff, 0xffffffff)
	tail := slices.Concat(end64, locator, end)
	binary.LittleEndian.PutUint64(tail[56+8:], size-uint64(len(tail)))
	y.write("big.zip", "PK\x03\x04")
	f, err := os.OpenFile(y.path("big.zip"), os.O_RDWR, 0)
	y.must(err)
	defer f.Close()
	y.must(f.Truncate(size))
	_, err = f.WriteAt(tail, size-int64(len(tail)))
	y.must(err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Unpack(t.Context(), y.guard(nil), f, size, unpacking())
	runtime.ReadMemStats(&after)
	wantTooMany(t, "claimed entries", err)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
}

func TestNamesTooLongAreRefused(t *testing.T) {
	y := newYard(t)
	for _, name := range []string{strings.Repeat("x", 256), strings.Repeat("d/", 3000) + "x", ".abx-tmp-x", "a/.abx-tmp-x/b"} {
		_, err := y.unpack(y.tar(file(name, "1")), unpacking())
		d, ok := errors.AsType[*policy.Denied](err)
		if !ok || d.Code != policy.InvalidPath {
			t.Errorf("%.20s…: %v", name, err)
		}
	}
	if _, err := y.unpack(y.tar(symlink("l", strings.Repeat("x", 5000))), unpacking()); err == nil {
		t.Error("a link of 5000 bytes")
	}
}

func TestUnpackingEndsWithItsCaller(t *testing.T) {
	y := newYard(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, data := range [][]byte{y.tar(file("a", "1")), gz(y.tar(file("a", "1"))), y.zip(file("a", "1"))} {
		if _, err := Unpack(ctx, y.guard(nil), bytes.NewReader(data), int64(len(data)), unpacking()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// Links in the destination are exchanged while an archive is unpacked.
func TestUnpackingWhileTheDestinationIsExchanged(t *testing.T) {
	y := newYard(t)
	y.write("o/d/x", "", "out/f", "old", "o/evil", "-> ../out")
	var items []item
	for i := range 300 {
		items = append(items, file(fmt.Sprintf("d/%d", i%50), "new"), symlink(fmt.Sprintf("d/l%d", i%50), "x"), dir("d/sub"))
	}
	data := y.tar(items...)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				exchange(y.path("o/d"), y.path("o/evil"))
			}
		}
	}()
	for range 20 {
		_, _ = y.unpack(data, unpacking())
	}
	close(stop)
	<-done
	if d := cmp.Diff([]string{"f: old"}, y.tree("out")); d != "" {
		t.Errorf("outside (-want +got):\n%s", d)
	}
}

// A link is judged as it will be among all others; when they do not all come,
// it must not stay.
func TestLinksDoNotOutliveAFailure(t *testing.T) {
	y := newYard(t)
	y.write("o/dir/x", "1")
	items := []item{symlink("a", "b/.."), file("f", "1"), symlink("b", "."), file("a", "no link any more"), file("dir", "cannot be")}
	if _, err := y.unpack(y.tar(items...), unpacking()); !errors.Is(err, guardfs.ErrIsDirectory) {
		t.Errorf("%v", err)
	}
	if d := cmp.Diff([]string{"a: no link any more", "dir/", "dir/x: 1", "f: 1"}, y.tree("o")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	_, err := y.unpack(y.tar(symlink("l", "f"), twin("t", "../l")), unpacking())
	if _, unsafe := errors.AsType[*UnsafeError](err); !unsafe {
		t.Errorf("twin of what is outside: %v", err)
	}
	if _, err := os.Lstat(y.path("o/l")); err == nil {
		t.Error("written before the twin was seen")
	}
}

// One wrong byte in a download, or the last bytes missing, and a file came out
// with another content and the answer was 200: the checksum of a compressed tar
// stands behind the end of the tar.
func TestADamagedByteIsNotUnpacked(t *testing.T) {
	y := newYard(t)
	noise := make([]byte, 2000)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	tarred := y.tar(file("a", string(noise)))
	for format, data := range map[Format][]byte{TarGz: gz(tarred), TarZst: zst(tarred)} {
		o := unpacking()
		if _, err := y.unpack(data, o); err != nil {
			t.Fatal(err)
		}
		y.must(os.RemoveAll(y.path("o")))
		for _, cut := range []int{1, 3, 4, 7, 8, 9, 20} {
			if _, err := y.unpack(data[:len(data)-cut], o); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s without its last %d bytes: %v", format, cut, err)
			}
		}
		for at := len(data) / 3; at < len(data); at += 7 {
			bad := bytes.Clone(data)
			bad[at] ^= 0x10
			_, err := y.unpack(bad, o)
			got, _ := os.ReadFile(y.path("o/a"))
			switch {
			case err == nil && bytes.Equal(got, noise): // a bit that stands for nothing
			case !errors.Is(err, ErrInvalid) || got != nil:
				t.Errorf("%s with byte %d of %d changed: %v, %d bytes written", format, at, len(data), err, len(got))
			}
			y.must(os.RemoveAll(y.path("o")))
		}
	}
}

// A gzip file may have several parts, and padding behind the last.
func TestGzipInPartsAndWithPadding(t *testing.T) {
	y := newYard(t)
	tarred := y.tar(file("a", "text"))
	whole := gz(tarred)
	parts := append(append(gz(tarred[:700]), gz(nil)...), gz(tarred[700:])...)
	for what, data := range map[string][]byte{
		"whole": whole, "parts": parts,
		"zeros":  append(bytes.Clone(whole), make([]byte, 5000)...),
		"a zero": append(bytes.Clone(parts), 0),
		"junk":   append(bytes.Clone(whole), "\x1fjunk"...),
	} {
		y.must(os.RemoveAll(y.path("o")))
		if _, err := y.unpack(data, unpacking()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got, err := os.ReadFile(y.path("o/a")); err != nil || string(got) != "text" {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := y.unpack(append(slices.Clip(parts), whole[:12]...), unpacking()); !errors.Is(err, ErrInvalid) {
		t.Errorf("with a part cut off: %v", err)
	}
}

// GNU tar stores a link with two names as a link and a hard link to it. Such an
// archive could not be unpacked at all.
func TestALinkWithTwoNames(t *testing.T) {
	y := newYard(t)
	items := []item{dir("d"), file("d/f", "1"), symlink("d/l", "f"), twin("d/twin", "d/l"), twin("d/third", "d/twin"), twin("d/second", "d/f")}
	got, err := y.unpack(y.tar(items...), unpacking())
	if err != nil || got.Files != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, name := range []string{"l", "twin", "third"} {
		if to, err := os.Readlink(y.path("o/d/" + name)); err != nil || to != "f" {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	if text, err := os.ReadFile(y.path("o/d/second")); err != nil || string(text) != "1" {
		t.Errorf("%q, %v", text, err)
	}
	// The double of a link is judged where it is.
	for what, bad := range map[string][]item{
		"out by its place":    {symlink("d/l", "../f"), twin("twin", "d/l")},
		"out through another": {dir("d"), symlink("d/l", "."), twin("l2", "d/l"), file("l2/../../f", "x")},
		"out of the archive":  {symlink("l", "d"), twin("../twin", "l")},
		"led out later":       {dir("a/b"), symlink("a/b/l", "../x"), twin("a/twin", "a/b/l"), symlink("x", "..")},
	} {
		y.must(os.RemoveAll(y.path("o")))
		_, err := y.unpack(y.tar(bad...), unpacking())
		if _, unsafe := errors.AsType[*UnsafeError](err); !unsafe {
			t.Errorf("%s: %v", what, err)
		}
		if got := y.tree("o"); len(got) > 0 {
			t.Errorf("%s: left behind: %q", what, got)
		}
	}
}
