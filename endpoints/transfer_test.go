package endpoints

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func (r *rig) read(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.base, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) write(name, content string) string {
	r.t.Helper()
	p := filepath.Join(r.base, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// names lists the base directory, our unfinished files too.
func (r *rig) names() []string {
	r.t.Helper()
	list, err := os.ReadDir(r.base)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestUploadFields(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":20},"params":{"deny_extensions":[".exe"]}}}}`})
	r.write("there", "old")
	tests := []struct {
		name, body string
		status     int
		code       string
	}{
		{"plain", `{"path":"a","content_base64":"aGk="}`, 200, ""},
		{"content first", `{"content_base64":"aGk=","path":"a"}`, 200, ""},
		{"empty", `{"path":"a","content_base64":""}`, 200, ""},
		{"no content", `{"path":"a"}`, 400, ""},
		{"content is no string", `{"path":"a","content_base64":1}`, 400, ""},
		{"null content", `{"path":"a","content_base64":null}`, 400, ""},
		{"no path", `{"content_base64":"aGk="}`, 400, ""},
		{"empty path", `{"path":"","content_base64":"aGk="}`, 400, ""},
		{"path is no string", `{"path":["a"],"content_base64":"aGk="}`, 400, ""},
		{"outside", `{"path":"/etc/x","content_base64":"aGk="}`, 403, "path_not_allowed"},
		{"outside beats bad base64", `{"content_base64":"!","path":"/etc/x"}`, 403, "path_not_allowed"},
		{"extension beats bad base64", `{"path":"a.EXE","content_base64":"!"}`, 403, "extension_not_allowed"},
		{"bad base64 beats size", `{"path":"a","content_base64":"` + strings.Repeat("A", 101) + `"}`, 400, ""},
		{"url alphabet", `{"path":"a","content_base64":"-_-_"}`, 400, ""},
		{"line break", `{"path":"a","content_base64":"aG\nk="}`, 400, ""},
		{"no padding", `{"path":"a","content_base64":"aGk"}`, 400, ""},
		{"padding inside", `{"path":"a","content_base64":"aGk=aGk="}`, 400, ""},
		{"loose bits", `{"path":"a","content_base64":"aGl="}`, 400, ""},
		{"exactly the limit", `{"path":"a","content_base64":"` + b64(make([]byte, 20)) + `"}`, 200, ""},
		{"too large", `{"path":"a","content_base64":"` + b64(make([]byte, 21)) + `"}`, 413, "payload_too_large"},
		{"keep what is there", `{"path":"there","content_base64":"aGk=","overwrite":false}`, 409, "file_exists"},
		{"bad overwrite", `{"path":"there","content_base64":"aGk=","overwrite":"no"}`, 400, ""},
		{"bad mode", `{"path":"a","content_base64":"aGk=","mode":"4755"}`, 400, ""},
		{"bad mtime", `{"path":"a","content_base64":"aGk=","mtime":{}}`, 400, ""},
		{"wrong checksum", `{"path":"a","content_base64":"aGk=","sha256":"00"}`, 422, "checksum_mismatch"},
		{"text", `{"path":"a","content":"höi","encoding":"utf8"}`, 200, ""},
		{"text without saying so", `{"path":"a","content":"hi"}`, 400, ""},
		{"unknown encoding", `{"path":"a","content":"hi","encoding":"latin1"}`, 400, ""},
		{"missing parent", `{"path":"no/such/a","content_base64":"","create_parents":false}`, 404, ""},
		{"a directory", `{"path":".","content_base64":""}`, 409, "is_a_directory"},
		{"below a file", `{"path":"there/a","content_base64":""}`, 409, "not_a_directory"},
		{"surrogate for no byte", `{"path":"\ud800","content_base64":""}`, 400, "invalid_path"},
		{"cut off", `{"path":"a","content_base64":"aGk=`, 400, "invalid_json"},
	}
	for _, tt := range tests {
		status, out := r.call("POST", "/files/upload-stream", tt.body)
		if code, _ := out["code"].(string); status != tt.status || code != tt.code {
			t.Errorf("%s: got %d %v, want %d %q", tt.name, status, out, tt.status, tt.code)
		}
	}
	if got := r.read("there"); got != "old" {
		t.Errorf("there holds %q", got)
	}
	for _, n := range r.names() {
		if n != "a" && n != "there" {
			t.Errorf("%s was left", n)
		}
	}
	if status, _ := r.call("POST", "/upload", `{"path":"b","content":"aGk="}`); status != 200 || r.read("b") != "hi" {
		t.Errorf("/upload: %d", status)
	}
	if status, _ := r.call("POST", "/upload", `{"path":"b","content":"aGk=","encoding":"utf8"}`); status != 200 || r.read("b") != "aGk=" {
		t.Errorf("/upload of text: %d", status)
	}
}

func TestLongUploadsInEveryOrder(t *testing.T) {
	r := newRig(t, rigOptions{})
	data := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	content := `"content_base64":"` + b64(data) + `"`
	for i, body := range []string{
		`{"path":"f",` + content + `}`,
		`{` + content + `,"path":"f"}`,
		`{"path":"f",` + content + `,"mode":"0600"}`,
		`{"path":"f",` + content + `,` + content + `}`,
		`{"path":"g",` + content + `,"path":"f"}`,
		`{"path":"f","content_base64":"` + b64(make([]byte, 1<<20)) + `",` + content + `}`,
	} {
		_ = os.Remove(filepath.Join(r.base, "f"))
		status, out := r.call("POST", "/files/upload-stream", body)
		if status != 200 || out["bytes"] != float64(len(data)) || r.read("f") != string(data) {
			t.Errorf("order %d: %d %v", i, status, out)
		}
		if names := r.names(); len(names) != 1 {
			t.Errorf("order %d left %v", i, names)
		}
		fi, err := os.Stat(filepath.Join(r.base, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if private := fi.Mode().Perm() == 0o600; private != strings.Contains(body, `"mode":`) {
			t.Errorf("order %d: mode %v", i, fi.Mode())
		}
	}
	res := r.do("GET", "/files/download-stream?path=f", nil)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	want := fmt.Sprintf(`{"path":"%s/f",%s,"bytes":%d}`, r.base, content, len(data))
	if err != nil || string(text) != want || res.ContentLength != int64(len(want)) {
		t.Errorf("download: %v, %d bytes, announced %d, want %d", err, len(text), res.ContentLength, len(want))
	}
}

func TestCutUploadLeavesTheOldFileAndNothingElse(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("f", "old")
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, `{"path":"f","content_base64":"`)
		_, _ = pw.Write(bytes.Repeat([]byte("AAAA"), 200_000))
		_ = pw.CloseWithError(io.ErrClosedPipe)
	}()
	req, _ := http.NewRequestWithContext(t.Context(), "POST", r.url+"/files/upload-stream", pr)
	if res, err := r.http.Do(req); err == nil {
		res.Body.Close()
		t.Fatalf("a cut upload was answered %d", res.StatusCode)
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(r.names()) != 1 {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", r.names())
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got := r.read("f"); got != "old" {
		t.Errorf("f holds %q", got)
	}
}

// Fault 17: opening a FIFO blocked a worker for ever.
func TestFIFOBlocksNobody(t *testing.T) {
	r := newRig(t, rigOptions{})
	if err := unix.Mkfifo(filepath.Join(r.base, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, out := r.call("GET", "/files/download-stream?path=p", nil); status != 404 {
		t.Errorf("download: %d %v", status, out)
	}
	if status, out := r.call("POST", "/files/upload-stream", `{"path":"p","content_base64":"aGk="}`); status != 409 || out["code"] != "not_a_regular_file" {
		t.Errorf("upload: %d %v", status, out)
	}
	if status, out := r.call("GET", "/files/stat?path=p&checksum=sha256", nil); status != 200 || out["kind"] != "fifo" {
		t.Errorf("stat: %d %v", status, out)
	}
	if fi, err := os.Lstat(filepath.Join(r.base, "p")); err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("p is no FIFO any more: %v", err)
	}
}

// Fault 18: an operation on a link acted on what it points to.
func TestLinksAreDeletedAndMovedAsLinks(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("tgt/f", "kept")
	for name, to := range map[string]string{"lnk": "tgt", "lnk2": "tgt", "dangling": "nowhere", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(r.base, name)); err != nil {
			t.Fatal(err)
		}
	}
	if status, out := r.call("DELETE", "/files?path="+r.base+"/lnk", nil); status != 200 || out["path"] != r.base+"/lnk" {
		t.Errorf("delete: %d %v", status, out)
	}
	if status, out := r.call("POST", "/files/move", map[string]string{"source": "lnk2", "destination": "lnk3"}); status != 200 {
		t.Errorf("move: %d %v", status, out)
	}
	if to, err := os.Readlink(filepath.Join(r.base, "lnk3")); to != "tgt" {
		t.Errorf("lnk3: %q, %v", to, err)
	}
	for _, name := range []string{"dangling", "loop"} {
		if status, out := r.call("DELETE", "/files?path="+name, nil); status != 200 {
			t.Errorf("delete %s: %d %v", name, status, out)
		}
	}
	if got := r.read("tgt/f"); got != "kept" {
		t.Errorf("tgt/f holds %q", got)
	}
}

func TestOverwriteForbiddenHasOneWinner(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"params":{"overwrite":false}}}}`})
	const callers = 8
	statuses := make(chan int, callers)
	for i := range callers {
		go func() {
			status, _ := r.call("POST", "/files/upload-stream", fmt.Sprintf(`{"path":"new","content_base64":"%s"}`, b64(bytes.Repeat([]byte{byte('a' + i)}, 1000))))
			statuses <- status
		}()
	}
	won := 0
	for range callers {
		switch s := <-statuses; s {
		case 200:
			won++
		case 409:
		default:
			t.Errorf("got %d", s)
		}
	}
	if got := r.read("new"); won != 1 || len(got) != 1000 || strings.Trim(got, got[:1]) != "" {
		t.Errorf("%d won; %d bytes", won, len(got))
	}
}

func FuzzBase64Writer(f *testing.F) {
	f.Add([]byte("aGk="), 1)
	f.Add([]byte("aGkhaGkh"), 3)
	f.Add([]byte("aG\nk=="), 2)
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		want, wantErr := base64.StdEncoding.Strict().DecodeString(string(text))
		if bytes.ContainsAny(text, "\r\n") {
			wantErr = io.ErrUnexpectedEOF
		}
		var got []byte
		var d base64Writer
		var err error
		step = max(1, step&0xffff)
		for p := text; len(p) > 0 && err == nil; {
			n := min(step, len(p))
			err = d.decode(p[:n], func(b []byte) error { got = append(got, b...); return nil })
			p = p[n:]
		}
		if err == nil {
			err = d.end()
		}
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%q by %d: %q %v, want %q %v", text, step, got, err, want, wantErr)
		}
	})
}
