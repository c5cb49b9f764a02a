package pty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestStartedSaysWhereAndHow(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell("-c", `printf '\033]0;name\007'; echo hello; sleep 60`))
	shown(t, s, "hello")
	if err := s.Resize(77, 19); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		since  string
		offset int64
	}{{"", 0}, {"&since=0", 0}, {"&since=4", 4}, {"&since=9999", s.Record().Offset}} {
		since, offset := c.since, c.offset
		v := &viewer{t: t, ws: dial(t, srv, s, since)}
		msg, err := v.next()
		if err != nil {
			t.Fatal(err)
		}
		want := message{outputOf: outputOf{Type: "event", Offset: offset}, Event: "started", SessionID: s.ID(), PID: s.PID(), Cols: 77, Rows: 19, Title: "name"}
		if msg != want {
			t.Errorf("since %q: %+v, want %+v", since, msg, want)
		}
	}
}

func TestTitleEvent(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	v := view(t, dial(t, serve(t, m), s, ""))
	v.typed(`printf '\033]2;%s title\033\\' new` + "\n")
	for {
		msg, err := v.next()
		if err != nil {
			t.Fatal(err)
		}
		if msg.Event == "title" {
			if msg.Title != "new title" {
				t.Errorf("%q", msg.Title)
			}
			return
		}
	}
}

func TestReattachGoesOnWhereTheOutputStopped(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	v := view(t, dial(t, srv, s, ""))
	v.typed("VAR=kept; echo r$((2+1))\n")
	v.expect("r3\r\n$ ")
	if err := v.ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is detached", func() bool { return s.Record().Attached == 0 })
	typeTo(t, s, "echo late$((1+1))\n")
	shown(t, s, "late2")
	v = view(t, dial(t, srv, s, ""))
	v.expect("late2")
	v.typed("echo v=$VAR\n")
	v.expect("v=kept")
	if strings.Contains(v.text.String(), "r3") {
		t.Error("output came twice")
	}
}

func TestAttachAfterTheEnd(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell("-c", "echo words; exit 9"))
	ended(t, s)
	for _, want := range []string{"words\r\n", ""} { // the second finds all of it taken
		v := view(t, dial(t, srv, s, ""))
		exited, code := v.untilExit()
		if *exited.ExitCode != 9 || code != 1000 || v.text.String() != want {
			t.Errorf("%q, then %+v and %d", v.text.String(), exited, code)
		}
	}
}

func TestReadOnlyClientChangesNothing(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	v := view(t, dial(t, srv, s, "&readonly=1"))
	v.typed("echo no$((1+1))\n")
	v.send(websocket.MessageText, `{"type":"resize","cols":10,"rows":10}`)
	v.send(websocket.MessageText, `{"type":"signal","signal":"SIGKILL"}`)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		for err := error(nil); err == nil; {
			_, err = v.next()
		}
	}()
	if err := v.ws.Ping(ctx); err != nil { // all of it has been read
		t.Fatal(err)
	}
	typeTo(t, s, "echo yes$((1+1))\n")
	if text := shown(t, s, "yes2"); strings.Contains(text, "no2") {
		t.Error("it typed")
	}
	if r := s.Record(); r.Cols != 80 || !r.Alive {
		t.Errorf("%+v", r)
	}
}

