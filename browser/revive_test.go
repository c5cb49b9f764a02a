package browser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEveryCallBringsADeadBrowserBack kills it right before calls that open
// tabs or ask who it is.
func TestEveryCallBringsADeadBrowserBack(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>here</title>`)
	r.mustOpen("http://page.test/")
	for i := range 4 {
		r.kill()
		if tab, err := r.b.OpenTab(t.Context(), r.ask(""), "http://page.test/"); err != nil || tab.Title != "here" {
			t.Errorf("round %d: a tab: %+v, %v", i, tab, err)
		}
		r.kill()
		if v, err := r.b.Version(t.Context(), r.ask("")); err != nil || v.Product == "" {
			t.Errorf("round %d: the version: %+v, %v", i, v, err)
		}
	}
}

// TestABrowserWithoutAPlaceForItsFilesIsNotAvailable names no file: it is the
// server's own.
func TestABrowserWithoutAPlaceForItsFilesIsNotAvailable(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "gone"))
	err := r.do(func(context.Context, *Page) error { return nil })
	if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), dir) || errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
	t.Setenv("TMPDIR", "/tmp")
	if err := r.do(func(context.Context, *Page) error { return nil }); err != nil {
		t.Errorf("with a place again: %v", err)
	}
}

// TestABrowserLeavesNothingInTheFolderForTemporaryFiles ends it in every way.
func TestABrowserLeavesNothingInTheFolderForTemporaryFiles(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "t") // short: sockets are made in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	r := newRig(t, `{}`, Options{})
	nothing := func(context.Context, *Page) error { return nil }
	if err := r.do(nothing); err != nil {
		t.Fatal(err)
	}
	r.kill()
	if err := r.do(nothing); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.b.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
