package endpoints

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// seen is what an answer says before its body, which has been read and closed.
type seen struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

// fetch sends a request without a body and reads the answer.
func (r *rig) fetch(method, path string, header ...string) (seen, string) {
	r.t.Helper()
	// Named, so that the client does not decode by itself.
	res := r.do(method, path, nil, append([]string{"Accept-Encoding", "identity"}, header...)...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return seen{res.StatusCode, res.Header, res.ContentLength}, string(text)
}

func contentOf(name string) string { return "/files/content?path=" + url.QueryEscape(name) }

// wantHeader checks headers given as name, value, …; "" is none.
func wantHeader(t *testing.T, what string, res seen, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := res.Header.Get(pairs[i]); got != pairs[i+1] {
			t.Errorf("%s: %s is %q, want %q", what, pairs[i], got, pairs[i+1])
		}
	}
}

func TestRawDownloadHeaders(t *testing.T) {
	r := newRig(t, rigOptions{})
	name := "d/a b%é\xff.txt"
	p := r.write(name, "0123456789")
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	if err := os.Chtimes(p, at, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p, 0o640); err != nil {
		t.Fatal(err)
	}
	_, stat := r.call("GET", "/files/stat?path="+url.QueryEscape(name), nil)
	want := []string{
		"Content-Type", "text/plain; charset=utf-8", "X-Content-Type-Options", "nosniff", "Content-Length", "10",
		"Last-Modified", "Wed, 04 Mar 2026 05:06:07 GMT", "ETag", fmt.Sprint(stat["etag"]), "Accept-Ranges", "bytes",
		"X-File-Path", r.base + "/d/a%20b%25%C3%A9%FF.txt", "X-File-Mode", "0640", "Content-Disposition", "", "Content-Encoding", "",
	}
	res, text := r.fetch("GET", contentOf(name))
	wantHeader(t, "GET", res, want...)
	if res.StatusCode != 200 || text != "0123456789" {
		t.Errorf("%d %q", res.StatusCode, text)
	}
	head, text := r.fetch("HEAD", contentOf(name))
	wantHeader(t, "HEAD", head, want...)
	if head.StatusCode != 200 || text != "" {
		t.Errorf("HEAD: %d %q", head.StatusCode, text)
	}
	res, _ = r.fetch("GET", contentOf(name)+"&download=true")
	if d := res.Header.Get("Content-Disposition"); d != `attachment; filename*=utf-8''a%20b%25%C3%A9%FF.txt` {
		t.Errorf("Content-Disposition: %s", d)
	}
	r.write("plain.bin", "")
	res, text = r.fetch("GET", contentOf("plain.bin")+"&download=1")
	wantHeader(t, "empty", res, "Content-Disposition", "attachment; filename=plain.bin", "Content-Type", anyBytes, "Content-Length", "0", "X-File-Mode", "0644")
	if res.StatusCode != 200 || text != "" {
		t.Errorf("empty: %d %q", res.StatusCode, text)
	}
}

