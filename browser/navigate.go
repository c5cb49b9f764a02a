package browser

import (
	"context"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// idleTime is how long a page must have asked for nothing to be idle.
const idleTime = 500 * time.Millisecond

// Until is what a navigation is waited for.
type Until string

// The stages of a page.
const (
	Commit     Until = "commit"
	DOMContent Until = "domcontentloaded"
	Load       Until = "load"
	Idle       Until = "networkidle"
)

// Visit is where a navigation has led.
type Visit struct {
	URL    string
	Title  string
	Status int // of the last answer, 0 when nothing was asked for
}

// Navigate opens an address that was judged and waits for the stage. A page
// that answers with an HTTP error is a success. An address on the way that the
// policy refuses is a [*policy.Denied].
func (p *Page) Navigate(ctx context.Context, url string, until Until) (Visit, error) {
	t := p.tab
	var nav struct {
		Loader string `json:"loaderId"`
		Error  string `json:"errorText"`
	}
	err := again(ctx, func() error {
		// What is still under way would fail the new navigation, or be taken
		// for it.
		if err := t.call(ctx, "Page.stopLoading", nil, nil); err != nil {
			return err
		}
		t.update(func() { t.pending, t.download, t.doc = false, false, document{} })
		return t.call(ctx, "Page.navigate", object{"url": url}, &nav)
	})
	if err != nil {
		t.post("Page.stopLoading", nil)
		return Visit{}, err
	}
	if nav.Error != "" {
		return t.failedVisit(url, nav.Error)
	}
	if nav.Loader == "" { // only the fragment is another
		return Visit{URL: p.URL(), Title: t.title(ctx)}, nil
	}
	err = t.await(ctx, func() (bool, time.Time) { return t.loader == nav.Loader || t.crashed, time.Time{} })
	if err == nil {
		err = t.reached(ctx, until)
	}
	if err != nil {
		t.post("Page.stopLoading", nil)
		return Visit{}, err
	}
	return t.visited(ctx)
}

// reached waits until the document that is there has come to a stage.
func (t *tab) reached(ctx context.Context, until Until) error {
	for {
		var halted, crashed bool
		err := t.await(ctx, func() (bool, time.Time) {
			halted, crashed = t.halted && !t.stage["load"] && until != Commit, t.crashed
			if halted || crashed {
				return true, time.Time{}
			}
			return t.at(until)
		})
		switch {
		case crashed:
			return &Error{Closed, "The page has crashed"}
		case err != nil || !halted:
			return err
		}
		if err := t.completed(ctx); err != nil {
			return err
		}
	}
}

// at tells whether the document is at a stage, or when it may be asked again.
// The lock is held.
func (t *tab) at(until Until) (bool, time.Time) {
	switch until {
	case Commit:
		return true, time.Time{}
	case DOMContent:
		return t.stage["DOMContentLoaded"], time.Time{}
	case Load:
		return t.stage["load"], time.Time{}
	}
	since, ok := t.idle()
	if !t.stage["load"] || !ok {
		return false, time.Time{}
	}
	at := since.Add(idleTime)
	return !time.Now().Before(at), at
}

// completed asks a document whose loading has stopped whether it is complete.
// One that was stopped while it was read, by itself or because it named an
// address for another program, is, though it never says so.
func (t *tab) completed(ctx context.Context) error {
	t.mu.Lock()
	t.halted = false
	loader := t.loader
	t.mu.Unlock()
	var state string
	if err := t.run(ctx, "document.readyState", &state); err != nil && !moved(err) {
		return err
	}
	t.update(func() {
		if state == "complete" && t.loader == loader {
			t.stage["DOMContentLoaded"], t.stage["load"] = true, true
			if r := t.requests[loader]; r != nil {
				r.counted = false // nobody says that it is over either
			}
		}
	})
	return nil
}

// visited describes the page that a navigation has ended at.
func (t *tab) visited(ctx context.Context) (Visit, error) {
	t.mu.Lock()
	v, failed := Visit{URL: t.url, Status: t.doc.status}, t.failed
	t.mu.Unlock()
	if failed != "" { // the page went on by itself, to something that failed
		return t.failedVisit(failed, "net::ERR_FAILED")
	}
	v.Title = t.title(ctx)
	return v, nil
}

// failedVisit says why a navigation failed.
func (t *tab) failedVisit(url, text string) (Visit, error) {
	t.mu.Lock()
	doc, download := t.doc, t.download
	t.mu.Unlock()
	last := url
	if doc.url != "" {
		last = doc.url
	}
	if text == "net::ERR_HTTP_RESPONSE_CODE_FAILURE" { // an error without a body
		return Visit{URL: last, Status: doc.status}, nil
	}
	if u, err := ParseURL(last); err == nil {
		if err := t.e.proxy.rules().admit(u); err != nil {
			return Visit{}, err
		}
		switch err := t.e.proxy.why(u); {
		case policy.IsDenied(err):
			return Visit{}, err
		case err != nil:
			text = netError(err)
		}
	}
	if download || text == "net::ERR_ABORTED" && doc.status == 200 {
		return Visit{}, failure("The address is a download, not a page")
	}
	return Visit{}, failure("%s at %s", text, shown(last))
}
