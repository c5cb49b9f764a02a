package endpoints

import (
	"context"
	"io"
	"slices"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// acting are the endpoints that act on pages beside the published ones, each
// judged as the one of the same power.
func (s *Server) acting() []api.Endpoint {
	row := func(as, name, summary string) api.Row {
		return api.Row{
			Name: "browser_" + name, As: as, Method: "POST", Path: "/browser/" + name, Group: "browser",
			Summary: summary, Scopes: []string{"browser:use"},
		}
	}
	const opens, clicks, types = "browser_navigate", "browser_click", "browser_type"
	return []api.Endpoint{
		api.Unary(row(opens, "back", "Go back in the tab's history."), s.travel(-1)),
		api.Unary(row(opens, "forward", "Go forward in the tab's history."), s.travel(1)),
		api.Unary(row(opens, "reload", "Load the page anew."), s.travel(0)),
		api.Unary(row(types, "press", "Press a key."), s.pressKey),
		api.Unary(row(clicks, "hover", "Move the pointer to an element."), s.hover),
		api.Unary(row(clicks, "select", "Choose options of a select element."), s.selectOptions),
		api.Unary(row(clicks, "scroll", "Scroll the page, or an element into view."), s.scroll),
		api.Unary(row(clicks, "upload", "Give files to a file input."), s.uploadToPage),
	}
}

type travelIn struct {
	WaitUntil api.Field[string] `json:"wait_until" doc:"load (default), networkidle, domcontentloaded or commit."`
	Timeout   api.Field[any]    `json:"timeout" doc:"Milliseconds to wait; 29500 by default."`
	Tab       api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

func (s *Server) travel(steps int) func(context.Context, *api.Call, travelIn) (navigateOut, error) {
	return func(ctx context.Context, c *api.Call, in travelIn) (navigateOut, error) {
		until, err := in.WaitUntil.Optional("wait_until", string(browser.Load))
		if err != nil {
			return navigateOut{}, err
		}
		if !slices.Contains(stages, browser.Until(until)) {
			return navigateOut{}, api.Invalidf("Invalid 'wait_until'")
		}
		var v browser.Visit
		err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultNavigation), func(ctx context.Context, p *browser.Page) (err error) {
			v, err = p.Travel(ctx, steps, browser.Until(until))
			return err
		})
		if err != nil {
			return navigateOut{}, err
		}
		c.Note(browser.Shown(v.URL))
		return navigateOut(v), nil
	}
}

// elementIn names an element and how long it is waited for.
type elementIn struct {
	Selector api.Field[string] `json:"selector" doc:"CSS, text=…, xpath=… or //…"`
	Ref      api.Field[string] `json:"ref" doc:"The ref of a snapshot, instead."`
	Timeout  api.Field[any]    `json:"timeout" doc:"Milliseconds; 5000 by default."`
	Tab      api.Field[string] `json:"tab" doc:"The tab to act on; the active one by default."`
}

type pressIn struct {
	Key api.Field[string] `json:"key" doc:"Such as Enter, ArrowDown, a or Control+A."`
	elementIn
}

type pressOut struct {
	Pressed bool   `json:"pressed"`
	Key     string `json:"key"`
}

func (s *Server) pressKey(ctx context.Context, c *api.Call, in pressIn) (pressOut, error) {
	name, err := filled(in.Key, "key")
	if err != nil {
		return pressOut{}, err
	}
	keys, err := browser.ParseKeys(name)
	if err != nil {
		return pressOut{}, api.Invalidf("Invalid 'key': %v", err)
	}
	what, err := target(in.Selector, in.Ref, false)
	if err != nil {
		return pressOut{}, err
	}
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultAction), func(ctx context.Context, p *browser.Page) error {
		return p.Press(ctx, what, keys)
	})
	return pressOut{true, name}, err
}

type hoverOut struct {
	Hovered bool `json:"hovered"`
}

