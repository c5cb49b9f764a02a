package browser

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// site is a public site of the tests' internet that tells what it was asked.
func site(t *testing.T, n *internet, name, addr string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/torn" {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			return
		}
		w.Header().Set("X-Seen", strings.Join([]string{
			r.Method, r.Host, r.RequestURI, r.Header.Get("Proxy-Authorization") + r.Header.Get("X-Forwarded-For") + r.Header.Get("Via"),
		}, "|"))
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(srv.Close)
	n.names[name] = [][]string{{addr}}
	n.hosts[net.JoinHostPort(addr, "80")] = srv.Listener.Addr().String()
}

func startProxy(t *testing.T, n *internet, params string) *proxy {
	t.Helper()
	p, err := newProxy(t.Context(), NewRules(ruleOf(t, params)), n, n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func through(t *testing.T, p *proxy, secret string) *http.Client {
	t.Helper()
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.addr(), User: url.UserPassword(proxyUser, secret)})}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask gets an address and returns the status.
func ask(t *testing.T, c *http.Client, address string) (int, error) {
	t.Helper()
	res, err := c.Get(address)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, nil
}

func TestProxyServesOnlyWhoKnowsItsSecret(t *testing.T) {
	n := newInternet()
	site(t, n, "page.test", "93.184.216.34")
	p := startProxy(t, n, `{}`)
	for _, secret := range []string{"", "wrong", p.secret + "x"} {
		res, err := ask(t, through(t, p, secret), "http://page.test/")
		if err != nil || res != http.StatusProxyAuthRequired {
			t.Errorf("secret %q: %v, %v", secret, res, err)
		}
		if _, err := ask(t, through(t, p, secret), "https://page.test/"); err == nil {
			t.Errorf("secret %q opens a tunnel", secret)
		}
	}
	if len(n.dialled) > 0 {
		t.Errorf("dialled for strangers: %v", n.dialled)
	}
	if res, err := ask(t, through(t, p, p.secret), "http://page.test/"); err != nil || res != http.StatusOK {
		t.Errorf("with the secret: %v, %v", res, err)
	}
	if host, _, _ := net.SplitHostPort(p.addr()); host != "127.0.0.1" {
		t.Errorf("it listens on %s", host)
	}
}

func TestProxySendsRequestsOnAsTheyCame(t *testing.T) {
	n := newInternet()
	site(t, n, "page.test", "93.184.216.34")
	p := startProxy(t, n, `{}`)
	for _, target := range []string{"/", "/a%2Fb/%7Ec|d?x=1;y=2&z=%zz", "/?", "/a//b?c#d"} {
		conn, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		auth := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + p.secret))
		target, _, _ = strings.Cut(target, "#")
		fmt.Fprintf(conn, "GET http://page.test%s HTTP/1.1\r\nHost: page.test\r\nProxy-Authorization: Basic %s\r\nConnection: close\r\n\r\n", target, auth)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := res.Header.Get("X-Seen"), "GET|page.test|"+target+"|"; strings.TrimSuffix(got, "?|") != strings.TrimSuffix(want, "?|") {
			t.Errorf("%s: the site saw %q, want %q", target, got, want)
		}
		res.Body.Close()
		conn.Close()
	}
	res, err := through(t, p, p.secret).Post("http://page.test/", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != "body" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestProxyNeverDialsWhatIsForbidden is the server side of forgery: whatever
// the browser asks for, in whatever spelling, nothing private is dialled.
func TestProxyNeverDialsWhatIsForbidden(t *testing.T) {
	literal := []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "x.localhost",
		"0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "[::1]", "[::]", "[::ffff:127.0.0.1]",
		"[::ffff:a00:1]", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::7f00:1]", "224.0.0.1", "255.255.255.255",
	}
	for _, params := range []string{`{}`, `{"block_private_networks":true}`, `{"url_deny":["*never*"]}`, `{"url_allow":["*"]}`} {
		n := newInternet()
		n.names["private.test"] = [][]string{{"10.0.0.5"}}
		n.names["loop.test"] = [][]string{{"127.0.0.1"}}
		n.names["mixed.test"] = [][]string{{"93.184.216.34", "::1"}}
		n.names["mapped.test"] = [][]string{{"::ffff:127.0.0.1"}}
		hosts := slices.Clone(literal)
		if strings.Contains(params, "block_private") {
			hosts = append(hosts, "private.test", "loop.test", "mixed.test", "mapped.test")
		}
		p := startProxy(t, n, params)
		c := through(t, p, p.secret)
		for _, h := range hosts {
			for _, scheme := range []string{"http", "https"} {
				for _, port := range []string{"", ":8080"} {
					address := scheme + "://" + h + port + "/x"
					if res, err := ask(t, c, address); err == nil {
						t.Errorf("%s %s: %d", params, address, res)
					}
				}
			}
		}
		if len(n.dialled) > 0 {
			t.Errorf("%s: dialled %v", params, n.dialled)
		}
	}
}

// TestAnAnswerThatChangesDoesNotHelp gives a public address to whoever asks
// first and a private one to whoever asks again.
func TestAnAnswerThatChangesDoesNotHelp(t *testing.T) {
	n := newInternet()
	site(t, n, "rebind.test", "93.184.216.34")
	n.names["rebind.test"] = [][]string{{"93.184.216.34"}, {"127.0.0.1"}, {"10.0.0.5"}, {"127.0.0.1"}}
	p := startProxy(t, n, `{"block_private_networks":true}`)
	for range 6 {
		c := through(t, p, p.secret)
		_, _ = ask(t, c, "http://rebind.test/")
		_, _ = ask(t, c, "https://rebind.test/")
		p.out.CloseIdleConnections()
	}
	for _, a := range n.dialled {
		if !strings.HasPrefix(a, "93.184.216.34:") {
			t.Errorf("dialled %s", a)
		}
	}
	if len(n.dialled) == 0 {
		t.Error("the public answer was not used either")
	}
}

