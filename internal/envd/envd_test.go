package envd

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCommandsRunAndEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`, "ABX_SERVER_TOKEN=never-shown", "SOMETHING=else")
	for cmd, want := range map[string]string{
		"printf 'a\\377b'": "a\xffb", "echo $E2B_SANDBOX$SOMETHING$ABX_SERVER_TOKEN": "false\n", "cat": "",
	} {
		if got, end := r.run(cmd); got != want || end["exited"] != true {
			t.Errorf("%s: %q %v", cmd, got, end)
		}
	}
	if _, end := r.run("exit 7"); end["exitCode"] != 7.0 || end["error"] != "exit status 7" {
		t.Errorf("exit 7: %v", end)
	}
	if _, end := r.run("kill -TERM $$"); end["exitCode"] != -1.0 || end["status"] != "signal: terminated" || end["exited"] != nil {
		t.Errorf("a signal: %v", end)
	}
}

// A header of a client's ended the whole daemon.
func TestOddKeepaliveHarmsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	for _, v := range []string{"0", "-1", "-9223372036854775808", "99999999999999999999", "x"} {
		if got, _ := r.run("echo ok", "Keepalive-Ping-Interval", v); got != "ok\n" {
			t.Errorf("%s: %q", v, got)
		}
	}
}

func TestMissingProgramEndsLikeInAShell(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	for cmd, code := range map[string]float64{"/no/such": 127, "nosuchprogram": 127, r.base: 126} {
		out, _, failed := r.stream("process.Process/Start", []string{fmt.Sprintf(`{"process":{"cmd":%q}}`, cmd)})
		if failed != "" || len(out) != 3 || out[2]["event"].(object)["end"].(object)["exitCode"] != code {
			t.Errorf("%s: %v %s", cmd, out, failed)
		}
	}
}

// What programs printed while nobody was attached was lost.
func TestMissedOutputIsKeptWithTheExitCode(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	_, text := r.send(http.MethodPost, r.http+"/process/start", "application/json", `{"args":["sh","-c","echo kept; exit 6"],"capture_output":true}`)
	var pid int
	if _, err := fmt.Sscanf(text[strings.Index(text, `"pid":`):], `"pid":%d`, &pid); err != nil {
		t.Fatal(err, text)
	}
	body := []string{fmt.Sprintf(`{"process":{"pid":%d}}`, pid)}
	out, _, failed := r.stream("process.Process/Connect", body)
	if failed != "" || len(out) != 3 || fmt.Sprint(out[1]) != "map[event:map[data:map[stdout:a2VwdAo=]]]" {
		t.Fatalf("%v %s", out, failed)
	}
	if end := out[2]["event"].(object)["end"].(object); end["exitCode"] != 6.0 {
		t.Errorf("%v", end)
	}
	if out, _, _ = r.stream("process.Process/Connect", body); len(out) != 2 {
		t.Errorf("repeated: %v", out)
	}
}

func TestTimeoutIsACallThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	_, _, failed := r.stream("process.Process/Start", []string{`{"process":{"cmd":"sleep","args":["60"]}}`}, "Connect-Timeout-Ms", "200")
	if failed != "deadline_exceeded" {
		t.Errorf("got %q", failed)
	}
	if out, _ := r.rpc("process.Process/List", `{}`); len(out) != 0 {
		t.Errorf("left behind: %v", out)
	}
}

func TestInputBeforeItsStartIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	if _, _, failed := r.stream("process.Process/StreamInput", []string{`{"data":{"input":{"stdin":"eA=="}}}`}); failed != "invalid_argument" {
		t.Errorf("got %q", failed)
	}
}

// The token of /init guards this listener and no other, and only its holder
// changes it.
func TestTokenOfInitGuardsThisListenerAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	initialise := func(body string) int {
		status, _ := r.send(http.MethodPost, r.url+"/init", "application/json", body)
		return status
	}
	for _, c := range []struct {
		body string
		want int
	}{
		{`{nope`, 400},
		{`{"envVars":{"PATH":"/x"}}`, 403},
		{`{"envVars":{"A=":"x"}}`, 400},
		{``, 204},
		{`{"accessToken":"one","envVars":{"V":"1"}}`, 204},
		{`{"accessToken":"two"}`, 401},
		{`{}`, 401},
		{`{"accessToken":"one"}`, 204},
	} {
		if got := initialise(c.body); got != c.want {
			t.Errorf("%s: %d, want %d", c.body, got, c.want)
		}
	}
	if _, failed := r.rpc("process.Process/List", `{}`); failed != "unauthenticated" {
		t.Errorf("without the token: %q", failed)
	}
	if status, _ := r.send(http.MethodGet, r.http+"/process/list", "", ""); status != 200 {
		t.Errorf("the other listener answers %d", status)
	}
	r.token = "one"
	if got, _ := r.run("echo $V"); got != "1\n" {
		t.Errorf("with the token: %q", got)
	}
}

func TestSignaturesOpenOnePathForOneOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	if status, _ := r.send(http.MethodPost, r.url+"/init", "application/json", `{"accessToken":"s"}`); status != 204 {
		t.Fatal(status)
	}
	file := filepath.Join(r.base, "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	past, future := fmt.Sprint(time.Now().Unix()-5), fmt.Sprint(time.Now().Unix()+60)
	for _, c := range []struct {
		method, path, sig, until string
		want                     int
	}{
		{"GET", file, signature(file, "read", "", "s", ""), "", 200},
		{"GET", file, signature(file, "read", "", "s", future), future, 200},
		{"GET", file, signature(file, "read", "", "s", past), past, 401},
		{"GET", file, signature(file, "read", "", "s", future), "", 401},
		{"GET", file, signature(file, "write", "", "s", ""), "", 401},
		{"GET", file + "x", signature(file, "read", "", "s", ""), "", 401},
		{"GET", file, signature(file, "read", "", "t", ""), "", 401},
		{"GET", file, "", "", 401},
		{"GET", file, signature(file, "read", "", "s", "x"), "x", 400},
		{"POST", "", signature("", "write", "", "s", ""), "", 400},
		{"POST", file, signature(file, "write", "", "s", ""), "", 200},
	} {
		q := url.Values{"path": {c.path}, "signature": {c.sig}}
		if c.until != "" {
			q.Set("signature_expiration", c.until)
		}
		status, text := r.send(c.method, r.url+"/files?"+q.Encode(), "application/octet-stream", "y")
		if status != c.want {
			t.Errorf("%s %s until %q: %d %s, want %d", c.method, c.path, c.until, status, text, c.want)
		}
	}
}

// File calls worked as root whatever the user.
func TestFileWorkHasTheRightsOfTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	t.Parallel()
	r := newRig(t, `{}`)
	if err := os.Chmod(r.base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(r.base), 0o755); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(r.base, "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	q := "?path=" + url.QueryEscape(secret) + "&username=nobody"
	if status, text := r.send(http.MethodGet, r.url+"/files"+q, "", ""); status != 403 {
		t.Errorf("read: %d %s", status, text)
	}
	if status, text := r.send(http.MethodPost, r.url+"/files"+q, "application/octet-stream", "x"); status != 403 {
		t.Errorf("write: %d %s", status, text)
	}
	if _, failed := r.rpc("filesystem.Filesystem/Remove", fmt.Sprintf(`{"path":%q}`, secret), "Authorization", "Basic bm9ib2R5Og=="); failed != "permission_denied" {
		t.Errorf("remove: %q", failed)
	}
	if status, text := r.send(http.MethodGet, r.url+"/files?path="+url.QueryEscape(secret), "", ""); status != 200 || text != "s" {
		t.Errorf("root: %d %q", status, text)
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, `{}`)
	if _, failed := r.rpc("process.Process/List", `{}`, "Origin", "http://evil.example"); failed != "permission_denied" {
		t.Errorf("RPC: %q", failed)
	}
	for _, path := range []string{"/envs", "/init", "/files?path=x"} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[path == "/init"]
		if status, _ := r.send(method, r.url+path, "", "", "Origin", "http://evil.example"); status != 403 {
			t.Errorf("%s: %d", path, status)
		}
	}
}
