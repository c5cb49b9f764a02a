package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vectors are the ways in which a page asks for an address, TARGET, of the
// sites or of what is forbidden. Each is an HTML page.
var vectors = map[string]string{
	"redirect":          `<img src="/go?to=TARGET">`,
	"meta refresh":      `<meta http-equiv=refresh content="0;url=TARGET">`,
	"location":          `<script>setTimeout(() => location.href = "TARGET")</script>`,
	"link":              `<a id=a href="TARGET">x</a><script>setTimeout(() => document.getElementById("a").click())</script>`,
	"form":              `<form id=f action="TARGET"><input name=a></form><script>setTimeout(() => f.submit())</script>`,
	"posted form":       `<form id=f action="TARGET" method=post><input name=a></form><script>setTimeout(() => f.submit())</script>`,
	"frame":             `<iframe src="TARGET"></iframe>`,
	"frame in a frame":  `<iframe srcdoc='<iframe src="TARGET"></iframe>'></iframe>`,
	"sandboxed frame":   `<iframe sandbox="allow-scripts" srcdoc='<img src="TARGET">'></iframe>`,
	"object":            `<object data="TARGET"></object>`,
	"embed":             `<embed src="TARGET">`,
	"picture":           `<img src="TARGET">`,
	"picture in SVG":    `<svg><image href="TARGET" width=9 height=9 /></svg>`,
	"input image":       `<input type=image src="TARGET">`,
	"script":            `<script src="TARGET"></script>`,
	"module":            `<script type=module src="TARGET"></script>`,
	"dynamic import":    `<script>import("TARGET").catch(() => 0)</script>`,
	"style sheet":       `<link rel=stylesheet href="TARGET">`,
	"style import":      `<style>@import "TARGET";</style>`,
	"background":        `<style>body { background: url("TARGET") }</style><body>x</body>`,
	"font":              `<style>@font-face { font-family: f; src: url("TARGET") } p { font-family: f }</style><p>x</p>`,
	"video":             `<video src="TARGET" preload=auto autoplay muted></video>`,
	"fetch":             `<script>fetch("TARGET", {mode: "no-cors"}).catch(() => 0)</script>`,
	"fetch of POST":     `<script>fetch("TARGET", {method: "POST", mode: "no-cors", body: "x"}).catch(() => 0)</script>`,
	"fetch, redirected": `<script>fetch("/go?to=TARGET", {mode: "no-cors"}).catch(() => 0)</script>`,
	"kept fetch":        `<script>fetch("TARGET", {mode: "no-cors", keepalive: true}).catch(() => 0)</script>`,
	"XMLHttpRequest":    `<script>const x = new XMLHttpRequest(); x.open("GET", "TARGET"); x.onerror = () => 0; x.send()</script>`,
	"beacon":            `<script>navigator.sendBeacon("TARGET", "x")</script>`,
	"event source":      `<script>new EventSource("TARGET")</script>`,
	"worker":            `<script>new Worker(URL.createObjectURL(new Blob(['fetch("TARGET", {mode: "no-cors"}).catch(() => 0)'])))</script>`,
	"imported script":   `<script>new Worker(URL.createObjectURL(new Blob(['importScripts("TARGET")'])))</script>`,
	"shared worker":     `<script>new SharedWorker(URL.createObjectURL(new Blob(['fetch("TARGET", {mode: "no-cors"}).catch(() => 0)'])))</script>`,
	"preload":           `<link rel=preload as=image href="TARGET">`,
	"prefetch":          `<link rel=prefetch href="TARGET">`,
	"popup":             `<button id=b onclick='window.open("TARGET")'>x</button>`,
	"popup, unrelated":  `<button id=b onclick='window.open("TARGET", "_blank", "noopener")'>x</button>`,
	"tab by link":       `<a id=b href="TARGET" target=_blank rel=noopener>x</a>`,
}

// sockets are vectors for WebSockets, whose TARGET is ws:.
var sockets = map[string]string{
	"WebSocket":           `<script>new WebSocket("TARGET")</script>`,
	"WebSocket of worker": `<script>new Worker(URL.createObjectURL(new Blob(['new WebSocket("TARGET")'])))</script>`,
}

