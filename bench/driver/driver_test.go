package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

func TestVerdict(t *testing.T) {
	fig := func(v float64) figure { return figure{value: v} }
	none := figure{err: errNoLimit}
	for _, c := range []struct {
		name                   string
		goal                   goal
		published, ours, least figure
		want                   string
	}{
		{"fast enough", goal{times: 4}, fig(8), fig(2), none, "yes"},
		{"too slow", goal{times: 4}, fig(8), fig(3), none, "no"},
		{"small enough", goal{share: 0.4}, fig(10), fig(4), none, "yes"},
		{"too big", goal{share: 0.4}, fig(10), fig(5), none, "no"},
		{"near the limit", goal{limit: 1.5}, none, fig(3), fig(2), "yes"},
		{"far from the limit", goal{limit: 1.5}, none, fig(4), fig(2), "no"},
		{"one of two missed", goal{times: 1.5, limit: 1.5}, fig(9), fig(4), fig(2), "no"},
		{"more than allowed", goal{most: 64}, fig(9), fig(65), none, "no"},
		{"published lacks it", goal{limit: 2}, figure{err: errNotServed}, fig(3), fig(2), "yes"},
		{"ours lacks it", goal{limit: 2}, fig(1), figure{err: errNotServed}, fig(2), ""},
		{"no goal", goal{}, fig(1), fig(1), fig(1), ""},
	} {
		r := result{row: row{goal: c.goal}, published: c.published, ours: c.ours, least: c.least}
		if got := c.goal.verdict(r); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestReplaceTableKeepsWhatIsAround(t *testing.T) {
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("head\n"+beginMark+"\nold\n"+endMark+"\nfoot\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replaceTable(doc, "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	if want := "head\n" + beginMark + "\nnew\n" + endMark + "\nfoot\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(doc, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if replaceTable(doc, "new") == nil {
		t.Error("a document without marks was accepted")
	}
}

// TestClientKeepsWhatItMay counts connections: one where the server keeps it, one per call where it closes.
func TestClientKeepsWhatItMay(t *testing.T) {
	for _, c := range []struct {
		closes bool
		want   int32
	}{{false, 1}, {true, 3}} {
		var connections atomic.Int32
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if c.closes {
				w.Header().Set("Connection", "close")
			}
			_, _ = w.Write(append([]byte("got "), body...))
		}))
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		srv.Start()
		cl := &client{addr: srv.Listener.Addr().String()}
		for range 3 {
			body, err := cl.post(t.Context(), "/x", "{}")
			if err != nil || string(body) != "got {}" {
				t.Errorf("closes %v: %q, %v", c.closes, body, err)
			}
		}
		cl.hangUp()
		srv.Close()
		if got := connections.Load(); got != c.want {
			t.Errorf("closes %v: %d connections, want %d", c.closes, got, c.want)
		}
	}
}

func TestClientTellsMissingRoutesFromOtherErrors(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			http.NotFound(w, r)
			return
		}
		http.Error(w, "broken", http.StatusInternalServerError)
	}))
	defer srv.Close()
	cl := &client{addr: srv.Listener.Addr().String()}
	defer cl.hangUp()
	if _, err := cl.get(t.Context(), "/gone"); !errors.Is(err, errNotServed) {
		t.Errorf("404: %v", err)
	}
	if _, err := cl.get(t.Context(), "/other"); err == nil || errors.Is(err, errNotServed) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("500: %v", err)
	}
}

func TestTailSeesTheEndInPieces(t *testing.T) {
	var seen tail
	text := strings.Repeat("event: stdout\n", 100) + "event: exit\n"
	r := bufio.NewReaderSize(strings.NewReader(text), 16)
	if _, err := io.CopyBuffer(struct{ io.Writer }{&seen}, struct{ io.Reader }{r}, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if seen.lines != 101 || !strings.HasSuffix(string(seen.last), "event: exit\n") {
		t.Errorf("%d lines, tail %q", seen.lines, seen.last)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}
