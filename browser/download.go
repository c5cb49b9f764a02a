package browser

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// inProgress is the state of a download that has not ended. There are never
// more than maxReceiving with it.
const inProgress = "in_progress"

const (
	maxDownloads = 100 // that are remembered
	maxReceiving = 8   // that are under way
	maxFileName  = 200 // bytes
)

// Download is a file that a site has sent instead of a page.
type Download struct {
	Name  string `json:"name"`
	Path  string `json:"path" doc:"Where it is kept; empty while it is not."`
	Bytes int64  `json:"bytes"`
	State string `json:"state" doc:"in_progress, completed, canceled or refused."`
	URL   string `json:"url"`
	Error string `json:"error,omitempty"`

	guid string
}

// Keep decides what becomes of downloads: they are taken in a private folder
// and then handed to Save, or, without Save, refused at once.
type Keep struct {
	Max  int64 // bytes of one
	Save func(ctx context.Context, name string, content io.ReadSeeker) (path string, err error)
}

// downloads are the newest ones.
type downloads struct {
	mu   sync.Mutex
	keep Keep
	list []*Download
}

// Downloads lists the newest downloads, oldest first.
func (b *Browser) Downloads() []Download {
	b.downloads.mu.Lock()
	defer b.downloads.mu.Unlock()
	out := make([]Download, len(b.downloads.list))
	for i, d := range b.downloads.list {
		out[i] = *d
	}
	return out
}

// set puts a rule in force and tells whether Chrome must be told too.
func (l *downloads) set(k Keep) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = (k.Save == nil) != (l.keep.Save == nil)
	l.keep = k
	return changed
}

// downloadBehavior is the command that has Chrome take downloads, or not.
func (e *engine) downloadBehavior() object {
	l := &e.b.downloads
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keep.Save == nil {
		return object{"behavior": "deny", "eventsEnabled": true}
	}
	return object{"behavior": "allowAndName", "downloadPath": e.downloadDir(), "eventsEnabled": true}
}

func (e *engine) downloadDir() string { return filepath.Join(e.profile, "abx-downloads") }

type downloadEvent struct {
	GUID     string  `json:"guid"`
	URL      string  `json:"url"`
	Name     string  `json:"suggestedFilename"`
	Received float64 `json:"receivedBytes"`
	Total    float64 `json:"totalBytes"`
	State    string  `json:"state"`
}

// downloading takes what Chrome tells about downloads.
func (e *engine) downloading(m *message) {
	var p downloadEvent
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	l := &e.b.downloads
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Method == "Browser.downloadWillBegin" {
		l.begin(e, &p)
		return
	}
	d := l.byGUID(p.GUID)
	if d == nil || d.State != inProgress {
		return
	}
	d.Bytes = int64(p.Received)
	switch {
	case p.State == "canceled":
		d.State = "canceled"
	case l.keep.Save == nil:
		e.refuse(d, "downloads are not kept")
	case max(d.Bytes, int64(p.Total)) > l.keep.Max:
		e.refuse(d, "the file is too large")
	case p.State == "completed":
		keep := l.keep
		e.wg.Go(func() { e.finish(d, keep) })
	}
}

func (l *downloads) begin(e *engine, p *downloadEvent) {
	receiving := 0
	for _, d := range l.list {
		if d.State == inProgress {
			receiving++
		}
	}
	if len(l.list) >= maxDownloads {
		// One that is under way must be watched to its end.
		i := slices.IndexFunc(l.list, func(d *Download) bool { return d.State != inProgress })
		l.list = slices.Delete(l.list, i, i+1)
	}
	d := &Download{Name: fileName(p.Name), State: inProgress, URL: shown(p.URL), guid: p.GUID}
	l.list = append(l.list, d)
	switch {
	case l.keep.Save == nil:
		e.refuse(d, "downloads are not kept")
	case receiving >= maxReceiving:
		e.refuse(d, "too many downloads are under way")
	}
}

// cutOff ends the downloads of a browser that has ended.
func (l *downloads) cutOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.list {
		if d.State == inProgress {
			d.State, d.Error = "canceled", "the browser has ended"
		}
	}
}

func (l *downloads) byGUID(guid string) *Download {
	for _, d := range l.list {
		if d.guid == guid {
			return d
		}
	}
	return nil
}

// refuse ends a download. The list's lock is held.
func (e *engine) refuse(d *Download, why string) {
	d.State, d.Error = "refused", why
	e.conn.post("", "Browser.cancelDownload", object{"guid": d.guid})
	_ = os.Remove(filepath.Join(e.downloadDir(), d.guid))
}

// finish hands a download that is complete to who keeps it.
func (e *engine) finish(d *Download, keep Keep) {
	path, size, err := e.handOver(context.Background(), d, keep)
	l := &e.b.downloads
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		d.State, d.Error = "refused", err.Error()
		return
	}
	d.State, d.Path, d.Bytes = "completed", path, size
}

func (e *engine) handOver(ctx context.Context, d *Download, keep Keep) (path string, size int64, err error) {
	if d.guid == "" || strings.ContainsAny(d.guid, "/.") {
		return "", 0, errors.New("the browser does not say which file it is")
	}
	root, err := os.OpenRoot(e.downloadDir())
	if err != nil {
		return "", 0, errors.New("the file has gone")
	}
	defer root.Close()
	defer func() { _ = root.Remove(d.guid) }()
	f, err := root.Open(d.guid)
	if err != nil {
		return "", 0, errors.New("the file has gone")
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil || !fi.Mode().IsRegular():
		return "", 0, errors.New("the file has gone")
	case fi.Size() > keep.Max:
		return "", 0, errors.New("the file is too large")
	}
	path, err = keep.Save(ctx, d.Name, f)
	return path, fi.Size(), err
}

// fileName is the last part of a name that a site proposes, without what does
// not belong into names.
func fileName(proposed string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '/' || r == '\\' || r == unicode.ReplacementChar {
			return '_'
		}
		return r
	}, proposed)
	for len(name) > maxFileName { // the extension stays
		ext := filepath.Ext(name)
		if len(ext) > 20 {
			ext = ""
		}
		name = strings.ToValidUTF8(name[:maxFileName-len(ext)], "") + ext
	}
	if strings.Trim(name, ". ") == "" {
		return "download"
	}
	return name
}
