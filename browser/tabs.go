package browser

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// Tab is what is told of a page.
type Tab struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Title  string `json:"title"`
	Active bool   `json:"active" doc:"Whether calls that name no tab mean this one."`
}

// Tabs lists the pages that are open. It does not start Chrome: while that is
// stopped because nobody used it they are those that will be there again, after
// its death none.
func (b *Browser) Tabs(ctx context.Context) ([]Tab, error) {
	var kept []Tab
	e, err := b.stopped(ctx, func() { kept = append([]Tab{}, b.kept.tabs...) })
	if e == nil {
		return kept, err
	}
	if !e.alive() {
		return []Tab{}, nil
	}
	return e.list(ctx)
}

func (e *engine) list(ctx context.Context) ([]Tab, error) {
	// The browser itself knows the titles, also of pages that are busy.
	var got struct {
		Targets []struct {
			ID    string `json:"targetId"`
			Title string `json:"title"`
		} `json:"targetInfos"`
	}
	if err := e.conn.call(ctx, "", "Target.getTargets", nil, &got); err != nil {
		return nil, known(err)
	}
	titles := map[string]string{}
	for _, t := range got.Targets {
		titles[t.ID] = t.Title
	}
	e.mu.Lock()
	tabs, active := slices.Clone(e.tabs), e.active
	e.mu.Unlock()
	out := []Tab{}
	for _, t := range tabs {
		t.mu.Lock()
		name, url := t.name, cmp.Or(t.asleep, t.url)
		t.mu.Unlock()
		title := titles[t.id]
		if bare(title) == bare(url) {
			title = "" // what stands in for a title that is not there
		}
		out = append(out, Tab{name, url, title, t == active})
	}
	return out, nil
}

// bare is an address as Chrome shows it in the place of a title.
func bare(url string) string { return strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/") }

// OpenTab opens a page, at an address that was judged or, when that is empty,
// blank, and makes it the active one once it has loaded. When it cannot be
// opened it is closed again.
func (b *Browser) OpenTab(ctx context.Context, ask Ask, url string) (Tab, error) {
	e, done, err := b.use(ctx, ask)
	if err != nil {
		return Tab{}, known(err)
	}
	defer done()
	t, err := e.open(ctx)
	if err != nil {
		return Tab{}, known(err)
	}
	release, err := t.hold(ctx)
	if err != nil {
		return Tab{}, known(err)
	}
	defer release()
	out := Tab{ID: t.label(), URL: "about:blank", Active: true}
	if url != "" {
		v, err := (&Page{t}).Navigate(ctx, url, Load)
		if err != nil {
			e.conn.post("", "Target.closeTarget", object{"targetId": t.id})
			return Tab{}, known(err)
		}
		out.URL, out.Title = v.URL, v.Title
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = t
	return out, nil
}

// CloseTab closes a page.
func (b *Browser) CloseTab(ctx context.Context, id string) error {
	done, err := b.asleep(ctx, id, func(tabs []Tab, i int) []Tab {
		active := tabs[i].Active
		tabs = slices.Delete(tabs, i, i+1)
		if n := len(tabs); active && n > 0 {
			tabs[n-1].Active = true
		}
		return tabs
	})
	if done || err != nil {
		return err
	}
	e, t, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	if err := e.conn.call(ctx, "", "Target.closeTarget", object{"targetId": t.id}, nil); err != nil {
		return known(err)
	}
	select {
	case <-t.gone:
		return nil
	case <-e.conn.lost:
		return nil
	case <-ctx.Done():
		return known(ctx.Err())
	}
}

// ActivateTab makes a page the one that calls without a tab mean.
func (b *Browser) ActivateTab(ctx context.Context, id string) (Tab, error) {
	var chosen Tab
	done, err := b.asleep(ctx, id, func(tabs []Tab, i int) []Tab {
		for j := range tabs {
			tabs[j].Active = j == i
		}
		chosen = tabs[i]
		return tabs
	})
	if done || err != nil {
		return chosen, err
	}
	e, t, err := b.find(ctx, id)
	if err != nil {
		return Tab{}, err
	}
	e.mu.Lock()
	e.active = t
	e.mu.Unlock()
	t.post("Page.bringToFront", nil)
	tabs, err := e.list(ctx)
	if err != nil {
		return Tab{}, err
	}
	i := slices.IndexFunc(tabs, func(o Tab) bool { return o.ID == id })
	if i < 0 {
		return Tab{}, ErrNoTab
	}
	return tabs[i], nil
}

// asleep changes the list of tabs that will be there again, if Chrome was stopped
// because nobody used it and the tab, at i, is among them.
func (b *Browser) asleep(ctx context.Context, id string, change func(tabs []Tab, i int) []Tab) (done bool, err error) {
	_, err = b.stopped(ctx, func() {
		if i := slices.IndexFunc(b.kept.tabs, func(t Tab) bool { return t.ID == id }); i >= 0 {
			b.kept.tabs, done = change(slices.Clone(b.kept.tabs), i), true
		}
	})
	return done, err
}

// stopped calls act, with mu held, if Chrome does not run, and returns it
// otherwise. A stop under way is waited for, since only then it is known what
// will be there again, and so is a start.
func (b *Browser) stopped(ctx context.Context, act func()) (*engine, error) {
	b.mu.Lock()
	e := b.engine
	b.mu.Unlock()
	if e != nil {
		return e, nil
	}
	select {
	case b.change <- struct{}{}:
	case <-ctx.Done():
		return nil, known(ctx.Err())
	}
	defer func() { <-b.change }()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.engine == nil {
		act()
	}
	return b.engine, nil
}

// find is an open page of the running Chrome.
func (b *Browser) find(ctx context.Context, id string) (*engine, *tab, error) {
	b.mu.Lock()
	e := b.engine
	b.mu.Unlock()
	if e == nil || id == "" {
		return nil, nil, ErrNoTab
	}
	t, err := e.tab(ctx, id)
	return e, t, err
}
