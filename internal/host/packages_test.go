package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// file is a tree of one file.
func file(name, text string) *txtar.Archive {
	return &txtar.Archive{Files: []txtar.File{{Name: name, Data: []byte(text)}}}
}

const dpkgStatus = `Package: zlib1g
Status: install ok installed
Priority: optional
Architecture: amd64
Multi-Arch: same
Version: 1:1.2.13.dfsg-1
Description: compression library - runtime
 Package: not-this
 .
 Version: 9

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36-9

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: gone
Status: deinstall ok config-files
Version: 1

Package: half
Status: install ok half-installed
Version: 1

Package: waits
Status: install ok triggers-pending
Architecture: all
Version: 3


Package: noversion
Status: install ok installed

Status: install ok installed
Version: 4

Package: last
Version: 5
Status: hold ok installed`

func TestDebianPackages(t *testing.T) {
	want := []string{"last 5", "libc6 2.36-9 amd64", "libc6 2.36-9 i386", "waits 3 all", "zlib1g 1:1.2.13.dfsg-1 amd64"}
	for name, text := range map[string]string{
		"unix": dpkgStatus, "dos": strings.ReplaceAll(dpkgStatus, "\n", "\r\n"), "ended": dpkgStatus + "\n\n",
		"long line": "Package: x\nDescription: " + strings.Repeat("y", 1<<20) + "\n\n" + dpkgStatus,
	} {
		h := planted(t, file("var/lib/dpkg/status", text))
		got, err := h.DebianPackages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, names(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// An image without dpkg has a file for each package.
	h := planted(t, file("var/lib/dpkg/status.d/base", "Package: base-files\nVersion: 12\nArchitecture: amd64\n"))
	write(t, h.root+"/var/lib/dpkg/status.d/base.md5sums", "Package: no\nVersion: 1\n")
	write(t, h.root+"/var/lib/dpkg/status.d/tz", "Package: tzdata\nVersion: 2024a\nArchitecture: all\n")
	got, err := h.DebianPackages(t.Context())
	if diff := cmp.Diff([]string{"base-files 12 amd64", "tzdata 2024a all"}, names(got)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestAPackageThatWasCutByALongLineIsWhole(t *testing.T) {
	text := "Package: x\nStatus: install ok installed\nDescription: " + strings.Repeat("y", 1<<20) + "\nVersion: 1\n"
	got, err := planted(t, file("var/lib/dpkg/status", text)).DebianPackages(t.Context())
	if diff := cmp.Diff([]string{"x 1"}, names(got)); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestDebianPackagesOfThisMachine(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version} ${Architecture}\n").Output()
	if err != nil {
		t.Skip("no dpkg")
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "installed "); ok {
			want = append(want, rest)
		}
	}
	got, err := New().DebianPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mine := names(got)
	slices.Sort(want)
	slices.Sort(mine)
	if diff := cmp.Diff(want, mine); diff != "" {
		t.Error(diff)
	}
}

func TestAlpinePackages(t *testing.T) {
	text := "C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\nS:383152\nT:the musl c library\nF:lib\nR:ld\n\nC:Q1\nP:apk-tools\nV:2.14.0-r5\nA:x86_64\n\n"
	for _, path := range []string{"lib/apk/db/installed", "usr/lib/apk/db/installed"} {
		got, err := planted(t, file(path, text)).AlpinePackages(t.Context())
		if diff := cmp.Diff([]string{"apk-tools 2.14.0-r5 x86_64", "musl 1.2.4-r2 x86_64"}, names(got)); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	}
}

func TestDatabasesThatAreNotThereOrOdd(t *testing.T) {
	h := planted(t, &txtar.Archive{})
	if err := os.MkdirAll(h.root+"/var/lib/dpkg", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(h.root+"/var/lib/dpkg/status", 0o644); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string]func(context.Context) (Packages, error){
		"apt": h.DebianPackages, "apk": h.AlpinePackages,
		"gem":   func(ctx context.Context) (Packages, error) { return h.RubyGems(ctx, Where{Path: h.root, Dir: h.root}) },
		"cargo": func(ctx context.Context) (Packages, error) { return CargoPrograms(ctx, Where{Dir: h.root}) },
		"go":    func(ctx context.Context) (Packages, error) { return GoPrograms(ctx, Where{Dir: h.root}) },
		"npm":   func(ctx context.Context) (Packages, error) { return NPMProject(ctx, h.root) },
	} {
		got, err := list(t.Context())
		if err != nil || len(got.List) != 0 || got.Truncated {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	write(t, h.root+"/lib/apk/db/installed", "P:a\nV:1\n")
	if _, err := h.AlpinePackages(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestListsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range mostPackages + 10 {
		fmt.Fprintf(&text, "P:p%d\nV:1\n\n", i)
	}
	got, err := planted(t, file("lib/apk/db/installed", text.String())).AlpinePackages(t.Context())
	if err != nil || len(got.List) != mostPackages || !got.Truncated {
		t.Errorf("%d packages, truncated %v, %v", len(got.List), got.Truncated, err)
	}
}

func TestGems(t *testing.T) {
	home := t.TempDir()
	h := planted(t, file("var/lib/gems/3.1.0/specifications/rake-13.0.6.gemspec",
		"# -*- encoding: utf-8 -*-\n# stub: rake 13.0.6 ruby lib\n\nGem::Specification.new do |s|\n"))
	write(t, h.root+"/var/lib/gems/3.1.0/specifications/default/json-2.6.1.gemspec", "no stub\n# stub: other 1 ruby lib\n")
	write(t, h.root+"/usr/share/rubygems-integration/all/specifications/net-http-0.4.1.gemspec", "")
	write(t, h.root+"/usr/share/rubygems-integration/all/specifications/README", "")
	write(t, home+"/.gem/ruby/3.1.0/specifications/nokogiri-1.15.4-x86_64-linux.gemspec", "# stub: nokogiri 1.15.4 x86_64-linux lib\n")
	write(t, home+"/.gem/ruby/3.1.0/specifications/rake-13.0.6.gemspec", "# stub: rake 13.0.6 ruby lib\n")
	write(t, home+"/.gem/ruby/3.1.0/specifications/rake-12.0.0.gemspec", "# stub: rake 12.0.0 ruby lib\n")
	write(t, home+"/.gem/ruby/3.1.0/specifications/noversion.gemspec", "")
	// A ruby of its own has its gems beside it.
	prefix := t.TempDir()
	write(t, prefix+"/bin/ruby3.3", "#!/bin/sh\n")
	write(t, prefix+"/lib/ruby/gems/3.3.0/specifications/rack-3.0.8.gemspec", "")
	path := t.TempDir()
	if err := os.Symlink(prefix+"/bin/ruby3.3", path+"/ruby"); err != nil {
		t.Fatal(err)
	}
	extra := t.TempDir()
	write(t, extra+"/specifications/thor-1.2.2.gemspec", "")
	got, err := h.RubyGems(t.Context(), Where{Path: path, Dir: home, Env: []string{"HOME=" + home, "GEM_PATH=relative:" + extra}})
	want := []string{"json 2.6.1", "net-http 0.4.1", "nokogiri 1.15.4 x86_64-linux", "rack 3.0.8", "rake 12.0.0", "rake 13.0.6", "thor 1.2.2"}
	mine := names(got)
	slices.Sort(mine)
	if diff := cmp.Diff(want, mine); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

func TestCargoPrograms(t *testing.T) {
	json := `{"installs":{"ripgrep 14.1.0 (registry+https://github.com/rust-lang/crates.io-index)":{"version_req":null,"bins":["rg"]},
		"bat 0.24.0 (path+file:///src)":{},"odd":{}}}`
	toml := "[v1]\n\"ripgrep 14.1.0 (registry+https://x)\" = [\"rg\"]\n\"bat 0.24.0 (path+file:///src)\" = []\n# \"no 1 ()\" = []\n"
	want := []string{"bat 0.24.0", "ripgrep 14.1.0"}
	home, root := t.TempDir(), t.TempDir()
	write(t, home+"/.cargo/.crates2.json", json)
	write(t, root+"/.crates.toml", toml)
	for _, env := range [][]string{
		{"HOME=" + home}, {"HOME=/nonexistent", "CARGO_HOME=" + home + "/.cargo"}, {"CARGO_INSTALL_ROOT=" + root}, {"HOME=" + root, "CARGO_HOME=" + root},
	} {
		got, err := CargoPrograms(t.Context(), Where{Env: env})
		if diff := cmp.Diff(want, names(got)); diff != "" || err != nil {
			t.Errorf("%v: %v %s", env, err, diff)
		}
	}
}

func TestGoPrograms(t *testing.T) {
	src := t.TempDir()
	write(t, src+"/go.mod", "module example.test/tool\n\ngo 1.20\n")
	write(t, src+"/main.go", "package main\n\nfunc main() {}\n")
	bin := t.TempDir() + "/bin"
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin+"/tool", ".")
	build.Dir = src
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("cannot build: %v %s", err, out)
	}
	write(t, bin+"/script", "#!/bin/sh\n")
	write(t, bin+"/elf", "\x7fELF"+strings.Repeat("\x00", 100))
	if err := errors.Join(syscall.Mkfifo(bin+"/fifo", 0o755), os.Mkdir(bin+"/dir", 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, env := range [][]string{{"GOBIN=" + bin}, {"GOPATH=" + filepath.Dir(bin) + ":/other"}} {
		got, err := GoPrograms(t.Context(), Where{Env: env})
		if diff := cmp.Diff([]string{"example.test/tool (devel)"}, names(got)); diff != "" || err != nil {
			t.Errorf("%v: %v %s", env, err, diff)
		}
	}
}

func FuzzDpkgStatus(f *testing.F) {
	f.Add([]byte(dpkgStatus))
	f.Add([]byte("P:a\r\nV:1\n\nPackage: a\nStatus: a b installed"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for name, set := range map[string]func(*record, []byte){"dpkg": dpkgLine, "piece": dpkgPieceLine, "apk": apkLine} {
			var got Packages
			if err := readRecords(t.Context(), strings.NewReader(string(text)), &got, set); err != nil {
				t.Fatal(err)
			}
			for _, p := range got.List {
				if !proper(p.Name) || !proper(p.Version) || strings.ContainsAny(p.Name+p.Version, "\n") {
					t.Fatalf("%s: %+v", name, p)
				}
			}
			if n := slowCount(string(text), set); n != len(got.List) {
				t.Fatalf("%s: %d packages, want %d", name, len(got.List), n)
			}
		}
	})
}

// slowCount counts the packages of a database in the obvious way.
func slowCount(text string, set func(*record, []byte)) int {
	var recs []record
	var rec record
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			recs = append(recs, rec)
			rec = record{}
			continue
		}
		set(&rec, []byte(line))
	}
	n := 0
	for _, r := range append(recs, rec) {
		if r.installed && proper(r.Name) && proper(r.Version) {
			n++
		}
	}
	return n
}

func FuzzInstallationRecords(f *testing.F) {
	f.Add([]byte(`{"installs":{"bat 0.24.0 (x)":{}}}`), "net-http-0.4.1-x86_64-linux")
	f.Add([]byte("\"bat 0.24.0 (x)\" = []\n# stub: rake 13.0.6 ruby lib\n"), "rake-13")
	f.Add([]byte("prefix = '/x'\n[a]\nprefix=/y"), "-1")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		crateIDs(text)
		npmSetting(text, "prefix")
		if p, ok := parseGemStub(text); ok && (p.Name == "" || p.Version == "") {
			t.Fatalf("%+v", p)
		}
		p := gemFromName(name)
		whole := strings.TrimSuffix(p.Name+"-"+p.Version+"-"+p.Arch, "-")
		if p.Version != "" && whole != strings.TrimSuffix(name, "-") {
			t.Fatalf("%q became %+v", name, p)
		}
	})
}
