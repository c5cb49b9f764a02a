package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	pageViews     = 20
	snapshotNodes = 5000
	// browserPolicy lets our server open pages of this machine.
	browserPolicy = `{"groups": ["browser"], "endpoints": {"browser_navigate": {"params": {"allow_loopback": true}}}}`
)

// withBrowser runs do with a fresh server that may use the browser, and the address of a page of 5,000
// nodes. Only ours is asked: the published server has no browser without a download of its own, and
// answers one browser call in its life.
func withBrowser(ctx context.Context, b *bench, p program, do func(s *server, page string) ([]float64, error)) ([]float64, error) {
	if p.name != b.oursProg.name {
		return nil, errNotServed
	}
	page, err := b.browserPage()
	if err != nil {
		return nil, err
	}
	p.env = append(p.env, "ABX_SERVER_POLICY="+browserPolicy)
	s, err := start(ctx, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	return do(s, page)
}

// browserPage writes the page and is its address at the bare file server.
func (b *bench) browserPage() (string, error) {
	var text strings.Builder
	text.WriteString("<!doctype html><title>many</title>")
	for i := range snapshotNodes / 2 { // a list item and its text make two
		fmt.Fprintf(&text, "<li>item %d\n", i)
	}
	err := os.WriteFile(b.path("page.html"), []byte(text.String()), 0o600)
	return b.bare.url() + "/plain/page.html", err
}

func navigate(ctx context.Context, s *server, page string) error {
	_, err := s.post(ctx, "/browser/navigate", fmt.Sprintf(`{"url": %q, "wait_until": "load"}`, page))
	return err
}

// firstView starts the browser and opens a page.
func firstView(ctx context.Context, b *bench, p program) ([]float64, error) {
	return withBrowser(ctx, b, p, func(s *server, page string) ([]float64, error) {
		return each(1, func() error { return navigate(ctx, s, page) })
	})
}

// bareView has the browser by itself open the page and print it, and end.
func bareView(ctx context.Context, b *bench) ([]float64, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	page, err := b.browserPage()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "view-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return command(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-quic", "--user-data-dir="+dir, "--dump-dom", page)
}

// laterViews opens a page and takes its picture, with a browser that runs.
func laterViews(ctx context.Context, b *bench, p program) ([]float64, error) {
	return withBrowser(ctx, b, p, func(s *server, page string) ([]float64, error) {
		if err := navigate(ctx, s, page); err != nil {
			return nil, err
		}
		return each(pageViews, func() error {
			if err := navigate(ctx, s, page); err != nil {
				return err
			}
			_, err := s.post(ctx, "/browser/screenshot", `{"full_page": false}`)
			return err
		})
	})
}

func snapshots(ctx context.Context, b *bench, p program) ([]float64, error) {
	return withBrowser(ctx, b, p, func(s *server, page string) ([]float64, error) {
		if err := navigate(ctx, s, page); err != nil {
			return nil, err
		}
		return each(pageViews, func() error {
			body, err := s.get(ctx, "/browser/snapshot")
			if err != nil {
				return err
			}
			var answer struct{ Snapshot string }
			if err := json.Unmarshal(body, &answer); err != nil {
				return err
			}
			if last := fmt.Sprintf("item %d", snapshotNodes/2-1); !strings.Contains(answer.Snapshot, last) {
				return fmt.Errorf("the snapshot of %d bytes lacks %q", len(answer.Snapshot), last)
			}
			return nil
		})
	})
}

// ownMemory is the resident size of our process alone: before a browser was started, and while one runs.
func ownMemory(browsing bool) func(context.Context, *bench, program) ([]float64, error) {
	return func(ctx context.Context, b *bench, p program) ([]float64, error) {
		return withBrowser(ctx, b, p, func(s *server, page string) ([]float64, error) {
			if browsing {
				if err := navigate(ctx, s, page); err != nil {
					return nil, err
				}
			}
			if err := pause(ctx); err != nil {
				return nil, err
			}
			bytes, err := statusField(s.pid, "VmRSS")
			return []float64{bytes}, err
		})
	}
}
