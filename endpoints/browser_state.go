package endpoints

import (
	"context"
	"math"
	"slices"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// keeping are the endpoints about what the browser keeps for sites. They show
// and set credentials, so each has an id of its own.
func (s *Server) keeping() []api.Endpoint {
	row := func(id, method, name, summary string) api.Row {
		r := api.Row{
			Name: name, Method: method, Path: "/browser/" + id, Group: "browser", Summary: summary,
			Scopes: []string{"browser:evaluate"}, Follows: "browser_evaluate", Mutates: true,
		}
		if id = "browser_" + id; name != id {
			r.As, r.Follows = id, ""
		}
		return r
	}
	return []api.Endpoint{
		api.Unary(row("cookies", "GET", "browser_cookies", "List cookies."), s.cookies),
		api.Unary(row("cookies", "POST", "browser_cookies_set", "Set cookies."), s.setCookies),
		api.Unary(row("cookies", "DELETE", "browser_cookies_clear", "Forget all cookies."), s.clearCookies),
		api.Unary(row("storage", "GET", "browser_storage", "Read what the page's origin keeps."), s.storage),
		api.Unary(row("storage", "POST", "browser_storage_set", "Set what the page's origin keeps."), s.setStorage),
	}
}

type cookiesIn struct {
	URLs string `query:"urls" doc:"Only cookies that these addresses get, separated by commas."`
}

type cookiesOut struct {
	Cookies []browser.Cookie `json:"cookies"`
}

func (s *Server) cookies(ctx context.Context, c *api.Call, in cookiesIn) (cookiesOut, error) {
	var out cookiesOut
	err := s.page(ctx, c, api.Field[string]{}, defaultAction, func(ctx context.Context, p *browser.Page) (err error) {
		out.Cookies, err = p.Cookies(ctx, list(in.URLs))
		return err
	})
	return out, err
}

type setCookiesIn struct {
	Cookies api.Field[[]any] `json:"cookies" doc:"Objects as the list shows them: name, value, and url or domain."`
}

type setCookiesOut struct {
	Set int `json:"set"`
}

func (s *Server) setCookies(ctx context.Context, c *api.Call, in setCookiesIn) (setCookiesOut, error) {
	items, err := in.Cookies.Want("cookies")
	if err != nil {
		return setCookiesOut{}, err
	}
	cookies := make([]browser.Cookie, len(items))
	for i, item := range items {
		var ok bool
		if cookies[i], ok = cookieOf(item); !ok {
			return setCookiesOut{}, api.Invalidf("Missing or invalid 'cookies'")
		}
	}
	err = s.page(ctx, c, api.Field[string]{}, defaultAction, func(ctx context.Context, p *browser.Page) error {
		return p.SetCookies(ctx, cookies)
	})
	return setCookiesOut{len(cookies)}, err
}

// cookieOf reads a cookie of a body; false when it makes no sense.
func cookieOf(v any) (browser.Cookie, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return browser.Cookie{}, false
	}
	var k browser.Cookie
	for name, to := range map[string]*string{
		"name": &k.Name, "value": &k.Value, "domain": &k.Domain, "path": &k.Path, "same_site": &k.SameSite, "url": &k.URL,
	} {
		if v := m[name]; v != nil {
			if *to, ok = v.(string); !ok {
				return k, false
			}
		}
	}
	for name, to := range map[string]*bool{"http_only": &k.HTTPOnly, "secure": &k.Secure} {
		if v := m[name]; v != nil {
			if *to, ok = v.(bool); !ok {
				return k, false
			}
		}
	}
	if v := m["expires"]; v != nil {
		if k.Expires, ok = api.Lenient(v); !ok || math.IsInf(k.Expires, 0) {
			return k, false
		}
	}
	return k, k.Name != "" && (k.Domain != "" || k.URL != "") && slices.Contains([]string{"", "Strict", "Lax", "None"}, k.SameSite)
}

type clearedOut struct {
	Cleared int `json:"cleared"`
}

func (s *Server) clearCookies(ctx context.Context, c *api.Call, _ struct{}) (clearedOut, error) {
	var out clearedOut
	err := s.page(ctx, c, api.Field[string]{}, defaultAction, func(ctx context.Context, p *browser.Page) (err error) {
		out.Cleared, err = p.ClearCookies(ctx)
		return err
	})
	return out, err
}

type storageIn struct {
	Tab string `query:"tab" doc:"The tab to read; the active one by default."`
}

func (s *Server) storage(ctx context.Context, c *api.Call, in storageIn) (browser.Storage, error) {
	var out browser.Storage
	err := s.page(ctx, c, named(in.Tab), defaultAction, func(ctx context.Context, p *browser.Page) (err error) {
		out, err = p.Storage(ctx)
		return err
	})
	return out, err
}

type setStorageIn struct {
	Local   api.Field[map[string]string] `json:"local" doc:"Items to set in localStorage."`
	Session api.Field[map[string]string] `json:"session" doc:"Items to set in sessionStorage."`
	Tab     api.Field[string]            `json:"tab" doc:"The tab to act on; the active one by default."`
}

func (s *Server) setStorage(ctx context.Context, c *api.Call, in setStorageIn) (browser.Storage, error) {
	var set, out browser.Storage
	var err error
	if set.Local, err = in.Local.Optional("local", nil); err != nil {
		return out, err
	}
	if set.Session, err = in.Session.Optional("session", nil); err != nil {
		return out, err
	}
	err = s.page(ctx, c, in.Tab, defaultAction, func(ctx context.Context, p *browser.Page) (err error) {
		if err := p.SetStorage(ctx, set); err != nil {
			return err
		}
		out, err = p.Storage(ctx)
		return err
	})
	return out, err
}
