package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// endless is a site that never ends its answer, and says the same to WebSockets.
func endless(t *testing.T, n *internet, name, addr string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\n")
				_, _ = io.Copy(conn, buffered)
				conn.Close()
			}
			return
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat("more\n", 1000))
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	t.Cleanup(srv.Close)
	n.names[name] = [][]string{{addr}}
	n.hosts[net.JoinHostPort(addr, "80")] = srv.Listener.Addr().String()
}

// ended tells whether what is read from ends, and not only because nothing
// comes.
func ended(conn net.Conn, r io.Reader) bool {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.Copy(io.Discard, r)
	timeout, ok := errors.AsType[net.Error](err)
	return !ok || !timeout.Timeout()
}

// TestWhatIsOpenIsCutWhenItsHostIsDenied opens a stream and tunnels, changes the
// rules and looks which of them live.
func TestWhatIsOpenIsCutWhenItsHostIsDenied(t *testing.T) {
	const ws = "GET /chat HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
	for _, c := range []struct {
		name, before, after string
		lives               map[string]bool // kind + host
	}{
		{"deny a host", `{}`, `{"url_deny":["http://a.test/*","https://a.test/*"]}`, map[string]bool{"TLS b": true, "WebSocket b": true, "stream b": true}},
		{"allow another", `{}`, `{"url_allow":["http://b.test/*","https://b.test/*"]}`, map[string]bool{"TLS b": true, "WebSocket b": true, "stream b": true}},
		{"block what is private", `{}`, `{"block_private_networks":true}`, map[string]bool{"TLS b": true, "WebSocket b": true, "stream b": true}},
		{"deny a path", `{}`, `{"url_deny":["http://a.test/chat","https://a.test/chat"]}`, map[string]bool{
			"TLS b": true, "WebSocket b": true, "stream b": true, "stream a": true,
		}},
		{"the same again", `{"url_deny":["*/bad"]}`, `{"url_deny":["*/bad"]}`, map[string]bool{
			"TLS a": true, "WebSocket a": true, "stream a": true, "TLS b": true, "WebSocket b": true, "stream b": true,
		}},
		{"allow more", `{"url_allow":["http://a.test/*","https://a.test/*","http://b.test/*","https://b.test/*"]}`, `{"url_allow":["http://a.test/*","https://a.test/*","http://b.test/*","https://b.test/*","*"]}`, map[string]bool{
			"TLS a": true, "WebSocket a": true, "stream a": true, "TLS b": true, "WebSocket b": true, "stream b": true,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newInternet()
			to := echo(t)
			p := startProxy(t, n, c.before)
			type open struct {
				conn net.Conn
				r    *bufio.Reader
			}
			all := map[string]open{}
			for host, addr := range map[string]string{"a": "10.0.0.5", "b": "93.184.216.35"} {
				endless(t, n, host+".test", addr)
				n.hosts[addr+":443"] = to
				res, err := through(t, p, p.secret).Get("http://" + host + ".test/stream") //nolint:bodyclose // it is, when the test is over
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				near, far := net.Pipe()
				go func() { // the stream's end is the pipe's
					_, _ = io.Copy(far, res.Body)
					far.Close()
				}()
				t.Cleanup(func() { res.Body.Close(); near.Close() })
				all["stream "+host] = open{near, bufio.NewReader(near)}
				for kind, hello := range map[string]string{"TLS": "\x16x", "WebSocket": ws} {
					port := map[string]string{"TLS": "443", "WebSocket": "80"}[kind]
					conn, r, status := tunnel(t, p, host+".test:"+port)
					if status != http.StatusOK {
						t.Fatal(status)
					}
					fmt.Fprint(conn, hello)
					all[kind+" "+host] = open{conn, r}
				}
			}
			for kind, o := range all { // they have begun
				if _, err := o.r.ReadByte(); err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
			}
			p.setRules(NewRules(ruleOf(t, c.after)))
			for kind, o := range all {
				if !c.lives[kind] {
					if !ended(o.conn, o.r) {
						t.Errorf("%s lives on", kind)
					}
					continue
				}
				if strings.HasPrefix(kind, "stream") {
					if _, err := io.CopyN(io.Discard, o.r, 100_000); err != nil {
						t.Errorf("%s is cut: %v", kind, err)
					}
					continue
				}
				_, _ = io.Copy(io.Discard, io.LimitReader(o.r, int64(o.r.Buffered())))
				_, _ = io.WriteString(o.conn, "\x00more\n")
				if _, err := o.r.ReadString('\n'); err != nil {
					t.Errorf("%s is cut: %v", kind, err)
				}
			}
		})
	}
}

// TestNothingBeginsUnderRulesThatWereReplaced changes the rules while a
// connection is being made.
func TestNothingBeginsUnderRulesThatWereReplaced(t *testing.T) {
	n := newInternet()
	site(t, n, "private.test", "10.0.0.5")
	slow := &slowDialer{internet: n, asked: make(chan struct{}), goOn: make(chan struct{})}
	p := startProxy(t, n, `{}`)
	p.dialer = slow
	got := make(chan error, 1)
	go func() {
		res, err := through(t, p, p.secret).Get("http://private.test/")
		if err == nil {
			res.Body.Close()
		}
		got <- err
	}()
	<-slow.asked
	p.setRules(NewRules(ruleOf(t, `{"block_private_networks":true}`)))
	close(slow.goOn)
	if err := <-got; err == nil {
		t.Error("it was reached")
	}
	eventually(t, "nothing is under way", func() bool { return len(p.under.list()) == 0 })
}

type slowDialer struct {
	*internet
	asked, goOn chan struct{}
}

func (d *slowDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	close(d.asked)
	<-d.goOn
	return d.internet.DialContext(ctx, network, address)
}

// TestACallUnderOldRulesDoesNotBringThemBack calls with the rule that a reload
// has replaced, as a call does that began before it.
func TestACallUnderOldRulesDoesNotBringThemBack(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", ``)
	older, newer := r.rule, ruleOf(t, `{"url_deny":["http://other.test/*"]}`)
	r.b.Obey(newer)
	for _, when := range []string{"a start", "a call"} {
		for _, rule := range []*policy.Rule{newer, older} {
			r.rule = rule
			r.mustOpen("http://page.test/")
			if got := r.js(`fetch("http://other.test/", {mode: "no-cors"}).then(() => "got it", () => "refused")`); got != "refused" {
				t.Errorf("%s: %v", when, got)
			}
		}
	}
}

// TestAStreamOfAPageIsCutByNewRules has a page read what a site sends on and on.
func TestAStreamOfAPageIsCutByNewRules(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", ``)
	r.mux.HandleFunc("/stream", func(w http.ResponseWriter, q *http.Request) {
		for q.Context().Err() == nil {
			if _, err := io.WriteString(w, "more "); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	r.mustOpen("http://page.test/")
	r.js(`(async () => {
		const reader = (await fetch("http://other.test/stream")).body.getReader();
		await reader.read();
		window.over = (async () => { for (;;) { try { if ((await reader.read()).done) return "ended" } catch (e) { return "cut" } } })();
	})()`)
	r.b.Obey(ruleOf(t, `{"url_deny":["http://other.test/*"]}`))
	if got := r.js(`window.over`); got != "cut" {
		t.Errorf("the stream: %v", got)
	}
}