func TestDevelopersReachTheirOwnMachine(t *testing.T) {
	n := newInternet()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	n.hosts["127.0.0.1:3000"] = srv.Listener.Addr().String()
	p := startProxy(t, n, `{"allow_loopback":true}`)
	c := through(t, p, p.secret)
	for _, h := range []string{"localhost", "127.0.0.1", "app.localhost"} {
		if res, err := ask(t, c, "http://"+h+":3000/"); err != nil || res != http.StatusOK {
			t.Errorf("%s: %v %v", h, res, err)
		}
	}
	if _, err := ask(t, c, "http://10.0.0.1:3000/"); err == nil {
		t.Error("a neighbour is reached")
	}
	if n.looked["localhost"]+n.looked["app.localhost"] > 0 {
		t.Error("a name server is asked where this machine is")
	}
}

func TestPathsOfPlainRequestsAreJudged(t *testing.T) {
	n := newInternet()
	site(t, n, "page.test", "93.184.216.34")
	p := startProxy(t, n, `{"url_deny":["http://page.test/secret*"]}`)
	c := through(t, p, p.secret)
	if _, err := ask(t, c, "http://page.test/open"); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/secret", "/x/../secret", "/%73ecret", "/secret?x", "//../secret"} {
		if res, err := ask(t, c, "http://page.test"+path); err == nil {
			t.Errorf("%s: %d", path, res)
		}
	}
	p.setRules(NewRules(ruleOf(t, `{"url_deny":["http://page.test/*"]}`)))
	if _, err := ask(t, c, "http://page.test/open"); err == nil {
		t.Error("new rules are not in force")
	}
}

// tunnel opens a tunnel by hand.
func tunnel(t *testing.T, p *proxy, to string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	auth := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + p.secret))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", to, to, auth)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return conn, r, 0
	}
	defer res.Body.Close()
	return conn, r, res.StatusCode
}

// echo is a server that answers what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestTunnelsCarryTLSAndWebSocketsOnly(t *testing.T) {
	n := newInternet()
	to := echo(t)
	n.names["ws.test"] = [][]string{{"93.184.216.34"}}
	n.hosts["93.184.216.34:80"], n.hosts["93.184.216.34:443"] = to, to
	p := startProxy(t, n, `{"url_deny":["http://ws.test/secret*"]}`)
	socket := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: ws.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst frame"
	}
	for _, c := range []struct {
		name, to, send string
		want           bool
	}{
		{"TLS", "ws.test:443", "\x16\x03\x01hello", true},
		{"a WebSocket", "ws.test:80", socket("/chat"), true},
		{"a denied WebSocket", "ws.test:80", socket("/secret"), false},
		{"a denied WebSocket, disguised", "ws.test:80", socket("/x/../%73ecret"), false},
		{"a plain request", "ws.test:80", "GET /chat HTTP/1.1\r\nHost: ws.test\r\n\r\n", false},
		{"another protocol", "ws.test:80", "EHLO x\r\n\r\n", false},
		{"an endless head", "ws.test:80", "GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHead+1) + "\r\n\r\n", false},
	} {
		conn, r, status := tunnel(t, p, c.to)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d", c.name, status)
		}
		_, _ = io.WriteString(conn, c.send)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(r)
		if want := map[bool]string{true: c.send}[c.want]; string(got) != want {
			t.Errorf("%s: %.200q came through", c.name, got)
		}
	}
}

func TestProxyEndsWithItsTunnels(t *testing.T) {
	n := newInternet()
	to := echo(t)
	n.names["ws.test"] = [][]string{{"93.184.216.34"}}
	n.hosts["93.184.216.34:443"] = to
	p, err := newProxy(t.Context(), NewRules(ruleOf(t, `{}`)), n, n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, r, status := tunnel(t, p, "ws.test:443")
	if status != http.StatusOK {
		t.Fatal(status)
	}
	_, _ = io.WriteString(conn, "\x16x")
	if _, err := io.ReadFull(r, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	silent, _, _ := tunnel(t, p, "ws.test:443") // one that never begins
	closed := make(chan struct{})
	go func() { defer close(closed); p.close() }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatal("close hangs")
	}
	for _, c := range []net.Conn{conn, silent} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a tunnel is still open")
		}
	}
}

func TestFailuresOfTheNetworkAreNamed(t *testing.T) {
	n := newInternet()
	n.names["down.test"] = [][]string{{"93.184.216.34"}}
	p := startProxy(t, n, `{}`)
	c := through(t, p, p.secret)
	for address, want := range map[string]string{
		"http://down.test/": "net::ERR_CONNECTION_REFUSED", "https://down.test/": "net::ERR_CONNECTION_REFUSED",
		"http://nowhere.test/": "net::ERR_NAME_NOT_RESOLVED", "http://a.invalid/": "net::ERR_NAME_NOT_RESOLVED",
	} {
		if _, err := ask(t, c, address); err == nil {
			t.Errorf("%s answers", address)
		}
		u, err := ParseURL(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.why(u); err == nil || netError(err) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if n.looked["a.invalid"] > 0 {
		t.Error("a name that cannot exist is looked up")
	}
}

func TestATornAnswerIsTornForThePage(t *testing.T) {
	n := newInternet()
	site(t, n, "page.test", "93.184.216.34")
	p := startProxy(t, n, `{}`)
	res, err := through(t, p, p.secret).Get("http://page.test/torn")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%q passes for a whole answer", text)
	}
}
