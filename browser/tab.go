package browser

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// Viewport is what of a page is in view, in CSS pixels.
type Viewport struct {
	Width, Height int
	Scale         float64
}

// defaultViewport is that of every new page.
var defaultViewport = Viewport{1280, 720, 1}

// tab is one page. What the browser tells about it is kept under mu; hold is
// the turn to act on it.
type tab struct {
	id, session string
	name        string // what callers call it; changed under both locks
	e           *engine
	turn        chan struct{} // has room for who acts
	prepared    chan struct{} // closed when set up
	gone        chan struct{} // closed when the page has been closed

	mu       sync.Mutex
	left     bool
	url      string
	loader   string // of the document that is there
	failed   string // the address that an error page stands for
	stage    map[string]bool
	halted   bool // loading has stopped, maybe before the document was complete
	pending  bool // the page goes elsewhere
	crashed  bool
	down     chan struct{} // closed when crashed; nil after
	asleep   string        // the address to open before the page is used
	download bool          // the last navigation became a download
	doc      document
	requests map[string]*request
	quiet    time.Time // since when there was no request
	world    int       // the execution context of our library; 0 is none
	refs     refs
	changed  broadcast
}

// document is the last one that was asked for.
type document struct {
	loader, url string
	status      int
}

func newTab(e *engine, info targetInfo, session string) *tab {
	return &tab{
		id: info.ID, session: session, name: info.ID, e: e, url: info.URL,
		turn: make(chan struct{}, 1), prepared: make(chan struct{}), gone: make(chan struct{}),
		down: make(chan struct{}), stage: map[string]bool{}, requests: map[string]*request{}, quiet: time.Now(),
	}
}

// label is what callers call the tab.
func (t *tab) label() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.name
}

// call sends a command to the page. When the page's renderer dies meanwhile, the
// answer of which Chrome would owe for ever, it fails.
func (t *tab) call(ctx context.Context, method string, params object, result any) error {
	t.mu.Lock()
	down := t.down
	t.mu.Unlock()
	return t.e.conn.callUntil(ctx, down, t.session, method, params, result)
}

func (t *tab) post(method string, params object) { t.e.conn.post(t.session, method, params) }

// setup tells the page what we want to know of it and lets it run.
func (t *tab) setup() {
	defer close(t.prepared)
	for _, domain := range []string{"Page", "Inspector", "Runtime", "Log"} {
		t.post(domain+".enable", nil)
	}
	t.post("Network.enable", object{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0, "maxPostDataSize": 0})
	t.post("Page.setLifecycleEventsEnabled", object{"enabled": true})
	t.post("Emulation.setFocusEmulationEnabled", object{"enabled": true})
	t.post("Page.setInterceptFileChooserDialog", object{"enabled": true})
	t.post("Runtime.runIfWaitingForDebugger", nil)
	ctx, cancel := context.WithTimeout(context.Background(), setupTime)
	defer cancel()
	_ = t.setViewport(ctx, defaultViewport) // a page that has gone needs none
}

func (t *tab) setViewport(ctx context.Context, v Viewport) error {
	return t.call(ctx, "Emulation.setDeviceMetricsOverride", object{
		"width": v.Width, "height": v.Height, "deviceScaleFactor": v.Scale, "mobile": false,
	}, nil)
}

