package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestALongAddressReachesTheSite asks for one that is longer than HTTP libraries
// take by themselves, but not too long for a browser.
func TestALongAddressReachesTheSite(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	var asked atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked.Store(int64(len(q.RequestURI)))
		fmt.Fprint(w, "here")
	}))
	srv.Config.MaxHeaderBytes = 8 << 20
	srv.Start()
	t.Cleanup(srv.Close)
	r.net.names["long.test"] = [][]string{{"93.184.216.40"}}
	r.net.hosts[net.JoinHostPort("93.184.216.40", "80")] = srv.Listener.Addr().String()
	path := "/" + strings.Repeat("x", 1_200_000) // Chrome needs seconds for such
	if v := r.mustOpen("http://long.test" + path); v.Status != http.StatusOK || asked.Load() != int64(len(path)) {
		t.Errorf("status %d, the site saw %d bytes", v.Status, asked.Load())
	}
	if got := r.js(`fetch("/?" + "y".repeat(1200000)).then((a) => a.status, String)`); got != float64(http.StatusOK) {
		t.Errorf("fetched: %v", got)
	}
}

// TestWebSocketsMayHaveAPercentSignAndALongAddress opens tunnels as Chrome does
// for them.
func TestWebSocketsMayHaveAPercentSignAndALongAddress(t *testing.T) {
	n := newInternet()
	n.names["ws.test"] = [][]string{{"93.184.216.34"}}
	n.hosts["93.184.216.34:80"] = echo(t)
	p := startProxy(t, n, `{"url_deny":["http://ws.test/secret%*"]}`)
	for path, want := range map[string]bool{
		"/100%": true, "/%?%zz": true, "/" + strings.Repeat("x", 1_900_000): true,
		"/secret%": false, "/a/../secret%/%": false,
	} {
		conn, r, status := tunnel(t, p, "ws.test:80")
		if status != http.StatusOK {
			t.Fatal(status)
		}
		head := "GET " + path + " HTTP/1.1\r\nHost: ws.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
		go func() { _, _ = conn.Write([]byte(head)) }()
		got, err := r.ReadString('\n')
		if line, _, _ := strings.Cut(head, "\n"); (got == line+"\n") != want {
			t.Errorf("%.40s: %.60q, %v", path, got, err)
		}
	}
}
