package endpoints

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mode is what ls shows of an entry itself.
func (r *rig) mode(name string) string {
	r.t.Helper()
	fi, err := os.Lstat(filepath.Join(r.base, name))
	if err != nil {
		return "none"
	}
	return fi.Mode().String()
}

func TestCopyTree(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"d/a": "1", "d/s/b": strings.Repeat("x", 1<<20), "d/.hidden": ""})
	for name, to := range map[string]string{"d/in": "a", "d/out": "/etc/hostname", "d/dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(r.base, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(r.base, "d/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, mode := range map[string]os.FileMode{"d/a": 0o640, "d/s": 0o700, "d": 0o750} {
		p := filepath.Join(r.base, name)
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
	for i, preserve := range []bool{true, false} {
		to := fmt.Sprint("n/copy", i)
		status, out := r.call("POST", "/files/copy", object{"source": "d", "destination": to, "preserve": preserve})
		if status != 200 || out["source"] != r.base+"/d" || out["destination"] != r.base+"/"+to || out["files"] != 5.0 && out["files"] != 6.0 || out["bytes"] != float64(1<<20+1) {
			t.Fatalf("%d %v", status, out)
		}
		for name, want := range map[string]string{
			"": "drwxr-x---", "/a": "-rw-r-----", "/s": "drwx------", "/s/b": "-rw-r--r--", "/.hidden": "-rw-r--r--", "/in": "Lrwxrwxrwx", "/out": "Lrwxrwxrwx", "/dangling": "Lrwxrwxrwx", "/fifo": "none",
		} {
			if got := r.mode(to + name); got != want {
				t.Errorf("%s%s: %s, want %s", to, name, got, want)
			}
		}
		if text, _ := os.Readlink(filepath.Join(r.base, to, "out")); text != "/etc/hostname" {
			t.Errorf("out leads to %q", text)
		}
		fi, err := os.Stat(filepath.Join(r.base, to, "a"))
		if err != nil || fi.ModTime().Equal(old) != preserve {
			t.Errorf("preserve %v: %v", preserve, fi.ModTime())
		}
	}
	// Into what is there, under its own name.
	status, out := r.call("POST", "/files/copy", object{"source": "d/a", "destination": "n"})
	if status != 200 || out["path"] != r.base+"/n/a" || out["files"] != 1.0 || r.read("n/a") != "1" {
		t.Errorf("%d %v", status, out)
	}
	if status, out := r.call("POST", "/files/copy", object{"source": "d/in", "destination": "n/link"}); status != 200 || r.mode("n/link") != "Lrwxrwxrwx" {
		t.Errorf("a link: %d %v", status, out)
	}
}

func TestCopyRefusals(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{
		"files_download_stream":{"limits":{"max_bytes":10},"paths":{"deny":["**/secret/**","**/.env"]}},
		"files_upload_stream":{"limits":{"max_bytes":5},"params":{"deny_extensions":[".exe"]},"paths":{"deny":["**/sealed/**"]}}}}`})
	r.put(map[string]string{
		"a": "1", "b": "2", "eleven": "12345678901", "six": "123456", "secret/x": "1", "tree/.env": "1", "big/s/six": "123456", "sub/x": "1",
		"seal/sealed/x": "1", "tools/run.exe": "1",
	})
	if err := unix.Mkfifo(filepath.Join(r.base, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	const down, up = "files_download_stream", "files_upload_stream"
	tests := []struct {
		name   string
		body   object
		status int
		code   any
		by     any // endpoint
	}{
		{"no source", object{"destination": "x"}, 400, nil, nil},
		{"no destination", object{"source": "a", "destination": ""}, 400, nil, nil},
		{"bad flag", object{"source": "a", "destination": "x", "recursive": "yes"}, 400, nil, nil},
		{"source outside", object{"source": "/etc/hostname", "destination": "x"}, 403, "path_not_allowed", down},
		{"source denied", object{"source": "secret/x", "destination": "x"}, 403, "path_denied", down},
		{"destination outside", object{"source": "a", "destination": "/etc/x"}, 403, "path_not_allowed", up},
		{"destination denied", object{"source": "a", "destination": "sealed/x"}, 403, "path_denied", up},
		{"policy before existence", object{"source": "none", "destination": "/etc/x"}, 403, "path_not_allowed", up},
		{"source missing", object{"source": "none", "destination": "x"}, 404, nil, nil},
		{"denied inside", object{"source": "tree", "destination": "x"}, 403, "path_denied", down},
		{"denied there", object{"source": "seal", "destination": "x"}, 403, "path_denied", up},
		{"extension", object{"source": "a", "destination": "a.exe"}, 403, "extension_not_allowed", up},
		{"extension inside", object{"source": "tools", "destination": "x"}, 403, "extension_not_allowed", up},
		{"too large to read", object{"source": "eleven", "destination": "x"}, 413, "payload_too_large", nil},
		{"too large to write", object{"source": "six", "destination": "x"}, 413, "payload_too_large", nil},
		{"too large inside", object{"source": "big", "destination": "x"}, 413, "payload_too_large", nil},
		{"directory", object{"source": "sub", "destination": "x", "recursive": false}, 409, "is_a_directory", nil},
		{"keep", object{"source": "a", "destination": "b", "overwrite": false}, 409, "file_exists", up},
		{"onto itself", object{"source": "a", "destination": "a"}, 400, "invalid_move", nil},
		{"into itself", object{"source": "sub", "destination": "sub/y"}, 400, "invalid_move", nil},
		{"onto a file", object{"source": "sub", "destination": "b"}, 409, "not_a_directory", nil},
		{"onto a fifo", object{"source": "a", "destination": "fifo"}, 409, "not_a_regular_file", nil},
		{"a fifo", object{"source": "fifo", "destination": "x"}, 409, "not_a_regular_file", nil},
		{"below a file", object{"source": "a", "destination": "b/x"}, 409, "not_a_directory", nil},
	}
	for _, tt := range tests {
		status, out := r.call("POST", "/files/copy", tt.body)
		if status != tt.status || out["code"] != tt.code || tt.by != nil && out["endpoint"] != tt.by {
			t.Errorf("%s: %d %v, want %d %v by %v", tt.name, status, out, tt.status, tt.code, tt.by)
		}
	}
	for _, n := range r.names() {
		if n == "x" || strings.HasPrefix(n, ".abx") {
			t.Errorf("%s was made", n)
		}
	}
	if status, out := r.call("POST", "/files/copy", object{"source": "a", "destination": "b"}); status != 200 || r.read("b") != "1" {
		t.Errorf("overwriting: %d %v", status, out)
	}
}

// A copy reads and writes: it needs both rights and spends both rates.
func TestCopyIsJudgedAsDownloadAndUpload(t *testing.T) {
	for policy, want := range map[string]struct {
		status int
		code   string
		by     string
	}{
		`{"endpoints":{"files_download_stream":{"enabled":false}}}`:                {404, "endpoint_disabled", "files_download_stream"},
		`{"endpoints":{"files_upload_stream":{"enabled":false}}}`:                  {404, "endpoint_disabled", "files_upload_stream"},
		`{"endpoints":{"files_upload_stream":{"paths":{"read_only":true}}}}`:       {403, "read_only", "files_upload_stream"},
		`{"endpoints":{"files_download_stream":{"paths":{"read_only":true}}}}`:     {200, "", ""},
		`{"endpoints":{"files_upload_stream":{"params":{"overwrite":false}}}}`:     {409, "file_exists", "files_upload_stream"},
		`{"endpoints":{"files_upload_stream":{"limits":{"rate_per_minute":1}}}}`:   {429, "rate_limited", "files_upload_stream"},
		`{"endpoints":{"files_download_stream":{"limits":{"rate_per_minute":1}}}}`: {429, "rate_limited", "files_download_stream"},
		`{"preset":"read-only"}`: {404, "endpoint_disabled", "files_upload_stream"},
	} {
		r := newRig(t, rigOptions{policy: policy})
		r.put(map[string]string{"a": "1", "b": "2"})
		if want.status == 429 {
			if status, out := r.call("POST", "/files/copy", object{"source": "a", "destination": "b"}); status != 200 {
				t.Errorf("%s: %d %v", policy, status, out)
			}
		}
		status, out := r.call("POST", "/files/copy", object{"source": "a", "destination": "b"})
		code, _ := out["code"].(string)
		if by, _ := out["endpoint"].(string); status != want.status || code != want.code || by != want.by {
			t.Errorf("%s: %d %v", policy, status, out)
		}
	}
	r := newRig(t, rigOptions{policy: fmt.Sprintf(`{"auth":{"tokens":[{"id":"reader","scopes":["files:read"],"token_sha256":"%s"},{"id":"writer","scopes":["files:write"],"token_sha256":"%s"}]}}`, digest("reader"), digest("writer"))})
	r.put(map[string]string{"a": "1"})
	for token, by := range map[string]string{"reader": "files_upload_stream", "writer": "files_download_stream"} {
		r.token = token
		if status, out := r.call("POST", "/files/copy", object{"source": "a", "destination": "x"}); status != 403 || out["code"] != "missing_scope" || out["endpoint"] != by {
			t.Errorf("%s: %d %v", token, status, out)
		}
	}
}

func TestChmod(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":1},"params":{"deny_extensions":[".exe"]},"paths":{"deny":["**/secret"]}}}}`})
	r.put(map[string]string{"f": "long", "run.exe": "", "d/a": "", "d/s/b": "", "outside": "", "hidden/secret": "", "hidden/a": ""})
	for name, to := range map[string]string{"d/l": "../outside", "in": "f", "out": "/etc/hostname", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(r.base, name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		body   object
		status int
		code   any
		want   object
	}{
		{"file", object{"path": "f", "mode": "0755"}, 200, nil, object{"path": r.base + "/f", "mode": "0755", "changed": 1.0}},
		{"again", object{"path": "f", "mode": "755"}, 200, nil, object{"mode": "0755", "changed": 0.0}},
		{"through a link", object{"path": "in", "mode": "0600"}, 200, nil, object{"path": r.base + "/f", "changed": 1.0}},
		{"without rules for content", object{"path": "run.exe", "mode": "0755"}, 200, nil, object{"changed": 1.0}},
		{"directory", object{"path": "d", "mode": "0700"}, 200, nil, object{"changed": 1.0}},
		{"tree", object{"path": "d", "mode": "0711", "recursive": true}, 200, nil, object{"changed": 4.0}},
		{"no mode", object{"path": "f"}, 400, nil, nil},
		{"number", object{"path": "f", "mode": 755}, 400, nil, nil},
		{"set-id", object{"path": "f", "mode": "4755"}, 400, nil, nil},
		{"not octal", object{"path": "f", "mode": "rwx"}, 400, nil, nil},
		{"minus", object{"path": "f", "mode": "-1"}, 400, nil, nil},
		{"no path", object{"mode": "0755"}, 400, nil, nil},
		{"missing", object{"path": "none", "mode": "0755"}, 404, nil, nil},
		{"dangling", object{"path": "dangling", "mode": "0755"}, 404, nil, nil},
		{"outside", object{"path": "out", "mode": "0755"}, 403, "path_not_allowed", nil},
		{"denied", object{"path": "hidden/secret", "mode": "0755"}, 403, "path_denied", nil},
		{"denied inside", object{"path": "hidden", "mode": "0711", "recursive": true}, 403, "path_denied", nil},
	}
	for _, tt := range tests {
		status, out := r.call("POST", "/files/chmod", tt.body)
		if status != tt.status || out["code"] != tt.code || tt.code != nil && out["endpoint"] != "files_upload_stream" {
			t.Errorf("%s: %d %v, want %d %v", tt.name, status, out, tt.status, tt.code)
		}
		for k, v := range tt.want {
			if out[k] != v {
				t.Errorf("%s: %s is %v, want %v", tt.name, k, out[k], v)
			}
		}
	}
	for name, want := range map[string]string{"f": "-rw-------", "d": "drwx--x--x", "d/s/b": "-rwx--x--x", "outside": "-rw-r--r--", "hidden": "drwxr-xr-x", "hidden/a": "-rw-r--r--"} {
		if got := r.mode(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
