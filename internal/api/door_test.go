package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// door is a gate with a few rows of its own behind real listeners.
type door struct {
	t        *testing.T
	addr     string
	audit    *syncBuffer
	release  chan struct{}
	running  chan struct{}
	stopping chan struct{}
	gate     *Gate
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

type echoIn struct {
	Text Field[string] `json:"text"`
}

type echoOut struct {
	Text Name `json:"text"`
}

func (d *door) table() []Endpoint {
	row := func(name, method, path string) Row {
		return Row{Name: name, Method: method, Path: path, Group: "system", Summary: "Test.", Scopes: []string{"test:run"}, Limits: []string{"max_bytes"}}
	}
	return []Endpoint{
		Unary(Row{Name: "health", Method: "GET", Path: "/health", Group: "core", Summary: "Lives.", Anonymous: true},
			func(context.Context, *Call, struct{}) (map[string]string, error) {
				return map[string]string{"status": "ok"}, nil
			}),
		Unary(row("echo", "POST", "/echo"), func(_ context.Context, _ *Call, in echoIn) (echoOut, error) {
			text, err := in.Text.Want("text")
			return echoOut{Name(text)}, err
		}),
		Unary(row("param", "GET", "/p/{name}"), func(_ context.Context, c *Call, _ struct{}) (echoOut, error) {
			return echoOut{Name(c.Param("name"))}, nil
		}),
		Unary(row("boom", "GET", "/boom"), func(context.Context, *Call, struct{}) (echoOut, error) {
			panic("with a secret inside")
		}),
		Unary(row("fault", "GET", "/fault"), func(context.Context, *Call, struct{}) (echoOut, error) {
			return echoOut{}, errors.New("detail nobody should see")
		}),
		Unary(row("wait", "POST", "/wait"), func(ctx context.Context, _ *Call, _ struct{}) (echoOut, error) {
			d.running <- struct{}{}
			select {
			case <-d.release:
				return echoOut{"released"}, nil
			case <-ctx.Done():
				d.running <- struct{}{}
				return echoOut{}, ctx.Err()
			}
		}),
		Streaming(row("stream", "GET", "/stream"), func(ctx context.Context, c *Call, _ struct{}, ev *Events) error {
			if err := ev.Send("hello", map[string]string{"text": "é\u0085\u2028"}); err != nil {
				return err
			}
			d.running <- struct{}{}
			select {
			case <-d.release:
				return errors.New("detail nobody should see")
			case <-c.Stopping():
				return ev.Send("end", map[string]string{"reason": "shutdown"})
			case <-ctx.Done():
				d.running <- struct{}{}
				return ctx.Err()
			}
		}),
		Transfer(row("members", "PUT", "/members"), func(_ context.Context, c *Call, _ echoIn) (map[string]any, error) {
			var in echoIn
			n := 0
			err := c.Members(&in, []string{"big"}, func(string) (io.Writer, error) {
				n = 0
				return writerFunc(func(p []byte) (int, error) { n += len(p); return len(p), nil }), nil
			})
			return map[string]any{"text": Name(in.Text.V), "big": n}, err
		}),
		Raw(row("raw", "PUT", "/raw"), func(_ context.Context, c *Call, _ struct{}) (map[string]any, error) {
			n, err := io.Copy(io.Discard, c.Body())
			return map[string]any{"n": n}, err
		}),
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type doorOptions struct {
	policy string
	server ServerOptions
	gate   func(*Gate)
}

func openDoor(t *testing.T, o doorOptions) *door {
	t.Helper()
	d := &door{t: t, audit: &syncBuffer{}, release: make(chan struct{}), running: make(chan struct{}, 64), stopping: make(chan struct{})}
	table := d.table()
	doc := policy.Empty()
	var err error
	if o.policy != "" {
		if doc, err = policy.Parse([]byte(o.policy), policy.JSON); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.Compile(doc, Rows(table), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	audit := NewAudit(d.audit, log)
	base := t.TempDir()
	files := guardfs.New(func() string { return base }, base)
	d.gate = &Gate{
		Policy: func() *policy.Policy { return p }, Limiter: &policy.Limiter{}, Brake: &policy.GuessBrake{},
		Files: files, Audit: audit, Log: log, MaxUpload: func() int64 { return 1 << 20 },
		BodyTimeout: 10 * time.Second, Stopping: d.stopping,
	}
	if o.gate != nil {
		o.gate(d.gate)
	}
	if o.server.HeaderTimeout == 0 {
		o.server.HeaderTimeout = 10 * time.Second
	}
	if o.server.MaxConnections == 0 {
		o.server.MaxConnections = 1024
	}
	o.server.IdleTimeout, o.server.Log = time.Minute, log
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, l, Mount(table, d.gate), o.server, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 5*time.Second)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		_ = audit.Close(context.Background())
		_ = files.Close()
	})
	return d
}

// dial opens one connection; everything on it has half a minute.
func (d *door) dial() net.Conn {
	d.t.Helper()
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

type reply struct {
	status int
	header http.Header
	body   string
}

func readReply(t *testing.T, r *bufio.Reader, method string) reply {
	t.Helper()
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("answer cut: %v after %q", err, body)
	}
	return reply{res.StatusCode, res.Header, string(body)}
}

// ask sends raw text on a fresh connection and reads one answer.
func (d *door) ask(text string) reply {
	d.t.Helper()
	c := d.dial()
	if _, err := io.WriteString(c, text); err != nil {
		d.t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	return readReply(d.t, bufio.NewReader(c), method)
}

func post(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(append(header, ""), "\r\n"), body)
}

func get(path string, header ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

func TestHeads(t *testing.T) {
	d := openDoor(t, doorOptions{})
	long := strings.Repeat("a", maxLine)
	tests := []struct {
		name, in string
		status   int
		holds    string
	}{
		{"health", get("/health"), 200, `{"status":"ok"}`},
		{"slashes", get("//health//"), 200, "ok"},
		{"absolute form", get("http://h/health"), 200, "ok"},
		{"inner slashes", get("/p//x"), 404, "Not found"},
		{"param", get("/p/a%2Fb%C3%A9"), 200, "a/b\\u00e9"},
		{"plain letters may be escaped", get("/%68ealth"), 200, "ok"},
		{"bad utf-8 in a segment", get("/p/%ff"), 404, "Not found"},
		{"case", get("/Health"), 404, "/Health"},
		{"unknown", get("/nope/"), 404, `"Not found: /nope"`},
		{"post to get", post("/health", ""), 405, "method_not_allowed"},
		{"patch", "PATCH /health HTTP/1.1\r\nHost: x\r\n\r\n", 405, "method_not_allowed"},
		{"odd verb, unknown path", "BREW /nope HTTP/1.1\r\nHost: x\r\n\r\n", 404, "Not found"},
		{"twice", get("/health?a=1&a=2"), 400, "duplicate_parameter"},
		{"long line", get("/" + long), 414, "uri_too_long"},
		{"long header", get("/health", "X-A: "+long), 431, "header_too_large"},
		{"many headers", get("/health", strings.Split(strings.TrimSuffix(strings.Repeat("X-A: 1\n", 101), "\n"), "\n")...), 431, "too_many_headers"},
		{"encoding", post("/echo", `{"text":"x"}`, "Content-Encoding: gzip"), 415, "unsupported_encoding"},
		{"identity", post("/echo", `{"text":"x"}`, "Content-Encoding: identity"), 200, "x"},
		{"no body", post("/echo", ""), 400, "Missing or invalid 'text'"},
		{"not an object", post("/echo", "[]"), 400, "body_not_object"},
		{"fault", get("/fault"), 500, `"internal"`},
		{"panic", get("/boom"), 500, `"internal"`},
		{"lone byte comes back", post("/echo", `{"text":"a\udcff"}`), 200, `a\udcff`},
		{"members", "PUT /members HTTP/1.1\r\nHost: x\r\nContent-Length: 36\r\n\r\n" + `{"big":"0123456789","text":"after"} `, 200, `{"big":10,"text":"after"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := *d
			d.t = t
			got := d.ask(tt.in)
			if got.status != tt.status || !strings.Contains(got.body, tt.holds) {
				t.Errorf("got %d %.200q, want %d with %q", got.status, got.body, tt.status, tt.holds)
			}
			if got.header.Get("X-Request-Id") == "" || got.header.Get("Date") == "" {
				t.Errorf("no request id or date: %v", got.header)
			}
			if got.status != 204 && got.header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("type %q", got.header.Get("Content-Type"))
			}
			if strings.Contains(got.body, "secret") || strings.Contains(got.body, "detail") {
				t.Errorf("shows its inside: %q", got.body)
			}
		})
	}
	if got := d.ask(get("/health", "X-Request-Id: my-id.7")); got.header.Get("X-Request-Id") != "my-id.7" {
		t.Errorf("request id %q", got.header.Get("X-Request-Id"))
	}
	if got := d.ask("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != 200 || got.body != "" || got.header.Get("Content-Length") != "15" {
		t.Errorf("HEAD: %+v", got)
	}
	if got := d.ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != 204 || got.header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("OPTIONS: %+v", got)
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	var all strings.Builder
	for i := range 20 {
		all.WriteString(post("/echo", fmt.Sprintf(`{"text":"n%d"}`, i)))
		// A body nobody asked for must not be taken for the next request.
		all.WriteString("GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nGET /nope")
	}
	if _, err := io.WriteString(c, all.String()); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for i := range 20 {
		if got := readReply(t, r, "POST"); got.body != fmt.Sprintf(`{"text":"n%d"}`, i) {
			t.Fatalf("answer %d: %+v", i, got)
		}
		if got := readReply(t, r, "GET"); got.status != 200 {
			t.Fatalf("health %d: %+v", i, got)
		}
	}
}

func TestOversizeBodyGetsIts413WhileItIsStillSent(t *testing.T) {
	d := openDoor(t, doorOptions{})
	const size = 20 << 20
	c := d.dial()
	sent := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
		if err == nil {
			_, err = io.CopyN(c, zeros{}, size)
		}
		sent <- err
	}()
	if err := <-sent; err != nil {
		t.Fatalf("sending was cut: %v", err)
	}
	got := readReply(t, bufio.NewReader(c), "POST")
	if got.status != 413 || !strings.Contains(got.body, `"limit":10485760`) {
		t.Errorf("got %d %q", got.status, got.body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestExpectedBodyIsAskedForOnlyWhenItIsWanted(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n")
	line, err := r.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v", line, err)
	}
	_, _ = r.ReadString('\n')
	_, _ = io.WriteString(c, `{"text":"x"}`)
	if got := readReply(t, r, "POST"); got.status != 200 {
		t.Errorf("got %+v", got)
	}
	got := d.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
	if got.status != 413 {
		t.Errorf("got %d", got.status)
	}
}

func TestShortBodyNeverRunsAHandler(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	_, _ = io.WriteString(c, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{}")
	_ = c.(*net.TCPConn).CloseWrite()
	if got := readReply(t, bufio.NewReader(c), "POST"); got.status != 400 {
		t.Errorf("got %+v", got)
	}
	select {
	case <-d.running:
		t.Error("the handler ran")
	default:
	}
}

func TestStalledBodyIsGivenUp(t *testing.T) {
	d := openDoor(t, doorOptions{gate: func(g *Gate) { g.BodyTimeout = 50 * time.Millisecond }})
	if got := d.ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); got.status != 408 {
		t.Errorf("got %+v", got)
	}
}

func TestChunkedBodiesEndTheirConnection(t *testing.T) {
	d := openDoor(t, doorOptions{})
	// A length beside chunks is how requests are smuggled: what follows must
	// not be served.
	c := d.dial()
	_, _ = io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{\"text\":\"x\"}\r\n0\r\n\r\n"+get("/health"))
	r := bufio.NewReader(c)
	first := readReply(t, r, "POST")
	if first.status != 200 && first.status != 400 {
		t.Errorf("got %+v", first)
	}
	if rest, _ := io.ReadAll(r); len(rest) != 0 {
		t.Errorf("a second answer came: %q", rest)
	}
}

func TestCallerThatGoesAwayEndsItsCall(t *testing.T) {
	d := openDoor(t, doorOptions{policy: `{"endpoints":{"wait":{"limits":{"max_concurrency":1}},"stream":{"limits":{"max_concurrency":1}}}}`})
	for _, in := range []string{post("/wait", "{}"), get("/stream")} {
		for range 3 { // with one slot only, each round needs the last one's back
			deadline := time.Now().Add(20 * time.Second)
			for {
				c := d.dial()
				_, _ = io.WriteString(c, in)
				select {
				case <-d.running:
					_ = c.Close()
					<-d.running // it noticed
				case <-time.After(100 * time.Millisecond):
					_ = c.Close()
					if time.Now().After(deadline) {
						t.Fatal("the slot of a caller that left was never given back")
					}
					continue
				}
				break
			}
		}
	}
}

func TestStreamSaysWhyItEnds(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	_, _ = io.WriteString(c, get("/stream"))
	<-d.running
	close(d.release)
	got := readReply(t, bufio.NewReader(c), "GET")
	want := "event: hello\ndata: {\"text\":\"\\u00e9\\u0085\\u2028\"}\n\nevent: error\ndata: {\"error\":\"internal error\"}\n\n"
	if got.status != 200 || got.body != want || got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("got %d %q", got.status, got.body)
	}
	if got := d.ask("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != 200 {
		t.Errorf("HEAD: %+v", got)
	}
}

func TestStreamsEndWhenTheServerStops(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	_, _ = io.WriteString(c, get("/stream"))
	<-d.running
	close(d.stopping)
	if got := readReply(t, bufio.NewReader(c), "GET"); !strings.HasSuffix(got.body, "event: end\ndata: {\"reason\":\"shutdown\"}\n\n") {
		t.Errorf("got %q", got.body)
	}
}

func TestOldProtocol(t *testing.T) {
	d := openDoor(t, doorOptions{})
	c := d.dial()
	_, _ = io.WriteString(c, "GET /health HTTP/1.0\r\n\r\n")
	all, err := io.ReadAll(c)
	if err != nil || !bytes.HasSuffix(all, []byte(`{"status":"ok"}`)) {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestOrigins(t *testing.T) {
	sum := sha256.Sum256([]byte("good"))
	withToken := `{"auth":{"allow_anonymous":true,"anonymous_scopes":["*"],"tokens":[{"id":"a","scopes":["*"],"token_sha256":"` + hex.EncodeToString(sum[:]) + `"}]}}`
	d := openDoor(t, doorOptions{policy: withToken, gate: func(g *Gate) {
		g.Origins, g.Hosts = Allowlist{"http://good.example"}, Allowlist{"*.ok.example"}
	}})
	tests := []struct {
		name   string
		header []string
		status int
		code   string
	}{
		{"no origin", nil, 200, ""},
		{"foreign", []string{"Origin: http://evil.example"}, 403, "origin_not_allowed"},
		{"null", []string{"Origin: null"}, 403, "origin_not_allowed"},
		{"listed", []string{"Origin: http://good.example"}, 200, ""},
		{"foreign with a token", []string{"Origin: http://evil.example", "Authorization: Bearer good"}, 200, ""},
		{"foreign with a wrong token", []string{"Origin: http://evil.example", "Authorization: Bearer bad"}, 401, "unauthorized"},
		{"cross-site", []string{"Sec-Fetch-Site: cross-site"}, 403, "origin_not_allowed"},
		{"browser on a rebound name", []string{"User-Agent: Mozilla/5.0", "Host: evil.example:9000"}, 403, "host_not_allowed"},
		{"browser on a listed name", []string{"User-Agent: Mozilla/5.0", "Host: a.ok.example"}, 200, ""},
		{"browser on an address", []string{"Referer: http://127.0.0.1/", "Host: 127.0.0.1:9000"}, 200, ""},
		{"browser on v6", []string{"Referer: http://x/", "Host: [::1]:9000"}, 200, ""},
		{"browser on localhost", []string{"Referer: http://x/", "Host: a.localhost"}, 200, ""},
		{"gateway on any name", []string{"Host: sandbox.example"}, 200, ""},
		{"two tokens", []string{"X-Access-Token: a", "X-Access-Token: b"}, 400, "ambiguous_credentials"},
		{"right bearer beside a foreign token", []string{"X-Access-Token: a", "Authorization: bearer  good "}, 200, ""},
	}
	for _, tt := range tests {
		host := "Host: x"
		var rest []string
		for _, h := range tt.header {
			if strings.HasPrefix(h, "Host:") {
				host = h
			} else {
				rest = append(rest, h)
			}
		}
		got := d.ask("POST /echo HTTP/1.1\r\n" + host + "\r\nContent-Length: 12\r\n" + strings.Join(append(rest, ""), "\r\n") + "\r\n" + `{"text":"x"}`)
		var out struct{ Code string }
		_ = json.Unmarshal([]byte(got.body), &out)
		if got.status != tt.status || out.Code != tt.code {
			t.Errorf("%s: got %d %q, want %d %q", tt.name, got.status, out.Code, tt.status, tt.code)
		}
	}
	if got := d.ask(get("/health", "Origin: http://evil.example")); got.status != 200 {
		t.Errorf("health: %+v", got)
	}
	if got := d.ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://good.example\r\n\r\n"); got.header.Get("Access-Control-Allow-Origin") != "http://good.example" {
		t.Errorf("preflight: %+v", got)
	}
	if got := d.ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n"); got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight: %+v", got)
	}
}

func TestFullHouseMakesRoomByTheLongestIdleConnection(t *testing.T) {
	p := newPool(3)
	enter := func() (ours, theirs net.Conn) {
		ours, theirs = net.Pipe()
		t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
		if !p.enter(ours) {
			t.Fatal("nobody is let in")
		}
		p.state(ours, http.StateNew)
		p.state(ours, http.StateActive)
		return ours, theirs
	}
	first, _ := enter()
	second, gone := enter()
	enter() // busy to the end
	p.state(second, http.StateIdle)
	p.state(first, http.StateIdle)
	if _, _ = enter(); len(p.open) != 3 || p.open[second] != nil {
		t.Error("the longest idle connection has not made room")
	}
	if _, err := gone.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it was not closed: %v", err)
	}
	if enter(); p.open[first] != nil || len(p.open) != 3 {
		t.Error("the other idle connection has not made room")
	}
}

func TestFullHouseDoesNotHurtTheBusy(t *testing.T) {
	d := openDoor(t, doorOptions{server: ServerOptions{MaxConnections: 3}})
	hold := func() {
		c := d.dial()
		_, _ = io.WriteString(c, get("/health"))
		readReply(t, bufio.NewReader(c), "GET")
	}
	hold()
	busy := d.dial()
	_, _ = io.WriteString(busy, post("/wait", "{}"))
	<-d.running
	for range 5 { // from the third on someone has to go
		hold()
	}
	close(d.release)
	if got := readReply(t, bufio.NewReader(busy), "POST"); got.body != `{"text":"released"}` {
		t.Errorf("the busy one was hurt: %+v", got)
	}
}

func TestHalfAHeadIsGivenUp(t *testing.T) {
	d := openDoor(t, doorOptions{server: ServerOptions{HeaderTimeout: 100 * time.Millisecond}})
	conns := make([]net.Conn, 50)
	for i := range conns {
		conns[i] = d.dial()
		_, _ = io.WriteString(conns[i], "GET /health HTTP/1.1\r\nHost:")
	}
	for _, c := range conns {
		if _, err := io.ReadAll(c); errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("a connection with half a head stays open")
		}
	}
}

func TestSlowBodyKeepsNobodyOut(t *testing.T) {
	d := openDoor(t, doorOptions{policy: `{"endpoints":{"echo":{"limits":{"max_concurrency":1}}}}`})
	for range 5 {
		c := d.dial()
		_, _ = io.WriteString(c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{")
	}
	if got := d.ask(post("/echo", `{"text":"x"}`)); got.status != 200 {
		t.Errorf("got %+v", got)
	}
}

func TestLimitsAnswer429(t *testing.T) {
	d := openDoor(t, doorOptions{policy: `{"endpoints":{"param":{"limits":{"rate_per_minute":2}},"wait":{"limits":{"max_concurrency":1}},"health":{"limits":{"rate_per_minute":1}}}}`})
	for i, want := range []int{200, 200, 429} {
		got := d.ask(get("/p/x"))
		if got.status != want {
			t.Errorf("call %d: %d", i, got.status)
		}
		if want == 429 && (got.header.Get("Retry-After") == "" || !strings.Contains(got.body, `"retry_after":`)) {
			t.Errorf("no word when to come back: %+v", got)
		}
	}
	busy := d.dial()
	_, _ = io.WriteString(busy, post("/wait", "{}"))
	<-d.running
	if got := d.ask(post("/wait", "{}")); got.status != 429 || !strings.Contains(got.body, "concurrency_limited") {
		t.Errorf("got %+v", got)
	}
	close(d.release)
	for range 5 {
		if got := d.ask(get("/health")); got.status != 200 {
			t.Errorf("health is limited: %+v", got)
		}
	}
}

func TestAuditLines(t *testing.T) {
	d := openDoor(t, doorOptions{policy: `{"endpoints":{"echo":{"audit":"all"},"fault":{"audit":"off"}}}`})
	d.ask(post("/echo", `{"text":"the body"}`, "X-Request-Id: r1"))
	d.ask(post("/echo", `[]`, "X-Request-Id: r2"))
	d.ask(get("/fault", "X-Request-Id: r3"))
	d.ask(get("/p/x", "X-Request-Id: r4"))
	d.ask(get("/p/x?a=1&a=2", "X-Request-Id: r5"))
	d.ask(get("/nope", "X-Request-Id: r6"))
	_ = d.gate.Audit.Close(t.Context())
	got := map[string]AuditLine{}
	for line := range strings.Lines(d.audit.String()) {
		var l AuditLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		got[l.RequestID] = l
	}
	if l := got["r1"]; l.Decision != "allow" || l.Status != 200 || l.Code != nil || l.Identity == nil || *l.Identity != "anonymous" || l.Endpoint != "echo" || l.Method != "POST" {
		t.Errorf("r1: %+v", l)
	}
	if l := got["r2"]; l.Decision != "deny" || l.Status != 400 || l.Code == nil || *l.Code != "body_not_object" {
		t.Errorf("r2: %+v", l)
	}
	if l := got["r5"]; l.Decision != "deny" || l.Code == nil || *l.Code != "duplicate_parameter" {
		t.Errorf("r5: %+v", l)
	}
	for _, id := range []string{"r3", "r4", "r6"} {
		if l, ok := got[id]; ok {
			t.Errorf("%s was written: %+v", id, l)
		}
	}
	if strings.Contains(d.audit.String(), "the body") {
		t.Error("a body is in the audit log")
	}
}
