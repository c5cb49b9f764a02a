package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; reaching it is a failure, never a measure.
const patience = 20 * time.Second

func newHub(t testing.TB) *Hub {
	t.Helper()
	h := New()
	t.Cleanup(h.Close)
	return h
}

func listen(t testing.TB, h *Hub, dir string, opt Options) *Listener {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := h.Watch(t.Context(), f, dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// next reads on until enough says so and returns all of it as text.
func next(t testing.TB, l *Listener, enough func(got []string) bool) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	for !enough(got) {
		events, err := l.Next(ctx)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		for _, e := range events {
			got = append(got, text(e))
		}
	}
	return got
}

// await reads on until every wanted event was seen.
func await(t testing.TB, l *Listener, want ...string) []string {
	t.Helper()
	return next(t, l, func(got []string) bool {
		for _, w := range want {
			if !slices.Contains(got, w) {
				return false
			}
		}
		return true
	})
}

// rest finishes the stream and returns what it still had.
func rest(t testing.TB, l *Listener) []string {
	t.Helper()
	l.Finish()
	events, err := all(t, l)
	if !errors.Is(err, io.EOF) {
		t.Fatalf("end: %v, want EOF", err)
	}
	var got []string
	for _, e := range events {
		got = append(got, text(e))
	}
	return got
}

// all reads to the end.
func all(t testing.TB, l *Listener) ([]Event, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []Event
	for {
		events, err := l.Next(ctx)
		got = append(got, events...)
		if err != nil {
			return got, err
		}
	}
}

func text(e Event) string {
	s := e.Kind.String()
	switch {
	case e.Kind == Overflow:
		return s + " " + string(e.Reason)
	case e.Op != 0:
		s = e.Op.String()
	}
	s += " " + e.Path
	if e.Dir {
		s += "/"
	}
	if e.Old != "" {
		s += " from " + e.Old
	}
	return s
}

// state is path → whether it is a directory.
type state map[string]bool

func stateOf(t testing.TB, root string) state {
	t.Helper()
	s := state{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != root {
			s[strings.TrimPrefix(path, root+"/")] = d.IsDir()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replay plays events onto s; each must make sense where it comes.
func (s state) replay(events []Event) error {
	for i, e := range events {
		dir, known := s[e.Path]
		switch {
		case e.Kind == Overflow:
		case e.Kind == Created && !known, e.Kind == Renamed && !known:
			if up := filepath.Dir(e.Path); up != "." && !s[up] {
				return fmt.Errorf("event %d: %s: no such directory", i, text(e))
			}
			if e.Kind == Renamed {
				if _, ok := s[e.Old]; !ok {
					return fmt.Errorf("event %d: %s: no such name", i, text(e))
				}
				delete(s, e.Old)
			}
			s[e.Path] = e.Dir
		case e.Kind == Modified && known && dir == e.Dir:
		case e.Kind == Deleted && known && dir == e.Dir:
			delete(s, e.Path)
		default:
			return fmt.Errorf("event %d: %s: known %v as directory %v", i, text(e), known, dir)
		}
	}
	return nil
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// must fails the test on the first error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func equal(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// until polls for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
