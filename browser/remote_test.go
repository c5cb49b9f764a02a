package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// wire is a client of the protocol in the same process.
type wire struct {
	in   chan []byte // to Chrome
	out  chan []byte // from Chrome
	next int
}

func (w *wire) Read(ctx context.Context) ([]byte, error) {
	select {
	case text, ok := <-w.in:
		if !ok {
			return nil, io.EOF
		}
		return text, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Write(ctx context.Context, text []byte) error {
	select {
	case w.out <- text:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask sends a command, params as JSON, and waits for its reply; events are
// given to seen.
func (w *wire) ask(t *testing.T, session, method, params string, seen func(remoteMessage)) (json.RawMessage, error) {
	t.Helper()
	w.next++
	text := fmt.Sprintf(`{"id":%d,"method":%q,"params":%s`, w.next, method, params)
	if session != "" {
		text += fmt.Sprintf(`,"sessionId":%q`, session)
	}
	w.in <- []byte(text + "}")
	timeout := time.After(20 * time.Second)
	for {
		select {
		case text := <-w.out:
			var m remoteMessage
			if err := json.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			if string(m.ID) != fmt.Sprint(w.next) {
				if seen != nil {
					seen(m)
				}
				continue
			}
			if m.Error != nil {
				return nil, m.Error
			}
			return m.Result, nil
		case <-timeout:
			t.Fatalf("no reply to %s", method)
		}
	}
}

// serveWire serves a client until the test ends.
func serveWire(t *testing.T, r *rig) (*wire, <-chan error) {
	t.Helper()
	w := &wire{in: make(chan []byte), out: make(chan []byte, 16)}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- r.b.Serve(ctx, r.ask(""), w)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w, done
}

func TestClientsOfTheProtocolHaveSessionsOfTheirOwn(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	one, _ := serveWire(t, r)
	two, _ := serveWire(t, r)
	open := func(w *wire, path string) string {
		var target struct{ TargetID, SessionID string }
		res, err := w.ask(t, "", "Target.createTarget", `{"url":"about:blank"}`, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(res, &target)
		res, err = w.ask(t, "", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`, target.TargetID), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(res, &target)
		if _, err := w.ask(t, target.SessionID, "Page.enable", `{}`, nil); err != nil {
			t.Fatal(err)
		}
		loaded := false
		if _, err := w.ask(t, target.SessionID, "Page.navigate", `{"url":"http://page.test`+path+`"}`, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, path+" is loaded", func() bool {
			res, err := w.ask(t, target.SessionID, "Runtime.evaluate", `{"expression":"location.pathname+document.title"}`, func(m remoteMessage) {
				loaded = loaded || m.Method == "Page.loadEventFired" && m.Session == target.SessionID
			})
			return err == nil && loaded && strings.Contains(string(res), path+"fine")
		})
		return target.SessionID
	}
	mine := open(one, "/one")
	open(two, "/two")
	if _, err := two.ask(t, mine, "Runtime.evaluate", `{"expression":"1"}`, nil); err == nil {
		t.Error("a client acts in the session of another")
	}
	r.b.mu.Lock()
	e := r.b.engine
	r.b.mu.Unlock()
	e.mu.Lock()
	ours := ""
	for s := range e.sessions {
		ours = s
	}
	e.mu.Unlock()
	if _, err := one.ask(t, ours, "Runtime.evaluate", `{"expression":"1"}`, nil); err == nil {
		t.Error("a client acts in a session of the server")
	}
	if v := r.mustOpen("http://page.test/own"); v.Title != "fine" {
		t.Errorf("%+v", v)
	}
}

// attached is a page that the client has opened, and its session there.
type attached struct{ TargetID, SessionID string }

// attach opens a page with the parameters of Target.createTarget.
func (w *wire) attach(t *testing.T, params string) (a attached) {
	t.Helper()
	res, err := w.ask(t, "", "Target.createTarget", params, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(res, &a)
	if res, err = w.ask(t, "", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":true}`, a.TargetID), nil); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(res, &a)
	return a
}

// TestClientsOfTheProtocolDoNotGetAround asks for what would lead past the
// policy, out of the page, or to files.
func TestClientsOfTheProtocolDoNotGetAround(t *testing.T) {
	r := newRig(t, `{"url_deny":["*/secret*"]}`, Options{})
	r.serve("/", `<title>fine</title><input type=file>`)
	w, done := serveWire(t, r)
	target := w.attach(t, `{"url":"http://page.test/"}`)
	for _, c := range []struct{ session, method, params string }{
		{"", "Target.createTarget", `{"url":"file:///etc/passwd"}`},
		{"", "Target.createTarget", `{"url":"chrome://version"}`},
		{"", "Target.createTarget", `{"url":"http://127.0.0.1:1/"}`},
		{"", "Target.createTarget", `{"url":"http://page.test/secret"}`},
		{"", "Target.createTarget", `{"url":7}`},
		{"", "Target.createBrowserContext", `{"proxyServer":"direct://"}`},
		{"", "Target.createBrowserContext", `{"proxyBypassList":"*"}`},
		{"", "Target.createBrowserContext", `{"originsWithUniversalNetworkAccess":["*"]}`},
		{"", "Target.exposeDevToolsProtocol", fmt.Sprintf(`{"targetId":%q}`, target.TargetID)},
		{"", "Target.sendMessageToTarget", `{"message":"{}"}`},
		{"", "Target.attachToTarget", fmt.Sprintf(`{"targetId":%q,"flatten":false}`, target.TargetID)},
		{"", "Browser.crash", `{}`},
		{"", "Browser.getBrowserCommandLine", `{}`},
		{"", "SystemInfo.getInfo", `{}`},
		{"", "Tracing.start", `{}`},
		{"", "Extensions.loadUnpacked", `{"path":"/tmp"}`},
		{"s", "Page.navigate", `{"url":"file:///etc/passwd"}`},
		{"s", "Page.navigate", `{"url":"view-source:file:///etc/passwd"}`},
		{"s", "Page.navigate", `{"url":"data:text/html,x"}`},
		{"s", "Page.navigate", `{"url":"http://169.254.169.254/"}`},
		{"s", "Page.navigate", `{"url":"http://page.test/","url":"file:///etc/passwd"}`},
		{"s", "Page.navigate", `{"url":"file:///etc/passwd","URL":"http://page.test/"}`},
		{"s", "DOM.setFileInputFiles", `{"files":["/etc/passwd"]}`},
		{"s", "Input.dispatchDragEvent", `{"type":"drop","x":1,"y":1,"data":{"items":[],"files":["/etc/passwd"],"dragOperationsMask":1}}`},
		{"s", "Network.loadNetworkResource", `{"url":"file:///etc/passwd","options":{"disableCache":true,"includeCredentials":false}}`},
		{"s", "Fetch.continueRequest", `{"requestId":"x","url":"http://127.0.0.1/"}`},
		{"s", "FileSystem.getDirectory", `{}`},
	} {
		session := c.session
		if session != "" {
			session = target.SessionID
		}
		if res, err := w.ask(t, session, c.method, c.params, nil); err == nil {
			t.Errorf("%s %s: %s", c.method, c.params, res)
		}
	}
	// The first of two equal names does not count in Chrome either: what was
	// judged was sent.
	if _, err := w.ask(t, target.SessionID, "Page.navigate", `{"url":"file:///etc/passwd","url":"http://page.test/"}`, nil); err != nil {
		t.Error(err)
	}
	// What clients do as a matter of course is answered and not done.
	for _, c := range [][2]string{
		{"Browser.setDownloadBehavior", `{"behavior":"allow","downloadPath":"/tmp"}`}, {"Browser.close", `{}`},
	} {
		if _, err := w.ask(t, "", c[0], c[1], nil); err != nil {
			t.Errorf("%s: %v", c[0], err)
		}
	}
	// A context of its own has the same proxy and the same rules.
	res, err := w.ask(t, "", "Target.createBrowserContext", `{}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	var own struct{ BrowserContextID string }
	_ = json.Unmarshal(res, &own)
	made := w.attach(t, fmt.Sprintf(`{"url":"http://page.test/","browserContextId":%q}`, own.BrowserContextID))
	leaked := false
	r.b.mu.Lock()
	secret := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + r.b.engine.proxy.secret))
	r.b.mu.Unlock()
	told := false
	look := func(m remoteMessage) {
		leaked = leaked || strings.Contains(string(m.Params), secret)
		told = told || strings.Contains(string(m.Params), "Proxy-Authorization")
	}
	if _, err := w.ask(t, made.SessionID, "Network.enable", `{}`, look); err != nil {
		t.Fatal(err)
	}
	const script = `{"awaitPromise":true,"expression":"Promise.all(['http://127.0.0.1:1/','http://page.test/secret','http://page.test/x'].map((u) => fetch(u, {mode:'no-cors'}).then(() => 'got it', () => 'refused'))).then(String)"}`
	eventually(t, "the page of the other context asks", func() bool {
		res, err = w.ask(t, made.SessionID, "Runtime.evaluate", script, look)
		return err == nil && strings.Contains(string(res), "refused,refused,got it")
	})
	if leaked || !told {
		t.Error("the secret of the proxy is shown")
	}
	select {
	case err := <-done:
		t.Errorf("it ended: %v", err)
	default:
	}
}

func TestAClientThatDoesNotReadIsLeftBehind(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	w, done := serveWire(t, r)
	target := w.attach(t, `{"url":"about:blank"}`)
	if _, err := w.ask(t, target.SessionID, "Runtime.enable", `{}`, nil); err != nil {
		t.Fatal(err)
	}
	w.in <- []byte(fmt.Sprintf(`{"id":1000,"method":"Runtime.evaluate","sessionId":%q,"params":{"expression":"for (let i = 0; i < 900; i++) console.log('x'.repeat(1e5))"}}`, target.SessionID))
	select { // nobody reads any more
	case err := <-done:
		if !errors.Is(err, ErrBehind) {
			t.Errorf("%v", err)
		}
	case <-time.After(4 * time.Minute): // half a minute on an idle machine, with the race detector
		t.Fatal("it is served for ever")
	}
	if got := r.js(`1+1`); got != 2.0 {
		t.Error(got)
	}
}

func TestAClientEndsWithTheBrowser(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	w, done := serveWire(t, r)
	if _, err := w.ask(t, "", "Browser.getVersion", `{}`, nil); err != nil {
		t.Fatal(err)
	}
	r.kill()
	select {
	case err := <-done:
		if !errors.Is(err, errLost) {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the end of the browser is not the end of its client")
	}
}
