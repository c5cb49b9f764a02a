package registry

import (
	"context"
	"errors"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const routesPy = `
import asyncio, os, time
from agent_sandbox.server import *
HERE = os.path.dirname(os.path.abspath(__file__))
table = default_table()

@table.route("GET", "/r/{id}", group=CapabilityGroup.COMMANDS, scopes=["r:read"], summary="Read r.")
def read(req):
    return ServerResponse(201, {"id": req.path_params["id"], "q": req.query, "h": req.headers.get("x-one"), "m": req.method,
        "p": req.path, "b": req.body, "c": req.context}, {"X-Two": "2"})

@table.route("POST", "/plain", group="system", auth_required=False, name="plain_one")
async def plain(req): return {"got": req.body}

@table.route("POST", "/plain2", group="system", name="plain_one")
def plain2(req): return "second"

@table.route("GET", "/fail", group="system")
def fail(req): raise KeyError("k")

@table.route("GET", "/odd", group="system")
def odd(req): return ServerResponse(200, {(1,): 2})

def numbers(n):
    try:
        for i in range(n): yield "event: n\ndata: {\"n\": %d}\n\n" % i
    finally: open(os.path.join(HERE, "closed"), "w").close()

@table.route("GET", "/stream", group="system", streaming=True)
def stream(req): return SSEResponse(event_iterator=numbers(int(req.query.get("n", ["3"])[0])), headers={"X-Three": "3"})

@table.route("GET", "/astream", group="system", streaming=True)
async def astream(req):
    async def items():
        try:
            for i in range(10**9):
                yield b"data: \xc3\xa9\n\n"
                if i >= 2: await asyncio.sleep(600)
        finally: open(os.path.join(HERE, "aclosed"), "w").close()
    return SSEResponse(event_iterator=items())

@table.route("GET", "/broken", group="system", streaming=True)
def broken(req):
    def items():
        yield "data: 1\n\n"
        raise RuntimeError("in the middle")
    return SSEResponse(event_iterator=items())

@table.route("GET", "/dies", group="system", streaming=True)
def dies(req):
    def items():
        yield "data: 1\n\n"
        os._exit(7)
    return SSEResponse(event_iterator=items())

@command()
def ok(): return 1
`

func loadRoutes(t testing.TB) (*rig, map[string]Route) {
	t.Helper()
	r := load(t, map[string]string{"routes.py": routesPy}, quick, "routes.py")
	byID := map[string]Route{}
	for _, route := range r.Routes() {
		byID[route.ID] = route
	}
	return r, byID
}

func TestRoutesAreToldAndServed(t *testing.T) {
	_, routes := loadRoutes(t)
	read := routes["GET /r/{id}"]
	if read.Method != "GET" || read.Pattern != "/r/{id}" || read.Group != "commands" || read.Summary != "Read r." || read.Anonymous || read.Streaming ||
		len(read.Scopes) != 1 || read.Scopes[0] != "r:read" {
		t.Errorf("%+v", read)
	}
	if p := routes["plain_one"]; !p.Anonymous || p.Pattern != "/plain" {
		t.Errorf("%+v", p)
	}
	if p := routes["POST /plain2"]; p.Pattern != "/plain2" { // a name taken is a name lost
		t.Errorf("%+v", p)
	}
	if !routes["GET /stream"].Streaming {
		t.Error("the stream is none")
	}
	q := Request{
		Method: "GET", Path: "/r/é", Query: map[string][]string{"k": {"v"}}, Headers: map[string]string{"X-One": "1"}, Body: []byte("{\n\"b\":[\"\u00e9\"]}"),
		Params: map[string]string{"id": "é"}, Identity: "me", Scopes: []string{"*"}, RequestID: "rid",
	}
	res, err := read.Serve(t.Context(), q)
	want := `{"id":"\u00e9","q":{"k":["v"]},"h":"1","m":"GET","p":"/r/\u00e9","b":{"b":["\u00e9"]},"c":{"identity":"me","scopes":["*"],"request_id":"rid"}}`
	if err != nil || res.Status != 201 || string(res.Body) != want || res.Headers["X-Two"] != "2" {
		t.Errorf("%+v, %v\n%s", res, err, res.Body)
	}
	q.Body = []byte(`{"a":1}`)
	if res, err := routes["plain_one"].Serve(t.Context(), q); err != nil || string(res.Body) != `{"got":{"a":1}}` {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = routes["GET /fail"].Serve(t.Context(), q)
	wantFailure(t, "fail", "", err, 500, "KeyError", "")
	_, err = routes["GET /odd"].Serve(t.Context(), q)
	wantFailure(t, "odd", "", err, 500, "TypeError", "result_not_serializable")
}

func openStream(t *testing.T, route Route, n string) *Stream {
	t.Helper()
	q := Request{Method: "GET", Query: map[string][]string{"n": {n}}, Body: []byte("{}")}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := route.Serve(ctx, q)
	if err != nil || res.Stream == nil || res.Status != 200 {
		t.Fatalf("%+v, %v", res, err)
	}
	return res.Stream
}

func drain(t *testing.T, s *Stream) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all strings.Builder
	for {
		piece, err := s.Next(ctx)
		if err != nil {
			return all.String(), err
		}
		all.Write(piece)
	}
}

func TestStreamsComeWholeAndEnd(t *testing.T) {
	r, routes := loadRoutes(t)
	s := openStream(t, routes["GET /stream"], "20000")
	text, err := drain(t, s)
	if !errors.Is(err, io.EOF) || strings.Count(text, "event: n\n") != 20000 || !strings.HasSuffix(text, "data: {\"n\": 19999}\n\n") {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	s.Close()
	s = openStream(t, routes["GET /broken"], "0")
	text, err = drain(t, s)
	want := "data: 1\n\nevent: error\ndata: {\"error\": \"in the middle\", \"type\": \"RuntimeError\"}\n\n"
	if !errors.Is(err, io.EOF) || text != want {
		t.Errorf("%q, %v", text, err)
	}
	s.Close()
	s = openStream(t, routes["GET /dies"], "0")
	if text, err = drain(t, s); errors.Is(err, io.EOF) || text != "data: 1\n\n" {
		t.Errorf("%q, %v", text, err)
	}
	s.Close()
	r.want("ok", `{}`, `1`)
}

// TestSlowReaderOfAStreamHoldsUpNobody: the worker stops at its window, other
// calls go on, and closing ends the generator.
func TestSlowReaderOfAStreamHoldsUpNobody(t *testing.T) {
	r, routes := loadRoutes(t)
	s := openStream(t, routes["GET /stream"], "100000000")
	if _, err := s.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range s.pieces {
			n += len(p)
		}
		return n
	}
	eventually(t, "the window is full", func() bool { return waiting() > 200<<10 })
	for range 50 {
		r.want("ok", `{}`, `1`)
	}
	if n := waiting(); n > 300<<10 {
		t.Errorf("%d bytes wait", n)
	}
	s.Close()
	eventually(t, "the generator is closed", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "closed"))
		return err == nil
	})
	s = openStream(t, routes["GET /astream"], "0")
	piece, err := s.Next(t.Context())
	if err != nil || string(piece) != "data: é\n\n" {
		t.Errorf("%q, %v", piece, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for err == nil {
		_, err = s.Next(ctx)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	s.Close()
	eventually(t, "the async generator is closed", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "aclosed"))
		return err == nil
	})
	eventually(t, "nothing is open", func() bool {
		w := r.python.current
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.open) == 0
	})
}

func TestHeaderNamesSurvive(t *testing.T) {
	_, routes := loadRoutes(t)
	q := Request{Method: "GET", Headers: map[string]string{textproto.CanonicalMIMEHeaderKey("x-one"): "a, b"}, Body: []byte("{}")}
	res, err := routes["GET /r/{id}"].Serve(t.Context(), withParam(q))
	if err != nil || !strings.Contains(string(res.Body), `"h":"a, b"`) {
		t.Errorf("%s, %v", res.Body, err)
	}
}

func withParam(q Request) Request {
	q.Params = map[string]string{"id": "1"}
	return q
}
