package endpoints

import (
	"context"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

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
	return []api.Endpoint{
		api.Unary(navigate, s.navigate),
		api.Unary(row("browser_screenshot", "POST", "/browser/screenshot", "Take a picture of the page or of an element."), s.screenshot),
		api.Unary(row("browser_content", "GET", "/browser/content", "Read the page as HTML or text."), s.pageContent),
		api.Unary(click, s.click),
		api.Unary(typing, s.typeText),
		api.Unary(evaluate, s.evaluate),
		api.Unary(row("browser_pdf", "POST", "/browser/pdf", "Print the page to PDF."), s.printPage),
		api.Unary(row("browser_console", "GET", "/browser/console", "Take what pages have logged."), s.console).Draining(),
	}
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

func noBrowser() error {
	return api.Errorf(http.StatusServiceUnavailable, "RuntimeError", "", "No browser is available")
}

type navigateIn struct {
	URL       api.Field[string] `json:"url" doc:"An absolute http or https address."`
	WaitUntil api.Field[string] `json:"wait_until" doc:"networkidle (default), load, domcontentloaded or commit."`
	Timeout   api.Field[any]    `json:"timeout" doc:"Milliseconds to wait; 29500 by default."`
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
	until, err := in.WaitUntil.Optional("wait_until", "networkidle")
	if err != nil {
		return navigateOut{}, err
	}
	if !slices.Contains([]string{"networkidle", "load", "domcontentloaded", "commit"}, until) {
		return navigateOut{}, api.Invalidf("Invalid 'wait_until'")
	}
	if err := browser.NewRules(c.Rule).Judge(ctx, net.DefaultResolver, url); err != nil {
		return navigateOut{}, err
	}
	return navigateOut{}, noBrowser()
}

type screenshotIn struct {
	Selector api.Field[string] `json:"selector" doc:"Take only this element."`
	FullPage api.Field[any]    `json:"full_page" doc:"The whole page, not only what is in view; true by default."`
	Format   api.Field[string] `json:"format" doc:"png (default), jpeg or webp."`
	Quality  api.Field[any]    `json:"quality" doc:"1 to 100, for jpeg and webp."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds to wait for the element to be visible; 5000 by default."`
}

type screenshotOut struct {
	Image  string `json:"image_base64"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
}

func (s *Server) screenshot(_ context.Context, _ *api.Call, in screenshotIn) (screenshotOut, error) {
	if _, err := in.Selector.Optional("selector", ""); err != nil {
		return screenshotOut{}, err
	}
	format, err := in.Format.Optional("format", "png")
	if err != nil {
		return screenshotOut{}, err
	}
	if !slices.Contains([]string{"png", "jpeg", "jpg", "webp", ""}, strings.ToLower(format)) {
		return screenshotOut{}, api.Invalidf("Invalid 'format'")
	}
	return screenshotOut{}, noBrowser()
}

type contentIn struct {
	Type string `query:"type" doc:"html (default) or text."`
}

type contentOut struct {
	Content string `json:"content"`
	URL     string `json:"url"`
	Title   string `json:"title"`
}

func (s *Server) pageContent(context.Context, *api.Call, contentIn) (contentOut, error) {
	return contentOut{}, noBrowser()
}

type clickIn struct {
	Selector api.Field[string] `json:"selector" doc:"CSS, text=…, xpath=… or //…"`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds; 5000 by default."`
}

type clickOut struct {
	Clicked  bool   `json:"clicked"`
	Selector string `json:"selector"`
}

func (s *Server) click(_ context.Context, _ *api.Call, in clickIn) (clickOut, error) {
	if _, err := filled(in.Selector, "selector"); err != nil {
		return clickOut{}, err
	}
	return clickOut{}, noBrowser()
}

type keysIn struct {
	Selector api.Field[string] `json:"selector" doc:"CSS, text=…, xpath=… or //…"`
	Text     api.Field[string] `json:"text" doc:"May be empty."`
	Delay    api.Field[any]    `json:"delay" doc:"Milliseconds between keys; 50 by default."`
	Clear    api.Field[any]    `json:"clear" doc:"Empty the element first."`
}

type keysOut struct {
	Typed    bool   `json:"typed"`
	Selector string `json:"selector"`
	Text     string `json:"text"`
}

func (s *Server) typeText(_ context.Context, _ *api.Call, in keysIn) (keysOut, error) {
	if _, err := filled(in.Selector, "selector"); err != nil {
		return keysOut{}, err
	}
	if _, err := in.Text.Want("text"); err != nil {
		return keysOut{}, err
	}
	return keysOut{}, noBrowser()
}

type evaluateIn struct {
	Script  api.Field[string] `json:"script" doc:"An expression, statements, or a function to call; promises are awaited."`
	Timeout api.Field[any]    `json:"timeout" doc:"Milliseconds; 10000 by default."`
}

type evaluateOut struct {
	Result any `json:"result"`
}

func (s *Server) evaluate(_ context.Context, _ *api.Call, in evaluateIn) (evaluateOut, error) {
	if _, err := filled(in.Script, "script"); err != nil {
		return evaluateOut{}, err
	}
	return evaluateOut{}, noBrowser()
}

type pdfIn struct {
	Format    api.Field[string] `json:"format" doc:"A0 to A6, Letter, Legal, Tabloid or Ledger; A4 by default."`
	Landscape api.Field[any]    `json:"landscape" doc:"Turn the paper."`
}

type pdfOut struct {
	PDF   string `json:"pdf_base64"`
	Pages int    `json:"pages"`
}

func (s *Server) printPage(_ context.Context, _ *api.Call, in pdfIn) (pdfOut, error) {
	format, err := in.Format.Optional("format", "A4")
	if err != nil {
		return pdfOut{}, err
	}
	if _, ok := browser.Papers[strings.ToLower(format)]; !ok {
		return pdfOut{}, api.Invalidf("Invalid 'format'")
	}
	return pdfOut{}, noBrowser()
}

type consoleOut struct {
	Logs    []struct{} `json:"logs" doc:"Oldest first; reading empties them."`
	Dropped int64      `json:"dropped" doc:"How many were lost since the last reading, because there was no room."`
}

func (s *Server) console(context.Context, *api.Call, struct{}) (consoleOut, error) {
	return consoleOut{Logs: []struct{}{}}, nil
}
