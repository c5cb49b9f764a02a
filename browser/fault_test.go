package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func kindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	if err != nil {
		return Kind("? " + err.Error())
	}
	return ""
}

// kill ends the process that was started as the browser.
func (r *rig) kill() {
	r.t.Helper()
	r.b.mu.Lock()
	e := r.b.engine
	r.b.mu.Unlock()
	if e == nil {
		r.t.Fatal("no browser runs")
	}
	if err := syscall.Kill(e.proc.PID(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		r.t.Fatal(err)
	}
}

// TestTheBrowserComesBackFromEverything kills it, crashes its pages and lets
// scripts run without end, in turn; after each the next call works, and at the
// end no process is left, which the rig looks for.
func TestTheBrowserComesBackFromEverything(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>here</title>`)
	rounds := 50
	if testing.Short() {
		rounds = 8
	}
	limited := func(limit time.Duration, script string) error {
		return r.b.Do(t.Context(), r.ask(""), limit, func(ctx context.Context, p *Page) error {
			_, err := p.Evaluate(ctx, script)
			return err
		})
	}
	for i := range rounds {
		if v, err := r.open("http://page.test/", Load); err != nil || v.Title != "here" {
			t.Fatalf("round %d: %+v, %v", i, v, err)
		}
		switch i % 5 {
		case 0:
			r.kill()
		case 1:
			if kind := kindOf(limited(200*time.Millisecond, `while (true) {}`)); kind != Timeout {
				t.Errorf("round %d: %s", i, kind)
			}
		case 2:
			if kind := kindOf(limited(200*time.Millisecond, `new Promise(() => setTimeout(() => { while (true) {} }))`)); kind != Timeout {
				t.Errorf("round %d: %s", i, kind)
			}
		case 3:
			err := r.do(func(ctx context.Context, p *Page) error {
				p.post("Page.crash", nil)
				_, err := p.Evaluate(ctx, `new Promise(() => 0)`)
				return err
			})
			if kind := kindOf(err); kind != Closed {
				t.Errorf("round %d: a crash is %q", i, kind)
			}
		case 4:
			r.js(`window.open("about:blank"); close(); 1`)
		}
	}
}

// TestABrowserThatHangsIsReplaced stops the process without ending it.
func TestABrowserThatHangsIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("it is given ten seconds to answer")
	}
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	r.mustOpen("http://page.test/")
	r.b.mu.Lock()
	hung := r.b.engine.proc
	r.b.mu.Unlock()
	if err := hung.Signal(syscall.SIGSTOP, true); err != nil {
		t.Fatal(err)
	}
	if v := r.mustOpen("http://page.test/"); v.Title != "fine" {
		t.Errorf("%+v", v)
	}
	if _, ended := hung.Status(); !ended {
		t.Error("the one that hung is still there")
	}
}

// TestACallThatIsUnderWayWhenTheBrowserDiesFailsAtOnce does not wait for its
// time.
func TestACallThatIsUnderWayWhenTheBrowserDiesFailsAtOnce(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", "x")
	r.mustOpen("http://page.test/")
	begun := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		failed <- r.b.Do(t.Context(), r.ask(""), time.Minute, func(ctx context.Context, p *Page) error {
			close(begun)
			_, err := p.Evaluate(ctx, `new Promise(() => 0)`)
			return err
		})
	}()
	<-begun
	r.kill()
	select {
	case err := <-failed:
		if kindOf(err) != Closed {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the call hangs")
	}
}

func TestAPageThatIsBusyForEverHoldsUpNobody(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	r.serve("/busy", `<title>busy</title><script>setTimeout(() => { for (;;); })</script>`)
	r.serve("/busy-at-once", `<title>busy</title><script>for (;;);</script>`)
	r.mustOpen("http://page.test/")
	other, err := r.b.OpenTab(t.Context(), r.ask(""), "http://other.test/")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/busy", "/busy-at-once"} {
		err := r.b.Do(t.Context(), r.ask(""), time.Second, func(ctx context.Context, p *Page) error {
			if _, err := p.Navigate(ctx, "http://page.test"+path, Load); err != nil {
				return err
			}
			_, err := p.Evaluate(ctx, "1")
			return err
		})
		if kindOf(err) != Timeout {
			t.Errorf("%s: %v", path, err)
		}
		if v := r.mustOpen("http://page.test/"); v.Title != "fine" {
			t.Errorf("after %s: %+v", path, v)
		}
	}
	if err := r.b.CloseTab(t.Context(), other.ID); err != nil {
		t.Error(err)
	}
}

// TestTabsDoNotWaitForEachOther lets one tab wait for a site that is slow.
func TestTabsDoNotWaitForEachOther(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	asked, release := make(chan struct{}), make(chan struct{})
	r.mux.HandleFunc("/slow", func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})
	r.mustOpen("http://page.test/")
	tab, err := r.b.OpenTab(t.Context(), r.ask(""), "")
	if err != nil {
		t.Fatal(err)
	}
	slow := make(chan error, 1)
	go func() {
		slow <- r.b.Do(t.Context(), r.ask(tab.ID), time.Minute, func(ctx context.Context, p *Page) error {
			_, err := p.Navigate(ctx, "http://page.test/slow", Load)
			return err
		})
	}()
	<-asked
	tabs, err := r.b.Tabs(t.Context())
	if err != nil || len(tabs) != 2 {
		t.Fatalf("%v, %v", tabs, err)
	}
	first := tabs[0].ID
	err = r.b.Do(t.Context(), r.ask(first), 20*time.Second, func(ctx context.Context, p *Page) error {
		_, title, err := p.Content(ctx, false)
		if title != "fine" {
			t.Errorf("the other tab shows %q", title)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	r.b.Console("")
	// Its own tab is taken, for as long as the caller will wait.
	err = r.b.Do(t.Context(), r.ask(tab.ID), 200*time.Millisecond, func(context.Context, *Page) error { return nil })
	if kindOf(err) != Timeout {
		t.Errorf("the slow tab: %v", err)
	}
	select {
	case err := <-slow:
		t.Errorf("the slow navigation ended early: %v", err)
	default:
	}
	close(release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

func TestDialogsBlockNobody(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	r.serve("/talk", `<title>talk</title><script>alert(1); document.title = String(confirm("?")) + String(prompt("?")) + "!"; onbeforeunload = (e) => { e.preventDefault(); return "stay" }</script><body onclick="1">x`)
	if v := r.mustOpen("http://page.test/talk"); v.Title != "falsenull!" {
		t.Errorf("%+v", v)
	}
	if err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: "body"}) }); err != nil {
		t.Error(err)
	}
	if v := r.mustOpen("http://page.test/"); v.Title != "fine" {
		t.Errorf("a page that wants to stay: %+v", v)
	}
	if got := r.js(`alert(2); 7`); got != 7.0 {
		t.Error(got)
	}
}

func TestADownloadIsNoPage(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title><a id=a href="/file">file</a>`)
	r.mux.HandleFunc("/file", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", "attachment; filename=x.bin")
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	})
	r.mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	r.mustOpen("http://page.test/")
	for _, path := range []string{"/file", "/nothing"} {
		if _, err := r.open("http://page.test"+path, Load); kindOf(err) != Failure {
			t.Errorf("%s: %v", path, err)
		}
	}
	if got := r.js(`document.title`); got != "fine" {
		t.Errorf("the page that was there is %v", got)
	}
	if err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: "#a"}) }); err != nil {
		t.Errorf("a click on a download: %v", err)
	}
	if v := r.mustOpen("http://page.test/"); v.Status != 200 {
		t.Errorf("%+v", v)
	}
}

