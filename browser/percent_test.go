package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAPercentSignInAPathReachesTheSite opens addresses that escape nothing by
// their "%", as links on real pages do.
func TestAPercentSignInAPathReachesTheSite(t *testing.T) {
	r := newRig(t, `{"url_deny":["*/secret%*"]}`, Options{})
	r.serve("/100%", "<title>all of it</title>")
	r.mux.HandleFunc("/query", func(w http.ResponseWriter, q *http.Request) { fmt.Fprintf(w, "<title>%s</title>", q.URL.RawQuery) })
	r.mux.HandleFunc("/go", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/100%")
		w.WriteHeader(http.StatusFound)
	})
	for path, want := range map[string]string{
		"/100%": "all of it", "/100%25": "all of it", "/go": "all of it", "/query?100%&%zz": "100%&%zz",
	} {
		v := r.mustOpen("http://page.test" + path)
		if v.Title != want || v.Status != http.StatusOK {
			t.Errorf("%s: %d %q", path, v.Status, v.Title)
		}
		if path == "/100%" && v.URL != "http://page.test/100%" {
			t.Errorf("%s is shown as %s", path, v.URL)
		}
	}
	if got := r.js(`fetch("/100%").then((a) => a.status + " " + a.url)`); got != "200 http://page.test/100%" {
		t.Errorf("fetched: %v", got)
	}
	if got := r.js(`fetch("/secret%").then(() => "got it", () => "refused")`); got != "refused" {
		t.Errorf("what is denied: %v", got)
	}
}

func TestEscapesAreMadeWhole(t *testing.T) {
	for text, want := range map[string]string{
		"http://h/":         "http://h/",
		"http://h/%":        "http://h/%25",
		"http://h/%%41%4":   "http://h/%25%41%254",
		"http://h/%zz?%#%":  "http://h/%25zz?%#%",
		"http://h/%41?a=%":  "http://h/%41?a=%",
		"http://h/a#/100%/": "http://h/a#/100%/",
	} {
		if got := wholeEscapes(text); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

func FuzzWholeEscapes(f *testing.F) {
	f.Add("http://h/%%41%4?%")
	f.Add("%")
	f.Fuzz(func(t *testing.T, text string) {
		got := wholeEscapes(text)
		if wholeEscapes(got) != got {
			t.Errorf("%q becomes %q and then another", text, got)
		}
		if strings.ReplaceAll(got, "%25", "%") != strings.ReplaceAll(text, "%25", "%") {
			t.Errorf("%q becomes %q, which is another address", text, got)
		}
	})
}