func (s *Server) hover(ctx context.Context, c *api.Call, in elementIn) (hoverOut, error) {
	what, err := target(in.Selector, in.Ref, true)
	if err != nil {
		return hoverOut{}, err
	}
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultAction), func(ctx context.Context, p *browser.Page) error {
		return p.Hover(ctx, what)
	})
	return hoverOut{true}, err
}

type selectIn struct {
	Value  api.Field[string]   `json:"value" doc:"The value or the label of an option."`
	Values api.Field[[]string] `json:"values" doc:"Several of them, for a select element that takes several."`
	elementIn
}

type selectOut struct {
	Selected []string `json:"selected" doc:"The values of the options that are selected now."`
}

func (s *Server) selectOptions(ctx context.Context, c *api.Call, in selectIn) (selectOut, error) {
	what, err := target(in.Selector, in.Ref, true)
	if err != nil {
		return selectOut{}, err
	}
	options, err := in.Values.Optional("values", nil)
	if err != nil {
		return selectOut{}, err
	}
	if !in.Values.Set() {
		one, err := in.Value.Want("value")
		if err != nil {
			return selectOut{}, err
		}
		options = []string{one}
	}
	out := selectOut{Selected: []string{}}
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultAction), func(ctx context.Context, p *browser.Page) error {
		chosen, err := p.Select(ctx, what, options)
		out.Selected = append(out.Selected, chosen...)
		return err
	})
	return out, err
}

type scrollIn struct {
	X api.Field[any] `json:"x" doc:"CSS pixels to the right; 0 by default."`
	Y api.Field[any] `json:"y" doc:"CSS pixels down; 0 by default."`
	elementIn
}

type scrollOut struct {
	X float64 `json:"x" doc:"Where the page is scrolled to."`
	Y float64 `json:"y"`
}

func (s *Server) scroll(ctx context.Context, c *api.Call, in scrollIn) (scrollOut, error) {
	what, err := target(in.Selector, in.Ref, false)
	if err != nil {
		return scrollOut{}, err
	}
	var by [2]float64
	for i, f := range []api.Field[any]{in.X, in.Y} {
		if !f.Set() {
			continue
		}
		v, ok := api.Lenient(f.V)
		if !ok || v < -1e9 || v > 1e9 {
			return scrollOut{}, api.Invalidf("Invalid '%s'", []string{"x", "y"}[i])
		}
		by[i] = v
	}
	var out scrollOut
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, defaultAction), func(ctx context.Context, p *browser.Page) (err error) {
		out.X, out.Y, err = p.Scroll(ctx, what, by[0], by[1])
		return err
	})
	return out, err
}

type pageUploadIn struct {
	Files api.Field[[]string] `json:"files" doc:"Paths of files, each as files_download_stream may read it."`
	elementIn
}

type pageUploadOut struct {
	Uploaded int `json:"uploaded"`
}

// maxUploads bounds the files of one call.
const maxUploads = 100

func (s *Server) uploadToPage(ctx context.Context, c *api.Call, in pageUploadIn) (pageUploadOut, error) {
	what, err := target(in.Selector, in.Ref, true)
	if err != nil {
		return pageUploadOut{}, err
	}
	names, err := in.Files.Want("files")
	if err != nil || len(names) > maxUploads {
		return pageUploadOut{}, api.Invalidf("Missing or invalid 'files'")
	}
	rule, err := c.Also("files_download_stream")
	if err != nil {
		return pageUploadOut{}, err
	}
	most := c.MaxUpload(rule)
	guard := c.Guard(rule)
	var files []browser.Upload
	for _, name := range names {
		f, info, err := guard.Open(name)
		if err != nil {
			return pageUploadOut{}, err
		}
		defer f.Close()
		if info.Size > most {
			return pageUploadOut{}, api.TooLarge(most, "The file is larger than the limit of %d bytes", most)
		}
		files = append(files, browser.Upload{Name: name, Content: io.LimitReader(f, info.Size)})
	}
	err = s.page(ctx, c, in.Tab, pageTime(in.Timeout, captureTime), func(ctx context.Context, p *browser.Page) error {
		return p.Upload(ctx, what, files)
	})
	return pageUploadOut{len(files)}, err
}
