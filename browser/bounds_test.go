package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// downloadsRig serves /slow, which is never sent whole, and /quick, both as
// files.
func downloadsRig(t *testing.T, most int64) (*rig, Ask) {
	t.Helper()
	r := newRig(t, `{}`, Options{})
	r.serve("/", "x")
	r.mux.HandleFunc("/slow", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="slow"`)
		for q.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-q.Context().Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	r.mux.HandleFunc("/quick", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="quick"`)
		fmt.Fprint(w, "all")
	})
	ask := r.ask("")
	ask.Keep = Keep{Max: most, Save: func(_ context.Context, name string, content io.ReadSeeker) (string, error) {
		_, err := io.Copy(io.Discard, content)
		return "/" + name, err
	}}
	return r, ask
}

func (r *rig) run(ask Ask, script string) {
	r.t.Helper()
	err := r.b.Do(r.t.Context(), ask, 30*time.Second, func(ctx context.Context, p *Page) error {
		if p.URL() == "about:blank" {
			if _, err := p.Navigate(ctx, "http://page.test/", Load); err != nil {
				return err
			}
		}
		_, err := p.Evaluate(ctx, script)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestADownloadEndsWithItsBrowser kills it while one is under way.
func TestADownloadEndsWithItsBrowser(t *testing.T) {
	r, ask := downloadsRig(t, 1<<30)
	state := func() string {
		list := r.b.Downloads()
		if len(list) == 0 {
			return ""
		}
		return list[len(list)-1].State
	}
	for range 2 {
		r.run(ask, `location = "/slow"; 1`)
		eventually(t, "a download is under way", func() bool { return state() == "in_progress" })
		r.kill()
		r.run(ask, `1`)
		if got := state(); got != "canceled" {
			t.Fatalf("after its browser has ended: %s", got)
		}
	}
	r.run(ask, `location = "/quick"; 1`)
	eventually(t, "one is kept", func() bool { return state() == "completed" })
}

// TestADownloadUnderWayIsNotForgotten starts so many others that the list is
// full.
func TestADownloadUnderWayIsNotForgotten(t *testing.T) {
	r, ask := downloadsRig(t, 300_000)
	r.run(ask, `location = "/slow"; 1`)
	eventually(t, "a download is under way", func() bool { return len(r.b.Downloads()) == 1 })
	for i := range maxDownloads {
		r.b.downloads.mu.Lock()
		r.b.downloads.begin(r.b.engine, &downloadEvent{GUID: fmt.Sprint(i), Name: "other"})
		d := r.b.downloads.byGUID(fmt.Sprint(i))
		d.State = "completed"
		r.b.downloads.mu.Unlock()
	}
	eventually(t, "it is refused when it is larger than allowed", func() bool {
		list := r.b.Downloads()
		return len(list) == maxDownloads && list[0].Name == "slow" && list[0].State == "refused"
	})
}

// TestListsOfRequestsStaySmallWhateverPagesAskFor counts the memory they hold.
func TestListsOfRequestsStaySmallWhateverPagesAskFor(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", "x")
	r.mustOpen("http://page.test/")
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	r.js(`(async () => {
		const long = "A".repeat(1 << 20);
		for (let i = 0; i < 5; i++) {
			await fetch("/?" + long + i, {mode: "no-cors"}).catch(() => 0);
			await fetch("/" + i, {method: long}).catch(() => 0);
		}
	})()`)
	eventually(t, "the requests are listed", func() bool {
		r.b.requests.mu.Lock()
		defer r.b.requests.mu.Unlock()
		return len(r.b.requests.list) >= 10
	})
	if after := held(); after > before+4<<20 {
		t.Errorf("%d bytes are held", after-before)
	}
	list, _ := r.b.Requests("")
	for _, q := range list {
		if len(q.URL) > maxShown || len(q.Method) > maxMethod {
			t.Errorf("an address of %d and a method of %d bytes", len(q.URL), len(q.Method))
		}
	}
}
