package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// one does something in a fresh watched directory and returns all that was told.
func one(t *testing.T, opt Options, before, do func(d string)) []string {
	t.Helper()
	d := t.TempDir()
	if before != nil {
		before(d)
	}
	l := listen(t, newHub(t), d, opt)
	do(d)
	return rest(t, l)
}

func TestKinds(t *testing.T) {
	d := t.TempDir()
	write(t, d+"/old", "")
	l := listen(t, newHub(t), d, Options{})
	write(t, d+"/new", "1")
	must(t, os.Truncate(d+"/old", 5), os.Mkdir(d+"/dir", 0o755), os.Symlink("new", d+"/link"))
	equal(t, await(t, l, "created link"), "created new", "modified old", "created dir/", "created link")
	must(t, os.Remove(d+"/old"), os.Remove(d+"/link"), os.Remove(d+"/dir"))
	equal(t, rest(t, l), "deleted old", "deleted link", "deleted dir/")
}

func TestModifiedMeansTimeOrSize(t *testing.T) {
	past := time.Unix(1_700_000_000, 0)
	before := func(d string) {
		write(t, d+"/f", "1")
		write(t, d+"/g", "1")
		must(t, os.Mkdir(d+"/s", 0o755))
	}
	got := one(t, Options{Recursive: true}, before, func(d string) {
		must(t, os.Chmod(d+"/f", 0o600), os.Chmod(d+"/s", 0o700), os.Chtimes(d+"/g", past, past))
	})
	equal(t, got, "modified g")
}

func TestChangesOfOneMomentAreMerged(t *testing.T) {
	got := one(t, Options{}, func(d string) { write(t, d+"/old", "") }, func(d string) {
		for i := range 5 {
			write(t, d+"/new", strings.Repeat("x", i))
			write(t, d+"/old", strings.Repeat("x", i))
		}
	})
	equal(t, got, "created new", "modified old")
}

func TestLaterChangesAreToldAgain(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{})
	write(t, d+"/f", "")
	equal(t, await(t, l, "created f"), "created f")
	write(t, d+"/f", "12")
	equal(t, await(t, l, "modified f"), "modified f")
}

func TestARemovedAndRemadeFileIsBoth(t *testing.T) {
	got := one(t, Options{}, func(d string) { write(t, d+"/f", "") }, func(d string) {
		must(t, os.Remove(d+"/f"))
		write(t, d+"/f", "1")
	})
	equal(t, got, "deleted f", "created f")
}

func TestRename(t *testing.T) {
	before := func(d string) {
		must(t, os.MkdirAll(d+"/s/u", 0o755))
		write(t, d+"/a", "")
		write(t, d+"/s/f", "")
		write(t, d+"/s/u/g", "")
	}
	do := func(d string) {
		must(t, os.Rename(d+"/a", d+"/b"), os.Rename(d+"/s", d+"/z"))
	}
	equal(t, one(t, Options{Recursive: true}, before, do),
		"deleted a", "created b from a",
		"deleted s/u/g", "deleted s/u/", "deleted s/f", "deleted s/",
		"created z/ from s", "created z/f from s/f", "created z/u/ from s/u", "created z/u/g from s/u/g")
	equal(t, one(t, Options{Recursive: true, Renames: true}, before, do),
		"renamed b from a",
		"renamed z/ from s", "renamed z/f from s/f", "renamed z/u/ from s/u", "renamed z/u/g from s/u/g")
	equal(t, one(t, Options{}, before, do), "deleted a", "created b from a", "deleted s/", "created z/ from s")
	equal(t, one(t, Options{Renames: true}, before, do), "renamed b from a", "renamed z/ from s")
}

func TestRenameAcrossDirectoriesAndOut(t *testing.T) {
	out := t.TempDir()
	before := func(d string) {
		must(t, os.MkdirAll(d+"/s", 0o755), os.MkdirAll(out+"/in/deep", 0o755))
		write(t, d+"/a", "")
		write(t, d+"/x", "")
		write(t, out+"/y", "")
		write(t, out+"/in/deep/f", "")
	}
	got := one(t, Options{Recursive: true, Renames: true}, before, func(d string) {
		must(t, os.Rename(d+"/a", d+"/s/b"), os.Rename(d+"/x", out+"/x"), os.Rename(out+"/y", d+"/y"))
		must(t, os.Rename(out+"/in", d+"/in"), os.Rename(d+"/s", out+"/s"))
		write(t, out+"/s/unseen", "")
	})
	equal(t, got, "renamed s/b from a", "deleted x", "created y",
		"created in/", "created in/deep/", "created in/deep/f", "deleted s/b", "deleted s/")
}

