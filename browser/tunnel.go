package browser

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// maxHead bounds the head of a WebSocket request.
const maxHead = 64 << 10

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
	if err := p.rules.Load().tunnel(u); err != nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if len(host) > 1 && host[0] == '[' {
		host = host[1 : len(host)-1]
	}
	up, err := p.dial(r.Context(), host, port)
	if err != nil {
		status := http.StatusBadGateway
		if policy.IsDenied(err) {
			status = http.StatusForbidden
		}
		w.WriteHeader(status)
		return
	}
	defer up.Close()
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer down.Close()
	defer p.drop(down, up)
	if !p.hold(down, up) {
		return
	}
	if _, err := io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	first, err := p.opening(down, buffered.Reader, u)
	if err != nil {
		return
	}
	if _, err := up.Write(first); err != nil {
		return
	}
	join(down, up)
}

// opening reads what a tunnel begins with: a few bytes of TLS, which nobody can
// look into, or the whole head of a request for a WebSocket, whose address is
// judged.
func (p *proxy) opening(down net.Conn, from *bufio.Reader, u URL) ([]byte, error) {
	_ = down.SetReadDeadline(time.Now().Add(helloTime))
	defer func() { _ = down.SetReadDeadline(time.Time{}) }()
	lead, err := from.Peek(1)
	if err != nil {
		return nil, err
	}
	const handshake = 22 // the first byte of TLS
	if lead[0] == handshake {
		if err := p.rules.Load().secure(u); err != nil {
			return nil, err
		}
		return from.Peek(from.Buffered())
	}
	var head bytes.Buffer
	limited := io.TeeReader(&io.LimitedReader{R: from, N: maxHead}, &head)
	req, err := http.ReadRequest(bufio.NewReaderSize(limited, 1))
	if err != nil {
		return nil, err
	}
	ws := URL{Scheme: "ws", Host: u.Host, Port: u.Port, Path: normalPath(req.RequestURI)}
	if req.Header.Get("Upgrade") == "" {
		return nil, refuse(policy.URLNotAllowed, "Only WebSockets may be spoken without TLS in a tunnel")
	}
	if err := p.rules.Load().admit(ws); err != nil {
		return nil, err
	}
	rest, err := from.Peek(from.Buffered())
	return append(head.Bytes(), rest...), err
}

// hold enters the ends of a tunnel, so that close can cut them.
func (p *proxy) hold(ends ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		p.tunnels[c] = struct{}{}
	}
	return !p.closed
}

func (p *proxy) drop(ends ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range ends {
		delete(p.tunnels, c)
	}
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
