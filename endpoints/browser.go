package endpoints

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

func (s *Server) browsing() []api.Endpoint {
	row := func(name, method, path, summary string) api.Row {
		return api.Row{
			Name: name, Method: method, Path: path, Group: "browser", Summary: summary,
			Scopes: []string{"browser:use"},
		}
	}
	navigate := row("browser_navigate", "POST", "/browser/navigate", "Open an address and wait for it.")
	navigate.Params = []string{"url_allow", "url_deny", "block_private_networks", "allow_loopback"}
	navigate.Exec, navigate.Mutates = true, true
	click := row("browser_click", "POST", "/browser/click", "Click an element.")
	click.Mutates = true
	typing := row("browser_type", "POST", "/browser/type", "Type into an element, key by key.")
	typing.Mutates = true
	evaluate := row("browser_evaluate", "POST", "/browser/evaluate", "Run JavaScript in the page.")
	evaluate.Scopes, evaluate.Exec, evaluate.Mutates = []string{"browser:evaluate"}, true, true
	return slices.Concat([]api.Endpoint{
		api.Unary(navigate, s.navigate),
		api.Unary(row("browser_screenshot", "POST", "/browser/screenshot", "Take a picture of the page or of an element."), s.screenshot),
		api.Unary(row("browser_content", "GET", "/browser/content", "Read the page as HTML or text."), s.pageContent),
		api.Unary(click, s.click),
		api.Unary(typing, s.typeText),
		api.Unary(evaluate, s.evaluate),
		api.Unary(row("browser_pdf", "POST", "/browser/pdf", "Print the page to PDF."), s.printPage),
		api.Unary(row("browser_console", "GET", "/browser/console", "Take what pages have logged."), s.console).Draining(),
	}, s.looking(), s.acting(), s.keeping(), s.protocol())
}

// longestWait bounds what a caller may wait for a page.
const longestWait = 10 * time.Minute

// pageTime reads a time as the published server does: what is no positive
// number is the default.
func pageTime(f api.Field[any], otherwise time.Duration) time.Duration {
	ms, ok := api.Lenient(f.V)
	switch {
	case !ok || ms < 1 || math.IsNaN(ms):
		return otherwise
	case ms >= float64(longestWait.Milliseconds()):
		return longestWait
	}
	return time.Duration(ms) * time.Millisecond
}

// yes reads a real boolean and the usual words for one.
func yes(f api.Field[any], otherwise bool) bool {
	switch v := f.V.(type) {
	case nil:
		return otherwise
	case bool:
		return v
	case string:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "", "false", "no", "0", "off":
			return false
		}
		return true
	}
	n, ok := api.Lenient(f.V)
	return !ok || n != 0
}

// filled reads a field that must be a string that is not empty.
func filled(f api.Field[string], name string) (string, error) {
	v, err := f.Want(name)
	if err == nil && v == "" {
		err = api.Invalidf("Missing or invalid '%s'", name)
	}
	return v, err
}

// page lets act use the page that a call names.
func (s *Server) page(ctx context.Context, c *api.Call, tab api.Field[string], limit time.Duration, act func(context.Context, *browser.Page) error) error {
	id, err := tab.Optional("tab", "")
	if err != nil {
		return err
	}
	if s.Browser == nil {
		return pageError(browser.ErrUnavailable)
	}
	return pageError(s.Browser.Do(ctx, s.browserAsk(c, id), limit, act))
}

// browserAsk is on whose behalf the browser acts. The rule about addresses is
// that of navigation, whatever the call is.
func (s *Server) browserAsk(c *api.Call, tab string) browser.Ask {
	return browser.Ask{
		Rule: c.Policy.Rule("browser_navigate"), Tab: tab, Keep: s.keepDownloads(c),
		Env: func() map[string]string { return s.Env.Start(c.Policy) },
	}
}

