package endpoints

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const formType = "multipart/form-data; boundary=b"

// formOf is a form of parts, each a Content-Disposition and a content.
func formOf(parts ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(parts); i += 2 {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: %s\r\nContent-Type: text/plain\r\n\r\n%s\r\n", parts[i], parts[i+1])
	}
	return b.String() + "--b--\r\n"
}

// inFile is a part with a file name that needs no quoting.
func inFile(name string) string { return `form-data; name="file"; filename="` + name + `"` }

func TestFormAnswersInOrder(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":20},"params":{"deny_extensions":[".exe"]},"paths":{"deny":["**/secret/**"]}}}}`})
	r.write("d/there", "old")
	if err := unix.Mkfifo(filepath.Join(r.base, "d/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(r.base, "d/etc")); err != nil {
		t.Fatal(err)
	}
	parts := []struct{ disposition, content, want string }{
		{inFile("a.txt"), "1", "new"},
		{`form-data; name="a field"`, "not a file", ""},
		{inFile("there"), "new", "old"},
		{inFile("x/y/z"), "2", "new"},
		{inFile("../up"), "3", "invalid_path"},
		{inFile("x/../../up"), "3", "invalid_path"},
		{inFile("/etc/passwd"), "3", "invalid_path"},
		{inFile("."), "3", "invalid_path"},
		{inFile(".."), "3", "invalid_path"},
		{inFile("etc/x"), "3", "path_not_allowed"},
		{inFile("secret/x"), "3", "path_denied"},
		{inFile("a.exe"), "3", "extension_not_allowed"},
		{inFile("big"), strings.Repeat("x", 21), "payload_too_large"},
		{inFile("exact"), strings.Repeat("x", 20), "new"},
		{inFile(""), "an input without a file", ""},
		{inFile("empty"), "", "new"},
		{inFile("there/x"), "3", "not_a_directory"},
		{inFile("x"), "3", "is_a_directory"},
		{inFile("fifo"), "3", "not_a_regular_file"},
		{inFile(`C:\\dir\\f`), "3", "new"},
		{inFile("höi ☃"), "3", "new"},
		{`form-data; name=f; filename*=UTF-8''w%C3%B6%20rld`, "3", "new"},
		{`form-data; name=f; filename="` + strings.Repeat("n", 256) + `"`, "3", "invalid_path"},
		{`attachment; filename=token`, "3", "new"},
		{inFile("quoted.txt"), "=3D is no escape", "new"},
	}
	var form, want []string
	for _, p := range parts {
		form = append(form, p.disposition, p.content)
		if p.want != "" {
			want = append(want, p.want)
		}
	}
	body := strings.Replace(formOf(form...), "text/plain\r\n\r\n=3D", "text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=3D", 1)
	for _, send := range []any{body, unsized("preamble\r\n" + body + "epilogue")} {
		_ = os.RemoveAll(filepath.Join(r.base, "d/x"))
		for _, n := range []string{"a.txt", "exact", "empty", `C:\dir\f`, "höi ☃", "wö rld", "token", "quoted.txt"} {
			_ = os.Remove(filepath.Join(r.base, "d", n))
		}
		status, out := r.call("POST", "/files/content?dir=d", send, "Content-Type", formType)
		if status != 200 || !slices.Equal(outcomes(out), want) {
			t.Fatalf("%d %v\nwant %v\n%v", status, outcomes(out), want, out)
		}
		for name, text := range map[string]string{
			"a.txt": "1", "there": "new", "x/y/z": "2", "empty": "", `C:\dir\f`: "3", "höi ☃": "3", "wö rld": "3", "token": "3", "quoted.txt": "=3D is no escape",
		} {
			if got := r.read("d/" + name); got != text {
				t.Errorf("%s holds %q", name, got)
			}
		}
	}
	r.left("d")
}

func TestFormRefusals(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("old", "old")
	one := formOf(inFile("f"), "1")
	many := make([]string, 0, 2*(mostFiles+1))
	for i := range mostFiles + 1 {
		many = append(many, inFile(fmt.Sprint("f", i)), "")
	}
	tests := []struct {
		name, query, kind, body string
		status                  int
		code                    string
	}{
		{"no dir", "", formType, one, 400, ""},
		{"outside", "dir=/etc", formType, one, 403, "path_not_allowed"},
		{"bad mode", "dir=.&mode=7777", formType, one, 400, ""},
		{"no form", "dir=.", "application/json", `{}`, 415, "unsupported_media_type"},
		{"no type", "dir=.", "", one, 415, "unsupported_media_type"},
		{"another form", "dir=.", "application/x-www-form-urlencoded", "a=b", 415, "unsupported_media_type"},
		{"no boundary", "dir=.", "multipart/form-data", one, 415, "unsupported_media_type"},
		{"another boundary", "dir=.", "multipart/form-data; boundary=c", one, 400, ""},
		{"no parts", "dir=.", formType, "", 400, ""},
		{"cut in a part", "dir=.", formType, one[:len(one)-10], 400, ""},
		{"cut before the end", "dir=.", formType, strings.TrimSuffix(one, "--b--\r\n"), 400, ""},
		{"cut in a header", "dir=.", formType, one + "--b\r\nContent-Dispo", 200, ""}, // behind the end
		{"no disposition", "dir=.", formType, "--b\r\nX: y\r\n\r\n1\r\n--b--\r\n", 400, ""},
		{"bad disposition", "dir=.", formType, formOf(`form-data; filename=a/b`, "1"), 400, ""},
		{"too many", "dir=many", formType, formOf(many...), 400, ""},
		{"whole with a bad one", "dir=.&atomic=true", formType, formOf(inFile("f"), "1", inFile("../x"), "2"), 400, "invalid_path"},
		{"whole with one that is there", "dir=.&atomic=true&overwrite=false", formType, formOf(inFile("new"), "1", inFile("old"), "2"), 409, "file_exists"},
		{"no parents", "dir=n&atomic=true&create_parents=false", formType, one, 404, ""},
	}
	for _, tt := range tests {
		status, out := r.call("POST", "/files/content?"+tt.query, tt.body, "Content-Type", tt.kind)
		if code, _ := out["code"].(string); status != tt.status || code != tt.code {
			t.Errorf("%s: %d %.300v, want %d %q", tt.name, status, out, tt.status, tt.code)
		}
		if tt.status != 200 {
			r.left(slices.DeleteFunc([]string{"f", "old"}, func(n string) bool {
				_, err := os.Stat(filepath.Join(r.base, n))
				return err != nil
			})...)
		}
	}
	if r.read("old") != "old" {
		t.Error("old was changed")
	}
}

func TestFormFromAClient(t *testing.T) {
	r := newRig(t, rigOptions{})
	big := strings.Repeat("--b\r\n--boundary lookalikes\r\n", 100_000)
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	_ = w.WriteField("note", "hello")
	for name, text := range map[string]string{"big": big, "sub/small": "small", `with "quotes"`: "q"} {
		h := textproto.MIMEHeader{"Content-Disposition": {mime.FormatMediaType("form-data", map[string]string{"name": "f", "filename": name})}}
		part, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, text)
	}
	_ = w.Close()
	for i, send := range []string{body.String(), zipped(body.String())} {
		header := []string{"Content-Type", w.FormDataContentType()}
		if i == 1 {
			header = append(header, "Content-Encoding", "gzip")
		}
		status, out := r.call("POST", "/files/content?atomic=1&mode=0600&dir="+r.base+"/up/load", send, header...)
		if status != 200 || out["written"] != 3.0 {
			t.Fatalf("%d %v", status, out)
		}
		for name, text := range map[string]string{"big": big, "sub/small": "small", `with "quotes"`: "q"} {
			if got := r.read("up/load/" + name); got != text {
				t.Errorf("%s has %d bytes", name, len(got))
			}
		}
		if fi, err := os.Stat(filepath.Join(r.base, "up/load/big")); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
	}
}

// A small form that unpacks to a huge one is refused, not unpacked.
func TestAFormThatIsABomb(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":100000}}}}`})
	var parts []string
	for i := range 50 {
		parts = append(parts, inFile(fmt.Sprint(i)), strings.Repeat("x", 100_000))
	}
	status, out := r.call("POST", "/files/content?dir=.", zipped(formOf(parts...)), "Content-Type", formType, "Content-Encoding", "gzip")
	if status != 413 || out["limit"] != 100000.0 {
		t.Errorf("%d %.200v", status, out)
	}
	status, out = r.call("POST", "/files/content?dir=.", unsized(formOf(parts...)), "Content-Type", formType)
	if status != 413 {
		t.Errorf("%d %.200v", status, out)
	}
	r.left()
}

// slowBelow follows a file name step by step.
func slowBelow(name string) bool {
	if strings.HasPrefix(name, "/") {
		return false
	}
	var at []string
	for step := range strings.SplitSeq(name, "/") {
		switch step {
		case "", ".":
		case "..":
			if len(at) == 0 {
				return false
			}
			at = at[:len(at)-1]
		default:
			at = append(at, step)
		}
	}
	return len(at) > 0
}

func FuzzMultipartName(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/../../b", "/etc/passwd", "a/./b//c", "..", "", ".", "a/..", `a\..\b`, "..a/b", "\x00", "é\xff"} {
		f.Add(s, inFile(s))
	}
	f.Fuzz(func(t *testing.T, name, disposition string) {
		to, err := below("/base/dir", name)
		if (err == nil) != slowBelow(name) {
			t.Fatalf("%q: %q, %v", name, to, err)
		}
		if err == nil && (!strings.HasPrefix(to, "/base/dir/") || filepath.Clean(to) != to) {
			t.Fatalf("%q leads to %q", name, to)
		}
		if _, err := fileName(disposition); err != nil {
			return
		}
		// A name that a client sends is the name that arrives.
		sent := mime.FormatMediaType("form-data", map[string]string{"filename": name})
		if got, err := fileName(sent); sent != "" && (err != nil || got != name) {
			t.Fatalf("%q arrives as %q, %v", name, got, err)
		}
	})
}
