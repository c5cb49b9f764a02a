package browser

import (
	"encoding/json"
	"strings"
	"sync"
	"time"
)

const (
	maxRequests = 1000 // that are kept, and that may be under way in a page
	maxShown    = 2048 // bytes of an address in lists
	maxMethod   = 64   // bytes of a method; pages may invent some
)

// Request is a finished request of a page.
type Request struct {
	URL      string  `json:"url"`
	Method   string  `json:"method"`
	Status   int     `json:"status" doc:"0 when there was no answer."`
	Type     string  `json:"type"`
	Duration float64 `json:"duration_ms"`
	Size     int64   `json:"size" doc:"Bytes that came over the network."`
	Error    string  `json:"error,omitempty"`
	Tab      string  `json:"tab"`
}

// request is one that is under way.
type request struct {
	Request
	loader  string
	began   float64
	counted bool // a page with it is not idle
}

// requests keeps the newest finished requests of all pages.
type requests struct {
	mu      sync.Mutex
	list    []Request
	dropped int64
}

func (l *requests) add(r Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= maxRequests {
		l.list = l.list[1:]
		l.dropped++
	}
	l.list = append(l.list, r)
}

// take empties the list, of one tab or of all.
func (l *requests) take(tab string) ([]Request, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, rest := []Request{}, []Request(nil)
	for _, r := range l.list {
		if tab == "" || r.Tab == tab {
			out = append(out, r)
		} else {
			rest = append(rest, r)
		}
	}
	dropped := l.dropped
	l.list, l.dropped = rest, 0
	return out, dropped
}

// networkMessage has the members of network events that we read.
type networkMessage struct {
	ID      string `json:"requestId"`
	Loader  string `json:"loaderId"`
	FrameID string `json:"frameId"`
	Type    string `json:"type"`
	Request struct {
		URL    string `json:"url"`
		Method string `json:"method"`
	} `json:"request"`
	Redirect *networkResponse `json:"redirectResponse"`
	Response networkResponse  `json:"response"`
	Time     float64          `json:"timestamp"`
	Length   float64          `json:"encodedDataLength"`
	Error    string           `json:"errorText"`
	Blocked  string           `json:"blockedReason"`
}

type networkResponse struct {
	URL    string  `json:"url"`
	Status int     `json:"status"`
	Length float64 `json:"encodedDataLength"`
}

func (t *tab) networkEvent(m *message) {
	switch m.Method {
	case "Network.requestWillBeSent", "Network.responseReceived", "Network.loadingFinished", "Network.loadingFailed":
	default:
		return
	}
	var p networkMessage
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	var done []Request
	t.update(func() {
		r := t.requests[p.ID]
		switch m.Method {
		case "Network.requestWillBeSent":
			if r != nil && p.Redirect != nil {
				r.Status, r.Size = p.Redirect.Status, int64(p.Redirect.Length)
				done = append(done, r.finish(p.Time))
			}
			t.begin(&p)
		case "Network.responseReceived":
			if r != nil {
				r.Status = p.Response.Status
			}
			if p.ID == t.doc.loader {
				t.doc.status = p.Response.Status
			}
		default:
			if r == nil {
				return
			}
			r.Error = p.Error
			if p.Length > 0 {
				r.Size = int64(p.Length)
			}
			delete(t.requests, p.ID)
			t.quiet = time.Now()
			done = append(done, r.finish(p.Time))
		}
	})
	for _, r := range done {
		if !strings.HasPrefix(r.URL, "data:") {
			t.e.b.requests.add(r)
		}
	}
}

// begin notes a request that has been sent.
func (t *tab) begin(p *networkMessage) {
	if p.ID == p.Loader && p.FrameID == t.id && p.Type == "Document" && ownScheme(p.Request.URL) {
		status := 0
		if p.Redirect != nil {
			status = p.Redirect.Status
		}
		t.doc = document{p.Loader, p.Request.URL, status}
	}
	if len(t.requests) >= maxRequests {
		return
	}
	url := p.Request.URL
	t.requests[p.ID] = &request{
		Request: Request{URL: shown(url), Method: cut(p.Request.Method, maxMethod), Type: strings.ToLower(p.Type), Tab: t.name},
		loader:  p.Loader, began: p.Time,
		counted: p.Type != "EventSource" && p.Type != "WebSocket" && p.Type != "Ping" && !strings.HasSuffix(url, "/favicon.ico"),
	}
	t.quiet = time.Now()
}

// ownScheme tells whether Chrome opens an address itself, and does not look for
// another program that does.
func ownScheme(url string) bool {
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme {
	case "http", "https", "data", "blob", "about", "file", "filesystem", "chrome", "chrome-error", "view-source":
		return true
	}
	return false
}

func (r *request) finish(at float64) Request {
	r.Duration = max(0, float64(int64((at-r.began)*1e5))/100)
	return r.Request
}

// shown is the part of an address that is kept for lists.
func shown(url string) string { return cut(url, maxShown) }

// cut is the beginning of a text, without the memory of the rest.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.Clone(strings.ToValidUTF8(text[:most], ""))
}

// idle tells since when the page has had no request under way; false while it
// has one.
func (t *tab) idle() (time.Time, bool) {
	for _, r := range t.requests {
		if r.counted {
			return time.Time{}, false
		}
	}
	return t.quiet, true
}