func TestAnswersOfAllKindsArePages(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.mux.HandleFunc("/{code}/{body}", func(w http.ResponseWriter, q *http.Request) {
		code, _ := strconv.Atoi(q.PathValue("code"))
		if code == 401 {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		if q.PathValue("body") == "full" {
			fmt.Fprintf(w, "<title>%d</title>", code)
		}
	})
	for _, params := range []string{`{}`, `{"url_deny":["*never*"]}`} {
		r.rule = ruleOf(t, params)
		if _, err := r.open("http://page.test/407/full", Load); kindOf(err) != Failure {
			t.Errorf("a site that speaks as the proxy: %v", err)
		}
		for _, code := range []int{200, 401, 404, 500, 503} {
			for _, body := range []string{"full", "empty"} {
				address := fmt.Sprintf("http://page.test/%d/%s", code, body)
				v, err := r.open(address, Load)
				if err != nil || v.Status != code || v.URL != address {
					t.Errorf("%s %s: %+v, %v", params, address, v, err)
				}
			}
		}
	}
}

func TestHugePagesAreRefusedNotSwallowed(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<body style="margin:0">x`)
	r.mustOpen("http://page.test/")
	for name, script := range map[string]string{
		"long":  `"x".repeat(100e6)`,
		"wide":  `Array(10e6).fill(0)`,
		"deep":  `(() => { let o = {}; for (let i = 0; i < 1e5; i++) o = {o}; return o })()`,
		"spiky": `(() => { let o = 1; for (let i = 0; i < 40; i++) o = [o, o]; return o })()`,
	} {
		err := r.do(func(ctx context.Context, p *Page) error {
			_, err := p.Evaluate(ctx, script)
			return err
		})
		if kindOf(err) != Failure || !strings.Contains(err.Error(), "too") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.js(`document.body.append(document.createComment("y".repeat(20e6))); 1`)
	err := r.do(func(ctx context.Context, p *Page) error {
		_, _, err := p.Content(ctx, false)
		return err
	})
	if kindOf(err) != Failure {
		t.Errorf("content: %v", err)
	}
	r.js(`document.body.innerHTML = '<div style="width:100px;height:100000px">x</div>'; 1`)
	err = r.do(func(ctx context.Context, p *Page) error {
		_, err := p.Screenshot(ctx, Shot{FullPage: true, Format: "png"})
		return err
	})
	if kindOf(err) != Failure {
		t.Errorf("picture: %v", err)
	}
	if got := r.js(`6 * 7`); got != 42.0 {
		t.Error(got)
	}
}

func TestAStormOfPopupsIsBounded(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>storm</title><button onclick="for (let i = 0; i < 100; i++) open('about:blank', '_blank', 'popup')">x</button>`)
	r.mustOpen("http://page.test/")
	for range 3 {
		_ = r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Selector: "button"}) })
	}
	tabs, err := r.b.Tabs(t.Context())
	if err != nil || len(tabs) > maxTabs {
		t.Fatalf("%d tabs, %v", len(tabs), err)
	}
	if v := r.mustOpen("http://page.test/"); v.Title != "storm" {
		t.Errorf("the page is not the current one any more: %+v", v)
	}
}