func TestRawProtocol(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell("-c", `stty raw -echo; printf '\377\000'; head -c 4; printf '\303'; exit 3`))
	ws := dial(t, srv, s, "", RawProtocol, "other")
	if ws.Subprotocol() != RawProtocol {
		t.Fatalf("the protocol is %q", ws.Subprotocol())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out []byte
	var events []string
	for {
		typ, p, err := ws.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != 1000 {
				t.Error(err)
			}
			break
		}
		if typ == websocket.MessageBinary {
			out = append(out, p...)
			if string(out) == "\xff\x00" {
				for _, msg := range []string{"ab", "\x00\xfe"} {
					if err := ws.Write(ctx, websocket.MessageBinary, []byte(msg)); err != nil {
						t.Fatal(err)
					}
				}
			}
			continue
		}
		var msg message
		if err := json.Unmarshal(p, &msg); err != nil {
			t.Fatal(err)
		}
		events = append(events, msg.Event)
	}
	if string(out) != "\xff\x00ab\x00\xfe\xc3" {
		t.Errorf("the output is %q", out)
	}
	if got := fmt.Sprint(events); got != "[started exited]" {
		t.Errorf("the events are %s", got)
	}
	// Control messages are JSON in text frames here too.
	s = create(t, m, shell())
	ws = dial(t, srv, s, "", RawProtocol)
	if err := ws.Write(ctx, websocket.MessageText, []byte(`{"type":"resize","cols":99}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the size is set", func() bool { return s.Record().Cols == 99 })
}

func TestOverlongMessageClosesWith1009(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	for name, size := range map[string]int{"a little": messageMax + 1, "a lot": 4 << 20} {
		t.Run(name, func(t *testing.T) {
			s := create(t, m, shell("-c", "stty -echo raw; cat >/dev/null"))
			v := view(t, dial(t, srv, s, ""))
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			frame := `{"type":"input","data":"` + strings.Repeat("x", size-26) + `"}`
			_ = v.ws.Write(ctx, websocket.MessageText, []byte(frame)) // it may be cut off
			if _, code := v.untilExit(); code != 1009 {
				t.Errorf("closed with %d", code)
			}
			if !s.Record().Alive {
				t.Error("the session has ended")
			}
		})
	}
	s := create(t, m, shell("-c", "stty -echo raw; head -c 1000000 >/dev/null; echo all"))
	v := view(t, dial(t, srv, s, ""))
	v.send(websocket.MessageText, `{"type":"input","data":"`+strings.Repeat("x", messageMax-26)+`"}`)
	v.expect("all")
}

// TestBytesThatAreNoFramesCloseWith1002: the client is told that it is its own
// mistake, not that all went well.
func TestBytesThatAreNoFramesCloseWith1002(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	for name, bytes := range map[string]string{
		"unmasked":        "\x81\x02hi",
		"reserved opcode": "\x83\x80abcd",
		"reserved bits":   "\xf1\x80abcd",
	} {
		t.Run(name, func(t *testing.T) {
			var conn net.Conn
			client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				var err error
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return conn, err
			}}}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			u := "ws" + strings.TrimPrefix(srv.URL, "http") + "/pty?session_id=" + s.ID()
			ws, _, err := websocket.Dial(ctx, u, &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // Dial says that it needs no closing
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ws.CloseNow() }()
			if _, err := conn.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = ws.Read(ctx)
			}
			if code := websocket.CloseStatus(err); code != websocket.StatusProtocolError {
				t.Errorf("closed with %d: %v", code, err)
			}
		})
	}
}

func TestFragmentedMessage(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	v := view(t, dial(t, serve(t, m), s, ""))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w, err := v.ws.Writer(ctx, websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`{"type":"input",`, `"data":"echo f$((3+4))\n"}`} {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	v.expect("f7")
}

func TestStuckTerminalDoesNotFreezeOthers(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	a := view(t, dial(t, srv, create(t, m, shell()), ""))
	a.typed("stty -icanon -echo; echo go$((1+1)); sleep 60\n")
	a.expect("go2")
	for range 6 { // more than is held: the rest waits in the socket
		a.typed(strings.Repeat("y", 300_000))
	}
	b := view(t, dial(t, srv, create(t, m, shell()), ""))
	b.typed("echo free$((1+1))\n")
	b.expect("free2")
}

// TestFrozenViewerIsToldToComeBack: one that takes nothing while it is a full
// ring behind is closed with 1013, and the program runs on.
func TestFrozenViewerIsToldToComeBack(t *testing.T) {
	m := newManager(t, Options{})
	m.lagTime = 300 * time.Millisecond
	srv := serve(t, m)
	s := create(t, m, shell("-c", "read x; head -c 30000000 /dev/zero | tr '\\0' 'x'; echo; echo FIN; sleep 60"))
	v := view(t, dial(t, srv, s, ""))
	typeTo(t, s, "\n")
	eventually(t, "the program is through", func() bool {
		o, err := s.Output(context.Background(), s.Record().Offset-10, 0)
		return err == nil && strings.Contains(string(o.Data), "FIN")
	})
	if _, code := v.untilExit(); code != 1013 {
		t.Errorf("closed with %d", code)
	}
	next := int64(v.text.Len())
	v = view(t, dial(t, srv, s, fmt.Sprintf("&since=%d", next)))
	v.expect("FIN")
}

// TestSlowClientLosesNothing: alone, it slows the program down instead.
func TestSlowClientLosesNothing(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	const n = 400_000
	spec := shell("-c", fmt.Sprintf("stty -echo; read x; seq 1 %d; exit 0", n))
	spec.Scrollback = 64 << 10
	s := create(t, m, spec)
	v := view(t, dial(t, srv, s, ""))
	v.typed("\n")
	for range 20 {
		time.Sleep(10 * time.Millisecond) // slow on purpose
		if _, err := v.next(); err != nil {
			t.Fatal(err)
		}
	}
	if exited, code := v.untilExit(); *exited.ExitCode != 0 || code != 1000 {
		t.Errorf("%+v, %d", exited, code)
	}
	lines := strings.Split(strings.TrimPrefix(v.text.String(), "\r\n"), "\r\n")
	for i, line := range lines[:len(lines)-1] {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if len(lines) != n+1 {
		t.Errorf("%d lines", len(lines)-1)
	}
}

func TestTwentyViewers(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	s := create(t, m, shell())
	viewers := make([]*viewer, 20)
	for i := range viewers {
		viewers[i] = view(t, dial(t, srv, s, "&since=0"))
	}
	if n := s.Record().Attached; n != 20 {
		t.Errorf("%d are attached", n)
	}
	viewers[3].typed("stty -echo; seq 1 20000; echo FIN$((1+1))\n")
	var wg sync.WaitGroup
	for _, v := range viewers {
		wg.Go(func() { v.expect("\r\n20000\r\nFIN2") })
	}
	wg.Wait()
	want := viewers[0].text.String()
	for i, v := range viewers {
		if got := v.text.String(); !strings.HasPrefix(got, want) && !strings.HasPrefix(want, got) {
			t.Errorf("viewer %d saw something else", i)
		}
	}
}

func TestSilentPeerIsDropped(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	served := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			return
		}
		served <- Serve(r.Context(), c, s, ServeOptions{Since: -1, pingEvery: 20 * time.Millisecond, pongLimit: 200 * time.Millisecond})
	}))
	defer srv.Close()
	answers := view(t, dial(t, srv, s, ""))
	silent := dial(t, srv, s, "")
	go func() { // reading answers pings
		for err := error(nil); err == nil; {
			_, err = answers.next()
		}
	}()
	if err := <-served; !errors.Is(err, errNoPong) {
		t.Errorf("the silent one ended with %v", err)
	}
	if n := s.Record().Attached; n != 1 {
		t.Errorf("%d are attached", n)
	}
	_ = silent.CloseNow()
	_ = answers.ws.CloseNow()
	if err := <-served; err != nil {
		t.Errorf("the other ended with %v", err)
	}
}

func TestServerThatStopsSaysGoodbye(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			return
		}
		served <- Serve(ctx, c, s, ServeOptions{Since: -1})
	}))
	defer srv.Close()
	v := view(t, dial(t, srv, s, ""))
	stop()
	if _, code := v.untilExit(); code != 1001 {
		t.Errorf("closed with %d", code)
	}
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("served: %v", err)
	}
	if !s.Record().Alive {
		t.Error("the session ended with its viewer")
	}
}

// TestCutConnections cuts a client's connection 600 times, at any moment and
// in several ways. It comes back with the offset it has reached, and what it
// puts together is the terminal's output to the byte.
func TestCutConnections(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	spec := shell("-c", `stty -echo; echo ready; i=0; while read x; do seq $i $((i+299)) | sed 's/$/ é€🙂/'; i=$((i+300)); done`)
	spec.Scrollback = MaxScrollback
	s := create(t, m, spec)
	var got strings.Builder
	got.WriteString(shown(t, s, "ready\r\n"))
	expected := func(n int) string {
		b := strings.Builder{}
		b.WriteString("ready\r\n")
		for i := range n {
			fmt.Fprintf(&b, "%d é€🙂\r\n", i)
		}
		return b.String()
	}
	random := rand.New(rand.NewSource(1))
	for cuts := range 600 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var conn net.Conn
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var err error
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return conn, err
		}}}
		u := fmt.Sprintf("ws%s/pty?session_id=%s&since=%d", strings.TrimPrefix(srv.URL, "http"), s.ID(), got.Len())
		ws, _, err := websocket.Dial(ctx, u, &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // Dial says that it needs no closing
		if err != nil {
			t.Fatal(err)
		}
		ws.SetReadLimit(1 << 20)
		if random.Intn(4) > 0 {
			if err := ws.Write(ctx, websocket.MessageText, []byte(`{"type":"input","data":"\n"}`)); err != nil {
				t.Fatal(err)
			}
		}
		for range random.Intn(4) {
			soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			_, p, err := ws.Read(soon)
			cancel()
			if err != nil {
				break // nothing more came: cut here
			}
			var msg message
			if err := json.Unmarshal(p, &msg); err != nil {
				t.Fatal(err)
			}
			if msg.Type != "output" {
				continue
			}
			if msg.Offset != int64(got.Len()) || msg.Bytes != nil {
				t.Fatalf("after %d cuts: output at %d after %d bytes", cuts, msg.Offset, got.Len())
			}
			got.WriteString(msg.Data)
		}
		switch random.Intn(3) {
		case 0:
			_ = ws.Close(websocket.StatusNormalClosure, "")
		case 1:
			_ = ws.CloseNow()
		case 2:
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset
			_ = conn.Close()
			_ = ws.CloseNow()
		}
		cancel()
	}
	eventually(t, "all are detached", func() bool { return s.Record().Attached == 0 })
	typeTo(t, s, "\n")
	v := view(t, dial(t, srv, s, fmt.Sprintf("&since=%d", got.Len())))
	typeTo(t, s, "\x04")
	for {
		msg, err := v.next()
		if err != nil {
			break
		}
		if msg.Type == "output" && msg.Offset != int64(got.Len()) {
			t.Fatalf("at the end: output at %d after %d bytes", msg.Offset, got.Len())
		}
		got.WriteString(msg.Data)
	}
	text := got.String()
	lines := strings.Count(text, "\r\n") - 1
	if want := expected(lines); text != want {
		i := 0
		for i < min(len(text), len(want)) && text[i] == want[i] {
			i++
		}
		t.Fatalf("differs at byte %d of %d: %.60q, want %.60q", i, len(text), text[i:], want[i:])
	}
	if lines < 300*100 {
		t.Errorf("only %d lines were printed", lines)
	}
}
