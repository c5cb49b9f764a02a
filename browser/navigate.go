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
	crashed := false
	err := t.await(ctx, func() (bool, time.Time) {
		crashed = t.crashed
		switch {
		case crashed || until == Commit:
			return true, time.Time{}
		case until == DOMContent:
			return t.stage["DOMContentLoaded"], time.Time{}
		case until == Load:
			return t.stage["load"], time.Time{}
		case !t.stage["load"]:
			return false, time.Time{}
		}
		since, ok := t.idle()
		if !ok {
			return false, time.Time{}
		}
		at := since.Add(idleTime)
		return !time.Now().Before(at), at
	})
	if crashed {
		return &Error{Closed, "The page has crashed"}
	}
	return err
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
