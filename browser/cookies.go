package browser

import (
	"context"
	"encoding/json"
)

// Cookie is a cookie of the browser.
type Cookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Domain   string  `json:"domain"`
	Path     string  `json:"path"`
	Expires  float64 `json:"expires" doc:"Unix seconds; -1 for the end of the session."`
	HTTPOnly bool    `json:"http_only"`
	Secure   bool    `json:"secure"`
	SameSite string  `json:"same_site" doc:"Strict, Lax, None or empty."`
	URL      string  `json:"url,omitempty" doc:"Instead of domain and path, when set."`
}

type cookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Domain   string  `json:"domain,omitempty"`
	Path     string  `json:"path,omitempty"`
	Expires  float64 `json:"expires,omitempty"`
	HTTPOnly bool    `json:"httpOnly"`
	Secure   bool    `json:"secure"`
	SameSite string  `json:"sameSite,omitempty"`
	URL      string  `json:"url,omitempty"`
	Session  bool    `json:"session,omitempty"`
}

// Cookies are the cookies that addresses would get, or all of them.
func (p *Page) Cookies(ctx context.Context, urls []string) ([]Cookie, error) {
	var got struct {
		Cookies []cookie `json:"cookies"`
	}
	var err error
	if len(urls) > 0 {
		err = p.call(ctx, "Network.getCookies", object{"urls": urls}, &got)
	} else {
		err = p.e.conn.call(ctx, "", "Storage.getCookies", nil, &got)
	}
	out := []Cookie{}
	for _, c := range got.Cookies {
		if c.Session {
			c.Expires = -1
		}
		out = append(out, Cookie{c.Name, c.Value, c.Domain, c.Path, c.Expires, c.HTTPOnly, c.Secure, c.SameSite, ""})
	}
	return out, err
}

// SetCookies sets cookies, all or none.
func (p *Page) SetCookies(ctx context.Context, list []Cookie) error {
	out := make([]cookie, len(list))
	for i, c := range list {
		out[i] = cookie{Name: c.Name, Value: c.Value, Domain: c.Domain, Path: c.Path, HTTPOnly: c.HTTPOnly, Secure: c.Secure, SameSite: c.SameSite, URL: c.URL}
		if c.Expires > 0 {
			out[i].Expires = c.Expires
		}
	}
	return p.e.conn.call(ctx, "", "Storage.setCookies", object{"cookies": out}, nil)
}

// ClearCookies forgets all cookies and tells how many they were.
func (p *Page) ClearCookies(ctx context.Context) (int, error) {
	all, err := p.Cookies(ctx, nil)
	if err != nil {
		return 0, err
	}
	return len(all), p.e.conn.call(ctx, "", "Storage.clearCookies", nil, nil)
}

// Storage has what the page's origin keeps in the browser.
type Storage struct {
	Local   map[string]string `json:"local"`
	Session map[string]string `json:"session"`
}

const storageJS = `(() => {
  const all = (s) => Object.fromEntries(Array.from({length: s.length}, (_, i) => [s.key(i), s.getItem(s.key(i))]));
  return {local: all(localStorage), session: all(sessionStorage)};
})()`

// Storage reads the storage of the page's origin.
func (p *Page) Storage(ctx context.Context) (s Storage, err error) {
	return s, p.run(ctx, storageJS, &s)
}

// SetStorage sets items in the storage of the page's origin.
func (p *Page) SetStorage(ctx context.Context, s Storage) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return p.run(ctx, `(() => {
  const all = `+string(text)+`;
  for (const [k, v] of Object.entries(all.local || {})) localStorage.setItem(k, v);
  for (const [k, v] of Object.entries(all.session || {})) sessionStorage.setItem(k, v);
})()`, nil)
}

// SetViewport sets what of the page is in view.
func (p *Page) SetViewport(ctx context.Context, v Viewport) error { return p.setViewport(ctx, v) }