func TestACallerWhoLeavesFreesThePage(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	asked := make(chan struct{})
	var once sync.Once
	r.mux.HandleFunc("/slow", func(_ http.ResponseWriter, q *http.Request) {
		once.Do(func() { close(asked) })
		<-q.Context().Done()
	})
	r.mustOpen("http://page.test/")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		left <- r.b.Do(ctx, r.ask(""), 10*time.Minute, func(ctx context.Context, p *Page) error {
			_, err := p.Navigate(ctx, "http://page.test/slow", Load)
			return err
		})
	}()
	<-asked
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if v := r.mustOpen("http://page.test/"); v.Title != "fine" {
		t.Errorf("%+v", v)
	}
}

func TestABrowserThatDoesNotStartLeavesNothing(t *testing.T) {
	needBrowser(t)
	dir, err := os.MkdirTemp("", "t") // short: sockets are made in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	for _, path := range []string{"/bin/false", "/bin/cat", "/nonexistent", "/etc/passwd"} {
		r := newRig(t, `{}`, Options{})
		ask := r.ask("")
		ask.Env = func() map[string]string {
			return map[string]string{"ABX_BROWSER_PATH": path, "PATH": os.Getenv("PATH")}
		}
		err := r.b.Do(t.Context(), ask, time.Second, func(context.Context, *Page) error { return nil })
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", path, err)
		}
		if err := r.do(func(context.Context, *Page) error { return nil }); err != nil && path == "/bin/false" {
			t.Errorf("after %s, with a browser: %v", path, err)
		}
		if err := r.b.Reset(t.Context()); err != nil {
			t.Error(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "abx-browser-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestABrowserWithoutItsSandboxStartsAllTheSame stands for containers that let
// nobody make one.
func TestABrowserWithoutItsSandboxStartsAllTheSame(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>fine</title>`)
	r.b.bare.Store(false)
	script := filepath.Join(t.TempDir(), "chrome")
	text := "#!/bin/sh\ncase \" $* \" in *\" --no-sandbox \"*) exec " + find(environment()) + " \"$@\";; esac\necho 'FATAL: No usable sandbox! See the manual.' >&2\nexit 1\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	env := environment()
	env["ABX_BROWSER_PATH"] = script
	ask := r.ask("")
	ask.Env = func() map[string]string { return env }
	err := r.b.Do(t.Context(), ask, 30*time.Second, func(ctx context.Context, p *Page) error {
		v, err := p.Navigate(ctx, "http://page.test/", Load)
		if v.Title != "fine" {
			t.Errorf("%+v", v)
		}
		return err
	})
	if err != nil || !r.b.bare.Load() {
		t.Errorf("%v", err)
	}
}

// TestAnIdleBrowserIsStoppedAndForgetsNothing waits for its end and looks for
// what it knew.
func TestAnIdleBrowserIsStoppedAndForgetsNothing(t *testing.T) {
	r := newRig(t, `{}`, Options{Idle: 50 * time.Millisecond})
	r.mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "kept", HttpOnly: true, Path: "/"})
		http.SetCookie(w, &http.Cookie{Name: "lasting", Value: "kept", Path: "/", MaxAge: 3600})
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s</title>", q.URL.Path)
	})
	var tab Tab
	err := r.do(func(ctx context.Context, p *Page) error {
		if _, err := p.Navigate(ctx, "http://page.test/one", Load); err != nil {
			return err
		}
		_, err := p.Evaluate(ctx, `localStorage.setItem("a", "kept")`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if tab, err = r.b.OpenTab(t.Context(), r.ask(""), "http://other.test/two"); err != nil {
		t.Fatal(err)
	}
	r.b.mu.Lock()
	profile := r.b.profile
	r.b.mu.Unlock()
	eventually(t, "the browser is stopped", func() bool { return len(using(profile)) == 0 })
	if tabs, err := r.b.Tabs(t.Context()); err != nil || len(tabs) != 2 {
		t.Errorf("while stopped: %v, %v", tabs, err)
	}
	if got := r.js(`document.title + document.cookie`); got != "/twolasting=kept" {
		t.Errorf("the active tab shows %v", got)
	}
	err = r.b.Do(t.Context(), r.ask(tab.ID), 20*time.Second, func(ctx context.Context, p *Page) error {
		list, err := p.Cookies(ctx, nil)
		found := map[string]bool{}
		for _, c := range list {
			found[c.Domain+" "+c.Name+" "+c.Value] = true
		}
		for _, want := range []string{"page.test session kept", "page.test lasting kept", "other.test session kept"} {
			if !found[want] {
				t.Errorf("no cookie %q in %v", want, list)
			}
		}
		return err
	})
	if err != nil {
		t.Errorf("the tab by its old name: %v", err)
	}
	if got := r.mustOpen("http://page.test/one"); got.Title != "/one" {
		t.Errorf("%+v", got)
	}
	if got := r.js(`localStorage.getItem("a")`); got != "kept" {
		t.Errorf("storage: %v", got)
	}
	if err := r.b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mustOpen("http://page.test/one")
	if got := r.js(`localStorage.getItem("a")`); got != nil {
		t.Errorf("after a reset: %v", got)
	}
}

func TestAClosedBrowserAnswers(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	if err := r.b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.do(func(context.Context, *Page) error { return nil }); !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