// pageError is how callers are told of what the browser failed with.
func pageError(err error) error {
	if e, ok := errors.AsType[*browser.Error](err); ok {
		return &api.Error{Status: http.StatusInternalServerError, Type: string(e.Kind), Msg: e.Text, NoEndpoint: true, Err: err}
	}
	for _, m := range pageErrors {
		if errors.Is(err, m.is) {
			return &api.Error{Status: m.status, Type: m.kind, Code: m.code, Msg: err.Error(), NoEndpoint: true, Err: err}
		}
	}
	return err
}

var pageErrors = []struct {
	is         error
	status     int
	kind, code string
}{
	{browser.ErrUnavailable, http.StatusServiceUnavailable, "RuntimeError", ""},
	{browser.ErrNoTab, http.StatusNotFound, "ValueError", ""},
	{browser.ErrNoRef, http.StatusNotFound, "ValueError", ""},
	{browser.ErrNoElement, http.StatusNotFound, "ValueError", ""},
	{browser.ErrTabs, http.StatusTooManyRequests, "ResourceError", "tab_limit"},
}

// defaultNavigation is a little shorter than clients wait by default, so that
// they get the answer.
const defaultNavigation = 29500 * time.Millisecond

// stages are what a navigation can be waited for.
var stages = []browser.Until{browser.Idle, browser.Load, browser.DOMContent, browser.Commit}

type navigateIn struct {
	URL       api.Field[string] `json:"url" doc:"An absolute http or https address."`
	WaitUntil api.Field[string] `json:"wait_until" doc:"networkidle (default), load, domcontentloaded or commit."`
	Timeout   api.Field[any]    `json:"timeout" doc:"Milliseconds to wait; 29500 by default."`
	Tab       api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

type navigateOut struct {
	URL    string `json:"url" doc:"The final address."`
	Title  string `json:"title"`
	Status int    `json:"status" doc:"HTTP status of the last response; 0 when no request was made."`
}

func (s *Server) navigate(ctx context.Context, c *api.Call, in navigateIn) (navigateOut, error) {
	url, err := filled(in.URL, "url")
	if err != nil {
		return navigateOut{}, err
	}
	until, err := in.WaitUntil.Optional("wait_until", string(browser.Idle))
	if err != nil {
		return navigateOut{}, err
	}
	if !slices.Contains(stages, browser.Until(until)) {
		return navigateOut{}, api.Invalidf("Invalid 'wait_until'")
	}
	c.Note(browser.Shown(url))
	if err := s.judgeURL(ctx, c, url); err != nil {
		return navigateOut{}, err
	}
	limit := pageTime(in.Timeout, defaultNavigation)
	if limit == defaultNavigation {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit) // the start of a browser included
		defer cancel()
	}
	var v browser.Visit
	err = s.page(ctx, c, in.Tab, limit, func(ctx context.Context, p *browser.Page) (err error) {
		v, err = p.Navigate(ctx, url, browser.Until(until))
		return err
	})
	if err != nil {
		return navigateOut{}, err
	}
	c.Note(browser.Shown(v.URL))
	return navigateOut(v), nil
}

// judgeURL holds an address against the policy, with a browser or without.
func (s *Server) judgeURL(ctx context.Context, c *api.Call, url string) error {
	if s.Browser == nil {
		return browser.NewRules(c.Rule).Judge(ctx, net.DefaultResolver, url)
	}
	return s.Browser.Judge(ctx, c.Rule, url)
}

