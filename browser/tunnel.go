package browser

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// maxHead bounds the head of a request. Chrome makes addresses of 2 MiB, and
// there are cookies.
const maxHead = 4 << 20

// helloTime is how long a new tunnel may stay silent.
const helloTime = time.Minute

// connect serves a tunnel, which carries TLS or the request of a WebSocket.
func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	u, err := ParseURL("https://" + r.Host + "/")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	ctx, end, err := p.under.cuttable(r.Context(), func(rules *Rules) error { return rules.tunnel(u) })
	if err != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	defer end()
	if len(host) > 1 && host[0] == '[' {
		host = host[1 : len(host)-1]
	}
	up, err := p.dial(ctx, host, port)
	if err != nil {
		status := http.StatusBadGateway
		if policy.IsDenied(err) {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
		return
	}
	defer func(up net.Conn) { _ = up.Close() }(up)
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	defer context.AfterFunc(ctx, func() { _ = down.Close() })()
	if _, err := io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	first, carried, err := p.opening(down, buffered.Reader, u)
	if err != nil {
		return
	}
	carried.cut = func() { _ = down.Close() } // which ends both
	over, err := p.under.begin(carried)
	if err != nil {
		return
	}
	defer over()
	if _, err := up.Write(first); err != nil {
		return
	}
	if kept, ok := up.(*upstream); ok {
		up = kept.Conn // the system copies between two of its own
	}
	join(down, up)
}

// opening reads what a tunnel begins with: a few bytes of TLS, which nobody can
// look into, or the whole head of a request for a WebSocket, whose address is
// to be judged.
func (p *proxy) opening(down net.Conn, from *bufio.Reader, u URL) ([]byte, *exchange, error) {
	_ = down.SetReadDeadline(time.Now().Add(helloTime))
	defer func() { _ = down.SetReadDeadline(time.Time{}) }()
	lead, err := from.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	const handshake = 22 // the first byte of TLS
	if lead[0] == handshake {
		first, err := from.Peek(from.Buffered())
		return first, &exchange{
			judge:    func(rules *Rules) error { return rules.secure(u) },
			narrowed: func(older, newer *Rules) bool { return newer.narrower(older, u) },
		}, err
	}
	var head bytes.Buffer
	limited := io.TeeReader(&io.LimitedReader{R: from, N: maxHead}, &head)
	target, req, err := readHead(bufio.NewReader(limited))
	if err != nil {
		return nil, nil, err
	}
	ws := URL{Scheme: "ws", Host: u.Host, Port: u.Port, Path: normalPath(target)}
	if req.Header.Get("Upgrade") == "" {
		return nil, nil, refuse(policy.URLNotAllowed, "Only WebSockets may be spoken without TLS in a tunnel")
	}
	rest, err := from.Peek(from.Buffered())
	return append(head.Bytes(), rest...), &exchange{judge: func(rules *Rules) error { return rules.admit(ws) }}, err
}

// readHead reads the head of a request and what it asks for as it was written:
// browsers leave a "%" that escapes nothing, which the HTTP library refuses.
func readHead(from *bufio.Reader) (target string, req *http.Request, err error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	whole := method + " " + wholeEscapes(target) + " " + version
	req, err = http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(whole), from)))
	return target, req, err
}

// join copies both ways until both have ended.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, err := io.Copy(way[0], way[1])
			if half, ok := way[0].(interface{ CloseWrite() error }); err == nil && ok {
				_ = half.CloseWrite()
				return
			}
			_ = a.Close()
			_ = b.Close()
		})
	}
	wg.Wait()
}
