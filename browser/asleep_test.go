package browser

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestTabsAreThereWhileTheBrowserIsStopped lists, chooses, closes and waits for
// tabs when nobody has used the browser for a while.
func TestTabsAreThereWhileTheBrowserIsStopped(t *testing.T) {
	r := newRig(t, `{}`, Options{Idle: 50 * time.Millisecond})
	for _, name := range []string{"one", "two", "three"} {
		r.serve("/"+name, "<title>"+name+"</title>the text of "+name)
	}
	stopped := func() {
		t.Helper()
		r.b.mu.Lock()
		profile := r.b.profile
		r.b.mu.Unlock()
		eventually(t, "the browser is stopped", func() bool {
			r.b.mu.Lock()
			defer r.b.mu.Unlock()
			return r.b.engine == nil && len(r.b.kept.tabs) > 0 && len(using(profile)) == 0
		})
	}
	titles := func() (out string) {
		t.Helper()
		tabs, err := r.b.Tabs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tab := range tabs {
			out += " " + tab.Title
			if tab.Active {
				out += "*"
			}
		}
		return out
	}
	r.mustOpen("http://page.test/one")
	var ids []string
	for _, name := range []string{"two", "three"} {
		tab, err := r.b.OpenTab(t.Context(), r.ask(""), "http://page.test/"+name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tab.ID)
	}
	stopped()
	if got := titles(); got != " one two three*" {
		t.Errorf("while stopped:%s", got)
	}
	if tab, err := r.b.ActivateTab(t.Context(), ids[0]); err != nil || tab.Title != "two" || !tab.Active {
		t.Errorf("choosing the second: %+v, %v", tab, err)
	}
	if err := r.b.CloseTab(t.Context(), ids[1]); err != nil {
		t.Errorf("closing the third: %v", err)
	}
	if err := r.b.CloseTab(t.Context(), ids[1]); !errors.Is(err, ErrNoTab) {
		t.Errorf("closing it again: %v", err)
	}
	if got := titles(); got != " one two*" {
		t.Errorf("after that:%s", got)
	}
	ask := r.ask("")
	ask.Watch = true
	err := r.b.Do(t.Context(), ask, 10*time.Second, func(ctx context.Context, p *Page) error {
		return p.Wait(ctx, Wish{Text: "the text of two"})
	})
	if err != nil {
		t.Errorf("waiting for what the page showed: %v", err)
	}
}
