package endpoints

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
)

// pageNet leads every public address to one local site, and nothing else
// anywhere.
type pageNet struct{ to string }

// LookupNetIP implements [browser.Resolver].
func (pageNet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if strings.HasSuffix(host, ".test") {
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// DialContext implements [browser.Dialer].
func (n pageNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if address != "93.184.216.34:80" {
		return nil, errors.New("connection refused")
	}
	return (&net.Dialer{}).DialContext(ctx, network, n.to)
}

// newPageRig is a rig with a browser and a site.
func newPageRig(t *testing.T, policyText string) *rig {
	t.Helper()
	if !browserThere() {
		if os.Getenv("BROWSER_TESTS") == "1" || os.Getenv("CI") == "true" {
			t.Fatal("no browser is installed, and BROWSER_TESTS=1 or CI=true says that there is one")
		}
		t.Skip("no browser is installed (BROWSER_TESTS=1 makes this a failure)")
	}
	site := httptest.NewServer(http.HandlerFunc(pages))
	r := newRig(t, rigOptions{policy: policyText})
	r.srv.Browser = browser.New(r.srv.Procs, browser.Options{Names: pageNet{site.Listener.Addr().String()}, Dialer: pageNet{site.Listener.Addr().String()}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := r.srv.Browser.Close(ctx); err != nil {
			t.Errorf("closing the browser: %v", err)
		}
		site.CloseClientConnections()
		site.Close()
	})
	return r
}

func browserThere() bool {
	if os.Getenv("ABX_BROWSER_PATH") != "" {
		return true
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
	}
	return false
}

const formPage = `<!doctype html><title>Form</title><h1>Hello</h1>
<label for=i>Name</label><input id=i value=old><textarea id=t></textarea>
<button id=b onclick="console.log('clicked', document.getElementById('i').value)">Go</button>
<select id=s multiple><option value=1>One</option><option value=2>Two</option></select>
<input type=file id=f onchange="console.log(this.files[0].name, this.files[0].size)">
<a id=next href="/next">next</a><a id=dl href="/file">file</a>
<div id=hid style="display:none">h</div><div id=far style="margin-top:3000px;width:120px;height:40px;background:blue">far</div>
<script>document.addEventListener('keydown', (e) => console.log('key', e.key, e.ctrlKey)); document.getElementById('b').onmouseover = () => console.log('over')</script>`

func pages(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	switch q.URL.Path {
	case "/form":
		_, _ = io.WriteString(w, formPage)
	case "/file":
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="../a report.txt"`)
		_, _ = io.WriteString(w, "downloaded")
	case "/cookie":
		http.SetCookie(w, &http.Cookie{Name: "ck", Value: "v1", HttpOnly: true})
	case "/errs":
		_, _ = io.WriteString(w, "<title>errs</title><script>console.log('a',{x:1},[1,2]);console.warn('w');setTimeout(()=>{throw new Error('boom')},0)</script>")
	case "/hop":
		http.Redirect(w, q, "http://127.0.0.1:1/", http.StatusFound)
	default:
		fmt.Fprintf(w, "<title>%s</title>", q.URL.Path)
	}
}

const browserOn = `{"groups":["browser"]}`

func TestBrowserFieldsAreCheckedFirst(t *testing.T) {
	r := newRig(t, rigOptions{policy: browserOn})
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "navigate", `{}`, 400, ""},
		{"POST", "navigate", `{"url":""}`, 400, ""},
		{"POST", "navigate", `{"url":5}`, 400, ""},
		{"POST", "navigate", `{"url":"http://page.test/","wait_until":"never"}`, 400, ""},
		{"POST", "navigate", `{"url":"http://page.test/","wait_until":5}`, 400, ""},
		{"POST", "navigate", `{"url":"page.test"}`, 400, "url_invalid"},
		{"POST", "navigate", `{"url":"http://127.0.0.1/"}`, 403, "url_denied"},
		{"POST", "tabs", `{"url":"file:///etc/passwd"}`, 400, "url_invalid"},
		{"POST", "tabs", `{"url":"http://127.1/"}`, 403, "url_denied"},
		{"POST", "tabs", `{"url":5}`, 400, ""},
		{"POST", "screenshot", `{"format":"bmp"}`, 400, ""},
		{"POST", "screenshot", `{"quality":0}`, 400, ""},
		{"POST", "screenshot", `{"quality":101}`, 400, ""},
		{"POST", "screenshot", `{"selector":5}`, 400, ""},
		{"POST", "click", `{}`, 400, ""},
		{"POST", "click", `{"selector":""}`, 400, ""},
		{"POST", "click", `{"ref":5}`, 400, ""},
		{"POST", "type", `{"selector":"a"}`, 400, ""},
		{"POST", "type", `{"text":"a"}`, 400, ""},
		{"POST", "evaluate", `{"script":""}`, 400, ""},
		{"POST", "pdf", `{"format":"Bogus"}`, 400, ""},
		{"POST", "pdf", `{"format":5}`, 400, ""},
		{"POST", "wait", `{}`, 400, ""},
		{"POST", "wait", `{"selector":"a","text":"b"}`, 400, ""},
		{"POST", "wait", `{"selector":"a","state":"gone"}`, 400, ""},
		{"POST", "wait", `{"load_state":"commit"}`, 400, ""},
		{"POST", "viewport", `{"width":0,"height":5}`, 400, ""},
		{"POST", "viewport", `{"width":5,"height":10001}`, 400, ""},
		{"POST", "viewport", `{"width":5,"height":5,"scale":0}`, 400, ""},
		{"POST", "cookies", `{}`, 400, ""},
		{"POST", "cookies", `{"cookies":[{"name":"a"}]}`, 400, ""},
		{"POST", "cookies", `{"cookies":[{"name":"a","value":"b","domain":"x","same_site":"Some"}]}`, 400, ""},
		{"POST", "storage", `{"local":{"a":1}}`, 400, ""},
		{"POST", "press", `{"key":"Nope"}`, 400, ""},
		{"POST", "hover", `{}`, 400, ""},
		{"POST", "select", `{"selector":"a"}`, 400, ""},
		{"POST", "scroll", `{"x":"far"}`, 400, ""},
		{"POST", "upload", `{"selector":"a"}`, 400, ""},
		{"POST", "back", `{"wait_until":"x"}`, 400, ""},
		// What passes finds no browser.
		{"POST", "navigate", `{"url":"http://page.test/","timeout":"soon"}`, 503, ""},
		{"POST", "screenshot", `{"format":"JPEG","quality":"50","full_page":"no"}`, 503, ""},
		{"GET", "content", ``, 503, ""},
		{"POST", "click", `{"selector":"a","timeout":-1}`, 503, ""},
		{"POST", "type", `{"selector":"a","text":""}`, 503, ""},
		{"POST", "evaluate", `{"script":"1"}`, 503, ""},
		{"POST", "pdf", `{"format":"letter"}`, 503, ""},
		{"GET", "cookies", ``, 503, ""},
		{"GET", "storage", ``, 503, ""},
		{"GET", "snapshot", ``, 503, ""},
		{"POST", "wait", `{"text":"a"}`, 503, ""},
		{"DELETE", "tabs/x", ``, 404, ""},
		{"POST", "tabs/x/activate", ``, 404, ""},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		status, out := r.call(c.method, "/browser/"+c.path, body)
		wantError(t, c.path+" "+c.body, status, out, c.status, c.code)
		if kind := map[int]string{400: "ValueError", 403: "PolicyDenied", 404: "ValueError", 503: "RuntimeError"}[c.status]; out["type"] != kind {
			t.Errorf("%s %s: %v", c.path, c.body, out)
		}
	}
	for _, path := range []string{"/browser/console", "/browser/network"} {
		if status, out := r.call("GET", path, nil); status != 200 {
			t.Errorf("%s: %d %v", path, status, out)
		}
	}
}

// TestCookiesAndTheProtocolNeedScopesOfTheirOwn calls them with the scope for
// pages alone.
func TestCookiesAndTheProtocolNeedScopesOfTheirOwn(t *testing.T) {
	text := fmt.Sprintf(`{"groups":["browser"],"auth":{"tokens":[{"id":"use","scopes":["browser:use"],"token_sha256":%q},{"id":"run","scopes":["browser:evaluate"],"token_sha256":%q}]}}`,
		digest("use"), digest("run"))
	r := newRig(t, rigOptions{policy: text})
	r.token = "use"
	for _, p := range [][2]string{{"GET", "cookies"}, {"POST", "cookies"}, {"DELETE", "cookies"}, {"GET", "storage"}, {"POST", "storage"}, {"GET", "cdp/json/version"}} {
		status, out := r.call(p[0], "/browser/"+p[1], nil)
		wantError(t, p[1], status, out, 403, "missing_scope")
	}
	r.token = "run"
	status, out := r.call("GET", "/browser/cdp/json/version", nil) // needs browser_navigate too
	wantError(t, "cdp", status, out, 403, "missing_scope")
	if out["endpoint"] != "browser_navigate" {
		t.Errorf("%v", out)
	}
	// Off with what they follow.
	r = newRig(t, rigOptions{policy: `{"groups":["browser"],"endpoints":{"browser_evaluate":{"enabled":false}}}`})
	for _, p := range []string{"cookies", "storage", "cdp/json/version"} {
		status, out := r.call("GET", "/browser/"+p, nil)
		wantError(t, p, status, out, 404, "endpoint_disabled")
	}
}

func TestAPageIsUsedFromEndToEnd(t *testing.T) {
	r := newPageRig(t, `{"groups":["browser"],"defaults":{"audit":"all"}}`)
	ok := func(method, path string, body any) map[string]any {
		t.Helper()
		status, out := r.call(method, "/browser/"+path, body)
		if status != 200 {
			t.Fatalf("%s %s: %d %v", path, body, status, out)
		}
		return out
	}
	logs := func() (out []string) {
		t.Helper()
		list, _ := ok("GET", "console", nil)["logs"].([]any)
		for _, e := range list {
			m, _ := e.(map[string]any)
			out = append(out, fmt.Sprint(m["type"], ": ", m["text"]))
		}
		return out
	}
	until := func(want string, get func() []string) {
		t.Helper()
		var all []string
		end := time.Now().Add(20 * time.Second)
		for time.Now().Before(end) {
			all = append(all, get()...)
			if strings.Contains(strings.Join(all, "\n"), want) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%q never came: %q", want, all)
	}
	const form = "http://page.test/form"
	got := ok("POST", "navigate", object{"url": "http://user:secret@page.test/form?q=secret#secret"})
	if got["title"] != "Form" || got["status"] != 200.0 {
		t.Errorf("%v", got)
	}
	ok("POST", "navigate", object{"url": form})

	ok("POST", "type", object{"selector": "#i", "text": "new é", "clear": true, "delay": 0})
	ok("POST", "type", object{"selector": "#t", "text": "a\nb", "delay": 0})
	if got := ok("POST", "evaluate", object{"script": "i.value + '|' + t.value"})["result"]; got != "new é|a\nb" {
		t.Errorf("typed %q", got)
	}
	logs()
	ok("POST", "click", object{"selector": "text=Go"})
	until("log: clicked new é", logs)
	ok("POST", "press", object{"key": "Control+A", "selector": "#t"})
	until("log: key a true", logs)
	ok("POST", "press", object{"key": "Delete"})
	ok("POST", "press", object{"key": "x"})
	if got := ok("POST", "evaluate", object{"script": "t.value"})["result"]; got != "x" {
		t.Errorf("after select all and delete: %q", got)
	}
	ok("POST", "evaluate", object{"script": "window.scrollTo(0, 0)"})
	ok("POST", "hover", object{"selector": "#t"})
	ok("POST", "hover", object{"selector": "#b"})
	until("log: over", logs)
	if got := ok("POST", "select", object{"selector": "#s", "values": []string{"1", "Two"}})["selected"]; fmt.Sprint(got) != "[1 2]" {
		t.Errorf("selected %v", got)
	}
	if got := ok("POST", "scroll", object{"y": 500})["y"]; got != 500.0 {
		t.Errorf("scrolled to %v", got)
	}

	shot := ok("POST", "screenshot", object{"selector": "#far"})
	if w, h := imageSize(t, shot); w != 120 || h != 40 || shot["width"] != 120.0 || shot["height"] != 40.0 {
		t.Errorf("element: %d × %d, %v × %v", w, h, shot["width"], shot["height"])
	}
	shot = ok("POST", "screenshot", object{"format": "jpeg", "quality": 10})
	if w, h := imageSize(t, shot); h < 3000 || float64(w) != shot["width"] || float64(h) != shot["height"] {
		t.Errorf("full page: %d × %d, %v × %v", w, h, shot["width"], shot["height"])
	}
	shot = ok("POST", "screenshot", object{"format": "webp", "full_page": "false"})
	if text, _ := shot["image_base64"].(string); !strings.HasPrefix(text, "UklGR") || shot["width"] != 1280.0 || shot["height"] != 720.0 {
		t.Errorf("webp: %.20s, %v × %v", text, shot["width"], shot["height"])
	}
	pdf := ok("POST", "pdf", object{"format": "a5"})
	if text, _ := base64.StdEncoding.DecodeString(fmt.Sprint(pdf["pdf_base64"])); !bytes.HasPrefix(text, []byte("%PDF-")) || pdf["pages"] == 1.0 {
		t.Errorf("pdf of %v pages: %.20q", pdf["pages"], text)
	}

	snap := ok("GET", "snapshot", nil)
	outline := fmt.Sprint(snap["snapshot"])
	ref := regexp.MustCompile(`- button "Go" \[ref=(e\d+)\]`).FindStringSubmatch(outline)
	if ref == nil || !strings.Contains(outline, `- heading "Hello" [level=1]`) || float64(strings.Count(outline, "[ref=e")) != snap["refs"] {
		t.Fatalf("%v refs in\n%s", snap["refs"], outline)
	}
	if got := fmt.Sprint(ok("GET", "snapshot?interactive=true", nil)["snapshot"]); strings.Contains(got, "heading") || !strings.Contains(got, ref[1]) {
		t.Errorf("interactive:\n%s", got)
	}
	ok("POST", "click", object{"ref": ref[1]})
	until("log: clicked new é", logs)
	status, out := r.call("POST", "/browser/click", object{"ref": "e9999"})
	wantError(t, "unknown ref", status, out, 404, "")

	ok("POST", "click", object{"selector": "#next"})
	if got := ok("GET", "content", nil); got["title"] != "/next" || got["url"] != "http://page.test/next" {
		t.Errorf("%v", got)
	}
	if got := ok("POST", "back", nil); got["title"] != "Form" {
		t.Errorf("back: %v", got)
	}
	if got := ok("POST", "forward", nil); got["title"] != "/next" {
		t.Errorf("forward: %v", got)
	}
	if got := ok("POST", "forward", nil); got["title"] != "/next" {
		t.Errorf("forward at the end: %v", got)
	}
	if got := ok("POST", "reload", nil); got["title"] != "/next" || got["status"] != 200.0 {
		t.Errorf("reload: %v", got)
	}

	ok("POST", "evaluate", object{"script": "setTimeout(() => document.body.append('it came'), 50); 1"})
	ok("POST", "wait", object{"text": "it came"})
	ok("POST", "wait", object{"url": "*/next"})
	ok("POST", "wait", object{"load_state": "networkidle"})
	ok("POST", "wait", object{"selector": "#nope", "state": "detached"})
	status, out = r.call("POST", "/browser/wait", object{"selector": "#nope", "timeout": 100})
	if status != 500 || out["type"] != "TimeoutError" || out["code"] != nil {
		t.Errorf("%d %v", status, out)
	}

	ok("POST", "storage", object{"local": object{"a": "1"}, "session": object{"b": "2"}})
	if got := ok("GET", "storage", nil); fmt.Sprint(got) != "map[local:map[a:1] session:map[b:2]]" {
		t.Errorf("%v", got)
	}
	ok("POST", "navigate", object{"url": "http://page.test/cookie"})
	ok("POST", "cookies", object{"cookies": []object{{"name": "mine", "value": "v", "domain": "page.test", "same_site": "Lax", "expires": 4e9}}})
	if got := fmt.Sprint(ok("GET", "cookies?urls=http://page.test/", nil)); !strings.Contains(got, "name:ck") || !strings.Contains(got, "name:mine") {
		t.Errorf("%v", got)
	}
	if got := ok("DELETE", "cookies", nil)["cleared"]; got != 2.0 {
		t.Errorf("cleared %v", got)
	}
	ok("POST", "viewport", object{"width": 800, "height": 600})
	if got := ok("POST", "evaluate", object{"script": "[innerWidth, innerHeight]"})["result"]; fmt.Sprint(got) != "[800 600]" {
		t.Errorf("%v", got)
	}

	ok("POST", "navigate", object{"url": "http://page.test/errs"})
	until("pageerror: Error: boom", logs)
	status, out = r.call("POST", "/browser/navigate", object{"url": "http://page.test/hop"})
	wantError(t, "redirect", status, out, 403, "url_denied")
	if out["endpoint"] != "browser_navigate" {
		t.Errorf("%v", out)
	}
	requests := fmt.Sprint(ok("GET", "network", nil)["requests"])
	if !strings.Contains(requests, form) {
		t.Errorf("requests: %s", requests)
	}

	ok("POST", "close", nil)
	if got := ok("GET", "content", nil); got["url"] != "about:blank" || got["content"] != "<html><head></head><body></body></html>" {
		t.Errorf("afresh: %v", got)
	}
	audit := r.audit.String()
	if strings.Contains(audit, "secret") || !strings.Contains(audit, `"http://page.test/form"`) {
		t.Errorf("the audit says %s", audit)
	}
}

func imageSize(t *testing.T, shot map[string]any) (w, h int) {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(fmt.Sprint(shot["image_base64"]))
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return c.Width, c.Height
}

// TestFilesOfPagesFollowTheFileRules uploads to a page and downloads from it.
func TestFilesOfPagesFollowTheFileRules(t *testing.T) {
	r := newPageRig(t, `{"groups":["browser"],"endpoints":{"files_download_stream":{"paths":{"deny":["**/secret*"]}},"files_upload_stream":{"limits":{"max_bytes":1000}}}}`)
	for _, name := range []string{"open.txt", "secret.txt"} {
		if err := os.WriteFile(filepath.Join(r.base, name), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if status, out := r.call("POST", "/browser/navigate", object{"url": "http://page.test/form", "wait_until": "load"}); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	status, out := r.call("POST", "/browser/upload", object{"selector": "#f", "files": []string{"secret.txt"}})
	wantError(t, "denied", status, out, 403, "path_denied")
	status, out = r.call("POST", "/browser/upload", object{"selector": "#f", "files": []string{"/etc/passwd"}})
	wantError(t, "outside", status, out, 403, "path_not_allowed")
	status, out = r.call("POST", "/browser/upload", object{"selector": "#b", "files": []string{"open.txt"}})
	if status != 500 {
		t.Errorf("no file input: %d %v", status, out)
	}
	status, out = r.call("POST", "/browser/upload", object{"selector": "#nope", "files": []string{"open.txt"}})
	wantError(t, "no element", status, out, 404, "")
	if status, out = r.call("POST", "/browser/upload", object{"selector": "#f", "files": []string{"open.txt"}}); status != 200 || out["uploaded"] != 1.0 {
		t.Errorf("%d %v", status, out)
	}
	if _, out = r.call("POST", "/browser/evaluate", object{"script": "f.files[0].text().then((s) => f.files[0].name + ' ' + s)"}); out["result"] != "open.txt content" {
		t.Errorf("%v", out)
	}

	download := func(want string) map[string]any {
		t.Helper()
		r.call("POST", "/browser/click", object{"selector": "#dl"})
		end := time.Now().Add(20 * time.Second)
		for {
			_, out := r.call("GET", "/browser/downloads", nil)
			list, _ := out["downloads"].([]any)
			if n := len(list); n > 0 {
				if d, _ := list[n-1].(map[string]any); d["state"] == want {
					return d
				}
			}
			if time.Now().After(end) {
				t.Fatalf("never %s: %v", want, out)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	d := download("completed")
	path := fmt.Sprint(d["path"])
	if filepath.Dir(path) != filepath.Join(r.base, "downloads") || d["bytes"] != 10.0 || d["url"] != "http://page.test/file" {
		t.Errorf("%v", d)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "downloaded" {
		t.Errorf("%q, %v", text, err)
	}
	if status, out = r.call("POST", "/browser/navigate", object{"url": "http://page.test/form", "wait_until": "load"}); status != 200 {
		t.Fatalf("%d %v", status, out)
	}
	// The next one of the name has another.
	again := download("completed")
	if again["path"] == path || again["path"] == "" {
		t.Errorf("%v and %v", again, d)
	}
}

func TestDownloadsAreRefusedWhereUploadsAre(t *testing.T) {
	for _, limits := range []string{`"enabled":false`, `"limits":{"max_bytes":3}`, `"params":{"deny_extensions":[".txt"]}`, `"paths":{"deny":["**/downloads/**"]}`} {
		r := newPageRig(t, `{"groups":["browser"],"endpoints":{"files_upload_stream":{`+limits+`}}}`)
		_, _ = r.call("POST", "/browser/navigate", object{"url": "http://page.test/form", "wait_until": "load"})
		_, _ = r.call("POST", "/browser/click", object{"selector": "#dl"})
		end := time.Now().Add(20 * time.Second)
		for {
			_, out := r.call("GET", "/browser/downloads", nil)
			text := fmt.Sprint(out["downloads"])
			if strings.Contains(text, "state:refused") || strings.Contains(text, "state:canceled") {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: %s", limits, text)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if left, _ := os.ReadDir(filepath.Join(r.base, "downloads")); len(left) > 0 {
			t.Errorf("%s: %v is kept", limits, left)
		}
	}
}
