package browser

import "testing"

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
