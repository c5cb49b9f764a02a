package host

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module plants a package below a folder.
func module(t testing.TB, dir, name, version string) {
	t.Helper()
	write(t, dir+"/"+name+"/package.json", `{"name":"`+name+`","version":"`+version+`","dependencies":{"x":"1"}}`)
}

func project(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	modules := dir + "/node_modules"
	module(t, modules, "left-pad", "1.3.0")
	module(t, modules, "@scope/thing", "2.0.0-beta.1")
	module(t, modules, "hoisted", "9.9.9")
	module(t, modules, "dev", "0.1.0")
	module(t, modules, ".cache", "1.0.0")
	write(t, modules+"/broken/package.json", "{")
	write(t, modules+"/unversioned/package.json", `{"version":5}`)
	write(t, modules+"/.package-lock.json", "{}")
	return dir
}

func TestTheDirectDependenciesOfAProject(t *testing.T) {
	dir := project(t)
	list := func() []string {
		t.Helper()
		got, err := NPMProject(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return names(got)
	}
	// Without a manifest all that is there is direct.
	if diff := cmp.Diff([]string{"@scope/thing 2.0.0-beta.1", "dev 0.1.0", "hoisted 9.9.9", "left-pad 1.3.0"}, list()); diff != "" {
		t.Error(diff)
	}
	write(t, dir+"/package.json", "\xEF\xBB\xBF"+`{"dependencies":{"left-pad":"^1","missing":"1","broken":"1","../../etc":"1","@scope":"1","a/b":"1","":"1",".cache":"1"},
		"devDependencies":{"dev":"*"},"optionalDependencies":{"@scope/thing":"*"},"peerDependencies":{"unversioned":"*","left-pad":"1"}}`)
	if diff := cmp.Diff([]string{"@scope/thing 2.0.0-beta.1", "dev 0.1.0", "left-pad 1.3.0"}, list()); diff != "" {
		t.Error(diff)
	}
	write(t, dir+"/package.json", `{"dependencies":["left-pad"]}`)
	if n := len(list()); n != 4 {
		t.Errorf("%d packages with a manifest that is none", n)
	}
	write(t, dir+"/package.json", `{}`)
	if n := len(list()); n != 0 {
		t.Errorf("%d packages of a project without dependencies", n)
	}
}

func TestNoLinkLeadsOutOfTheProject(t *testing.T) {
	dir, outside := project(t), t.TempDir()
	module(t, outside, "secret", "6.6.6")
	module(t, dir+"/node_modules/.pnpm/inner@1.0.0/node_modules", "inner", "1.0.0")
	modules := dir + "/node_modules/"
	if err := errors.Join(
		os.Symlink(outside+"/secret", modules+"secret"),
		os.Symlink(".pnpm/inner@1.0.0/node_modules/inner", modules+"inner"),
		os.Symlink("loop", modules+"loop"),
		os.Mkdir(modules+"fifo", 0o755), syscall.Mkfifo(modules+"fifo/package.json", 0o644),
	); err != nil {
		t.Fatal(err)
	}
	got, err := NPMProject(t.Context(), dir)
	want := []string{"@scope/thing 2.0.0-beta.1", "dev 0.1.0", "hoisted 9.9.9", "inner 1.0.0", "left-pad 1.3.0"}
	if diff := cmp.Diff(want, names(got)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for _, swap := range []string{outside, "/"} {
		if err := errors.Join(os.RemoveAll(dir+"/node_modules"), os.Symlink(swap, dir+"/node_modules")); err != nil {
			t.Fatal(err)
		}
		if got, err = NPMProject(t.Context(), dir); err != nil || len(got.List) != 0 {
			t.Errorf("%v %v", got, err)
		}
	}
}

func TestWhereNPMInstallsGlobally(t *testing.T) {
	node, home, chosen := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, node+"/bin/node", "#!/bin/sh\n")
	write(t, node+"/lib/node_modules/npm/bin/npm-cli.js", "#!/bin/sh\n")
	path := t.TempDir()
	if err := errors.Join(
		os.Symlink(node+"/bin/node", path+"/node"), os.Symlink(node+"/lib/node_modules/npm/bin/npm-cli.js", path+"/npm"),
	); err != nil {
		t.Fatal(err)
	}
	at := Where{Path: path, Dir: home, Env: []string{"HOME=" + home}}
	check := func(want string) {
		t.Helper()
		if got := npmPrefix(at); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check(node)
	write(t, node+"/lib/node_modules/npm/npmrc", "prefix=/built/in\n")
	check("/built/in")
	write(t, node+"/etc/npmrc", "; comment\nprefix = /global\n")
	check("/global")
	write(t, home+"/.npmrc", "fund=false\nprefix=relative\nprefix = \"${HOME}/npm\"\n[section]\nprefix=/no\n")
	check(home + "/npm")
	write(t, home+"/.npmrc", "prefix=~/.npm-global")
	check(home + "/.npm-global")
	at.Env = append(at.Env, "NPM_CONFIG_PREFIX="+chosen)
	check(chosen)
	if !at.Has("npm") || at.Has("nothing") {
		t.Error("npm is on the path and nothing else")
	}

	module(t, chosen+"/lib/node_modules", "typescript", "5.4.2")
	module(t, chosen+"/lib/node_modules", "@angular/cli", "17.0.0")
	got, err := NPMGlobal(t.Context(), at)
	if diff := cmp.Diff([]string{"@angular/cli 17.0.0", "typescript 5.4.2"}, names(got)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	at = Where{Path: "/nonexistent", Dir: home}
	check("/usr/local")
}

func FuzzModuleName(f *testing.F) {
	for _, name := range []string{"left-pad", "@scope/thing", "../x", "@/x", "@a/..", ".bin", "a/b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if !moduleName(name) {
			return
		}
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == "." || part == ".." || strings.Contains(part, "\x00") {
				t.Fatalf("%q is taken for a name", name)
			}
		}
		if strings.Count(name, "/") > 1 {
			t.Fatalf("%q is taken for a name", name)
		}
	})
}
