package guardfs

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func TestParkedWritersCommitAsOthersDo(t *testing.T) {
	onBoth(t, func(g *ground) {
		mkdirs(t, g.base+"/there")
		for _, name := range []string{"there/old", "there/linked"} {
			if err := os.WriteFile(g.base+"/"+name, []byte("old content"), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Link(g.base+"/there/linked", g.base+"/twin"); err != nil {
			t.Fatal(err)
		}
		names := []string{"new/a", "new/b", "new/deep/c", "there/old", "there/linked", "there/d"}
		park := func() []*Writer {
			var lot Lot
			var all []*Writer
			for _, name := range names {
				w, err := g.guard(nil).Create(g.base+"/"+name, CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write([]byte(name)); err != nil {
					t.Fatal(err)
				}
				lot.Park(w)
				lot.Park(w) // twice does no harm
				all = append(all, w)
			}
			return all
		}
		for _, w := range slices.Backward(park()) { // the directories made last first
			w.Abort()
		}
		if _, err := os.Lstat(g.base + "/new"); !os.IsNotExist(err) {
			t.Errorf("directories of writes that were given up: %v", err)
		}
		check := func(how string) {
			t.Helper()
			for _, name := range names {
				if text, err := os.ReadFile(g.base + "/" + name); err != nil || string(text) != name {
					t.Errorf("%s, %s: %q, %v", how, name, text, err)
				}
			}
		}
		if _, _, err := CommitAll(t.Context(), park()); err != nil {
			t.Fatal(err)
		}
		check("together")
		for _, w := range park() {
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check("one by one")
	})
}

func TestAFileParkedIsNoOtherOfItsName(t *testing.T) {
	onBoth(t, func(g *ground) {
		secret := g.outside + "/secret"
		if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, exchange := range []func(tmp string) error{
			os.Remove,
			func(tmp string) error { return os.WriteFile(tmp+"x", []byte("other"), 0o600) },
			func(tmp string) error { _ = os.Remove(tmp); return os.Symlink(secret, tmp) },
			func(tmp string) error { _ = os.Remove(tmp); return os.Link(secret, tmp) },
		} {
			name := g.base + "/f" + strconv.Itoa(i)
			w, err := g.guard(nil).Create(name, CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			new(Lot).Park(w)
			tmp, err := filepath.Glob(g.base + "/" + tmpPrefix + "*")
			if err != nil || len(tmp) != 1 {
				t.Fatal(tmp, err)
			}
			err = exchange(tmp[0])
			if other := tmp[0] + "x"; err == nil {
				if _, there := os.Lstat(other); there == nil {
					err = os.Rename(other, tmp[0])
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Commit(t.Context()); err == nil {
				t.Errorf("%d: another file was taken for the one parked", i)
			}
			if _, err := os.Lstat(name); !os.IsNotExist(err) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}