type screenshotIn struct {
	Selector api.Field[string] `json:"selector" doc:"Take only this element."`
	Ref      api.Field[string] `json:"ref" doc:"The same, by the ref of a snapshot."`
	FullPage api.Field[any]    `json:"full_page" doc:"The whole page, not only what is in view; true by default."`
	Format   api.Field[string] `json:"format" doc:"png (default), jpeg or webp."`
	Quality  api.Field[any]    `json:"quality" doc:"1 to 100, for jpeg and webp."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds to wait for the element to be visible; 5000 by default."`
	Tab      api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

const (
	defaultAction = 5 * time.Second
	// captureTime is for pictures, texts and prints of pages, which wait for
	// nothing.
	captureTime = 30 * time.Second
)

func (s *Server) screenshot(ctx context.Context, c *api.Call, in screenshotIn) (api.Body, error) {
	shot := browser.Shot{FullPage: yes(in.FullPage, true)}
	var err error
	if shot.Target, err = target(in.Selector, in.Ref, false); err != nil {
		return nil, err
	}
	format, err := in.Format.Optional("format", "png")
	if err != nil {
		return nil, err
	}
	switch shot.Format = strings.ToLower(format); shot.Format {
	case "png", "jpeg", "webp":
	case "jpg":
		shot.Format = "jpeg"
	default:
		return nil, api.Invalidf("Invalid 'format'")
	}
	if in.Quality.Set() {
		q, ok := api.LenientInt(in.Quality.V)
		if !ok || q < 1 || q > 100 {
			return nil, api.Invalidf("Invalid 'quality'")
		}
		shot.Quality = int(q)
	}
	limit := captureTime
	if shot.Target != (browser.Target{}) {
		limit = pageTime(in.Timeout, defaultAction)
	}
	var got browser.Picture
	err = s.page(ctx, c, in.Tab, limit, func(ctx context.Context, p *browser.Page) (err error) {
		got, err = p.Screenshot(ctx, shot)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &api.Object{}
	out.Text("image_base64", []byte(got.Base64))
	out.Set("width", got.Width)
	out.Set("height", got.Height)
	return out, nil
}

// target reads what names an element. One of the two must be there if it is
// needed.
func target(selector, ref api.Field[string], needed bool) (browser.Target, error) {
	if ref.Set() {
		r, err := filled(ref, "ref")
		return browser.Target{Ref: r}, err
	}
	if needed {
		s, err := filled(selector, "selector")
		return browser.Target{Selector: s}, err
	}
	s, err := selector.Optional("selector", "")
	return browser.Target{Selector: s}, err
}

type contentIn struct {
	Type string `query:"type" doc:"html (default) or text."`
	Tab  string `query:"tab" doc:"The tab to read; the active one by default."`
}

func (s *Server) pageContent(ctx context.Context, c *api.Call, in contentIn) (api.Body, error) {
	var content, title, url string
	err := s.page(ctx, c, named(in.Tab), captureTime, func(ctx context.Context, p *browser.Page) (err error) {
		content, title, err = p.Content(ctx, strings.EqualFold(in.Type, "text"))
		url = p.URL()
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &api.Object{}
	out.Text("content", []byte(content))
	out.Set("url", url)
	out.Set("title", title)
	return out, nil
}

// named is a tab that a query names.
func named(tab string) api.Field[string] {
	if tab == "" {
		return api.Field[string]{}
	}
	return api.Field[string]{V: tab, State: api.Good}
}

type clickIn struct {
	Selector api.Field[string] `json:"selector" doc:"CSS, text=…, xpath=… or //…"`
	Ref      api.Field[string] `json:"ref" doc:"The ref of a snapshot, instead."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds; 5000 by default."`
	Tab      api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

type clickOut struct {
	Clicked  bool   `json:"clicked"`
	Selector string `json:"selector,omitempty"`
	Ref      string `json:"ref,omitempty"`
}

func (s *Server) click(ctx context.Context, c *api.Call, in clickIn) (clickOut, error) {
	what, err := target(in.Selector, in.Ref, true)
	if err != nil {
		return clickOut{}, err
	}
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultAction), func(ctx context.Context, p *browser.Page) error {
		return p.Click(ctx, what)
	})
	return clickOut{Clicked: true, Selector: what.Selector, Ref: what.Ref}, err
}

type keysIn struct {
	Selector api.Field[string] `json:"selector" doc:"CSS, text=…, xpath=… or //…"`
	Ref      api.Field[string] `json:"ref" doc:"The ref of a snapshot, instead."`
	Text     api.Field[string] `json:"text" doc:"May be empty."`
	Delay    api.Field[any]    `json:"delay" doc:"Milliseconds between keys; 50 by default."`
	Clear    api.Field[any]    `json:"clear" doc:"Empty the element first."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds to wait for the element, the keys not counted; 30000 by default."`
	Tab      api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

type keysOut struct {
	Typed    bool   `json:"typed"`
	Selector string `json:"selector,omitempty"`
	Ref      string `json:"ref,omitempty"`
	Text     string `json:"text"`
}

// defaultDelay is the pause between two keys.
const defaultDelay = 50 * time.Millisecond

func (s *Server) typeText(ctx context.Context, c *api.Call, in keysIn) (keysOut, error) {
	what, err := target(in.Selector, in.Ref, true)
	if err != nil {
		return keysOut{}, err
	}
	text, err := in.Text.Want("text")
	if err != nil {
		return keysOut{}, err
	}
	delay := defaultDelay
	if ms, ok := api.Lenient(in.Delay.V); ok && ms >= 0 {
		delay = time.Duration(min(ms, 60_000)) * time.Millisecond
	}
	limit := pageTime(in.Timeout, captureTime) + time.Duration(utf8.RuneCountInString(text))*(delay+20*time.Millisecond)
	err = s.page(ctx, c, in.Tab, min(limit, longestWait), func(ctx context.Context, p *browser.Page) error {
		return p.Type(ctx, what, text, delay, yes(in.Clear, false))
	})
	return keysOut{Typed: true, Selector: what.Selector, Ref: what.Ref, Text: text}, err
}

type evaluateIn struct {
	Script  api.Field[string] `json:"script" doc:"An expression, statements, or a function to call; promises are awaited."`
	Timeout api.Field[any]    `json:"timeout" doc:"Milliseconds; 10000 by default."`
	Tab     api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

const defaultEvaluation = 10 * time.Second

func (s *Server) evaluate(ctx context.Context, c *api.Call, in evaluateIn) (api.Body, error) {
	script, err := filled(in.Script, "script")
	if err != nil {
		return nil, err
	}
	var result []byte
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultEvaluation), func(ctx context.Context, p *browser.Page) (err error) {
		result, err = p.Evaluate(ctx, script)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &api.Object{}
	out.Raw("result", result)
	return out, nil
}

type pdfIn struct {
	Format    api.Field[string] `json:"format" doc:"A0 to A6, Letter, Legal, Tabloid or Ledger; A4 by default."`
	Landscape api.Field[any]    `json:"landscape" doc:"Turn the paper."`
	Tab       api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

func (s *Server) printPage(ctx context.Context, c *api.Call, in pdfIn) (api.Body, error) {
	format, err := in.Format.Optional("format", "A4")
	if err != nil {
		return nil, err
	}
	paper, ok := browser.Papers[strings.ToLower(format)]
	if !ok {
		return nil, api.Invalidf("Invalid 'format'")
	}
	var pdf []byte
	pages := 0
	err = s.page(ctx, c, in.Tab, captureTime, func(ctx context.Context, p *browser.Page) (err error) {
		pdf, pages, err = p.PDF(ctx, paper, yes(in.Landscape, false))
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &api.Object{}
	out.Base64("pdf_base64", bytes.NewReader(pdf), int64(len(pdf)))
	out.Set("pages", pages)
	return out, nil
}

type tabIn struct {
	Tab string `query:"tab" doc:"Only what this tab has; all by default."`
}

type consoleOut struct {
	Logs    []browser.Entry `json:"logs" doc:"Oldest first; reading empties them."`
	Dropped int64           `json:"dropped" doc:"How many were lost since the last reading, because there was no room."`
}

func (s *Server) console(_ context.Context, _ *api.Call, in tabIn) (consoleOut, error) {
	if s.Browser == nil {
		return consoleOut{Logs: []browser.Entry{}}, nil
	}
	logs, dropped := s.Browser.Console(in.Tab)
	return consoleOut{logs, dropped}, nil
}