func TestRenamedDirectoryIsStillWatched(t *testing.T) {
	d := t.TempDir()
	must(t, os.Mkdir(d+"/a", 0o755))
	l := listen(t, newHub(t), d, Options{Recursive: true})
	must(t, os.Rename(d+"/a", d+"/b"))
	await(t, l, "created b/ from a")
	write(t, d+"/b/f", "")
	await(t, l, "created b/f")
	must(t, os.Rename(d+"/b", d+"/c"))
	await(t, l, "created c/f from b/f")
	must(t, os.Remove(d+"/c/f"))
	equal(t, rest(t, l), "deleted c/f")
}

func TestFlatSeesOneLevel(t *testing.T) {
	got := one(t, Options{}, func(d string) { must(t, os.Mkdir(d+"/s", 0o755)) }, func(d string) {
		write(t, d+"/s/deep", "")
		write(t, d+"/top", "")
	})
	equal(t, got, "created top")
}

func TestLinksAreNotFollowed(t *testing.T) {
	out := t.TempDir()
	got := one(t, Options{Recursive: true}, func(d string) { must(t, os.Symlink(out, d+"/old")) }, func(d string) {
		must(t, os.Symlink(out, d+"/link"))
		write(t, out+"/f", "")
		write(t, d+"/mark", "")
	})
	equal(t, got, "created link", "created mark")
}

func TestFilterHidesAndStaysOut(t *testing.T) {
	filter := func(dir, name string, typ fs.FileMode) Verdict {
		switch {
		case strings.HasPrefix(name, ".abx-tmp-") || typ&fs.ModeSymlink != 0:
			return Hide
		case name == "passage":
			return Enter
		case dir == "." && name == "closed":
			return Report
		}
		return Pass
	}
	d := t.TempDir()
	must(t, os.Mkdir(d+"/passage", 0o755))
	l := listen(t, newHub(t), d, Options{Recursive: true, Filter: filter})
	write(t, d+"/.abx-tmp-1", "x")
	must(t, os.Symlink("/", d+"/link"), os.Mkdir(d+"/closed", 0o755))
	write(t, d+"/closed/f", "")
	write(t, d+"/passage/f", "")
	got := await(t, l, "created passage/f") // that link was one cannot be seen when it is gone
	must(t, os.Remove(d+"/link"), os.RemoveAll(d+"/passage"), os.Remove(d+"/.abx-tmp-1"))
	write(t, d+"/.abx-tmp-2", "")
	must(t, os.Rename(d+"/.abx-tmp-2", d+"/.abx-tmp-3"))
	equal(t, append(got, rest(t, l)...), "created closed/", "created passage/f", "deleted passage/f")
}

func TestAnUploadIsOneFile(t *testing.T) {
	hide := func(_, name string, _ fs.FileMode) Verdict {
		if strings.HasPrefix(name, ".abx-tmp-") {
			return Hide
		}
		return Pass
	}
	before := func(d string) { write(t, d+"/old", "1") }
	upload := func(d string) {
		for _, name := range []string{"/old", "/new"} {
			write(t, d+"/.abx-tmp-1", "content")
			must(t, os.Chmod(d+"/.abx-tmp-1", 0o600), os.Rename(d+"/.abx-tmp-1", d+name))
		}
	}
	equal(t, one(t, Options{Filter: hide}, before, upload), "modified old", "created new")
	equal(t, one(t, Options{Filter: hide, Renames: true}, before, upload), "modified old", "created new")
	equal(t, one(t, Options{Filter: hide, Raw: true}, before, upload), "write old", "create new", "write new")
}

func TestRawBits(t *testing.T) {
	out := t.TempDir()
	before := func(d string) {
		write(t, d+"/f", "")
		write(t, d+"/x", "")
		write(t, d+"/y", "")
		write(t, out+"/in", "")
		must(t, os.MkdirAll(d+"/s/u", 0o755))
	}
	got := one(t, Options{Raw: true, Recursive: true}, before, func(d string) {
		f, err := os.Create(d + "/new")
		must(t, err)
		_, err = f.WriteString("1")
		must(t, err, f.Close(), os.Chmod(d+"/new", 0o600))
		must(t, os.Rename(d+"/f", d+"/g"), os.Remove(d+"/g"), os.Rename(d+"/x", out+"/x"))
		must(t, os.Rename(out+"/in", d+"/in"), os.Rename(d+"/in", d+"/y"))
		must(t, os.Rename(d+"/s", d+"/z"), os.Chmod(d, 0o700))
	})
	equal(t, got, "create new", "write new", "chmod new", "rename f", "create g", "remove g", "rename x",
		"create in", "rename in", "create y", "rename s/", "create z/", "create z/u/", "chmod ./")
}

