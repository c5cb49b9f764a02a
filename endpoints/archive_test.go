package endpoints

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"
)

// entriesOf lists the names in an archive.
func entriesOf(t *testing.T, data []byte) []string {
	t.Helper()
	out := []string{}
	if bytes.HasPrefix(data, []byte("PK")) {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			out = append(out, f.Name)
		}
		return out
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h.Name)
	}
}

func TestArchiveAnswersJSONOrTheArchiveItself(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"d/a": "1", "d/b": noise(100_000), "f": "3"})
	want := []string{"d/a", "d/b", "f"}
	for _, c := range []struct {
		format, accept, media string
		raw                   any
	}{
		{"", "", "", nil},
		{"tar.gz", "*/*", "", nil},
		{"zip", "application/json", "", nil},
		{"", "application/zip", "application/zip", nil},
		{"", "application/gzip;q=1, */*", "application/gzip", nil},
		{"zip", "application/octet-stream", "application/zip", nil},
		{"tar.gz", "", "application/gzip", true},
		{"zip", "application/zip", "", false},
	} {
		body := object{"paths": []string{"f", "d"}}
		if c.format != "" {
			body["format"] = c.format
		}
		if c.raw != nil {
			body["raw"] = c.raw
		}
		if c.media != "" {
			res := r.do("POST", "/files/archive", body, "Accept", c.accept)
			data, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != c.media || res.ContentLength != -1 {
				t.Errorf("%+v: %d %q, length %d, %v", c, res.StatusCode, res.Header.Get("Content-Type"), res.ContentLength, err)
				continue
			}
			if d := cmp.Diff(want, entriesOf(t, data)); d != "" {
				t.Errorf("%+v (-want +got):\n%s", c, d)
			}
			continue
		}
		status, out := r.call("POST", "/files/archive", body, "Accept", c.accept)
		data, err := base64.StdEncoding.DecodeString(fmt.Sprint(out["content_base64"]))
		if status != 200 || err != nil || out["bytes"] != float64(len(data)) || len(out["skipped"].([]any)) != 0 {
			t.Errorf("%+v: %d %v", c, status, err)
			continue
		}
		if d := cmp.Diff(want, entriesOf(t, data)); d != "" {
			t.Errorf("%+v (-want +got):\n%s", c, d)
		}
	}
}

func TestArchiveRefusesInOrder(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_archive":{"limits":{"max_files":2,"max_bytes":300}}}}`})
	r.put(map[string]string{"a": "1", "b": "2", "c": "3", "d/x": "", "d/y": "", "d/z": "", "big": noise(2000)})
	for _, c := range []struct {
		body   object
		status int
		code   any
	}{
		{object{}, 400, nil},
		{object{"paths": []string{}}, 400, nil},
		{object{"paths": "x"}, 400, nil},
		{object{"paths": []any{1}}, 400, nil},
		{object{"paths": nil}, 400, nil},
		{object{"paths": []string{""}}, 400, "invalid_path"},
		{object{"paths": []string{"/etc"}, "format": "rar"}, 400, nil},
		{object{"paths": []string{"/etc"}, "format": nil}, 400, nil},
		{object{"paths": []string{"/etc"}, "format": ""}, 400, nil},
		{object{"paths": []string{"/etc"}, "format": "TAR.GZ"}, 400, nil},
		{object{"paths": []string{"a"}, "format": []string{}}, 400, nil},
		{object{"paths": []string{"none", "/etc/passwd"}}, 403, "path_not_allowed"},
		{object{"paths": []string{"a", "none"}}, 404, nil},
		{object{"paths": []string{"a", "b", "c"}}, 400, nil},
		{object{"paths": []string{"d"}}, 400, nil},
		{object{"paths": []string{"big"}}, 413, "payload_too_large"},
		{object{"paths": []string{"a"}, "exclude": 5}, 400, nil},
		{object{"paths": []string{"a"}, "base": "d"}, 400, nil},
		{object{"paths": []string{"a"}, "base": "/etc"}, 403, "path_not_allowed"},
		{object{"paths": []string{"a", "b", "a"}}, 200, nil},
		{object{"paths": []string{"d"}, "exclude": []string{"z"}}, 200, nil},
	} {
		status, out := r.call("POST", "/files/archive", c.body)
		if status != c.status || out["code"] != c.code {
			t.Errorf("%v: %d %v", c.body, status, out)
		}
		if status == 413 && out["limit"] != 300.0 {
			t.Errorf("limit %v", out["limit"])
		}
	}
	// Too many and too much are known before a raw answer begins.
	if status, _ := r.call("POST", "/files/archive", object{"paths": []string{"d"}, "raw": true}); status != 400 {
		t.Errorf("raw: %d", status)
	}
	r.put(map[string]string{"huge": strings.Repeat("x", 6001)})
	if status, _ := r.call("POST", "/files/archive", object{"paths": []string{"huge"}, "raw": true}); status != 413 {
		t.Errorf("raw: %d", status)
	}
	// What is known only later tears the answer.
	res, err := r.http.Post(r.url+"/files/archive", "application/json", strings.NewReader(`{"paths": ["big"], "raw": true}`))
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("a cut archive came out as a whole one")
	}
}

// noise is text that cannot be packed.
func noise(n int) string {
	b := make([]byte, n)
	v := uint32(1)
	for i := range b {
		v = v*1664525 + 1013904223
		b[i] = byte(v >> 24)
	}
	return string(b)
}

// Opening a FIFO must not hold up whoever packs or searches the tree it is in.
func TestAFIFODoesNotHoldUpArchives(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"d/f": "1"})
	p := filepath.Join(r.base, "d/p")
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	r.http = &http.Client{Transport: r.http.Transport, Timeout: 20 * time.Second}
	for _, format := range []string{"zip", "tar.gz", "tar", "tar.zst"} {
		for _, paths := range [][]string{{"d"}, {"d/p", "d/f"}} {
			status, out := r.call("POST", "/files/archive", object{"paths": paths, "format": format})
			if status != 200 {
				t.Errorf("%s: %d %v", format, status, out)
				continue
			}
			if d := cmp.Diff([]any{object{"path": p, "code": "not_a_regular_file"}}, out["skipped"]); d != "" {
				t.Errorf("%s (-want +got):\n%s", format, d)
			}
		}
	}
	status, out := r.call("POST", "/files/search", object{"path": "d", "pattern": "*", "content": "1"})
	if status != 200 || len(out["results"].([]any)) != 1 {
		t.Errorf("search: %d %v", status, out)
	}
	if status, _ := r.call("POST", "/files/extract", object{"path": "d/p", "destination": "o"}); status != 404 {
		t.Errorf("extract: %d", status)
	}
	if i, err := os.Lstat(p); err != nil || i.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the FIFO is %v, %v", i, err)
	}
}

func TestNamesThatAreNotTextAreShown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"d/\xff\xfe.txt": "needle"})
	res := r.do("POST", "/files/search", object{"path": "d", "pattern": "*", "content": "needle"})
	text, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if !bytes.Contains(text, []byte(`"name":"\udcff\udcfe.txt"`)) || !bytes.Contains(text, []byte(`"name_base64":"//4udHh0"`)) {
		t.Errorf("%s", text)
	}
	for _, format := range []string{"zip", "tar.gz"} {
		if status, out := r.call("POST", "/files/archive", object{"paths": []string{"d"}, "format": format}); status != 200 {
			t.Errorf("%s: %d %v", format, status, out)
		}
	}
}
