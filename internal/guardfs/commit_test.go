package guardfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// staged begins a write and fills it.
func (g *ground) staged(name, text string, opt CreateOptions) *Writer {
	g.t.Helper()
	w, err := g.guard().Create(name, opt)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(w.Abort)
	if _, err := w.Write([]byte(text)); err != nil {
		g.t.Fatal(err)
	}
	return w
}

func TestCommitAll(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("old"), "old")
		write(t, g.in("twin"), "twin old")
		if err := os.Link(g.in("twin"), g.in("twin2")); err != nil {
			t.Fatal(err)
		}
		var ws []*Writer
		for _, name := range []string{"n/e/w", "old", "twin", "n/e/w2", "old"} {
			ws = append(ws, g.staged(name, "new "+name, CreateOptions{}))
		}
		results, _, err := CommitAll(t.Context(), ws)
		if err != nil {
			t.Fatal(err)
		}
		for i, created := range []bool{true, false, false, true, false} {
			if results[i].Created != created || results[i].Info.Path != ws[i].Path() {
				t.Errorf("%d: %+v", i, results[i])
			}
		}
		g.wantTree(g.base, "n/", "n/e/", "n/e/w=new n/e/w", "n/e/w2=new n/e/w2", "old=new old", "twin=new twin", "twin2=new twin")
	})
}

func TestAFailedCommitAllChangesNothing(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]func(g *ground) (*Writer, any){
		"checksum": func(g *ground) (*Writer, any) {
			return g.staged("last", "x", CreateOptions{SHA256: hashOf("y")}), ErrChecksum
		},
		"taken meanwhile": func(g *ground) (*Writer, any) {
			w := g.staged("late", "x", CreateOptions{NoOverwrite: true})
			write(g.t, g.in("late"), "theirs")
			return w, policy.FileExists
		},
		"a directory meanwhile": func(g *ground) (*Writer, any) {
			w := g.staged("late", "x", CreateOptions{})
			mkdirs(g.t, g.in("late"))
			return w, ErrIsDirectory
		},
		"condition": func(g *ground) (*Writer, any) {
			n := 0
			w := g.staged("last", "x", CreateOptions{If: func(bool, Info) error {
				if n++; n > 1 {
					return broken
				}
				return nil
			}})
			return w, broken
		},
		"made by the same call": func(g *ground) (*Writer, any) {
			return g.staged("n/e/w", "x", CreateOptions{NoOverwrite: true}), policy.FileExists
		},
	}
	for name, bad := range tests {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(g *ground) {
				t := g.t
				write(t, g.in("old"), "old")
				write(t, g.in("twin"), "a long old twin")
				if err := os.Link(g.in("twin"), g.in("twin2")); err != nil {
					t.Fatal(err)
				}
				before := stats(t, g.in("old"), g.in("twin"))
				w, want := bad(g)
				want0 := tree(t, g.base)
				ws := []*Writer{
					g.staged("n/e/w", "new", CreateOptions{}), g.staged("old", "new", CreateOptions{}),
					g.staged("twin", "new", CreateOptions{}), g.staged("n/e/w2", "new", CreateOptions{}),
					w, g.staged("never", "new", CreateOptions{}),
				}
				_, failed, err := CommitAll(t.Context(), ws)
				wantErr(t, name, err, want)
				if failed != 4 {
					t.Errorf("failed is %d", failed)
				}
				if _, err := w.Write(nil); !errors.Is(err, os.ErrClosed) {
					t.Errorf("a writer goes on: %v", err)
				}
				var kept []string
				for _, line := range want0 {
					if !strings.Contains(line, tmpPrefix) && !strings.HasPrefix(line, "n/") {
						kept = append(kept, line)
					}
				}
				g.wantTree(g.base, kept...)
				if after := stats(t, g.in("old"), g.in("twin")); after != before {
					t.Errorf("%s, want %s", after, before)
				}
			})
		})
	}
}

// stats are the facts of files that a change undone must bring back.
func stats(t *testing.T, paths ...string) string {
	t.Helper()
	var b strings.Builder
	for _, p := range paths {
		fi, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, fi.Name(), fi.Mode(), fi.Size(), fi.ModTime().UnixNano())
	}
	return b.String()
}

// On file systems that cannot exchange two names.
func TestReplacingWithoutAnExchange(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	for want, undone := range map[string]bool{"f=old": true, "f=new": false} {
		write(t, g.in("f"), "old")
		w := g.staged("f", "new", CreateOptions{})
		if err := w.renameAside(); err != nil || read(t, g.in("f")) != "new" {
			t.Fatalf("f holds %q, %v", read(t, g.in("f")), err)
		}
		if undone {
			if err := unix.Renameat(w.p.dir, w.tmp, w.p.dir, w.p.name); err != nil {
				t.Fatal(err)
			}
		}
		w.Abort()
		g.wantTree(g.base, want)
	}
}