func TestRawDownloadRefusals(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_download_stream":{"limits":{"max_bytes":5},"paths":{"deny":["**/secret/**"]}}}}`})
	r.write("six", "123456")
	r.write("five", "12345")
	r.write("secret/x", "1")
	if err := unix.Mkfifo(filepath.Join(r.base, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path   string
		header []string
		status int
		code   string
	}{
		{contentOf("six"), nil, 413, "payload_too_large"},
		{contentOf("six"), []string{"Range", "bytes=0-1"}, 413, "payload_too_large"},
		{contentOf("none"), nil, 404, ""},
		{contentOf("."), nil, 404, ""},
		{contentOf("fifo"), nil, 404, ""},
		{contentOf("secret/x"), nil, 403, "path_denied"},
		{contentOf("secret/none"), nil, 403, "path_denied"},
		{contentOf("/etc/passwd"), nil, 403, "path_not_allowed"},
		{contentOf("a\x00b"), nil, 400, "invalid_path"},
		{"/files/content", nil, 400, ""},
		{contentOf("five") + "&encoding=br", nil, 400, ""},
		{contentOf("five"), []string{"If-Match", `"x"`}, 412, "precondition_failed"},
		{contentOf("five"), []string{"Range", "bytes=5-"}, 416, "range_not_satisfiable"},
	}
	if res, text := r.fetch("GET", contentOf("five")); res.StatusCode != 200 || text != "12345" {
		t.Errorf("within the limit: %d %q", res.StatusCode, text)
	}
	for _, tt := range tests {
		status, out := r.call("GET", tt.path, nil, tt.header...)
		code, _ := out["code"].(string)
		if status != tt.status || code != tt.code || code != "" && code != "payload_too_large" && out["endpoint"] != "files_download_stream" {
			t.Errorf("%s: %d %v, want %d %q", tt.path, status, out, tt.status, tt.code)
		}
		head, text := r.fetch("HEAD", tt.path, tt.header...)
		if head.StatusCode != tt.status || text != "" {
			t.Errorf("HEAD %s: %d %q", tt.path, head.StatusCode, text)
		}
	}
}

func TestRawDownloadInParts(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("f", "0123456789")
	tag := r.tag("f")
	tests := []struct {
		header       []string
		status       int
		text, ranges string
	}{
		{[]string{"Range", "bytes=2-4"}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range", "bytes=-3"}, 206, "789", "bytes 7-9/10"},
		{[]string{"Range", "bytes=2-4,6-7"}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=2-4", "If-Range", tag}, 206, "234", "bytes 2-4/10"},
		{[]string{"Range", "bytes=2-4", "If-Range", `"other"`}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=20-", "If-Range", `"other"`}, 200, "0123456789", ""},
		{[]string{"Range", "bytes=2-4", "If-None-Match", tag}, 304, "", ""},
		{[]string{"Range", "bytes=2-4", "If-Match", tag}, 206, "234", "bytes 2-4/10"},
	}
	for _, tt := range tests {
		res, text := r.fetch("GET", contentOf("f"), tt.header...)
		if res.StatusCode != tt.status || text != tt.text {
			t.Errorf("%v: %d %q", tt.header, res.StatusCode, text)
		}
		wantHeader(t, fmt.Sprint(tt.header), res, "Content-Range", tt.ranges, "ETag", tag)
	}
	res, _ := r.fetch("GET", contentOf("f"), "Range", "bytes=10-")
	wantHeader(t, "416", res, "Content-Range", "bytes */10", "Content-Type", "application/json; charset=utf-8")
	// A part that is sent in several pieces, and one over their border.
	big := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	r.write("big", string(big))
	for _, part := range []span{{1, 3_000_000}, {1<<20 - 1, 2}, {3, 1 << 20}, {0, 3_200_000}} {
		res, text := r.fetch("GET", contentOf("big"), "Range", fmt.Sprintf("bytes=%d-%d", part.from, part.from+part.n-1))
		if res.StatusCode != 206 || text != string(big[part.from:part.from+part.n]) || res.ContentLength != part.n {
			t.Errorf("%v: %d, %d bytes", part, res.StatusCode, len(text))
		}
	}
}

func (r *rig) tag(name string) string {
	res, _ := r.fetch("HEAD", contentOf(name))
	return res.Header.Get("ETag")
}

func TestUnchangedFilesAreNotSentAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("f", "1")
	first, _ := r.fetch("GET", contentOf("f"))
	tag := first.Header.Get("ETag")
	for _, header := range [][]string{
		{"If-None-Match", tag}, {"If-None-Match", "*"}, {"If-None-Match", `"x", W/` + tag}, {"If-Modified-Since", first.Header.Get("Last-Modified")},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			res, text := r.fetch(method, contentOf("f"), header...)
			if res.StatusCode != 304 || text != "" || res.Header.Get("ETag") != tag {
				t.Errorf("%s %v: %d %q %q", method, header, res.StatusCode, text, res.Header.Get("ETag"))
			}
		}
	}
	r.write("f", "22")
	if res, text := r.fetch("GET", contentOf("f"), "If-None-Match", tag); res.StatusCode != 200 || text != "22" {
		t.Errorf("changed: %d %q", res.StatusCode, text)
	}
}

