package endpoints

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func zipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.String()
}

func TestPutAnswers(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, body := range []any{"hello", unsized("hello"), "", unsized(""), strings.Repeat("x", 3<<20), unsized(strings.Repeat("y", 3<<20))} {
		_ = os.RemoveAll(filepath.Join(r.base, "n"))
		for _, want := range []int{201, 200} {
			if s, ok := body.(io.Seeker); ok {
				_, _ = s.Seek(0, io.SeekStart)
			}
			text, ok := body.(string)
			var send any = text
			if !ok { // sent in chunks
				if text = string(mustRead(t, body.(io.Reader))); want == 201 {
					body = text
				}
				send = unsized(text)
			}
			status, out := r.call("PUT", contentOf("n/f"), send, "Content-Type", "what/ever")
			if status != want || out["path"] != r.base+"/n/f" || out["bytes"] != float64(len(text)) || out["sha256"] != hashOf(text) ||
				out["created"] != (want == 201) || out["etag"] != r.tag("n/f") || r.read("n/f") != text {
				t.Errorf("%.10q: %d %v", text, status, out)
			}
		}
	}
}

func mustRead(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPutOptions(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":20},"params":{"deny_extensions":[".exe"]}}}}`})
	r.write("there", "old")
	r.write("dir/x", "")
	if err := unix.Mkfifo(filepath.Join(r.base, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	tag := r.tag("there")
	tests := []struct {
		name, query, body string
		header            []string
		status            int
		code              string
		want              string // what the file then holds; "" is not looked at
	}{
		{"new", "path=a", "1", nil, 201, "", "1"},
		{"exactly the limit", "path=b", strings.Repeat("x", 20), nil, 201, "", ""},
		{"too large", "path=b", strings.Repeat("x", 21), nil, 413, "payload_too_large", strings.Repeat("x", 20)},
		{"type of a form", "path=b", strings.Repeat("x", 21), []string{"Content-Type", "multipart/form-data; boundary=x"}, 413, "payload_too_large", ""},
		{"extension", "path=a.EXE", "1", nil, 403, "extension_not_allowed", ""},
		{"no path", "", "1", nil, 400, "", ""},
		{"outside", "path=/etc/x", "1", nil, 403, "path_not_allowed", ""},
		{"directory", "path=dir", "1", nil, 409, "is_a_directory", ""},
		{"below a file", "path=there/x", "1", nil, 409, "not_a_directory", ""},
		{"fifo", "path=fifo", "1", nil, 409, "not_a_regular_file", ""},
		{"keep", "path=there&overwrite=false", "1", nil, 409, "file_exists", ""},
		{"keep by another word", "path=there&overwrite=no", "1", nil, 409, "file_exists", ""},
		{"overwrite", "path=a&overwrite=TRUE", "2", nil, 200, "", "2"},
		{"bad mode", "path=a&mode=888", "1", nil, 400, "", ""},
		{"set-id mode", "path=a&mode=4755", "1", nil, 400, "", ""},
		{"bad mtime", "path=a&mtime=soon", "1", nil, 400, "", ""},
		{"bad offset", "path=a&offset=-1", "1", nil, 400, "", ""},
		{"offset of words", "path=a&offset=x", "1", nil, 400, "", ""},
		{"offset and append", "path=a&offset=1&append=true", "1", nil, 400, "", ""},
		{"wrong sum", "path=a&sha256=" + hashOf("x"), "1", nil, 422, "checksum_mismatch", "2"},
		{"right sum", "path=a&sha256=" + strings.ToUpper(hashOf("3")), "3", nil, 200, "", "3"},
		{"append", "path=a&append=true", "4", nil, 200, "", "34"},
		{"go on", "path=a&offset=2", "5", nil, 200, "", "345"},
		{"go on elsewhere", "path=a&offset=2", "6", nil, 409, "offset_mismatch", "345"},
		{"begin", "path=c&offset=0", "1", nil, 201, "", "1"},
		{"begin in the middle", "path=d&offset=3", "1", nil, 409, "offset_mismatch", ""},
		{"no parents", "path=no/such/f&create_parents=false", "1", nil, 404, "", ""},
		{"only new", "path=there", "1", []string{"If-None-Match", "*"}, 412, "precondition_failed", ""},
		{"only new, and it is", "path=e", "1", []string{"If-None-Match", "*"}, 201, "", "1"},
		{"not this one", "path=there", "1", []string{"If-None-Match", tag}, 412, "precondition_failed", ""},
		{"only this one", "path=there", "1", []string{"If-Match", `"other"`}, 412, "precondition_failed", "old"},
		{"any", "path=none", "1", []string{"If-Match", "*"}, 412, "precondition_failed", ""},
		{"weak", "path=there", "1", []string{"If-Match", "W/" + tag}, 412, "precondition_failed", ""},
		{"this one", "path=there", "new", []string{"If-Match", `"other", ` + tag}, 200, "", "new"},
		{"this one no more", "path=there", "1", []string{"If-Match", tag}, 412, "precondition_failed", "new"},
		{"too late", "path=there", "1", []string{"If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"}, 412, "precondition_failed", ""},
		{"condition of an append", "path=there&append=1", "1", []string{"If-Match", tag}, 412, "precondition_failed", "new"},
		{"condition of going on", "path=there&offset=3", "1", []string{"If-Match", tag}, 412, "precondition_failed", "new"},
		{"gzip", "path=z", zipped("packed"), []string{"Content-Encoding", "gzip"}, 201, "", "packed"},
		{"gzip of the limit", "path=z", zipped(strings.Repeat("x", 20)), []string{"Content-Encoding", "GZIP"}, 200, "", strings.Repeat("x", 20)},
		{"gzip too large", "path=z", zipped(strings.Repeat("y", 21)), []string{"Content-Encoding", "gzip"}, 413, "payload_too_large", strings.Repeat("x", 20)},
		{"gzip far too large", "path=z", zipped(strings.Repeat("y", 5<<20)), []string{"Content-Encoding", "gzip"}, 413, "payload_too_large", strings.Repeat("x", 20)},
		{"no gzip", "path=z", "plain", []string{"Content-Encoding", "gzip"}, 400, "", strings.Repeat("x", 20)},
		{"nothing as gzip", "path=z", "", []string{"Content-Encoding", "gzip"}, 400, "", ""},
		{"half a gzip", "path=z", zipped("cut off here")[:20], []string{"Content-Encoding", "gzip"}, 400, "", strings.Repeat("x", 20)},
		{"gzip and rubbish", "path=z", zipped("1") + "rubbish", []string{"Content-Encoding", "gzip"}, 400, "", ""},
		{"brotli", "path=z", "1", []string{"Content-Encoding", "br"}, 415, "unsupported_encoding", ""},
		{"a part by header", "path=there", "1", []string{"Content-Range", "bytes 0-0/3"}, 400, "", "new"},
		{"identity", "path=i", "1", []string{"Content-Encoding", "identity"}, 201, "", "1"},
	}
	for _, tt := range tests {
		name := strings.TrimPrefix(strings.SplitN(tt.query, "&", 2)[0], "path=")
		for _, unknown := range []bool{false, true} {
			if unknown && tt.status < 400 {
				continue
			}
			var send any = tt.body
			if unknown {
				send = unsized(tt.body)
			}
			status, out := r.call("PUT", "/files/content?"+tt.query, send, tt.header...)
			if code, _ := out["code"].(string); status != tt.status || code != tt.code {
				t.Errorf("%s: got %d %v, want %d %q", tt.name, status, out, tt.status, tt.code)
			}
			if tt.code == "payload_too_large" && out["limit"] != 20.0 {
				t.Errorf("%s: limit %v", tt.name, out["limit"])
			}
		}
		if tt.want != "" && r.read(name) != tt.want {
			t.Errorf("%s: %s holds %q", tt.name, name, r.read(name))
		}
	}
	if status, out := r.call("PUT", "/files/content?path=a&offset=0", "x"); status != 409 || out["size"] != 3.0 {
		t.Errorf("the size is not told: %d %v", status, out)
	}
	for _, n := range r.names() {
		if strings.HasPrefix(n, ".abx-tmp-") || n == "no" {
			t.Errorf("%s was left", n)
		}
	}
}

func TestPutModeAndTime(t *testing.T) {
	r := newRig(t, rigOptions{})
	for query, want := range map[string]string{
		"mode=0600&mtime=1700000000":                   "-rw------- 2023-11-14T22:13:20Z",
		"mode=755&mtime=1700000000.5":                  "-rwxr-xr-x 2023-11-14T22:13:20.5Z",
		"mode=000&mtime=2026-11-30T07:38:26%2B01:00":   "---------- 2026-11-30T06:38:26Z",
		"mode=0777&mtime=2026-11-30T07:38:26.366365":   "-rwxrwxrwx 2026-11-30T07:38:26.366365Z",
		"mode=644&mtime=2026-11-30&create_parents=yes": "-rw-r--r-- 2026-11-30T00:00:00Z",
	} {
		status, out := r.call("PUT", contentOf("f")+"&"+query, "x")
		fi, err := os.Stat(filepath.Join(r.base, "f"))
		if err != nil {
			t.Fatalf("%s: %d %v: %v", query, status, out, err)
		}
		if got := fi.Mode().String() + " " + fi.ModTime().UTC().Format(time.RFC3339Nano); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestPutWritesThroughLinksInside(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("target", "old")
	for link, to := range map[string]string{"in": "target", "out": "/etc/hostname", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(r.base, link)); err != nil {
			t.Fatal(err)
		}
	}
	if status, out := r.call("PUT", contentOf("in"), "new"); status != 200 || out["path"] != r.base+"/target" || r.read("target") != "new" {
		t.Errorf("%d %v", status, out)
	}
	for link, code := range map[string]string{"out": "path_not_allowed", "loop": "symlink_denied"} {
		if status, out := r.call("PUT", contentOf(link), "new"); status != 403 || out["code"] != code || out["endpoint"] != "files_upload_stream" {
			t.Errorf("%s: %d %v", link, status, out)
		}
	}
}

// dial sends text as it is and gives the answers.
func (r *rig) dial(text string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// nextStatus reads one answer.
func nextStatus(answers *bufio.Reader) (int, error) {
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// Who asks first (curl does for every long upload) must not send gigabytes
// only to hear that they are not wanted.
func TestARefusedUploadCostsNoBody(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":1000000},"params":{"deny_extensions":[".exe"]}}}}`})
	r.write("there", "old")
	for target, want := range map[string]int{
		"PUT /files/content?path=/etc/x":                    403,
		"PUT /files/content?path=a.exe":                     403,
		"PUT /files/content?path=there&overwrite=false":     409,
		"PUT /files/content?path=there&offset=9":            409,
		"PUT /files/content?path=there&mode=9":              400,
		"PUT /files/content?path=no/x&create_parents=false": 404,
		"PUT /files/content?path=.":                         409,
		"POST /files/content?dir=/etc":                      403,
		"POST /files/content?dir=a&mode=9":                  400,
		"POST /files/content":                               400,
	} {
		for _, length := range []string{"Content-Length: 3", "Content-Length: 900000", "Transfer-Encoding: chunked"} {
			_, answers := r.dial(target + " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: multipart/form-data; boundary=b\r\n" + length + "\r\n\r\n")
			if status, err := nextStatus(answers); err != nil || status != want {
				t.Errorf("%s, %s: %d, want %d, %v", target, length, status, want, err)
			}
		}
	}
	_, answers := r.dial("PUT /files/content?path=big HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000001\r\n\r\n")
	if status, err := nextStatus(answers); err != nil || status != 413 {
		t.Errorf("too large: %d, %v", status, err)
	}
	for _, n := range []int{3, 100_000} {
		conn, answers := r.dial(fmt.Sprintf("PUT /files/content?path=wanted%d HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", n, n))
		if status, err := nextStatus(answers); err != nil || status != 100 {
			t.Fatalf("a body that is wanted: %d, %v", status, err)
		}
		_, _ = io.WriteString(conn, strings.Repeat("x", n))
		res, err := http.ReadResponse(answers, nil)
		if err != nil || res.StatusCode != 201 || res.Close {
			t.Fatalf("a body that is wanted: %v, %v", res, err)
		}
		res.Body.Close()
		if got := r.size(fmt.Sprintf("wanted%d", n)); got != int64(n) {
			t.Errorf("%d bytes", got)
		}
	}
}

// A small body that never comes keeps nobody else out, here as with JSON.
func TestASlowUploadKeepsNobodyOut(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_concurrency":1}}}}`})
	for range 3 {
		r.dial("PUT /files/content?path=slow HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")
	}
	if status, out := r.call("PUT", contentOf("f"), "1"); status != 201 {
		t.Errorf("%d %v", status, out)
	}
	r.dial("PUT /files/content?path=slow HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\nx")
	deadline := time.Now().Add(10 * time.Second)
	for {
		if status, out := r.call("PUT", contentOf("f"), "1"); status == 429 && out["code"] == "concurrency_limited" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a long upload takes no slot")
		}
	}
}

// left waits until nothing but the names given is in the base directory.
func (r *rig) left(want ...string) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		got := r.names()
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("there are %v, want %v", got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s never came true", what)
		}
	}
}

func TestACutRawUploadLeavesTheOldFileAndNothingElse(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.write("f", "old")
	for _, head := range []string{
		"PUT /files/content?path=f HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n",
		"PUT /files/content?path=new/f HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n",
		"PUT /files/content?path=f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
		"PUT /files/content?path=f&append=true HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n",
		"POST /files/content?dir=. HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 900000\r\n\r\n" +
			"--b\r\nContent-Disposition: form-data; name=a; filename=whole\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=a; filename=\"new/f\"\r\n\r\n",
		"POST /files/write-many HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n" +
			`{"files":[{"path":"whole","content":"1"},{"path":"new/f","content_base64":"`,
	} {
		conn, _ := r.dial(head + strings.Repeat("AAAA", 130_000))
		r.waitFor(fmt.Sprintf("an unfinished file of %.60q", head), func() bool { return len(r.names()) > 1 })
		_ = conn.Close()
		r.left("f")
		if got := r.read("f"); got != "old" {
			t.Errorf("%.60q: f holds %.20q", head, got)
		}
	}
}

// What has arrived of an upload that goes on with a file stays, and HEAD tells
// where to go on.
func TestABrokenUploadCanBeContinued(t *testing.T) {
	r := newRig(t, rigOptions{})
	whole := strings.Repeat("0123456789abcdef", 100_000)
	conn, _ := r.dial(fmt.Sprintf("PUT /files/content?path=f&offset=0 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(whole)) + whole[:1_000_000])
	r.waitFor("the first bytes", func() bool {
		fi, err := os.Stat(filepath.Join(r.base, "f"))
		return err == nil && fi.Size() > 0
	})
	_ = conn.Close()
	for tries := 0; ; tries++ {
		res, _ := r.fetch("HEAD", contentOf("f"))
		at := int(res.ContentLength)
		status, out := r.call("PUT", contentOf("f")+"&offset="+strconv.Itoa(at), whole[at:])
		if status == 409 && out["code"] == "offset_mismatch" && tries < 100 {
			continue // bytes of the old connection were still on their way
		}
		if status != 200 || out["bytes"] != float64(len(whole)-at) {
			t.Fatalf("at %d: %d %v", at, status, out)
		}
		break
	}
	if got := r.read("f"); got != whole {
		t.Errorf("%d bytes, want %d", len(got), len(whole))
	}
	r.left("f")
}

// Of any number of callers who compare and swap, every success is one step.
func TestCompareAndSwapLosesNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	if status, _ := r.call("PUT", contentOf("n"), "0", "If-None-Match", "*"); status != 201 {
		t.Fatal(status)
	}
	const callers, steps = 6, 8
	var wg sync.WaitGroup
	var lost atomic.Int32
	for range callers {
		wg.Go(func() {
			for done := 0; done < steps; {
				res, text := r.fetch("GET", contentOf("n"))
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Errorf("n holds %q", text)
					return
				}
				switch status, out := r.call("PUT", contentOf("n"), strconv.Itoa(n+1), "If-Match", res.Header.Get("ETag")); status {
				case 200:
					done++
				case 412:
					lost.Add(1)
				default:
					t.Errorf("%d %v", status, out)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := r.read("n"); got != strconv.Itoa(callers*steps) {
		t.Errorf("%s of %d steps are there", got, callers*steps)
	}
	if lost.Load() == 0 {
		t.Log("nobody was ever late")
	}
}

func TestOnlyNewHasOneWinner(t *testing.T) {
	r := newRig(t, rigOptions{})
	for round := range 10 {
		name := fmt.Sprint("f", round)
		statuses := make(chan int, 5)
		for i := range 5 {
			go func() {
				status, _ := r.call("PUT", contentOf(name), strings.Repeat(strconv.Itoa(i), 1000), "If-None-Match", "*")
				statuses <- status
			}()
		}
		won := 0
		for range 5 {
			switch status := <-statuses; status {
			case 201:
				won++
			case 412:
			default:
				t.Errorf("%d", status)
			}
		}
		if got := r.read(name); won != 1 || len(got) != 1000 || strings.Trim(got, got[:1]) != "" {
			t.Errorf("%d won, %d bytes", won, len(got))
		}
	}
}