// harmless are vectors that open connections but of which nothing can be seen.
var harmless = map[string]string{
	"preconnect":   `<link rel=preconnect href="TARGET">`,
	"name lookup":  `<link rel=dns-prefetch href="TARGET">`,
	"prerender":    `<script type=speculationrules>{"prerender":[{"source":"list","urls":["TARGET"]}]}</script>`,
	"ping":         `<a id=a href="#x" ping="TARGET">x</a><script>document.getElementById("a").click()</script>`,
	"webrtc":       `<script>const c = new RTCPeerConnection({iceServers: [{urls: "stun:HOST"}, {urls: "turn:HOST?transport=tcp", username: "u", credential: "c"}]}); c.createDataChannel("x"); c.createOffer().then((o) => c.setLocalDescription(o)).catch(() => 0)</script>`,
	"webtransport": `<script>try { new WebTransport("https://HOST/").ready.catch(() => 0) } catch {}</script>`,
}

// forbidden are addresses that no page may reach.
var forbidden = []string{
	"http://127.0.0.1:PORT/FORBIDDEN", "http://localhost:PORT/FORBIDDEN", "http://127.1:PORT/FORBIDDEN", "http://2130706433:PORT/FORBIDDEN",
	"http://[::1]:PORT/FORBIDDEN", "http://[::ffff:127.0.0.1]:PORT/FORBIDDEN", "http://0.0.0.0:PORT/FORBIDDEN",
	"http://169.254.169.254/FORBIDDEN", "http://10.0.0.1/FORBIDDEN", "http://x.localhost:PORT/FORBIDDEN",
	"https://127.0.0.1:PORT/FORBIDDEN", "http://private.test/FORBIDDEN", "https://private.test/FORBIDDEN", "http://rebind.test/FORBIDDEN",
	"file:///etc/hostname",
}

// TestNoPageReachesWhatIsForbidden serves pages that ask for an allowed address,
// which must arrive, so that the vector is known to work, and for forbidden
// ones, none of which may be dialled.
func TestNoPageReachesWhatIsForbidden(t *testing.T) {
	r := newRig(t, `{"block_private_networks":true}`, Options{})
	r.net.names["private.test"] = [][]string{{"10.0.0.5"}}
	r.net.names["rebind.test"] = [][]string{{"127.0.0.1"}}
	port := 0
	for hp := range r.net.hosts {
		_, p, _ := strings.Cut(r.net.hosts[hp], ":")
		port, _ = strconv.Atoi(p) // a port of this machine where the sites answer
	}
	r.mux.HandleFunc("/go", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Location", q.URL.Query().Get("to"))
		w.WriteHeader(http.StatusFound)
	})
	r.mux.HandleFunc("/page", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		html := "<h1>page</h1>"
		for _, to := range q.URL.Query()["to"] {
			v := q.URL.Query().Get("v")
			body := vectors[v] + sockets[v] + harmless[v]
			if strings.Contains(body, "/go?to=TARGET") {
				to = url.QueryEscape(to)
			}
			_, host, _ := strings.Cut(to, "://")
			host, _, _ = strings.Cut(host, "/")
			html += strings.NewReplacer("TARGET", to, "HOST", host).Replace(body)
		}
		_, _ = io.WriteString(w, html)
	})
	r.serve("/", "anything")

	press := `document.getElementById("b")?.click(); 1`
	run := func(v string, targets ...string) {
		t.Helper()
		q := url.Values{"v": {v}, "to": targets}
		_, _ = r.open("http://page.test/page?"+q.Encode(), DOMContent)
		err := r.do(func(ctx context.Context, p *Page) error {
			if _, err := p.Evaluate(ctx, press); err != nil {
				return err
			}
			return p.settle(ctx)
		})
		// A page that goes elsewhere by itself may do so under the call.
		if err != nil && !strings.Contains(err.Error(), "navigated or closed") {
			t.Fatalf("%s: %v", v, err)
		}
	}
	allowed := func(v, target, path string) {
		t.Helper()
		run(v, target)
		eventually(t, v+" reaches an allowed address", func() bool { return r.seen("other.test "+path) > 0 })
	}
	var bad []string
	for _, f := range forbidden {
		bad = append(bad, strings.ReplaceAll(f, "PORT", strconv.Itoa(port)))
	}
	i, turn := 0, 0
	for _, set := range []map[string]string{vectors, sockets} {
		for v := range set {
			i++
			path := fmt.Sprintf("/allowed%d", i)
			target := "http://other.test" + path
			if _, ok := sockets[v]; ok {
				target = "ws://other.test" + path
			}
			allowed(v, target, path)
		}
	}
	for _, set := range []map[string]string{vectors, sockets, harmless} {
		for v := range set {
			targets := slices.Clone(bad)
			if _, ok := sockets[v]; ok {
				for i := range targets {
					targets[i] = strings.Replace(targets[i], "http", "ws", 1)
				}
			}
			if strings.Contains(set[v], "location") || strings.Contains(set[v], "refresh") || strings.Contains(set[v], "id=") {
				for range 3 { // the page goes to one only
					run(v, targets[turn%len(targets)])
					turn++
				}
				continue
			}
			run(v, targets...)
		}
		r.closeOthers()
	}
	// What was asked last is asked by now when a page that is asked for after
	// it has come.
	allowed("fetch", "http://other.test/last", "/last")
	for _, h := range r.hits {
		if strings.Contains(h, "FORBIDDEN") {
			t.Errorf("arrived: %s", h)
		}
	}
}

