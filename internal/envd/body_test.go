package envd

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// exchange sends bytes as they are, ends sending if half is set, and returns
// all that comes back until the server hangs up.
func (r *rig) exchange(text string, half bool) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	if half {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		r.t.Fatalf("the connection stays open: %v; so far %q", err, answer)
	}
	return string(answer)
}

func TestSecondRequestHiddenInABodyIsNotServed(t *testing.T) {
	r := newRig(t, `{}`)
	const hidden = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, head := range map[string]string{
		"length beside chunked coding": "POST /init HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"chunked coding in HTTP/1.0":   "POST /init HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		if got := r.exchange(head+hidden, false); strings.Contains(got, "mem_total") || strings.Count(got, "HTTP/1.") != 1 {
			t.Errorf("%s: got %q, want one answer", name, got)
		}
	}
}

func TestBodyThatBreaksOffChangesNothing(t *testing.T) {
	r := newRig(t, `{}`)
	part := filepath.Join(r.base, "part")
	if err := os.WriteFile(part, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(r.base, "whole")
	for route, body := range map[string]string{
		"/files/compose": fmt.Sprintf(`{"source_paths":[%q],"destination":%q}`, part, whole),
		"/init":          `{"envVars":{"HALF":"1"}}`,
	} {
		text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", route, len(body)+100, body)
		if got := r.exchange(text, true); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%s: got %q, want 400", route, got)
		}
	}
	if _, err := os.Stat(part); err != nil {
		t.Errorf("the source was removed: %v", err)
	}
	if _, text := r.send("GET", r.url+"/envs", "", ""); strings.Contains(text, "HALF") {
		t.Errorf("the variable was set: %s", text)
	}
}

func TestUntidyPathIsNeverRedirected(t *testing.T) {
	r := newRig(t, `{}`)
	for path, want := range map[string]string{
		"//health": "204", "/health/": "204", "/x/../health": "404", "/./health": "404", "/": "404", "//": "404", "/files//compose": "404",
	} {
		got := r.exchange("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", false)
		if !strings.HasPrefix(got, "HTTP/1.1 "+want+" ") {
			t.Errorf("%s: got %q, want %s", path, got, want)
		}
	}
	got := r.exchange("POST //process.Process/List HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", false)
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("a call behind two slashes: got %q", got)
	}
}

func TestPlainRoutesTakeOneJSONObjectOfBoundedSize(t *testing.T) {
	r := newRig(t, `{"endpoints":{"files_upload_stream":{"limits":{"max_request_bytes":100}},"envd_init":{"limits":{"max_request_bytes":100}}}}`)
	long := `{"x":"` + strings.Repeat("y", 200) + `"}`
	for _, route := range []string{"/files/compose", "/init"} {
		if status, text := r.send("POST", r.url+route, "application/json", long); status != 413 {
			t.Errorf("%s: a long body: got %d %s, want 413", route, status, text)
		}
		for _, body := range []string{`null`, `[]`, `"x"`, `{} x`, `{"a":`, "{\"a\":\"\xff\"}"} {
			if status, text := r.send("POST", r.url+route, "application/json", body); status != 400 {
				t.Errorf("%s: %q: got %d %s, want 400", route, body, status, text)
			}
		}
	}
	if status, text := r.send("POST", r.url+"/init", "application/json", `{"ENVVARS":{"ODD":"1"}}`); status != 204 {
		t.Errorf("an unknown member: got %d %s, want 204", status, text)
	}
	if _, text := r.send("GET", r.url+"/envs", "", ""); strings.Contains(text, "ODD") {
		t.Errorf("a name in other letters was taken: %s", text)
	}
}