func TestCommitAllEndsWithItsContext(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, failed, err := CommitAll(ctx, []*Writer{g.staged("a", "1", CreateOptions{}), g.staged("b", "1", CreateOptions{})})
	if !errors.Is(err, context.Canceled) || failed != 0 {
		t.Errorf("%d, %v", failed, err)
	}
	g.wantTree(g.base)
}

func TestTwoCommitAllDoNotWaitForEachOther(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			names := []string{"a", "b", "c"}
			if i == 1 {
				names = []string{"c", "b", "a"}
			}
			for range 50 {
				var ws []*Writer
				for _, n := range names {
					w, err := g.guard().Create(n, CreateOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = fmt.Fprint(w, i)
					ws = append(ws, w)
				}
				if _, _, err := CommitAll(t.Context(), ws); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if a, b, c := read(t, g.in("a")), read(t, g.in("b")), read(t, g.in("c")); a != b || b != c {
		t.Errorf("a is of %s, b of %s, c of %s", a, b, c)
	}
}

// A client that compares tags must see every write, however fast they follow:
// the kernel gives all changes within one tick of its clock the same time.
func TestAWriteIsLaterThanWhatItReplaces(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("linked"), "-")
	if err := os.Link(g.in("linked"), g.in("twin")); err != nil {
		t.Fatal(err)
	}
	write(t, g.in("f"), "-")
	for _, name := range []string{"f", "linked"} {
		for range 10 {
			old := time.Now().Add(clockTick * 9 / 10)
			if err := os.Chtimes(g.in(name), old, old); err != nil {
				t.Fatal(err)
			}
			res, err := put(g.guard(), name, "-", CreateOptions{})
			if err != nil || res.Info.Mtime <= old.UnixNano() {
				t.Errorf("%s: %v after %v, %v", name, res.Info.Modified(), old, err)
			}
		}
		// A clock that was wrong is not followed.
		old := time.Now().Add(time.Hour)
		if err := os.Chtimes(g.in(name), old, old); err != nil {
			t.Fatal(err)
		}
		if res, err := put(g.guard(), name, "-", CreateOptions{}); err != nil || res.Info.Mtime >= old.UnixNano() {
			t.Errorf("%s: %v after %v, %v", name, res.Info.Modified(), old, err)
		}
	}
}

func TestOfTwoWhoCompareAndSwapOneWins(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		if _, err := put(g.guard(), "f", "0", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		lost := errors.New("lost")
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := 0; n < 25; {
					info, err := g.guard().Stat("f", true)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = put(g.guard(), "f", fmt.Sprint(i), CreateOptions{If: func(_ bool, now Info) error {
						if now.ETag() != info.ETag() {
							return lost
						}
						return nil
					}})
					switch {
					case err == nil:
						n++
						won.Add(1)
					case !errors.Is(err, lost):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if won.Load() != 100 {
			t.Errorf("%d won", won.Load())
		}
	})
}

// A client that lost its connection goes on where it was while the server
// still waits for the old connection.
func TestTheNewestOfTwoWhoGoOnWithAFileWins(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		zero, five := int64(0), int64(5)
		first := g.staged("f", "12345", CreateOptions{Offset: &zero})
		second := g.staged("f", "67", CreateOptions{Offset: &five})
		_, err := first.Write([]byte("xxx"))
		if e, ok := errors.AsType[*OffsetError](err); !ok || e.Size != 7 {
			t.Errorf("the older one: %v", err)
		}
		if _, err := first.Commit(t.Context()); err == nil {
			t.Error("the older one could finish")
		}
		if res, err := second.Commit(t.Context()); err != nil || res.Info.Size != 7 {
			t.Errorf("%+v, %v", res, err)
		}
		// Without a byte in between.
		seven := int64(7)
		first = g.staged("f", "", CreateOptions{Offset: &seven})
		second = g.staged("f", "89", CreateOptions{Offset: &seven})
		if _, err := first.Write([]byte("xxx")); err == nil {
			t.Error("the older one wrote between")
		}
		if _, err := second.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		g.wantTree(g.base, "f=123456789")
	})
}

func TestGoingOnWithAFileThatIsReplaced(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	zero := int64(0)
	w := g.staged("f", "12345", CreateOptions{Offset: &zero})
	if _, err := put(g.guard(), "f", "whole", CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Commit(t.Context())
	if e, ok := errors.AsType[*OffsetError](err); !ok || e.Size != 5 {
		t.Errorf("%v", err)
	}
	g.wantTree(g.base, "f=whole")
}
