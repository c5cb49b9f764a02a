package browser

import (
	"context"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// pollTime is how often a page is asked for what it does not tell by itself.
const pollTime = 50 * time.Millisecond

// Wish is what a caller waits for: the first that is set.
type Wish struct {
	Selector string
	State    string // of what the selector matches: visible, hidden, attached or detached
	Text     string // is to be read on the page
	URL      string // a pattern for the whole address
	Stage    Until
}

// Wait waits for a wish to come true. The end of ctx is its only failure, but
// for selectors that make no sense.
func (p *Page) Wait(ctx context.Context, w Wish) error {
	switch {
	case w.Selector != "":
		return p.poll(ctx, func() (bool, error) {
			var state string
			err := p.ask(ctx, "state", &state, values(w.Selector))
			return fits(state, w.State), err
		})
	case w.Text != "":
		return p.poll(ctx, func() (bool, error) {
			var has bool
			err := p.ask(ctx, "hasText", &has, values(w.Text))
			return has, err
		})
	case w.URL != "":
		pattern := policy.CompileGlob(w.URL)
		return p.await(ctx, func() (bool, time.Time) { return pattern.Match(p.url), time.Time{} })
	}
	return p.reached(ctx, w.Stage)
}

// fits tells whether an element is as wanted; one that is not there is hidden
// too.
func fits(state, wanted string) bool {
	switch wanted {
	case "hidden":
		return state != "visible"
	case "attached":
		return state != "detached"
	}
	return state == wanted
}

func (t *tab) poll(ctx context.Context, ask func() (bool, error)) error {
	for {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(pollTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
