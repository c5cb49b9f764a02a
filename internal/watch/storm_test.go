package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// storm changes the tree below d at random, from several goroutines that get in
// each other's way. Errors do not matter.
func storm(d string, seed uint64, steps int) {
	var wg sync.WaitGroup
	const workers = 4
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, w))
			for range steps / workers {
				step(d, r)
			}
		})
	}
	wg.Wait()
}

func step(d string, r *rand.Rand) {
	dir := func() string {
		p := d
		for range r.IntN(4) {
			p += fmt.Sprintf("/d%d", r.IntN(3))
		}
		return p
	}
	file := func() string { return fmt.Sprintf("%s/f%d", dir(), r.IntN(6)) }
	sub := func() string { return fmt.Sprintf("%s/d%d", dir(), r.IntN(3)) }
	switch r.IntN(12) {
	case 0, 1, 2:
		_ = os.WriteFile(file(), make([]byte, r.IntN(100)), 0o644)
	case 3:
		_ = os.Remove(file())
	case 4:
		_ = os.Chmod(file(), os.FileMode(0o600|r.IntN(0o100)))
	case 5, 6:
		_ = os.Mkdir(sub(), 0o755)
	case 7:
		_ = os.MkdirAll(sub()+"/d0/d1", 0o755)
	case 8:
		_ = os.Rename(file(), file())
	case 9:
		_ = os.Rename(sub(), sub())
	case 10:
		_ = os.Remove(sub())
	case 11:
		if r.IntN(8) == 0 {
			_ = os.RemoveAll(sub())
		} else {
			_ = os.Symlink("f0", file())
		}
	}
}

// follow reads all events of l until its end.
func follow(t *testing.T, l *Listener) <-chan []Event {
	done := make(chan []Event, 1)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience*3)
	go func() {
		defer cancel()
		var got []Event
		for {
			events, err := l.Next(ctx)
			got = append(got, events...)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("end: %v", err)
				}
				done <- got
				return
			}
		}
	}()
	return done
}

func sameState(t *testing.T, got, want state) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("told but not there: %s", p)
		}
	}
	for p, dir := range want {
		if told, ok := got[p]; !ok || told != dir {
			t.Errorf("there but not told: %s (directory %v)", p, dir)
		}
	}
}

// TestAStormReplaysToTheFinalTree plays what was told onto the tree as it was
// before: each event must be possible where it comes, and the end be the tree.
func TestAStormReplaysToTheFinalTree(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  Options
		hub  func(*Hub)
	}{
		{name: "plain", opt: Options{Recursive: true}},
		{name: "renames", opt: Options{Recursive: true, Renames: true}},
		{name: "small queues", opt: Options{Recursive: true, Queue: 4}, hub: func(h *Hub) { h.inbox = 16 }},
		{name: "few watches", opt: Options{Recursive: true, Interval: 5 * time.Millisecond}, hub: func(h *Hub) { h.limit = 4 }},
		{name: "polled", opt: Options{Recursive: true, Interval: 5 * time.Millisecond}, hub: noInotify},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := t.TempDir()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			storm(d, seed, 300)
			told := stateOf(t, d)
			h := newHub(t)
			if c.hub != nil {
				c.hub(h)
			}
			l := listen(t, h, d, c.opt)
			got := follow(t, l)
			storm(d, seed+1, 10_000)
			l.Finish()
			events := <-got
			if err := told.replay(events); err != nil {
				t.Error(err)
			}
			sameState(t, told, stateOf(t, d))
			if len(events) < 100 {
				t.Errorf("only %d events", len(events))
			}
		})
	}
}

func noInotify(h *Hub) { h.init = func() (int, error) { return -1, errors.New("no inotify here") } }

// TestMkdirAllRacesLeaveNoGapAndNoDouble makes nested directories and files in
// them at once; nothing is ever removed, so each is created exactly once.
func TestMkdirAllRacesLeaveNoGapAndNoDouble(t *testing.T) {
	for _, raw := range []bool{false, true} {
		d := t.TempDir()
		l := listen(t, newHub(t), d, Options{Recursive: true, Raw: raw})
		got := follow(t, l)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 60 {
					p := fmt.Sprintf("%s/a%d/b/c/d", d, i)
					if err := os.MkdirAll(p, 0o755); err != nil {
						t.Error(err)
					}
					if err := os.WriteFile(fmt.Sprintf("%s/f%d", p, w), []byte("x"), 0o644); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		l.Finish()
		var created []string
		for _, e := range <-got {
			if e.Kind == Created || e.Op == OpCreate {
				created = append(created, e.Path)
			} else if e.Kind != Modified && e.Op != OpWrite {
				t.Errorf("unexpected %s", text(e))
			}
		}
		slices.Sort(created)
		equal(t, created, slices.Sorted(maps.Keys(stateOf(t, d)))...)
	}
}

// TestShortLivedFilesAreSeen makes files that are gone at once.
func TestShortLivedFilesAreSeen(t *testing.T) {
	d := t.TempDir()
	must(t, os.Mkdir(d+"/s", 0o755))
	l := listen(t, newHub(t), d, Options{Recursive: true})
	got := follow(t, l)
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("s/f%d", i)
		write(t, d+"/"+name, "")
		must(t, os.Remove(d+"/"+name))
		want = append(want, "created "+name, "deleted "+name)
	}
	l.Finish()
	var told []string
	for _, e := range <-got {
		told = append(told, text(e))
	}
	equal(t, told, want...)
}
