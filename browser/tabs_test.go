package browser

import (
	"testing"
	"time"
)

// TestATabHasItsTitleWhateverItsAddress has titles that addresses end with, and
// pages without a title.
func TestATabHasItsTitleWhateverItsAddress(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/docs", `<title>docs</title>x`)
	r.serve("/untitled/", `x`)
	r.serve("/untitled", `x`)
	for url, want := range map[string]string{
		"http://page.test/docs": "docs", "http://page.test/docs?docs": "docs", "http://page.test/untitled": "",
		"http://page.test/untitled/": "", "http://page.test/untitled?a=b#c": "",
	} {
		r.mustOpen(url)
		tabs, err := r.b.Tabs(t.Context())
		if err != nil || len(tabs) != 1 || tabs[0].Title != want || tabs[0].URL != url {
			t.Errorf("%s: %+v, %v", url, tabs, err)
		}
	}
}

// TestAPageThatMayOpenNoMorePopupsGoesOn opens more than there may be, each by
// a gesture of its own.
func TestAPageThatMayOpenNoMorePopupsGoesOn(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>here</title>`)
	r.serve("/popup", `<title>popup</title>`)
	r.mustOpen("http://page.test/")
	for range maxTabs + 2 {
		r.js(`open("/popup", "w" + Math.random(), "width=300,height=300"); 1`)
	}
	tabs, err := r.b.Tabs(t.Context())
	if err != nil || len(tabs) != maxTabs {
		t.Errorf("%d tabs, %v", len(tabs), err)
	}
	begun := time.Now()
	if v := r.mustOpen("http://page.test/"); v.Title != "here" || time.Since(begun) > 15*time.Second {
		t.Errorf("%+v after %v", v, time.Since(begun))
	}
	if got := r.js(`6 * 7`); got != 42.0 {
		t.Errorf("%v", got)
	}
}
