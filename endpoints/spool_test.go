package endpoints

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A container with a read-only root, or an image of nothing but a program, has
// no temporary directory: an archive of 300 kB was "File not found".
func TestNoTemporaryDirectoryIsNoMissingFile(t *testing.T) {
	for name, tmp := range map[string]func(base string) string{
		"missing": func(base string) string { return filepath.Join(base, "..", "no-such-directory") },
		"a file":  func(string) string { return "/etc/passwd" },
		"kernel":  func(string) string { return "/proc/self" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			t.Setenv("TMPDIR", tmp(r.base))
			big := make([]byte, spoolMemory+1000)
			_, _ = rand.Read(big)
			if err := os.WriteFile(r.base+"/big", big, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(r.base+"/big", r.base+"/twin"); err != nil {
				t.Fatal(err)
			}
			var packed bytes.Buffer
			z := zip.NewWriter(&packed)
			f, err := z.Create("out")
			if err == nil {
				_, err = f.Write(big)
			}
			if err != nil || z.Close() != nil {
				t.Fatal(err)
			}
			inBase64, text := base64.StdEncoding.EncodeToString(big), strings.Repeat("x", len(big))
			type m = map[string]any
			for call, body := range map[string]any{
				"/files/archive":       m{"paths": []string{r.base + "/big"}},
				"/files/upload-stream": `{"content_base64":"` + inBase64 + `","path":"` + r.base + `/up"}`,
				"/upload":              m{"path": r.base + "/text", "encoding": "utf8", "content": text},
				"/files/write-many":    m{"atomic": true, "files": []m{{"path": r.base + "/twin", "content_base64": inBase64}, {"path": r.base + "/m", "content": text}}},
				"/files/extract":       m{"destination": r.base + "/x", "content_base64": base64.StdEncoding.EncodeToString(packed.Bytes())},
			} {
				if status, out := r.call("POST", call, body); status != http.StatusOK {
					t.Errorf("%s: %d %v", call, status, out)
				}
			}
			for _, name := range []string{"up", "twin", "x/out"} {
				if got, err := os.ReadFile(filepath.Join(r.base, name)); err != nil || !bytes.Equal(got, big) {
					t.Errorf("%s has %d bytes, %v", name, len(got), err)
				}
			}
			if left, _ := filepath.Glob(r.base + "/.abx-tmp-*"); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// Where nothing takes temporary files either, the server says so, and not that
// a file of the caller's is missing.
func TestNowhereToPutALongContentIsTheServersTrouble(t *testing.T) {
	r := newRig(t, rigOptions{})
	t.Setenv("TMPDIR", r.base+"/no-such-directory")
	if err := os.RemoveAll(r.base); err != nil {
		t.Fatal(err)
	}
	body := `{"content":"` + strings.Repeat("x", spoolMemory+1) + `","encoding":"utf8","path":"` + r.base + `/up"}`
	status, out := r.call("POST", "/files/upload-stream", body)
	if status != http.StatusInternalServerError || out["code"] != "io_error" || strings.Contains(out["error"].(string), "no-such-directory") {
		t.Errorf("%d %v", status, out)
	}
}

// A small /tmp in memory is usual in containers: what did not fit in it was
// refused for want of space, whatever the disk of the files had.
func TestASmallTemporaryDirectoryIsNoLimit(t *testing.T) {
	r := newRig(t, rigOptions{})
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	t.Setenv("TMPDIR", small)
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	status, out := r.call("POST", "/files/upload-stream", `{"content_base64":"`+base64.StdEncoding.EncodeToString(big)+`","path":"`+r.base+`/up"}`)
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, out)
	}
	if got, err := os.ReadFile(r.base + "/up"); err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	status, out = r.call("POST", "/files/archive", map[string]any{"paths": []string{r.base + "/up"}, "format": "tar"})
	if status != http.StatusOK {
		t.Fatalf("%d %.200v", status, out)
	}
	packed, err := base64.StdEncoding.DecodeString(out["content_base64"].(string))
	if err != nil || !bytes.Contains(packed, big) {
		t.Errorf("an archive of %d bytes, %v", len(packed), err)
	}
}
