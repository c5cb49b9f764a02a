package browser

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const (
	dialTime = 10 * time.Second
	// primeHost is a name that leads nowhere. The browser is sent there once so
	// that it learns the proxy's secret.
	primeHost = "prime.invalid"
	proxyUser = "browser"
)

// Dialer opens connections. Its methods get addresses, never names.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// proxy is the browser's only way out. It judges every address, resolves each
// name once, judges what it was resolved to, and dials that. It listens on
// loopback and serves only who knows its secret.
type proxy struct {
	names  Resolver
	dialer Dialer
	under  exchanges // the rules, and what is under way under them
	secret string
	log    *slog.Logger

	listener net.Listener
	server   *http.Server
	reverse  *httputil.ReverseProxy
	out      *http.Transport
	wg       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	failures map[string]error // why a host and port could not be reached
}

func newProxy(ctx context.Context, rules *Rules, names Resolver, dialer Dialer, log *slog.Logger) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		names: names, dialer: dialer, secret: rand.Text(), log: log, listener: listener,
		failures: map[string]error{}, under: exchanges{rules: rules},
	}
	p.out = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return p.dial(ctx, host, port)
		},
		DisableCompression: true, MaxIdleConnsPerHost: 8, MaxIdleConns: 32, IdleConnTimeout: 30 * time.Second,
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	p.reverse = &httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: ownDemand, Transport: p.out, FlushInterval: -1, ErrorLog: quiet,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // for the page a failure of the network, not an answer of the site
		},
	}
	p.server = &http.Server{
		Handler: p, ErrorLog: quiet, ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: maxHead,
	}
	p.wg.Go(func() { _ = p.server.Serve(listener) })
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// rules are those in force.
func (p *proxy) rules() *Rules { return p.under.inForce() }

// setRules puts new rules in force, also for what is under way.
func (p *proxy) setRules(r *Rules) {
	if p.under.obey(r) {
		p.out.CloseIdleConnections()
	}
}

// close ends all connections and waits for what serves them.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.under.close()
	_ = p.server.Close()
	p.out.CloseIdleConnections()
	p.wg.Wait()
}

// enter counts a handler in; Close of the server does not wait for them.
func (p *proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

// ServeHTTP implements [http.Handler].
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		panic(http.ErrAbortHandler)
	}
	defer p.wg.Done()
	if !p.knows(r.Header.Get("Proxy-Authorization")) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="browser"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method == http.MethodConnect {
		p.connect(w, r)
		return
	}
	u, err := ParseURL(r.RequestURI)
	switch {
	case err != nil || u.Scheme != "http":
		w.WriteHeader(http.StatusBadRequest)
		return
	case u.Host == primeHost:
		w.WriteHeader(http.StatusNoContent)
		return
	}
	ctx, end, err := p.under.cuttable(r.Context(), func(rules *Rules) error { return rules.admit(u) })
	if err != nil {
		p.log.Debug("request of the browser refused", "host", u.Host)
		panic(http.ErrAbortHandler)
	}
	defer end()
	p.reverse.ServeHTTP(w, r.WithContext(context.WithValue(ctx, targetKey{}, u)))
}

func (p *proxy) knows(header string) bool {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(proxyUser+":"+p.secret))
	return subtle.ConstantTimeCompare([]byte(header), []byte(want)) == 1
}

type targetKey struct{}

// rewrite sends a request on as it came, its address letter by letter.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	u, _ := r.In.Context().Value(targetKey{}).(URL)
	r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, net.JoinHostPort(u.name(), strconv.Itoa(u.Port))
	r.Out.Host = r.In.Host
	path, query, _ := strings.Cut(afterAuthority(r.In.RequestURI), "?")
	if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		r.Out.URL.Opaque = path // as it was escaped
	}
	r.Out.URL.RawQuery = query
	r.Out.Header.Del("Proxy-Authorization")
	r.Out.Header.Del("Proxy-Connection")
}

// ownDemand keeps a site from speaking as the proxy: the browser would throw the
// secret away that it has for it.
func ownDemand(res *http.Response) error {
	if res.StatusCode == http.StatusProxyAuthRequired {
		return errors.New("the site demands credentials in the name of the proxy")
	}
	return nil
}

// afterAuthority is path and query of an absolute address.
func afterAuthority(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:]
	}
	return ""
}

// dial resolves a name once, judges the addresses, and connects to one of
// them.
func (p *proxy) dial(ctx context.Context, host, port string) (net.Conn, error) {
	conn, err := p.reach(ctx, host, port)
	p.note(net.JoinHostPort(host, port), err)
	return conn, err
}

var errNotResolved = errors.New("net::ERR_NAME_NOT_RESOLVED")

func (p *proxy) reach(ctx context.Context, host, port string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	admitted := func(rules *Rules) error { return rules.resolved(addrs) }
	if err := admitted(p.rules()); err != nil {
		return nil, err
	}
	last := errNotResolved
	for _, a := range addrs {
		c, err := p.dialer.DialContext(ctx, "tcp", net.JoinHostPort(a.String(), port))
		if err == nil {
			return p.keep(c, admitted)
		}
		last = err
	}
	return nil, last
}

// keep makes a connection one that new rules can end.
func (p *proxy) keep(c net.Conn, admitted func(*Rules) error) (net.Conn, error) {
	end, err := p.under.begin(&exchange{judge: admitted, cut: func() { _ = c.Close() }})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &upstream{c, end}, nil
}

func (p *proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	name := strings.TrimSuffix(host, ".")
	if localName(name) { // judged already; it is loopback, whatever a name server says
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	if name == "invalid" || strings.HasSuffix(name, ".invalid") {
		return nil, errNotResolved // by definition
	}
	addrs, err := p.names.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return nil, errNotResolved
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}

// maxFailures bounds what is remembered of hosts that could not be reached.
const maxFailures = 256

func (p *proxy) note(hostport string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.failures, hostport)
		return
	}
	if len(p.failures) >= maxFailures {
		clear(p.failures)
	}
	p.failures[hostport] = err
}

// why tells what was wrong with the last attempt to reach an address; nil when
// nothing was.
func (p *proxy) why(u URL) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures[net.JoinHostPort(u.name(), strconv.Itoa(u.Port))]
}

// netError is how browsers call a failed connection.
func netError(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errNotResolved):
		return errNotResolved.Error()
	case policy.IsDenied(err):
		return "net::ERR_BLOCKED_BY_CLIENT"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "net::ERR_CONNECTION_TIMED_OUT"
	case strings.Contains(err.Error(), "refused"):
		return "net::ERR_CONNECTION_REFUSED"
	case strings.Contains(err.Error(), "unreachable"):
		return "net::ERR_ADDRESS_UNREACHABLE"
	}
	return "net::ERR_CONNECTION_FAILED"
}
