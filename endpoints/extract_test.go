package endpoints

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tarOf makes a tar of names and texts; "-> x" is a link.
func tarOf(t *testing.T, pairs ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(pairs); i += 2 {
		h := &tar.Header{Name: pairs[i], Mode: 0o4755, Size: int64(len(pairs[i+1]))}
		text := pairs[i+1]
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, to, 0, ""
		}
		if text == "|" {
			h.Typeflag, h.Size, text = tar.TypeFifo, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func in64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func (r *rig) text(name string) string {
	b, _ := os.ReadFile(filepath.Join(r.base, name))
	return string(b)
}

func TestExtractTakesArchivesFromEverywhere(t *testing.T) {
	r := newRig(t, rigOptions{})
	data := tarOf(t, "top/a", "1", "top/s/b", "22", "top/l", "-> a", "top/p", "|")
	r.put(map[string]string{"in.tar": string(data)})
	want := func(dest string) object {
		return object{"destination": filepath.Join(r.base, dest), "files": 3.0, "directories": 1.0, "bytes": 3.0, "skipped": []any{object{"name": "top/p", "code": "not_a_regular_file"}}}
	}
	ask := func(what string, status int, out object, dest string) {
		t.Helper()
		if d := cmp.Diff(want(dest), out); status != 200 || d != "" {
			t.Errorf("%s: %d (-want +got):\n%s", what, status, d)
		}
		if r.text(dest+"/a") != "1" || r.text(dest+"/s/b") != "22" || r.text(dest+"/l") != "1" {
			t.Errorf("%s: not there", what)
		}
		if i, err := os.Stat(filepath.Join(r.base, dest, "a")); err != nil || i.Mode() != 0o755 {
			t.Errorf("%s: %v", what, i)
		}
	}
	status, out := r.call("POST", "/files/extract", object{"content_base64": in64(data), "destination": "one", "strip_components": 1})
	ask("base64", status, out, "one")
	status, out = r.call("POST", "/files/extract", object{"destination": "two", "path": "in.tar", "strip_components": "1", "format": "tar"})
	ask("path", status, out, "two")
	status, out = r.call("POST", "/files/extract?destination=three&strip_components=1&format=tar", string(data), "Content-Type", "application/x-tar")
	ask("raw", status, out, "three")
	status, out = r.call("POST", "/files/extract?destination=four/deep&strip_components=1", unsized(string(data)))
	ask("raw, in chunks", status, out, "four/deep")
}

func TestExtractRefuses(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":20000},"params":{"deny_extensions":[".exe"]},"paths":{"deny":["**/secret"]}}}}`})
	good := in64(tarOf(t, "a", "1"))
	r.put(map[string]string{"there/a": "old", "secret/a.tar": "", "f": ""})
	if err := os.Symlink("/etc", filepath.Join(r.base, "there/out")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		body   object
		status int
		code   any
	}{
		{"no archive", object{"destination": "o"}, 400, nil},
		{"two archives", object{"destination": "o", "path": "f", "content_base64": good}, 400, nil},
		{"no text", object{"destination": "o", "content_base64": 5}, 400, nil},
		{"no base64", object{"destination": "o", "content_base64": "a b="}, 400, nil},
		{"no destination", object{"content_base64": good}, 400, nil},
		{"empty destination", object{"content_base64": good, "destination": ""}, 400, nil},
		{"format", object{"destination": "o", "content_base64": good, "format": "rar"}, 400, nil},
		{"strip", object{"destination": "o", "content_base64": good, "strip_components": "x"}, 400, nil},
		{"overwrite", object{"destination": "o", "content_base64": good, "overwrite": "no"}, 400, nil},
		{"outside", object{"destination": "/etc/x", "content_base64": good}, 403, "path_not_allowed"},
		{"denied destination", object{"destination": "secret", "content_base64": good}, 403, "path_denied"},
		{"destination is a file", object{"destination": "f", "content_base64": good}, 409, "already_exists"},
		{"no such archive", object{"destination": "o", "path": "none"}, 404, nil},
		{"no archive at all", object{"destination": "o", "content_base64": in64([]byte("text"))}, 400, "invalid_archive"},
		{"empty", object{"destination": "o", "content_base64": ""}, 400, "invalid_archive"},
		{"other format", object{"destination": "o", "content_base64": good, "format": "zip"}, 400, "invalid_archive"},
		{"up", object{"destination": "o", "content_base64": in64(tarOf(t, "ok", "1", "../esc", "1"))}, 400, "unsafe_entry"},
		{"link out", object{"destination": "o", "content_base64": in64(tarOf(t, "ok", "1", "l", "-> ../.."))}, 400, "unsafe_entry"},
		{"through a link out", object{"destination": "there", "content_base64": in64(tarOf(t, "ok", "1", "out/x", "1"))}, 400, "unsafe_entry"},
		{"extension", object{"destination": "o", "content_base64": in64(tarOf(t, "ok", "1", "x.exe", "1"))}, 403, "extension_not_allowed"},
		{"denied entry", object{"destination": "o", "content_base64": in64(tarOf(t, "ok", "1", "secret", "1"))}, 403, "path_denied"},
		{"taken", object{"destination": "there", "content_base64": in64(tarOf(t, "ok", "1", "a", "1")), "overwrite": false}, 409, "file_exists"},
		{"too much inside", object{"destination": "o", "content_base64": in64(tarOf(t, "ok", "1", "x", strings.Repeat("x", 19_000)))}, 413, "payload_too_large"},
	} {
		status, out := r.call("POST", "/files/extract", c.body)
		if status != c.status || out["code"] != c.code {
			t.Errorf("%s: %d %v", c.what, status, out)
		}
		if out["code"] == "unsafe_entry" && out["name"] == nil || out["code"] == "path_denied" && out["endpoint"] != "files_upload_stream" {
			t.Errorf("%s: %v", c.what, out)
		}
		if r.text("o/ok") != "" || r.text("there/ok") != "" {
			t.Fatalf("%s: something was written", c.what)
		}
	}
	status, out := r.call("POST", "/files/extract?destination=o", strings.Repeat("x", 20_001))
	if status != 413 || out["limit"] != 20_000.0 {
		t.Errorf("a large archive: %d %v", status, out)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(r.base), "esc")); err == nil {
		t.Error("escaped")
	}
}

// The archive is a file that is shown, so the download's rules hold for it.
func TestExtractFromAPathNeedsTheDownload(t *testing.T) {
	for _, c := range []struct {
		policy string
		status int
		code   string
	}{
		{`{"endpoints":{"files_download_stream":{"enabled":false}}}`, 404, "endpoint_disabled"},
		{`{"endpoints":{"files_download_stream":{"paths":{"deny":["**/*.tar"]}}}}`, 403, "path_denied"},
		{`{"endpoints":{"files_download_stream":{"limits":{"max_bytes":100}}}}`, 413, "payload_too_large"},
		{`{"endpoints":{"files_upload_stream":{"enabled":false}}}`, 404, "endpoint_disabled"},
	} {
		r := newRig(t, rigOptions{policy: c.policy})
		data := tarOf(t, "a", "1")
		r.put(map[string]string{"in.tar": string(data)})
		status, out := r.call("POST", "/files/extract", object{"path": "in.tar", "destination": "o"})
		if status != c.status || out["code"] != c.code {
			t.Errorf("%s: %d %v", c.policy, status, out)
		}
		status, _ = r.call("POST", "/files/extract", object{"content_base64": in64(data), "destination": "o"})
		if uploads := !strings.Contains(c.policy, "upload"); (status == 200) != uploads {
			t.Errorf("%s: from the body %d", c.policy, status)
		}
	}
}

// A rule that keeps files wins over the request.
func TestExtractCannotReplaceWhereUploadsCannot(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"params":{"overwrite":false}}}}`})
	r.put(map[string]string{"o/a": "old"})
	status, out := r.call("POST", "/files/extract", object{"content_base64": in64(tarOf(t, "a", "new")), "destination": "o", "overwrite": true})
	if status != 409 || out["code"] != "file_exists" || r.text("o/a") != "old" {
		t.Errorf("%d %v %q", status, out, r.text("o/a"))
	}
}
