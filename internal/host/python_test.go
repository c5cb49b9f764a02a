package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// write makes a file and the folders above it.
func write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// metadata is that of an installed distribution.
func metadata(name, version string) string {
	return "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\nSummary: x\n\nName: not-this\nVersion: 0\n"
}

func names(p Packages) []string {
	var out []string
	for _, one := range p.List {
		out = append(out, strings.TrimSuffix(one.Name+" "+one.Version+" "+one.Arch, " "))
	}
	return out
}

// listDirs lists the distributions in folders.
func listDirs(t testing.TB, dirs ...string) []string {
	t.Helper()
	var s sites
	got, err := s.list(t.Context(), dirs)
	if err != nil {
		t.Fatal(err)
	}
	return names(got)
}

func TestDistributionsAreFoundAsPipDoes(t *testing.T) {
	dir, second, egg, work := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "Old_Egg-1.2-py3.11.egg"), t.TempDir()
	write(t, dir+"/zope.interface-6.0.dist-info/METADATA", metadata("zope.interface", "6.0"))
	write(t, dir+"/Zope_Other-6.0RC1.dist-info/METADATA", metadata("Zope_Other", "6.0RC1"))
	write(t, dir+"/aaa-1.dist-info/METADATA", "name: Aaa\r\nversion: 1\r\n")
	write(t, dir+"/bare-2.0.post1.dist-info/RECORD", "")
	write(t, dir+"/argparse-1.4.0.dist-info/METADATA", metadata("argparse", "1.4.0"))
	write(t, dir+"/~ttrs-26.1.0.dist-info/METADATA", metadata("~ttrs", "26.1.0"))
	write(t, dir+"/legacy-1.0-py3.11.egg-info", metadata("legacy", "1.0"))
	write(t, dir+"/legacydir.egg-info/PKG-INFO", metadata("legacydir", "2.0"))
	write(t, dir+"/unversioned.egg-info/PKG-INFO", "Name: unversioned\n")
	write(t, dir+"/worked.egg-link", "\n"+work+"\n../\n")
	write(t, dir+"/broken.egg-link", "/nonexistent\n.")
	write(t, dir+"/module.py", "")
	write(t, dir+"/notinfo.dist-information/METADATA", metadata("notinfo", "1"))
	write(t, work+"/worked.egg-info/PKG-INFO", metadata("Worked", "0.1"))
	write(t, work+"/deeper.egg-link", dir)
	write(t, egg+"/EGG-INFO/PKG-INFO", metadata("Old-Egg", "1.2"))
	// The same project again, later on the path.
	write(t, second+"/zope_interface-5.dist-info/METADATA", metadata("zope.interface", "5"))
	write(t, second+"/EGG-INFO/PKG-INFO", metadata("in-no-egg", "1"))

	want := []string{
		"Aaa 1", "bare 2.0.post1", "legacy 1.0", "legacydir 2.0", "Old-Egg 1.2", "Worked 0.1", "zope.interface 6.0", "Zope_Other 6.0rc1",
	}
	if diff := cmp.Diff(want, listDirs(t, dir, "/nonexistent", dir+"/module.py", second, egg)); diff != "" {
		t.Error(diff)
	}
}

func TestOddMetadataHoldsNobodyUp(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.Mkdir(dir+"/fifo-1.dist-info", 0o755), syscall.Mkfifo(dir+"/fifo-1.dist-info/METADATA", 0o644),
		os.MkdirAll(dir+"/folder-1.dist-info/METADATA", 0o755),
		os.Mkdir(dir+"/loop-1.dist-info", 0o755), os.Symlink("METADATA", dir+"/loop-1.dist-info/METADATA"),
		syscall.Mkfifo(dir+"/x.egg-link", 0o644), syscall.Mkfifo(dir+"/y-1.egg-info", 0o644),
		os.Symlink("/dev/zero", dir+"/z-1.egg-info"),
	); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/endless-1.dist-info/METADATA", "Version: 1\n"+strings.Repeat("X: y\n", 1<<20)+"Name: late\n")
	write(t, dir+"/long-1.dist-info/METADATA", "Name: "+strings.Repeat("n", 1<<20)+"\n")
	for i := range 40 { // wherever the first read ends, no version is cut
		text := "X: " + strings.Repeat("x", 2<<10-i) + "\nName: cut\nVersion: 1.23\n"
		write(t, dir+"/cut.dist-info/METADATA", text)
		if got := (&distFinder{}).metadata(dir + "/cut.dist-info"); got.Version != "1.23" || got.Name != "cut" {
			t.Fatalf("%d: %+v", i, got)
		}
	}
	write(t, dir+"/bad-1.dist-info/METADATA", "Name: b\xffd\nVersion: 1\n")
	done := make(chan []string, 1)
	go func() { done <- listDirs(t, dir) }()
	select {
	case got := <-done:
		// The name of the folder serves where the metadata does not.
		want := []string{"cut 1.23", "endless 1", "fifo 1", "folder 1", "long 1", "loop 1", "y 1", "z 1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	case <-time.After(patience):
		t.Fatal("a pipe holds us up")
	}
}

