package guardfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestTheBaseDirectoryIsAWall(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		mkdirs(t, g.in("in"), g.base+"x")
		write(t, g.out("secret"), "s")
		link(t, g.outside, g.in("out"))
		link(t, g.in("in"), g.in("link"))
		link(t, "in", g.in("rel"))
		link(t, g.out("nothing"), g.in("dangling"))
		link(t, "/proc/self/root", g.in("root"))
		link(t, g.base, g.out("back"))
		gd := g.guard()
		for _, p := range []string{
			g.base, g.base + "/", g.in("in") + "/../in", "//" + g.in("in")[1:], g.in("link"), g.in("rel"),
			g.in("rel", "new"), g.base + "/out/../in", ".", "in", "none",
		} {
			if _, err := gd.Check(p, policy.Read); err != nil {
				t.Errorf("Check(%q): %v", p, err)
			}
			if _, err := gd.Stat(p, true); policy.IsDenied(err) {
				t.Errorf("Stat(%q): %v", p, err)
			}
		}
		for _, p := range []string{
			g.base + "/..", g.base + "x", g.outside, filepath.Dir(g.base), g.in("out"), g.in("out", "secret"), g.in("dangling"),
			g.in("root", "etc", "passwd"), "/", "/proc/self/environ", "/proc/1/root/etc", "/dev/null", strings.ToUpper(g.base),
			g.out("back"), g.out("back", "in"), g.out("none"), "..", "../outside",
		} {
			_, err := gd.Check(p, policy.Read)
			wantErr(t, "Check "+p, err, policy.PathNotAllowed)
			_, err = gd.Stat(p, true)
			wantErr(t, "Stat "+p, err, policy.PathNotAllowed)
			_, _, err = gd.Open(p)
			wantErr(t, "Open "+p, err, policy.PathNotAllowed)
			_, err = put(gd, p, "x", CreateOptions{})
			wantErr(t, "Create "+p, err, policy.PathNotAllowed)
			_, _, err = gd.Mkdir(p, MkdirOptions{})
			wantErr(t, "Mkdir "+p, err, policy.PathNotAllowed)
		}
		g.wantTree(g.outside, "secret=s", "back -> "+g.base)
	})
}

func TestBadNames(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	gd := g.guard()
	for _, p := range []string{"", "a\x00b", "/" + strings.Repeat("x", 4096), g.base + strings.Repeat("/d", 2100), "a\xED\xA0\x80b", "\xED\xBF\xBF"} {
		_, err := gd.Check(p, policy.Read)
		wantErr(t, "Check", err, policy.InvalidPath)
		_, err = gd.Stat(p, true)
		wantErr(t, "Stat", err, policy.InvalidPath)
		_, err = gd.Move(t.Context(), p, "x", MoveOptions{})
		wantErr(t, "Move", err, policy.InvalidPath)
	}
	for _, p := range []string{"\xff\xfe.txt", "\xED\x9F\xBF", "\xED", "a\xED\xA0", "~", "new\nline", "tab\t"} {
		if _, err := put(gd, p, "x", CreateOptions{}); err != nil {
			t.Errorf("Create(%q): %v", p, err)
		}
		if got := read(t, filepath.Join(g.base, p)); got != "x" {
			t.Errorf("%q holds %q", p, got)
		}
	}
}

func TestOneCodeForExistingAndMissing(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("k.pem"), "k")
	write(t, g.in("secret", "x"), "x")
	gd := g.guard(policy.NewPathRules(nil, []string{"*.pem", "secret/"}, false, false, false))
	for _, p := range []string{"k.pem", "none.pem", "secret", "secret/x", "secret/none", "a/b.pem/c"} {
		_, err := gd.Stat(p, true)
		wantErr(t, "Stat "+p, err, policy.PathDenied)
		_, err = gd.Delete(t.Context(), p, DeleteOptions{})
		wantErr(t, "Delete "+p, err, policy.PathDenied)
		_, err = gd.OpenDir(p)
		wantErr(t, "OpenDir "+p, err, policy.PathDenied)
		_, err = put(gd, p, "", CreateOptions{})
		wantErr(t, "Create "+p, err, policy.PathDenied)
		_, err = gd.Check(p, policy.Read)
		wantErr(t, "Check "+p, err, policy.PathDenied)
	}
	link(t, "k.pem", g.in("alias"))
	_, _, err := gd.Open("alias")
	wantErr(t, "a link to a denied file", err, policy.PathDenied)
}