func TestRawDownloadCompressed(t *testing.T) {
	r := newRig(t, rigOptions{})
	want := strings.Repeat("all work and no play ", 50_000)
	r.write("f", want)
	tag := "W/" + r.tag("f")
	res, text := r.fetch("GET", contentOf("f")+"&encoding=gzip", "Range", "bytes=0-3")
	wantHeader(t, "gzip", res, "Content-Encoding", "gzip", "ETag", tag, "Content-Range", "", "Accept-Ranges", "none", "Content-Length", "")
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil || res.StatusCode != 200 || len(text) > len(want)/10 {
		t.Fatalf("%d, %d bytes, %v", res.StatusCode, len(text), err)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != want {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if res, _ := r.fetch("GET", contentOf("f")+"&encoding=gzip", "If-None-Match", tag); res.StatusCode != 304 {
		t.Errorf("again: %d", res.StatusCode)
	}
}

// Whoever names the type of bytes gets bytes; all others get the JSON they
// always got.
func TestDownloadByAccept(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("f.txt", "0123456789")
	for accept, raw := range map[string]bool{
		"": false, "*/*": false, "application/*": false, "application/json, */*": false, "application/octet-stream;q=0": false,
		"application/octet-stream": true, "text/html, Application/Octet-Stream;q=0.5": true,
	} {
		for _, path := range []string{"/files/download-stream?path=f.txt", "/download?path=f.txt"} {
			res, text := r.fetch("GET", path, "Accept", accept, "Range", "bytes=0-3")
			if got := text == "0123" && res.StatusCode == 206; got != raw || !raw && !strings.Contains(text, `"content_base64":"MDEyMzQ1Njc4OQ=="`) {
				t.Errorf("%s with %q: %d %q", path, accept, res.StatusCode, text)
			}
		}
	}
	status, out := r.call("GET", "/files/download-stream?path=none", nil, "Accept", anyBytes)
	if status != 404 || out["type"] != "FileNotFoundError" {
		t.Errorf("missing: %d %v", status, out)
	}
}

// A file that becomes shorter while it is sent must not look complete.
func TestAFileThatShrinksTearsItsDownload(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, query := range []string{"", "&encoding=gzip"} {
		p := r.write("f", "")
		if err := os.Truncate(p, 1<<30); err != nil {
			t.Fatal(err)
		}
		if query != "" { // holes pack so well that the end would be there at once
			junk := make([]byte, 8<<20)
			for i := range junk {
				junk[i] = byte(i * i >> 7 * (i >> 3))
			}
			if err := os.WriteFile(p, junk, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(p, 64<<30); err != nil {
				t.Fatal(err)
			}
		}
		res := r.do("GET", contentOf("f")+query, nil, "Accept-Encoding", "identity")
		if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(p, 1<<20); err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Errorf("%q: %d bytes came as a whole answer", query, n)
		}
		res.Body.Close()
	}
}

// peakHeap is how far the heap grows above its size while f runs.
func peakHeap(f func()) int64 {
	stop, peak := make(chan struct{}), make(chan uint64)
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		most := uint64(0)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
			select {
			case <-stop:
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	f()
	close(stop)
	return int64(<-peak) - int64(before.HeapInuse)
}

// endless repeats a text.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

func TestMemoryStaysFlatInRawTransfers(t *testing.T) {
	size := int64(256 << 20)
	if testing.Short() {
		size = 32 << 20
	}
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":"2GiB"}}}}`})
	content := func() io.Reader { return io.LimitReader(endless("0123456789abcdef"), size) }
	b64s := io.LimitReader(endless("QUFB"), size/3*4)
	const form = "--b\r\nContent-Disposition: form-data; name=f; filename=form\r\n\r\n"
	steps := map[string]func() (int, int64){
		"put": func() (int, int64) {
			status, out := r.call("PUT", contentOf("f"), content())
			n, _ := out["bytes"].(float64)
			return status, int64(n)
		},
		"form": func() (int, int64) {
			status, out := r.call("POST", "/files/content?dir=.", io.MultiReader(strings.NewReader(form), content(), strings.NewReader("\r\n--b--\r\n")),
				"Content-Type", "multipart/form-data; boundary=b")
			return status, r.size("form") * int64(out["written"].(float64))
		},
		"write-many": func() (int, int64) {
			status, out := r.call("POST", "/files/write-many", io.MultiReader(strings.NewReader(`{"files":[{"content_base64":"`), b64s, strings.NewReader(`","path":"many"}],"atomic":true}`)))
			return status, r.size("many")/3*3 + size - size/3*3*int64(out["written"].(float64))
		},
		"z get": func() (int, int64) {
			res := r.do("GET", contentOf("f"), nil)
			defer res.Body.Close()
			n, err := io.Copy(io.Discard, res.Body)
			if err != nil {
				t.Error(err)
			}
			return res.StatusCode, n
		},
		"z get zipped": func() (int, int64) {
			res := r.do("GET", contentOf("f")+"&encoding=gzip", nil)
			defer res.Body.Close()
			n, err := io.Copy(io.Discard, res.Body) // the client decodes it
			if err != nil {
				t.Error(err)
			}
			return res.StatusCode, n
		},
	}
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		var status int
		var n int64
		grown := peakHeap(func() { status, n = steps[name]() })
		if status/100 != 2 || n != size {
			t.Errorf("%s: %d, %d bytes", name, status, n)
		}
		if grown > 48<<20 {
			t.Errorf("%s: the heap grew by %d MiB", name, grown>>20)
		}
	}
}

func (r *rig) size(name string) int64 {
	r.t.Helper()
	fi, err := os.Stat(filepath.Join(r.base, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return fi.Size()
}