func TestRawIsNotDelayedOrMerged(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{Raw: true})
	write(t, d+"/f", "1")
	await(t, l, "write f")
	write(t, d+"/f", "2")
	await(t, l, "write f")
}

func TestNamesAreBytes(t *testing.T) {
	name := "b\xffad \n\u2028"
	equal(t, one(t, Options{}, nil, func(d string) { write(t, d+"/"+name, "") }), "created "+name)
}

func TestEventsCarryTheirTime(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{})
	before := time.Now()
	write(t, d+"/f", "")
	events, err := l.Next(t.Context())
	must(t, err)
	if at := events[0].Time; at.Before(before) || at.After(time.Now()) {
		t.Fatalf("time %v is not between %v and now", at, before)
	}
}

func TestNewTreesAreScannedOnce(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{Recursive: true})
	var want []string
	for i := range 50 {
		p := fmt.Sprintf("p%d", i)
		must(t, os.MkdirAll(d+"/"+p+"/q/r", 0o755))
		write(t, d+"/"+p+"/q/r/f", "1")
		want = append(want, "created "+p+"/", "created "+p+"/q/", "created "+p+"/q/r/", "created "+p+"/q/r/f")
	}
	got := append(await(t, l, want...), rest(t, l)...)
	got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "modified") })
	slices.Sort(got)
	slices.Sort(want)
	equal(t, got, want...)
}

func TestARemovedTreeTellsEachEntry(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/a/b", 0o755))
	write(t, d+"/a/b/f", "")
	l := listen(t, newHub(t), d, Options{Recursive: true})
	must(t, os.RemoveAll(d+"/a"))
	equal(t, rest(t, l), "deleted a/b/f", "deleted a/b/", "deleted a/")
}

func TestWatchRefuses(t *testing.T) {
	d := t.TempDir()
	write(t, d+"/f", "")
	must(t, os.Mkdir(d+"/a", 0o755), os.Mkdir(d+"/b", 0o755))
	h := newHub(t)
	try := func(open, name string) error {
		f, err := os.Open(open)
		must(t, err)
		defer f.Close()
		l, err := h.Watch(t.Context(), f, name, Options{})
		if err == nil {
			l.Close()
		}
		return err
	}
	if err := try(d+"/f", d+"/f"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file: %v", err)
	}
	for _, name := range []string{d + "/b", d + "/none"} {
		if err := try(d+"/a", name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s for a: %v", name, err)
		}
	}
	must(t, os.Symlink("a", d+"/l"))
	if err := try(d+"/a", d+"/l"); err != nil {
		t.Errorf("through a link: %v", err)
	}
	h.Close()
	if err := try(d+"/a", d+"/a"); !errors.Is(err, ErrClosed) {
		t.Errorf("closed hub: %v", err)
	}
}

func TestWatchGivesUpWithItsContext(t *testing.T) {
	d := t.TempDir()
	f, err := os.Open(d)
	must(t, err)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := newHub(t).Watch(ctx, f, d, Options{})
	if err == nil {
		l.Close() // it was faster
	} else if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestNextEndsWithItsContextAndGoesOn(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	write(t, d+"/f", "")
	await(t, l, "created f")
}

func TestClosingEndsTheReader(t *testing.T) {
	for _, how := range []string{"listener", "hub"} {
		h := newHub(t)
		l := listen(t, h, t.TempDir(), Options{})
		got := make(chan error, 1)
		go func() {
			_, err := l.Next(context.WithoutCancel(t.Context()))
			got <- err
		}()
		if how == "hub" {
			h.Close()
		} else {
			l.Close()
		}
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Fatalf("%s: %v", how, err)
		}
		l.Close()
	}
}

func TestDeepPathsAreWatched(t *testing.T) {
	d := t.TempDir()
	l := listen(t, newHub(t), d, Options{Recursive: true})
	// Deeper than a path may be long in one system call.
	const levels = 60
	name := strings.Repeat("n", 100)
	root, err := os.OpenRoot(d)
	must(t, err)
	defer func() { root.Close() }()
	path := ""
	for range levels {
		must(t, root.Mkdir(name, 0o755))
		sub, err := root.OpenRoot(name)
		must(t, err, root.Close())
		root, path = sub, filepath.Join(path, name)
	}
	f, err := root.Create("leaf")
	must(t, err, f.Close())
	await(t, l, "created "+path+"/leaf")
	must(t, root.Remove("leaf"))
	await(t, l, "deleted "+path+"/leaf")
}