func TestSymlinksNever(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		write(t, g.in("d", "f"), "x")
		link(t, "d", g.in("ld"))
		link(t, "d/f", g.in("lf"))
		link(t, "nothing", g.in("dangling"))
		link(t, "loop", g.in("loop"))
		link(t, "/etc", g.in("out"))
		alias := link(t, g.base, filepath.Join(filepath.Dir(g.base), "alias"))
		rules := policy.NewPathRules(nil, nil, false, true, false)
		gd := g.fs.Guard(rules, alias, nil)
		for _, p := range []string{g.in("ld"), alias + "/ld/f", g.in("lf"), g.in("dangling"), g.in("loop")} {
			_, err := gd.Check(p, policy.Read)
			wantErr(t, "Check "+p, err, policy.SymlinkDenied)
			_, err = gd.Stat(p, true)
			wantErr(t, "Stat "+p, err, policy.SymlinkDenied)
			_, err = gd.Delete(t.Context(), p, DeleteOptions{})
			wantErr(t, "Delete "+p, err, policy.SymlinkDenied)
		}
		for _, p := range []string{g.base, alias, alias + "/d/f", g.in("d"), g.in("missing"), g.base + "/ld/../d"} {
			if _, err := gd.Check(p, policy.Read); err != nil {
				t.Errorf("Check(%q): %v", p, err)
			}
		}
		_, err := gd.Stat(g.in("out"), true)
		wantErr(t, "a link outside", err, policy.PathNotAllowed)
		l, err := gd.List(t.Context(), alias, WalkOptions{})
		if err != nil || len(l.Entries) != 2 || l.Entries[0].Path != g.in("d") {
			t.Errorf("List: %+v, %v", l, err)
		}
	})
}