func (t *tab) awaitReady(ctx context.Context) error {
	select {
	case <-t.prepared:
		return nil
	case <-t.gone:
		return &Error{Closed, "The page has gone"}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave says that the page has gone. The engine's lock is held.
func (t *tab) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.left {
		t.left = true
		t.crash()
		close(t.gone)
		t.changed.send()
	}
}

// hold takes the turn to act on the page.
func (t *tab) hold(ctx context.Context) (release func(), err error) {
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn }, nil
	case <-t.gone:
		return nil, errNotBegun
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// await waits until done says so, which is asked under the lock whenever
// something has changed, and no later than the time it names, if any.
func (t *tab) await(ctx context.Context, done func() (ok bool, again time.Time)) error {
	for {
		t.mu.Lock()
		ok, again := done()
		changed, left := t.changed.wait(), t.left
		t.mu.Unlock()
		switch {
		case ok:
			return nil
		case left:
			return &Error{Closed, "The page has gone"}
		}
		var later <-chan time.Time
		if !again.IsZero() {
			timer := time.NewTimer(time.Until(again))
			defer timer.Stop()
			later = timer.C
		}
		select {
		case <-changed:
		case <-later:
		case <-t.e.conn.lost:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// event takes what the browser tells about the page.
func (t *tab) event(m *message) {
	switch {
	case strings.HasPrefix(m.Method, "Page."):
		t.pageEvent(m)
	case strings.HasPrefix(m.Method, "Network."):
		t.networkEvent(m)
	case m.Method == "Runtime.consoleAPICalled", m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
		t.e.b.console.take(t.label(), m)
	case m.Method == "Inspector.targetCrashed":
		t.update(t.crash)
	case m.Method == "Runtime.executionContextsCleared":
		t.update(func() { t.world = 0 })
	}
}

// crash notes that the renderer has died.
func (t *tab) crash() {
	t.crashed, t.pending, t.world = true, false, 0
	clear(t.requests)
	if t.down != nil {
		close(t.down)
		t.down = nil
	}
}

func (t *tab) update(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	t.changed.send()
}

// frameEvent has the members of page events that we read.
type frameEvent struct {
	Frame struct {
		ID          string `json:"id"`
		Parent      string `json:"parentId"`
		Loader      string `json:"loaderId"`
		URL         string `json:"url"`
		Fragment    string `json:"urlFragment"`
		Unreachable string `json:"unreachableUrl"`
	} `json:"frame"`
	FrameID string `json:"frameId"`
	Loader  string `json:"loaderId"`
	URL     string `json:"url"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Where   string `json:"disposition"`
}

func (t *tab) pageEvent(m *message) {
	switch m.Method {
	case "Page.frameNavigated", "Page.navigatedWithinDocument", "Page.lifecycleEvent", "Page.frameStartedNavigating",
		"Page.frameRequestedNavigation", "Page.frameStoppedLoading", "Page.downloadWillBegin", "Page.javascriptDialogOpening":
	default:
		return
	}
	var p frameEvent
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	if m.Method == "Page.javascriptDialogOpening" {
		// Nobody is there to answer. Leaving a page is what callers asked for.
		t.post("Page.handleJavaScriptDialog", object{"accept": p.Type == "beforeunload"})
		return
	}
	if m.Method == "Page.frameNavigated" {
		if p.Frame.Parent == "" {
			t.update(func() { t.arrived(&p) })
		}
		return
	}
	if p.FrameID != t.id { // the id of the main frame is that of its page
		return
	}
	t.update(func() {
		switch m.Method {
		case "Page.navigatedWithinDocument":
			t.url, t.pending = p.URL, false
		case "Page.lifecycleEvent":
			if p.Loader == t.loader {
				t.stage[p.Name] = true
			}
		case "Page.frameStartedNavigating":
			t.pending = true
		case "Page.frameRequestedNavigation":
			t.pending = t.pending || p.Where == "currentTab"
		case "Page.frameStoppedLoading":
			t.pending, t.halted = false, true
		case "Page.downloadWillBegin":
			t.download, t.pending = true, false
		}
	})
}

// arrived notes that a new document is there.
func (t *tab) arrived(p *frameEvent) {
	t.url, t.failed = p.Frame.URL+p.Frame.Fragment, p.Frame.Unreachable
	t.loader = p.Frame.Loader
	t.stage, t.halted = map[string]bool{}, false
	t.pending, t.crashed, t.world = false, false, 0
	if t.down == nil {
		t.down = make(chan struct{})
	}
	t.refs = refs{}
	for id, r := range t.requests { // of the document before
		if r.loader != t.loader {
			delete(t.requests, id)
		}
	}
}