// closeOthers closes the popups.
func (r *rig) closeOthers() {
	r.t.Helper()
	tabs, err := r.b.Tabs(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, tab := range tabs {
		if !tab.Active {
			_ = r.b.CloseTab(r.t.Context(), tab.ID)
		}
	}
}

// TestNavigationsToForbiddenAddressesAreRefusedByTheirCode follows redirects of
// all kinds.
func TestNavigationsToForbiddenAddressesAreRefusedByTheirCode(t *testing.T) {
	r := newRig(t, `{"url_deny":["http://other.test/secret*"]}`, Options{})
	r.serve("/", "x")
	r.mux.HandleFunc("/go", func(w http.ResponseWriter, q *http.Request) {
		code, _ := strconv.Atoi(q.URL.Query().Get("code"))
		w.Header().Set("Location", q.URL.Query().Get("to"))
		w.WriteHeader(code)
	})
	r.serve("/hop", `<script>location.replace("http://other.test/secret")</script>`)
	for to, want := range map[string]string{
		"http://127.0.0.1:9/":        "url_denied",
		"http://other.test/secret/x": "url_not_allowed",
		"http://169.254.169.254/":    "url_denied",
	} {
		for _, code := range []string{"301", "302", "303", "307", "308"} {
			_, err := r.open("http://page.test/go?code="+code+"&to="+url.QueryEscape(to), Load)
			if got := string(codeOf(err)); got != want {
				t.Errorf("%s to %s: %q, want %q", code, to, got, want)
			}
		}
	}
	if got := r.mustOpen("http://page.test/x").Status; got != 200 {
		t.Errorf("after the refusals: %d", got)
	}
	if r.seen("other.test /secret") > 0 {
		t.Error("a denied address was fetched")
	}
	_, err := r.open("http://page.test/hop", Idle)
	if got := string(codeOf(err)); err != nil && got != "url_not_allowed" {
		t.Errorf("a page that goes on to a denied address: %v", err)
	}
	eventually(t, "the page says that it was blocked", func() bool { return r.seen("page.test /hop") > 0 })
	if r.seen("other.test /secret") > 0 {
		t.Error("a denied address was fetched")
	}
}

// TestFilesAreNotReadThroughTheBrowser is what page services were broken by.
func TestFilesAreNotReadThroughTheBrowser(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/frame", `<iframe src="file:///etc/passwd"></iframe><object data="file:///etc/passwd"></object><img src="file:///etc/passwd">`)
	r.serve("/go", `<script>setTimeout(() => location.href = "file:///etc/passwd")</script>`)
	r.serve("/view", `<script>setTimeout(() => location.href = "view-source:file:///etc/passwd")</script>`)
	for _, path := range []string{"/frame", "/go", "/view"} {
		r.mustOpen("http://page.test" + path)
		for _, script := range []string{
			`fetch("file:///etc/passwd").then((r) => r.text(), () => "refused")`,
			`new Promise((done) => { const x = new XMLHttpRequest(); x.onload = () => done(x.responseText); x.onerror = () => done("refused"); x.open("GET", "file:///etc/passwd"); x.send() })`,
		} {
			if got := r.js(script); got != "refused" {
				t.Errorf("%s: %v", path, got)
			}
		}
		for _, go_ := range []string{"file:///etc/passwd", "chrome://version", "view-source:file:///etc/passwd", "data:text/html,root:x"} {
			r.js(`location.href = ` + strconv.Quote(go_) + `; 1`)
			if err := r.do(func(ctx context.Context, p *Page) error { return p.settle(ctx) }); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(r.js(`document.documentElement.innerText + location.href`)); strings.Contains(got, "root:") || !strings.Contains(got, "page.test") {
				t.Errorf("%s: %s leads to %.200s", path, go_, got)
			}
		}
	}
}