func TestRelativeNames(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	mkdirs(t, g.in("wd"), g.in("one"), g.in("two"))
	alias := link(t, g.in("one"), g.out("alias"))
	inside := New(func() string { return g.base }, g.in("wd"))
	defer inside.Close()
	allow := policy.NewPathRules([]string{alias, g.in("two")}, nil, false, false, false)
	for _, c := range []struct {
		gd         *Guard
		name, want string
	}{
		{g.guard(), "x", g.in("x")},                                  // the working directory is elsewhere
		{inside.Guard(nil, "", nil), "x", g.in("wd", "x")},           // it is inside
		{inside.Guard(nil, g.in("two"), nil), "x", g.in("two", "x")}, // the policy's base leaves it out
		{inside.Guard(allow, "", nil), "x", g.in("one", "x")},
		{inside.Guard(allow, "", nil), "../two", g.in("two")},
		{g.guard(allow), "./a//b/../c/", g.in("one", "a", "c")},
	} {
		if got, err := c.gd.Check(c.name, policy.Read); err != nil || got != c.want {
			t.Errorf("Check(%q) = %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	_, err := g.guard(allow).Check("../three", policy.Read)
	wantErr(t, "../three", err, policy.PathNotAllowed)
	_, err = g.guard(allow).Check(g.base, policy.Read)
	wantErr(t, "the base directory beside allow", err, policy.PathNotAllowed)
}

func TestRootsMayComeAndGo(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		root := g.in("later")
		gd := g.guard(policy.NewPathRules([]string{root}, nil, false, false, false))
		if _, err := gd.Stat("f", true); !os.IsNotExist(err) {
			t.Errorf("Stat in a root that is not there: %v", err)
		}
		write(t, root+"/f", "one")
		if i, err := gd.Stat("f", true); err != nil || i.Size != 3 {
			t.Errorf("Stat: %+v, %v", i, err)
		}
		if err := os.Rename(root, root+"-old"); err != nil {
			t.Fatal(err)
		}
		write(t, g.in("new", "f"), "other")
		link(t, "new", root) // now a link, which is legal for a root
		i, err := gd.Stat(root+"/f", true)
		if err != nil || i.Size != 5 || i.Path != g.in("new", "f") {
			t.Errorf("Stat in the replaced root: %+v, %v", i, err)
		}
		if err := os.RemoveAll(g.base); err != nil {
			t.Fatal(err)
		}
		if _, err := put(g.guard(), "a/b", "x", CreateOptions{}); err != nil {
			t.Errorf("a missing base directory is made: %v", err)
		}
	})
}

func TestSystemTreesStayClosed(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	gd := g.guard(policy.NewPathRules([]string{"/"}, nil, false, false, false))
	link(t, "/proc/self/environ", g.in("p"))
	link(t, "/proc/self/root/proc", g.in("q"))
	link(t, "/proc/self/cwd/../..", g.in("r"))
	for _, p := range []string{"/proc", "/proc/self/environ", "/sys", "/dev/null", "/dev/none", "/etc/../proc/version", g.in("p"), g.in("q", "version")} {
		_, err := gd.Stat(p, true)
		wantErr(t, p, err, policy.PathDenied)
	}
	if _, err := gd.Stat("/", true); err != nil {
		t.Errorf("/: %v", err)
	}
	l, err := gd.ReadDir(t.Context(), "/", 1000)
	if err != nil || len(l.Entries) == 0 {
		t.Fatalf("/: %v", err)
	}
	for _, e := range l.Entries {
		if e.Name == "proc" || e.Name == "sys" || e.Name == "dev" {
			t.Errorf("/ shows %s", e.Name)
		}
	}
	_, err = gd.Delete(t.Context(), "/", DeleteOptions{})
	wantErr(t, "delete /", err, policy.PathDenied)
}

func TestProcMountedInsideTheRootIsClosed(t *testing.T) {
	onBoth(t, func(g *ground) {
		t := g.t
		mkdirs(t, g.in("m"))
		if err := unix.Mount("proc", g.in("m"), "proc", 0, ""); err != nil {
			t.Skipf("cannot mount: %v", err)
		}
		defer func() {
			if err := unix.Unmount(g.in("m"), 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		}()
		gd := g.guard()
		for _, p := range []string{"m/version", "m/self/environ", "m/1"} {
			_, _, err := gd.Open(p)
			wantErr(t, "Open "+p, err, policy.PathDenied)
			_, err = gd.Stat(p, true)
			wantErr(t, "Stat "+p, err, policy.PathDenied)
		}
		_, err := gd.OpenDir("m")
		wantErr(t, "OpenDir", err, policy.PathDenied)
		_, _, err = gd.Dir("m/self", policy.Exec)
		wantErr(t, "Dir", err, policy.PathDenied)
		l, err := gd.List(t.Context(), ".", WalkOptions{})
		if err != nil || len(l.Entries) != 1 || len(l.Errors) != 1 {
			t.Errorf("List: %+v, %v", l, err)
		}
	})
}

func TestHardLinksCanBeForbidden(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("k.pem"), "secret")
	write(t, g.in("plain"), "p")
	if err := os.Link(g.in("k.pem"), g.in("ok.txt")); err != nil {
		t.Fatal(err)
	}
	allowed := g.guard()
	if _, _, err := allowed.Open("ok.txt"); err != nil {
		t.Errorf("by default: %v", err)
	}
	gd := g.guard(policy.NewPathRules(nil, []string{"*.pem"}, false, false, true))
	_, _, err := gd.Open("ok.txt")
	wantErr(t, "Open", err, policy.PathDenied)
	_, err = gd.Stat("ok.txt", true)
	wantErr(t, "Stat", err, policy.PathDenied)
	_, err = put(gd, "ok.txt", "x", CreateOptions{})
	wantErr(t, "Create", err, policy.PathDenied)
	_, _, err = gd.Chmod(t.Context(), "ok.txt", 0o600, false)
	wantErr(t, "Chmod", err, policy.PathDenied)
	_, _, err = gd.Chmod(t.Context(), ".", 0o700, true)
	wantErr(t, "Chmod of the tree", err, policy.PathDenied)
	l, err := gd.ReadDir(t.Context(), ".", 10)
	if err != nil || len(l.Entries) != 1 || l.Entries[0].Name != "plain" {
		t.Errorf("List: %+v, %v", l, err)
	}
	if read(t, g.in("k.pem")) != "secret" {
		t.Error("written round the rules")
	}
}

func TestTheObserverHearsOfEveryDecision(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	write(t, g.in("f"), "x")
	link(t, "f", g.in("l"))
	var got []string
	gd := g.fs.Guard(nil, "", func(p string, op policy.Op, d policy.Decision) {
		got = append(got, op.String()+" "+p+" "+string(d.Code))
	})
	_, _ = gd.Stat("l", true)
	_, _ = gd.Stat("/etc/x/../passwd", true)
	_, _ = gd.Move(t.Context(), "l", "/etc/y", MoveOptions{})
	_, _ = gd.Delete(t.Context(), "l", DeleteOptions{})
	want := []string{
		"read " + g.in("f") + " allowed", "read /etc/passwd path_not_allowed",
		"delete " + g.in("l") + " allowed", "write /etc/y path_not_allowed", "delete " + g.in("l") + " allowed",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func TestCheckRefusesTheRootsForDeletion(t *testing.T) {
	g := newGround(t, t.TempDir(), false)
	gd := g.guard()
	_, err := gd.Check(g.base, policy.Delete)
	wantErr(t, "delete", err, policy.PathDenied)
	_, err = gd.Check(g.base, policy.Read)
	wantErr(t, "read", err, nil)
	_, err = g.guard(policy.NewPathRules(nil, nil, true, false, false)).Check("x", policy.Write)
	wantErr(t, "write in read-only rules", err, policy.ReadOnlyPath)
}
