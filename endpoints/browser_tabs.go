package endpoints

import (
	"context"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// looking are the endpoints about tabs and about what pages show. Each is
// judged as a published endpoint with the same power.
func (s *Server) looking() []api.Endpoint {
	row := func(as, name, method, path, summary string) api.Row {
		return api.Row{Name: name, As: as, Method: method, Path: path, Group: "browser", Summary: summary, Scopes: []string{"browser:use"}}
	}
	const opens, shows = "browser_navigate", "browser_content"
	return []api.Endpoint{
		api.Unary(row(shows, "browser_tabs", "GET", "/browser/tabs", "List the open tabs."), s.listTabs),
		api.Unary(row(opens, "browser_tab_open", "POST", "/browser/tabs", "Open a tab and make it the active one."), s.openTab),
		api.Unary(row(opens, "browser_tab_close", "DELETE", "/browser/tabs/{id}", "Close a tab."), s.closeTab),
		api.Unary(row(opens, "browser_tab_activate", "POST", "/browser/tabs/{id}/activate", "Make a tab the one that calls without a tab mean."), s.activateTab),
		api.Unary(row(opens, "browser_close", "POST", "/browser/close", "End the browser and forget what it knew."), s.closeBrowser),
		api.Unary(row(opens, "browser_viewport", "POST", "/browser/viewport", "Set the size of the page's window."), s.setViewport),
		api.Unary(row(shows, "browser_wait", "POST", "/browser/wait", "Wait for an element, a text, an address or a stage of loading."), s.waitForPage),
		api.Unary(row(shows, "browser_snapshot", "GET", "/browser/snapshot", "Outline the page, with references to act on."), s.snapshot),
		api.Unary(row(shows, "browser_downloads", "GET", "/browser/downloads", "List the newest downloads."), s.listDownloads),
		api.Unary(row("browser_console", "browser_network", "GET", "/browser/network", "Take the requests that pages have made."), s.network).Draining(),
	}
}

type tabsOut struct {
	Tabs []browser.Tab `json:"tabs"`
}

func (s *Server) listTabs(ctx context.Context, _ *api.Call, _ struct{}) (tabsOut, error) {
	if s.Browser == nil {
		return tabsOut{}, pageError(browser.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, defaultAction)
	defer cancel()
	tabs, err := s.Browser.Tabs(ctx)
	return tabsOut{tabs}, pageError(err)
}

type openTabIn struct {
	URL     api.Field[string] `json:"url" doc:"An absolute http or https address; a blank page without."`
	Timeout api.Field[any]    `json:"timeout" doc:"Milliseconds to wait for it to load; 29500 by default."`
}

func (s *Server) openTab(ctx context.Context, c *api.Call, in openTabIn) (browser.Tab, error) {
	url := ""
	if in.URL.Set() {
		var err error
		if url, err = filled(in.URL, "url"); err != nil {
			return browser.Tab{}, err
		}
		c.Note(browser.Shown(url))
		if err := s.judgeURL(ctx, c, url); err != nil {
			return browser.Tab{}, err
		}
	}
	if s.Browser == nil {
		return browser.Tab{}, pageError(browser.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, pageTime(in.Timeout, defaultNavigation))
	defer cancel()
	tab, err := s.Browser.OpenTab(ctx, s.browserAsk(c, ""), url)
	return tab, pageError(err)
}

type tabPath struct {
	ID string `path:"id" doc:"The tab's id."`
}

type tabClosedOut struct {
	Closed bool `json:"closed"`
}

func (s *Server) closeTab(ctx context.Context, _ *api.Call, in tabPath) (tabClosedOut, error) {
	if s.Browser == nil {
		return tabClosedOut{}, pageError(browser.ErrNoTab)
	}
	ctx, cancel := context.WithTimeout(ctx, defaultAction)
	defer cancel()
	return tabClosedOut{true}, pageError(s.Browser.CloseTab(ctx, in.ID))
}

func (s *Server) activateTab(ctx context.Context, _ *api.Call, in tabPath) (browser.Tab, error) {
	if s.Browser == nil {
		return browser.Tab{}, pageError(browser.ErrNoTab)
	}
	ctx, cancel := context.WithTimeout(ctx, defaultAction)
	defer cancel()
	tab, err := s.Browser.ActivateTab(ctx, in.ID)
	return tab, pageError(err)
}

func (s *Server) closeBrowser(ctx context.Context, _ *api.Call, _ struct{}) (tabClosedOut, error) {
	if s.Browser == nil {
		return tabClosedOut{true}, nil
	}
	return tabClosedOut{true}, s.Browser.Reset(ctx)
}

type viewportIn struct {
	Width  api.Field[any]    `json:"width" doc:"CSS pixels, 1 to 10000."`
	Height api.Field[any]    `json:"height" doc:"CSS pixels, 1 to 10000."`
	Scale  api.Field[any]    `json:"scale" doc:"Pixels for each CSS pixel, 0.1 to 10; 1 by default."`
	Tab    api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

type viewportOut struct {
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Scale  float64 `json:"scale"`
}

func (s *Server) setViewport(ctx context.Context, c *api.Call, in viewportIn) (viewportOut, error) {
	v := browser.Viewport{Scale: 1}
	for _, side := range []struct {
		name string
		f    api.Field[any]
		to   *int
	}{{"width", in.Width, &v.Width}, {"height", in.Height, &v.Height}} {
		n, ok := api.LenientInt(side.f.V)
		if !ok || n < 1 || n > 10000 {
			return viewportOut{}, api.Invalidf("Missing or invalid '%s'", side.name)
		}
		*side.to = int(n)
	}
	if in.Scale.Set() {
		f, ok := api.Lenient(in.Scale.V)
		if !ok || f < 0.1 || f > 10 {
			return viewportOut{}, api.Invalidf("Invalid 'scale'")
		}
		v.Scale = f
	}
	err := s.page(ctx, c, in.Tab, defaultAction, func(ctx context.Context, p *browser.Page) error {
		return p.SetViewport(ctx, v)
	})
	return viewportOut(v), err
}

type waitPageIn struct {
	Selector  api.Field[string] `json:"selector" doc:"An element to wait for."`
	State     api.Field[string] `json:"state" doc:"What it must be: visible (default), hidden, attached or detached."`
	Text      api.Field[string] `json:"text" doc:"A text to be read on the page."`
	URL       api.Field[string] `json:"url" doc:"A pattern for the whole address."`
	LoadState api.Field[string] `json:"load_state" doc:"load, domcontentloaded or networkidle."`
	Timeout   api.Field[any]    `json:"timeout" doc:"Milliseconds; 30000 by default."`
	Tab       api.Field[string] `json:"tab" doc:"The tab to look at; the active one by default."`
}

type waitedOut struct {
	Waited bool `json:"waited"`
}

func (in *waitPageIn) wish() (browser.Wish, error) {
	w := browser.Wish{State: "visible"}
	var stage string
	set := 0
	for _, part := range []struct {
		name string
		f    api.Field[string]
		to   *string
	}{{"selector", in.Selector, &w.Selector}, {"text", in.Text, &w.Text}, {"url", in.URL, &w.URL}, {"load_state", in.LoadState, &stage}} {
		if !part.f.Set() {
			continue
		}
		var err error
		if *part.to, err = filled(part.f, part.name); err != nil {
			return w, err
		}
		set++
	}
	if set != 1 {
		return w, api.Invalidf("One of 'selector', 'text', 'url' and 'load_state' must be given")
	}
	state, err := in.State.Optional("state", w.State)
	if err != nil || !slices.Contains([]string{"visible", "hidden", "attached", "detached"}, state) {
		return w, api.Invalidf("Invalid 'state'")
	}
	w.State, w.Stage = state, browser.Until(stage)
	if stage != "" && !slices.Contains([]browser.Until{browser.Load, browser.DOMContent, browser.Idle}, w.Stage) {
		return w, api.Invalidf("Invalid 'load_state'")
	}
	return w, nil
}

func (s *Server) waitForPage(ctx context.Context, c *api.Call, in waitPageIn) (waitedOut, error) {
	wish, err := in.wish()
	if err != nil {
		return waitedOut{}, err
	}
	id, err := in.Tab.Optional("tab", "")
	if err != nil {
		return waitedOut{}, err
	}
	if s.Browser == nil {
		return waitedOut{}, pageError(browser.ErrUnavailable)
	}
	ask := s.browserAsk(c, id)
	ask.Watch = true
	err = s.Browser.Do(ctx, ask, pageTime(in.Timeout, captureTime), func(ctx context.Context, p *browser.Page) error {
		return p.Wait(ctx, wish)
	})
	return waitedOut{true}, pageError(err)
}

type snapshotIn struct {
	Interactive string `query:"interactive" doc:"Only what one can act on."`
	Tab         string `query:"tab" doc:"The tab to read; the active one by default."`
}

func (s *Server) snapshot(ctx context.Context, c *api.Call, in snapshotIn) (browser.Snapshot, error) {
	var out browser.Snapshot
	err := s.page(ctx, c, named(in.Tab), captureTime, func(ctx context.Context, p *browser.Page) (err error) {
		out, err = p.Snapshot(ctx, api.Truthy(in.Interactive))
		return err
	})
	return out, err
}

type networkOut struct {
	Requests []browser.Request `json:"requests" doc:"Finished requests, oldest first; reading empties them."`
	Dropped  int64             `json:"dropped" doc:"How many were lost since the last reading, because there was no room."`
}

func (s *Server) network(_ context.Context, _ *api.Call, in tabIn) (networkOut, error) {
	if s.Browser == nil {
		return networkOut{Requests: []browser.Request{}}, nil
	}
	list, dropped := s.Browser.Requests(in.Tab)
	return networkOut{list, dropped}, nil
}

// list cuts a query parameter at its commas.
func list(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
