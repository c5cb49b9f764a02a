package endpoints

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRefusedFilesOfManyAreAudited: whoever tried denied paths by write-many,
// which answers 200 whatever happens to each file, left no trace.
func TestRefusedFilesOfManyAreAudited(t *testing.T) {
	deny := `{"endpoints":{"files_upload_stream":{"paths":{"deny":["**/.env"]}}}}`
	form := "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\".env\"\r\n\r\nx\r\n--b--\r\n"
	for name, send := range map[string]func(*rig) int{
		"list": func(r *rig) int {
			status, _ := r.call("POST", "/files/write-many", `{"files":[{"path":"good","content":"1"},{"path":".env","content":"1"}]}`)
			return status
		},
		"form": func(r *rig) int {
			status, _ := r.call("POST", "/files/content?dir=.", form, "Content-Type", "multipart/form-data; boundary=b")
			return status
		},
	} {
		r := newRig(t, rigOptions{policy: deny})
		if status := send(r); status != http.StatusOK {
			t.Fatalf("%s: %d", name, status)
		}
		deadline := time.Now().Add(10 * time.Second)
		for !strings.Contains(r.audit.String(), `"decision":"deny","status":200,"code":"path_denied"`) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: no line about the refusal: %s", name, r.audit)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// TestTimesWithoutANumberAreRefused: a file was given the year 1901 by whoever
// asked for 9999.
func TestTimesWithoutANumberAreRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	for mtime, status := range map[string]int{
		"9999-01-01": 400, "1600-01-01": 400, "0001-01-01": 400, "1e10": 400, "-1e10": 400, "nan": 400, "1e400": 400,
		"2200-01-01": 200, "1969-12-31": 200, "-1.5": 200, "9e9": 200,
	} {
		got, out := r.call("PUT", "/files/content?path=f&mtime="+url.QueryEscape(mtime), "x")
		if got == http.StatusCreated {
			got = http.StatusOK
		}
		if got != status {
			t.Errorf("%s: %d %v", mtime, got, out)
		}
	}
}

// TestFarTimesAreShownAsFar: a file of the year 2400 was shown as one of 1815.
func TestFarTimesAreShownAsFar(t *testing.T) {
	r := newRig(t, rigOptions{})
	path := filepath.Join(r.base, "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	far := unix.Timespec{Sec: 13_569_465_600} // 2400-01-01
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{far, far}, 0); err != nil {
		t.Skip(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mtim.Sec != far.Sec {
		t.Skip("the file system has no such times")
	}
	_, out := r.call("GET", "/files/stat?path=f", nil)
	if got, _ := out["modified"].(string); !strings.HasPrefix(got, "2262-") {
		t.Errorf("modified is %v", out["modified"])
	}
	before := out["etag"]
	far.Sec++
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{far, far}, 0); err != nil {
		t.Fatal(err)
	}
	if _, out = r.call("GET", "/files/stat?path=f", nil); out["etag"] == before {
		t.Errorf("the tag stays %v", before)
	}
}

// TestACallerThatLeavesItsDownloadIsNoFailure: everybody who closed a download
// in the middle left an error 500 in the log and a denial in the audit.
func TestACallerThatLeavesItsDownloadIsNoFailure(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"defaults":{"audit":"all"}}`})
	var log lockedBuffer
	r.gate.Log = slog.New(slog.NewTextHandler(&log, nil))
	f, err := os.Create(filepath.Join(r.base, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/files/content", "/files/download-stream"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET "+path+"?path=f HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	deadline := time.Now().Add(20 * time.Second)
	for strings.Count(r.audit.String(), "files_download_stream") < 2 {
		if time.Now().After(deadline) {
			t.Fatalf("the calls do not end: %s", r.audit)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if strings.Contains(log.String(), "request failed") {
		t.Errorf("log: %s", log.String())
	}
	if strings.Contains(r.audit.String(), `"deny"`) {
		t.Errorf("audit: %s", r.audit)
	}
}
