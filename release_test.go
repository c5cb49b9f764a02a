package architecture

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// releaseVersion is the one that install.sh takes when none is asked for.
func releaseVersion(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`version="\$\{1:-([0-9.]+)\}"`).FindStringSubmatch(textOf(t, "install.sh"))
	if m == nil {
		t.Fatal("install.sh names no version")
	}
	return m[1]
}

// TestTheVersionIsOne holds what a release is stamped with in several places.
func TestTheVersionIsOne(t *testing.T) {
	version := releaseVersion(t)
	if !strings.Contains(textOf(t, "template.yaml"), "\nversion: \""+version+"\"") {
		t.Errorf("template.yaml does not say %s", version)
	}
	if strings.TrimSpace(textOf(t, "changelog/"+version+".md")) == "" {
		t.Errorf("changelog/%s.md is empty", version)
	}
	for _, name := range []string{"template.yaml", "sandbox.yaml"} {
		if text := textOf(t, "deploy/kubernetes/agent-sandbox/"+name); !strings.Contains(text, "agent-sandbox-server:"+version+" ") {
			t.Errorf("the image of deploy/kubernetes/agent-sandbox/%s is not of %s", name, version)
		}
	}
}

// TestTheReleaseIsReproducible reads how releases are made.
func TestTheReleaseIsReproducible(t *testing.T) {
	var c struct {
		Before struct{ Hooks []string } // each a command; a colon in one makes it something else
		Builds []struct {
			Env, Goarch, Goos, Flags, Ldflags []string
			ModTimestamp                      string `yaml:"mod_timestamp"`
			Main                              string
		}
		Archives []struct {
			NameTemplate string `yaml:"name_template"`
			BuildsInfo   struct {
				Mtime string
				Mode  int
			} `yaml:"builds_info"`
			Files []struct {
				Src  string
				Info struct{ Mtime string }
			}
		}
		Checksum struct{ Algorithm string }
		Sboms    []struct{ Artifacts string }
	}
	if err := yaml.Unmarshal([]byte(textOf(t, ".goreleaser.yml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Before.Hooks) != 3 {
		t.Errorf("hooks: %q", c.Before.Hooks)
	}
	b, a := c.Builds[0], c.Archives[0]
	for what, ok := range map[string]bool{
		"static":           strings.Join(b.Env, " ") == "CGO_ENABLED=0",
		"both platforms":   strings.Join(b.Goarch, " ") == "amd64 arm64" && strings.Join(b.Goos, " ") == "linux",
		"no paths":         strings.Contains(strings.Join(b.Flags, " "), "-trimpath"),
		"no build time":    !strings.Contains(strings.Join(b.Ldflags, " "), "Date") && strings.Contains(strings.Join(b.Ldflags, " "), "main.version={{ .Version }}"),
		"times":            b.ModTimestamp == "{{ .CommitTimestamp }}" && a.BuildsInfo.Mtime == "{{ .CommitDate }}",
		"checksums":        c.Checksum.Algorithm == "sha256",
		"bill of material": len(c.Sboms) == 1 && c.Sboms[0].Artifacts == "archive",
	} {
		if !ok {
			t.Errorf("releases lack: %s", what)
		}
	}
	for _, f := range a.Files {
		if _, err := os.Stat(f.Src); err != nil || f.Info.Mtime != "{{ .CommitDate }}" {
			t.Errorf("file %q of the archive: %v, time %q", f.Src, err, f.Info.Mtime)
		}
	}
	name := strings.NewReplacer("{{ .Version }}", "${version}", "{{ .Arch }}", "$arch").Replace(a.NameTemplate) + ".tar.gz"
	if !strings.Contains(textOf(t, "install.sh"), `archive="`+name+`"`) {
		t.Errorf("install.sh does not fetch %s", name)
	}
}

// release makes a folder as a release is: a program that says version, and sums.
func release(t *testing.T, version, says string) string {
	t.Helper()
	dir := t.TempDir()
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	files := tar.NewWriter(zip)
	program := "#!/bin/sh\necho " + says + "\n"
	if err := files.WriteHeader(&tar.Header{Name: "agent-sandbox-server", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	_, err := files.Write([]byte(program))
	if err != nil || files.Close() != nil || zip.Close() != nil {
		t.Fatal("no archive")
	}
	name := fmt.Sprintf("agent-sandbox-server_%s_linux_%s.tar.gz", version, runtime.GOARCH)
	sums := fmt.Sprintf("%x  other.tar.gz\n%x  %s\n", sha256.Sum256(nil), sha256.Sum256(archive.Bytes()), name)
	for file, text := range map[string][]byte{name: archive.Bytes(), "checksums.txt": []byte(sums)} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// install runs install.sh and returns what it says and where it installs.
func install(t *testing.T, from string, args ...string) (said, dir string, err error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "not yet", "bin")
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"install.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "INSTALL_DIR="+dir, "INSTALL_FROM="+from)
	out, err := cmd.CombinedOutput()
	return string(out), dir, err
}

func TestInstallScript(t *testing.T) {
	version := releaseVersion(t)
	said, dir, err := install(t, release(t, version, version))
	if err != nil || said != dir+"/agent-sandbox-server "+version+"\n" {
		t.Fatalf("%v: %s", err, said)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v in the folder, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if said, _, err := install(t, release(t, "2.0.0", "2.0.0"), "v2.0.0"); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// What is not what it should be is not installed, not even for a moment.
func TestInstallScriptRefuses(t *testing.T) {
	version := releaseVersion(t)
	name := fmt.Sprintf("agent-sandbox-server_%s_linux_%s.tar.gz", version, runtime.GOARCH)
	for what, c := range map[string]struct {
		spoil func(dir string) error
		says  string
	}{
		"no sum":        {func(dir string) error { return os.WriteFile(dir+"/checksums.txt", nil, 0o644) }, "does not name"},
		"other content": {func(dir string) error { return os.WriteFile(dir+"/"+name, []byte("x"), 0o644) }, "checksum"},
		"no archive":    {func(dir string) error { return os.Remove(dir + "/" + name) }, "cannot fetch"},
	} {
		from := release(t, version, version)
		if err := c.spoil(from); err != nil {
			t.Fatal(err)
		}
		said, dir, err := install(t, from)
		if err == nil || !strings.Contains(said, "install: ") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v: %s", what, err, said)
		}
		if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left", what, left)
		}
	}
	if said, _, err := install(t, release(t, version, "9.9.9")); err == nil || !strings.Contains(said, "is not "+version) {
		t.Errorf("another version: %v: %s", err, said)
	}
}
