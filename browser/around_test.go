package browser

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestNothingGoesAroundTheProxy listens on this machine for what Chrome might
// send by other ways than HTTP.
func TestNothingGoesAroundTheProxy(t *testing.T) {
	r := newRig(t, `{"allow_loopback":true}`, Options{})
	r.net.hosts["127.0.0.1:80"] = r.net.hosts[pageAddr+":80"] // a secure context without TLS
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			if _, _, err := udp.ReadFrom(make([]byte, 1500)); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			c.Close()
		}
	}()
	defer func() { udp.Close(); tcp.Close(); <-done; <-done }()

	r.serve("/", "x")
	r.mustOpen("http://localhost/")
	if got := r.js(`typeof WebTransport`); got != "function" {
		t.Fatalf("WebTransport is %v", got)
	}
	at := udp.LocalAddr().String()
	r.net.mu.Lock()
	r.net.hosts[at] = r.net.hosts[pageAddr+":80"] // the way through the proxy is allowed
	r.net.mu.Unlock()
	got := r.js(strings.ReplaceAll(`async () => {
	  const c = new RTCPeerConnection({iceServers: [{urls: "stun:HOST"}, {urls: ["turn:HOST", "turn:HOST?transport=tcp"], username: "u", credential: "c"}]});
	  c.createDataChannel("x");
	  const found = [];
	  const all = new Promise((done) => { c.onicecandidate = (e) => e.candidate ? found.push(e.candidate.candidate) : done(); setTimeout(done, 3000); });
	  await c.setLocalDescription(await c.createOffer());
	  await all;
	  try { await Promise.race([new WebTransport("https://HOST/").ready, new Promise((done) => setTimeout(done, 1000))]); } catch {}
	  return found;
	}`, "HOST", at))
	if heard.Load() > 0 {
		t.Errorf("%d packets or connections came around the proxy", heard.Load())
	}
	if list, ok := got.([]any); !ok || len(list) > 0 {
		t.Errorf("the page learns ways to this machine: %v", got)
	}
}

// TestPathsInsideTLSAreJudgedInTheBrowser asks for allowed and denied addresses
// of a site that the proxy cannot look into.
func TestPathsInsideTLSAreJudgedInTheBrowser(t *testing.T) {
	r := newRig(t, `{"url_deny":["https://secure.test/secret*"],"url_allow":["https://secure.test/*"]}`, Options{})
	var secret, other atomic.Int64
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/secret") {
			secret.Add(1)
		} else {
			other.Add(1)
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<title>secure</title><img src="/secret.png"><iframe src="/secret"></iframe>
			<script>new Worker(URL.createObjectURL(new Blob(['fetch("https://secure.test/secret-of-worker").catch(() => 0)'])))</script>`))
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	r.net.names["secure.test"] = [][]string{{"93.184.216.36"}}
	r.net.hosts["93.184.216.36:443"] = srv.Listener.Addr().String()
	err := r.do(func(ctx context.Context, p *Page) error {
		return p.call(ctx, "Security.setIgnoreCertificateErrors", object{"ignore": true}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := r.mustOpen("https://secure.test/page"); v.Title != "secure" || v.Status != 200 {
		t.Errorf("%+v", v)
	}
	if got := r.js(`fetch("/secret-of-fetch").then(() => "got it", () => "refused")`); got != "refused" {
		t.Errorf("fetch: %v", got)
	}
	if got := r.js(`fetch("/open").then(() => "got it", () => "refused")`); got != "got it" {
		t.Errorf("fetch of an allowed address: %v", got)
	}
	_, err = r.open("https://secure.test/secret", Load)
	if got := codeOf(err); got != "url_not_allowed" {
		t.Errorf("navigation: %v", err)
	}
	if secret.Load() > 0 || other.Load() == 0 {
		t.Errorf("%d denied and %d other requests arrived", secret.Load(), other.Load())
	}
}

// TestRulesHoldForAPageThatIsThereAlready changes them under an open page.
func TestRulesHoldForAPageThatIsThereAlready(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", "x")
	r.mustOpen("http://page.test/")
	const ask = `fetch("http://other.test/", {mode: "no-cors"}).then(() => "got it", () => "refused")`
	if got := r.js(ask); got != "got it" {
		t.Fatal(got)
	}
	r.rule = ruleOf(t, `{"url_deny":["http://other.test/*"]}`)
	if got := r.js(ask); got != "refused" {
		t.Errorf("under new rules: %v", got)
	}
	r.rule = ruleOf(t, `{}`)
	if got := r.js(ask); got != "got it" {
		t.Errorf("under the old rules again: %v", got)
	}
}

// TestAPageLeftOpenObeysNewRulesAtOnce changes them while nobody calls.
func TestAPageLeftOpenObeysNewRulesAtOnce(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<script>
		const ask = (host) => fetch("http://" + host + "/poll", {mode: "no-cors"}).catch(() => 0);
		const poll = () => Promise.all([ask("page.test"), ask("other.test")]).then(() => setTimeout(poll, 20));
		poll();
	</script>`)
	r.mustOpen("http://page.test/")
	polls := func(host string, n int) {
		t.Helper()
		before := r.seen(host + " /poll")
		eventually(t, "the page asks "+host, func() bool { return r.seen(host+" /poll") >= before+n })
	}
	polls("other.test", 2)
	r.b.Obey(ruleOf(t, `{"url_deny":["http://other.test/*"]}`))
	polls("page.test", 2) // what was under way is over
	before := r.seen("other.test /poll")
	polls("page.test", 3)
	if n := r.seen("other.test /poll"); n != before {
		t.Errorf("%d requests came to what is denied", n-before)
	}
}

// TestAddressesAreWhatChromeMakesOfThem holds our parser against Chrome's.
func TestAddressesAreWhatChromeMakesOfThem(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	texts := []string{}
	for _, c := range addresses {
		texts = append(texts, c.text)
	}
	for _, host := range []string{
		"①②③.test", "ǆ.test", "ﬀ.test", "Ｋelvin.test", "x\u200dy.test", "faß.de", "ΣΊΓΜΑΣ.gr", "a。b．c｡d", "１.２.３.４", "0300.0250.1", "0xc0.0xa8.1",
		"４２９４９６７２９５", "xn--bcher-kva.de", "XN--BCHER-KVA.DE", "a..b", "a.b..", "-a-.test", "a_b.test", "１２７．１", "℀.test", "½.test", "❤.test",
	} {
		texts = append(texts, "http://"+host+"/")
	}
	list, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := r.js(string(list) + `.map((t) => { try { const u = new URL(t); return u.protocol + "//" + u.host + u.pathname + (u.search || (u.href.split("#")[0].endsWith("?") ? "?" : "")) } catch { return "" } })`).([]any)
	if !ok || len(got) != len(texts) {
		t.Fatalf("%v", got)
	}
	for i, text := range texts {
		u, err := ParseURL(text)
		if err != nil {
			continue // to be stricter is no harm
		}
		if want, _ := got[i].(string); u.String() != want {
			t.Errorf("%q: ours %q, Chrome's %q", text, u.String(), want)
		}
	}
}
