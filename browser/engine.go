package browser

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

const (
	startTime = 30 * time.Second // for Chrome to answer
	setupTime = 10 * time.Second // for a new page to be ready
	hangTime  = 10 * time.Second // for a Chrome that runs to say that it does
	hangTries = 6                // as long as it says something
	maxTabs   = 32
	noise     = 16 << 10 // bytes of Chrome's own output that are kept
)

// engine is one running Chrome with its proxy and its pages.
type engine struct {
	b       *Browser
	proc    *proc.Process
	conn    *conn
	proxy   *proxy
	profile string         // the folder of its files
	wg      sync.WaitGroup // set-up of pages, and the watch over its end

	mu       sync.Mutex
	tabs     []*tab // in the order they appeared
	sessions map[string]*tab
	active   *tab
	spare    int // pages that may be open beyond maxTabs, as each takes the place of another
	remotes  []*remote
	changed  broadcast
}

// alive tells whether Chrome can still be spoken with.
func (e *engine) alive() bool {
	select {
	case <-e.conn.lost:
		return false
	default:
		return true
	}
}

// answers looks whether Chrome can be used: one that has just died is not always
// known to have, and one that hangs is ended. Then it is errNotBegun. A Chrome
// that says much else meanwhile is given more time, as its answer comes behind
// all that.
func (e *engine) answers(ctx context.Context) error {
	for tries := 1; ; tries++ {
		heard := e.conn.heard.Load()
		limited, cancel := context.WithTimeout(ctx, hangTime)
		err := e.conn.call(limited, "", "Browser.getVersion", nil, nil)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errLost):
			return errNotBegun
		case tries < hangTries && e.conn.heard.Load() != heard:
			continue
		}
		e.b.log.Warn("the browser hangs", "err", err)
		e.proc.End("")
		select {
		case <-e.conn.lost: // nothing holds its pipe any more
			return errNotBegun
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop ends Chrome and everything that belongs to it.
func (e *engine) stop() {
	if e.proc != nil {
		e.proc.End(proc.ReasonShutdown)
	}
	if e.conn != nil {
		e.conn.close()
	}
	e.wg.Wait()
	removeUploads(e.profile)
	e.b.downloads.cutOff()
	if e.proxy != nil {
		e.proxy.close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tabs {
		t.leave()
	}
	e.tabs, e.active, e.sessions = nil, nil, map[string]*tab{}
}

// event takes what Chrome tells, on the goroutine that reads.
func (e *engine) event(m *message) {
	if m.Session != "" {
		e.mu.Lock()
		t, remotes := e.sessions[m.Session], e.remotes
		e.mu.Unlock()
		if t != nil {
			t.event(m)
			return
		}
		for _, r := range remotes {
			if r.event(m) {
				return
			}
		}
		return
	}
	switch m.Method {
	case "Target.attachedToTarget":
		e.attached(m.Params)
	case "Target.detachedFromTarget":
		var p struct {
			Session string `json:"sessionId"`
		}
		if json.Unmarshal(m.Params, &p) == nil {
			e.detached(p.Session)
		}
	case "Browser.downloadWillBegin", "Browser.downloadProgress":
		e.downloading(m)
	case "Fetch.requestPaused":
		e.paused(m.Params)
	case "Fetch.authRequired":
		e.challenged(m.Params)
	}
}

// paused lets a request go on, or not.
func (e *engine) paused(params json.RawMessage) {
	var p struct {
		ID      string `json:"requestId"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	on := object{"requestId": p.ID}
	scheme, _, _ := strings.Cut(p.Request.URL, ":")
	switch scheme {
	case "http", "https":
		u, err := ParseURL(p.Request.URL)
		if err != nil || u.Host != primeHost && e.proxy.rules().admit(u) != nil {
			e.stopRequest(p.ID)
			return
		}
		if scheme == "http" { // which the proxy reads
			if whole := wholeEscapes(p.Request.URL); whole != p.Request.URL {
				on["url"] = whole
			}
		}
	case "file", "chrome", "view-source", "filesystem", "ftp":
		e.stopRequest(p.ID)
		return
	}
	e.conn.post("", "Fetch.continueRequest", on)
}

func (e *engine) stopRequest(id string) {
	e.conn.post("", "Fetch.failRequest", object{"requestId": id, "errorReason": "BlockedByClient"})
}

// challenged answers a demand for credentials: the proxy's gets ours, a site's
// none, so that its own answer is shown.
func (e *engine) challenged(params json.RawMessage) {
	var p struct {
		ID        string `json:"requestId"`
		Challenge struct {
			Source string `json:"source"`
			Origin string `json:"origin"`
		} `json:"authChallenge"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	answer := object{"response": "CancelAuth"}
	if p.Challenge.Source == "Proxy" && p.Challenge.Origin == "http://"+e.proxy.addr() {
		answer = object{"response": "ProvideCredentials", "username": proxyUser, "password": e.proxy.secret}
	}
	e.conn.post("", "Fetch.continueWithAuth", object{"requestId": p.ID, "authChallengeResponse": answer})
}

type targetInfo struct {
	ID   string `json:"targetId"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

// attached takes a new page in.
func (e *engine) attached(params json.RawMessage) {
	var p struct {
		Session string     `json:"sessionId"`
		Target  targetInfo `json:"targetInfo"`
	}
	if json.Unmarshal(params, &p) != nil || p.Target.Type != "page" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.tabs) >= maxTabs+e.spare { // a page that opens one after the other
		// It waits for us, and whoever opened it with it.
		e.conn.post(p.Session, "Runtime.runIfWaitingForDebugger", nil)
		e.conn.post("", "Target.closeTarget", object{"targetId": p.Target.ID})
		return
	}
	t := newTab(e, p.Target, p.Session)
	e.tabs = append(e.tabs, t)
	e.sessions[p.Session] = t
	if e.active == nil {
		e.active = t
	}
	e.wg.Go(t.setup)
	e.changed.send()
}

func (e *engine) detached(session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.sessions[session]
	if t == nil {
		return
	}
	delete(e.sessions, session)
	e.tabs = slices.DeleteFunc(e.tabs, func(o *tab) bool { return o == t })
	if e.active == t {
		e.active = nil
		if n := len(e.tabs); n > 0 {
			e.active = e.tabs[n-1]
		}
	}
	t.leave()
	e.changed.send()
}

// tab finds a page; an empty id is the active one, which is made when there is
// none.
func (e *engine) tab(ctx context.Context, id string) (*tab, error) {
	if id == "" {
		return e.current(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tabs {
		if t.name == id {
			return t, nil
		}
	}
	return nil, ErrNoTab
}

// current is the active page when it is ready.
func (e *engine) current(ctx context.Context) (*tab, error) {
	asked := false
	for {
		e.mu.Lock()
		t, changed := e.active, e.changed.wait()
		e.mu.Unlock()
		if t != nil {
			return t, t.awaitReady(ctx)
		}
		if !asked && e.alive() {
			asked = true
			if _, err := e.open(ctx); err != nil {
				return nil, err
			}
			continue
		}
		select {
		case <-changed:
		case <-e.conn.lost:
			return nil, errLost
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// open makes a blank page in a window of its own, since a page in the
// background of another's draws nothing.
func (e *engine) open(ctx context.Context) (*tab, error) {
	e.mu.Lock()
	full := len(e.tabs) >= maxTabs+e.spare
	e.mu.Unlock()
	if full {
		return nil, ErrTabs
	}
	var made targetInfo
	if err := e.conn.call(ctx, "", "Target.createTarget", object{"url": "about:blank", "newWindow": true}, &made); err != nil {
		return nil, err
	}
	for {
		e.mu.Lock()
		changed := e.changed.wait()
		i := slices.IndexFunc(e.tabs, func(t *tab) bool { return t.id == made.ID })
		var t *tab
		if i >= 0 {
			t = e.tabs[i]
		}
		e.mu.Unlock()
		if t != nil {
			return t, t.awaitReady(ctx)
		}
		select {
		case <-changed:
		case <-e.conn.lost:
			return nil, errLost
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// replace puts a blank page in the place of one whose renderer has died. That one
// could be given a new renderer, but Chrome would repeat in it what was under
// way in the old.
func (e *engine) replace(ctx context.Context, t *tab) (*tab, error) {
	e.reserve(1)
	defer e.reserve(-1)
	made, err := e.open(ctx)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	name := t.label()
	t.update(func() { t.name = t.id })
	made.update(func() { made.name = name })
	e.tabs = slices.DeleteFunc(e.tabs, func(o *tab) bool { return o == made })
	if i := slices.Index(e.tabs, t); i >= 0 {
		e.tabs = slices.Insert(e.tabs, i, made)
	} else {
		e.tabs = append(e.tabs, made)
	}
	if e.active == t || e.active == nil {
		e.active = made
	}
	e.mu.Unlock()
	e.conn.post("", "Target.closeTarget", object{"targetId": t.id})
	return made, nil
}

func (e *engine) reserve(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spare += n
}

// broadcast wakes all who wait. It is used under a lock of its owner.
type broadcast struct{ ch chan struct{} }

func (b *broadcast) wait() <-chan struct{} {
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