func TestWhatPipListsForOnePath(t *testing.T) {
	if err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "--version").Run(); err != nil {
		t.Skip("no pip")
	}
	dir := t.TempDir()
	for _, p := range []Package{
		{Name: "zope.interface", Version: "6.0"},
		{Name: "Zope-Other", Version: "6.0rc1"},
		{Name: "PyYAML", Version: "6.0.1"},
		{Name: "ruamel.yaml.clib", Version: "0.2.8"},
		{Name: "a_b", Version: "2024.1.1"},
		{Name: "A", Version: "1!2.0+local.1"},
	} {
		stem := strings.ReplaceAll(strings.ReplaceAll(p.Name, "-", "_"), ".", "_") + "-" + p.Version
		write(t, filepath.Join(dir, stem+".dist-info", "METADATA"), metadata(p.Name, p.Version))
	}
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "list", "--path", dir, "--format", "json", "--disable-pip-version-check").Output()
	if err != nil {
		t.Fatal(err)
	}
	var listed []struct{ Name, Version string }
	if err := json.Unmarshal(out, &listed); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range listed {
		want = append(want, p.Name+" "+p.Version)
	}
	if diff := cmp.Diff(want, listDirs(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// fake puts a python3 that is a script on a search path of its own. It notes
// each start in the file "starts".
func fake(t testing.TB, script string) (at Where, starts func() int) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/python3", "#!/bin/sh\necho start >>"+dir+"/starts\n"+script+"\n")
	return Where{Path: dir, Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}}, func() int {
		text, _ := os.ReadFile(dir + "/starts")
		return strings.Count(string(text), "\n")
	}
}

func TestTheInterpreterIsAskedOnce(t *testing.T) {
	site := t.TempDir()
	write(t, site+"/attrs-1.dist-info/METADATA", metadata("attrs", "1"))
	age(t, site, site+"/attrs-1.dist-info", site+"/attrs-1.dist-info/METADATA")
	p := newPython(t)
	at, starts := fake(t, `printf '3.12.1\0/elsewhere/python3\0relative\0`+site+`'`)
	age(t, at.Dir, at.Dir+"/python3")
	for range 3 {
		if v, err := p.Version(t.Context(), at); v != "3.12.1" || err != nil {
			t.Fatalf("%q %v", v, err)
		}
		if got, err := p.Packages(t.Context(), at); err != nil || !slices.Equal(names(got), []string{"attrs 1"}) {
			t.Fatalf("%v %v", got, err)
		}
	}
	if n := starts(); n != 1 {
		t.Errorf("started %d times", n)
	}
	// Something was installed: it may have changed the path.
	write(t, site+"/boto-2.dist-info/METADATA", metadata("boto", "2"))
	if got, err := p.Packages(t.Context(), at); err != nil || len(got.List) != 2 {
		t.Errorf("%v %v", got, err)
	}
	if n := starts(); n != 2 {
		t.Errorf("started %d times", n)
	}
	at.Env = append(at.Env, "X=1")
	if v, err := p.Version(t.Context(), at); v != "3.12.1" || err != nil || starts() != 3 {
		t.Errorf("%q %v after %d starts", v, err, starts())
	}
}

// age makes files look as if they had not been changed for long. The time of
// the last change of an inode cannot be set, so it waits until that is so.
func age(t testing.TB, paths ...string) {
	t.Helper()
	var all []stamp
	for _, path := range paths {
		all = append(all, stampOf(path))
	}
	for end := time.Now().Add(patience); !settled(all, time.Now()); {
		if time.Now().After(end) {
			t.Fatal("the clock of the file system does not go")
		}
		<-time.After(50 * time.Millisecond)
	}
}

func TestAPythonThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	for name, script := range map[string]string{
		"fails": "exit 3", "says nothing": "exit 0", "says nonsense": "echo Python 3", "is old": "printf '2.x\\0/p'",
		"says too much": "printf '3.1\\0/p'; head -c 2000000 /dev/zero", "no program": "kill -9 $$",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPython(t)
			at, starts := fake(t, script)
			for range 2 {
				if v, err := p.Version(t.Context(), at); !errors.Is(err, ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%q %v", v, err)
				}
			}
			if n := starts(); n != 1 {
				t.Errorf("started %d times", n)
			}
		})
	}
}

func TestAPythonThatCouldNotBeStartedIsAskedAgain(t *testing.T) {
	p := newPython(t)
	at, _ := fake(t, "printf '3.9.1\\0/p'")
	release := useUpDescriptors(t)
	v, err := p.Version(t.Context(), at)
	release()
	if err == nil || errors.Is(err, ErrNoAnswer) {
		t.Errorf("without descriptors: %q %v", v, err)
	}
	if v, err := p.Version(t.Context(), at); v != "3.9.1" || err != nil {
		t.Errorf("with descriptors again: %q %v", v, err)
	}
}

// useUpDescriptors leaves this process no descriptor, until release is called.
func useUpDescriptors(t *testing.T) (release func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		held = append(held, f)
	}
	return func() {
		for _, f := range held {
			_ = f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
}

func TestAPythonThatHangsIsEnded(t *testing.T) {
	p := newPython(t)
	p.patience = 200 * time.Millisecond
	at, starts := fake(t, "sleep 600 & sleep 600")
	for range 2 {
		if _, err := p.Packages(t.Context(), at); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if n := starts(); n != 1 {
		t.Errorf("started %d times", n)
	}
}

func TestWhoGoesAwayLeavesNothingKnown(t *testing.T) {
	p := newPython(t)
	at, starts := fake(t, "sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Version(ctx, at)
		done <- err
	}()
	for end := time.Now().Add(patience); starts() == 0; {
		if time.Now().After(end) {
			t.Fatal("not started")
		}
		<-time.After(10 * time.Millisecond)
	}
	// Another who waits for the turn goes as well.
	other, cancelOther := context.WithCancel(t.Context())
	cancelOther()
	if _, err := p.Version(other, at); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	write(t, at.Dir+"/python3", "#!/bin/sh\nprintf '3.1.2\\0/p'\n")
	if v, err := p.Version(t.Context(), at); v != "3.1.2" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

func TestNoPython(t *testing.T) {
	p := newPython(t)
	dir := t.TempDir()
	if _, err := p.Version(t.Context(), Where{Path: dir, Dir: dir}); !errors.Is(err, proc.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(dir+"/python3", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Packages(t.Context(), Where{Path: dir, Dir: dir}); err == nil {
		t.Error("no error for a file that cannot be executed")
	}
}

// venv makes an environment of the real python3, or skips.
func venv(t testing.TB) (at Where, site string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Skipf("no python3 that makes environments: %v %.300s", err, out)
	}
	found, err := filepath.Glob(dir + "/lib/python3*/site-packages")
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	return Where{Path: dir + "/bin:" + os.Getenv("PATH"), Dir: t.TempDir(), Env: os.Environ()}, found[0]
}

func TestTheListFollowsInstallations(t *testing.T) {
	at, site := venv(t)
	at.Env = slices.DeleteFunc(at.Env, func(v string) bool { return strings.HasPrefix(v, "PYTHONPATH=") })
	p := newPython(t)
	expect := func(want ...string) {
		t.Helper()
		for range 2 { // fresh, and remembered
			got, err := p.Packages(t.Context(), at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, names(got)); diff != "" {
				t.Fatal(diff)
			}
		}
	}
	expect()
	write(t, site+"/one-1.0.dist-info/METADATA", metadata("One", "1.0"))
	expect("One 1.0")
	write(t, site+"/one-1.0.dist-info/METADATA", metadata("One", "1.1"))
	expect("One 1.1")
	src := t.TempDir()
	write(t, src+"/two.egg-info/PKG-INFO", metadata("two", "2"))
	write(t, site+"/two.pth", src+"\n")
	expect("One 1.1", "two 2")
	write(t, src+"/two.egg-info/PKG-INFO", metadata("two", "3"))
	expect("One 1.1", "two 3")
	if err := os.RemoveAll(site + "/one-1.0.dist-info"); err != nil {
		t.Fatal(err)
	}
	expect("two 3")
}

func TestAskingRunsNothingOfTheWorkingDirectory(t *testing.T) {
	at, _ := venv(t)
	mark := at.Dir + "/mark"
	for _, module := range []string{"sys", "os", "json", "site", "codecs", "sitecustomize", "usercustomize", "encodings/__init__", "encodings/utf_8", "io"} {
		write(t, at.Dir+"/"+module+".py", "open("+strings.ReplaceAll("'"+mark+"'", "\\", "")+", 'w')\n")
	}
	if v, err := newPython(t).Version(t.Context(), at); !strings.HasPrefix(v, "3.") || err != nil {
		t.Errorf("%q %v", v, err)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("a module of the working directory has run")
	}
}

func TestVersionsAreShownInNormalForm(t *testing.T) {
	for _, c := range [][2]string{
		{"1.0", "1.0"},
		{"v1.0", "1.0"},
		{"1.0.0-RC.1", "1.0.0rc1"},
		{"1.0a", "1.0a0"},
		{"1.0.alpha-3", "1.0a3"},
		{"1.0-b2", "1.0b2"},
		{"1.0_preview_5", "1.0rc5"},
		{"1.0pre", "1.0rc0"},
		{"1.0c4", "1.0rc4"},
		{"2!1.0", "2!1.0"},
		{"0!1.0", "1.0"},
		{"00!1", "1"},
		{"1.0-1", "1.0.post1"},
		{"1.0.post", "1.0.post0"},
		{"1.0-r3", "1.0.post3"},
		{"1.0.rev.4", "1.0.post4"},
		{"1.0dev", "1.0.dev0"},
		{"1.0.DEV-05", "1.0.dev5"},
		{"1.0a1.post2.dev3+Ubuntu-1_002.x", "1.0a1.post2.dev3+ubuntu.1.2.x"},
		{"2023.07.22", "2023.7.22"},
		{"01.002.000", "1.2.0"},
		{" 1.0 \n", "1.0"},
		{"1.0+abc.01", "1.0+abc.1"},
		{"1.0post1-2", "1.0post1-2"},
		{"not-a-version", "not-a-version"},
		{"1.0.", "1.0."},
		{"", ""},
		{"1.0--1", "1.0--1"},
		{"1.0+", "1.0+"},
		{"1.0-a-1-2", "1.0a1.post2"},
		{"99999999999999999999999.0001", "99999999999999999999999.1"},
		{"1.0rc1.dev", "1.0rc1.dev0"},
		{"1!2!3", "1!2!3"},
		{"1.0_3", "1.0_3"},
		{"1.0ALPHA", "1.0a0"},
		{"1.0+0", "1.0+0"},
		{"1.0+a..b", "1.0+a..b"},
		{"1.0.post01", "1.0.post1"},
		{"1.0-dev1", "1.0.dev1"},
		{"1.0beta1rc2", "1.0beta1rc2"},
	} {
		if got := normalVersion(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func FuzzDistInfo(f *testing.F) {
	f.Add([]byte(metadata("zope.interface", "6.0RC1")))
	f.Add([]byte("name:\r\n\r\nVersion: 1!1.0-1+a_01\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := parseMetadata(text)
		canonical := canonicalName(p.Name)
		if canonicalName(canonical) != canonical {
			t.Fatalf("%q becomes %q, then %q", p.Name, canonical, canonicalName(canonical))
		}
		if validProject(canonical) && strings.ContainsAny(canonical, "_./\x00 ") {
			t.Fatalf("%q is taken for a project", canonical)
		}
		version := normalVersion(p.Version)
		if normalVersion(version) != version {
			t.Fatalf("%q becomes %q, then %q", p.Version, version, normalVersion(version))
		}
	})
}

func BenchmarkPackages(b *testing.B) {
	dir := b.TempDir()
	for i := range 300 {
		name := "package-" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26)
		write(b, filepath.Join(dir, name+"-1."+strings.Repeat("1", i%5+1)+".dist-info", "METADATA"), metadata(name, "1.1")+strings.Repeat("text\n", 1000))
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			var s sites
			if _, err := s.list(b.Context(), []string{dir}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		age(b, dir)
		var s sites
		for b.Loop() {
			if _, err := s.list(b.Context(), []string{dir}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
