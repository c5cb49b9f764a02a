package browser

import (
	"context"
	"encoding/json"
)

// state is what outlives a browser that was stopped because nobody used it,
// beside what is in its profile: the cookies, also those of the session, and
// what the tabs showed.
type state struct {
	cookies []json.RawMessage
	tabs    []Tab
}

// save reads the state; what cannot be had is left out.
func (e *engine) save(ctx context.Context) state {
	var got struct {
		Cookies []map[string]any `json:"cookies"`
	}
	if e.conn.call(ctx, "", "Storage.getCookies", nil, &got) != nil {
		return state{}
	}
	var s state
	s.tabs, _ = e.list(ctx)
	for _, c := range got.Cookies {
		// What is told of a cookie and what is taken differ.
		if session, _ := c["session"].(bool); session {
			delete(c, "expires")
		}
		for _, name := range []string{"size", "session", "partitionKeyOpaque"} {
			delete(c, name)
		}
		if text, err := json.Marshal(c); err == nil {
			s.cookies = append(s.cookies, text)
		}
	}
	return s
}

// restore puts the state back. The tabs open their pages when they are used.
func (e *engine) restore(ctx context.Context, s state) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	e.restoreCookies(ctx, s)
	for i, kept := range s.tabs {
		t, err := e.current(ctx)
		if i > 0 {
			t, err = e.open(ctx)
		}
		if err != nil {
			return
		}
		e.mu.Lock()
		t.update(func() { t.name, t.asleep = kept.ID, kept.URL })
		if kept.Active {
			e.active = t
		}
		e.mu.Unlock()
	}
}

func (e *engine) restoreCookies(ctx context.Context, s state) {
	if len(s.cookies) == 0 {
		return
	}
	if err := e.conn.call(ctx, "", "Storage.setCookies", object{"cookies": s.cookies}, nil); err == nil {
		return
	}
	for _, c := range s.cookies { // one that is refused takes the others with it
		_ = e.conn.call(ctx, "", "Storage.setCookies", object{"cookies": []json.RawMessage{c}}, nil)
	}
}
