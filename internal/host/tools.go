package host

import (
	"bufio"
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// mostPrograms bounds how many files of a folder of programs are looked into,
// and largestProgram their size.
const (
	mostPrograms   = 4096
	largestProgram = 2 << 30
)

// GoPrograms lists what "go install" has left in its folder: the package of
// each program and the version of its module. The error is that of ctx.
func GoPrograms(ctx context.Context, at Where) (Packages, error) {
	dir := at.variable("GOBIN")
	if dir == "" {
		path, _, _ := strings.Cut(at.variable("GOPATH"), ":")
		if path == "" {
			path = filepath.Join(at.variable("HOME"), "go")
		}
		dir = filepath.Join(path, "bin")
	}
	var out Packages
	if !filepath.IsAbs(dir) {
		return out, ctx.Err()
	}
	names := folderNames(dir)
	if len(names) > mostPrograms {
		names, out.Truncated = names[:mostPrograms], true
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return Packages{}, ctx.Err()
		}
		if p, ok := goProgram(filepath.Join(dir, name)); ok && !out.add(p) {
			break
		}
	}
	return out.sorted(), nil
}

func goProgram(path string) (Package, bool) {
	f, err := openRegular(path)
	if err != nil {
		return Package{}, false
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || fi.Size() > largestProgram || fi.Mode()&0o111 == 0 {
		return Package{}, false
	}
	info, err := buildinfo.Read(f)
	if err != nil {
		return Package{}, false
	}
	return Package{Name: info.Path, Version: info.Main.Version}, true
}

// CargoPrograms lists what "cargo install" has installed. The error is that of
// ctx.
func CargoPrograms(ctx context.Context, at Where) (Packages, error) {
	var out Packages
	for _, dir := range []string{at.variable("CARGO_INSTALL_ROOT"), at.variable("CARGO_HOME"), filepath.Join(at.variable("HOME"), ".cargo")} {
		if !filepath.IsAbs(dir) {
			continue
		}
		text, err := readFile(filepath.Join(dir, ".crates2.json"), 16<<20)
		if err != nil {
			if text, err = readFile(filepath.Join(dir, ".crates.toml"), 16<<20); err != nil {
				continue
			}
		}
		for _, id := range crateIDs(text) {
			name, rest, _ := strings.Cut(id, " ")
			version, _, _ := strings.Cut(rest, " ")
			if !out.add(Package{Name: name, Version: version}) {
				break
			}
		}
		break // the first that is there is the one cargo uses
	}
	return out.sorted(), ctx.Err()
}

// crateIDs finds the keys of an installation record, such as
// "ripgrep 14.1.0 (registry+…)", in either of its two forms.
func crateIDs(text []byte) []string {
	var m struct {
		Installs map[string]json.RawMessage `json:"installs"`
	}
	var out []string
	if json.Unmarshal(text, &m) == nil {
		for id := range m.Installs {
			out = append(out, id)
		}
		slices.Sort(out)
		return out
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(`"`)); ok {
			if id, after, ok := bytes.Cut(rest, []byte(`"`)); ok && bytes.HasPrefix(bytes.TrimSpace(after), []byte("=")) {
				out = append(out, string(id))
			}
		}
	}
	return out
}

// RubyGems lists the gems of the ruby of a search path and of the usual places
// where gems are. The error is that of ctx.
func (h *Host) RubyGems(ctx context.Context, at Where) (Packages, error) {
	var out Packages
	seen := map[Package]bool{}
	for _, pattern := range h.gemFolders(at) {
		dirs, _ := filepath.Glob(pattern) // its only error is a bad pattern
		for _, dir := range dirs {
			for _, name := range folderNames(dir) {
				if ctx.Err() != nil {
					return Packages{}, ctx.Err()
				}
				if !strings.HasSuffix(name, ".gemspec") {
					continue
				}
				p := readGemspec(filepath.Join(dir, name))
				if seen[p] {
					continue
				}
				seen[p] = true
				if !out.add(p) {
					return out.sorted(), nil
				}
			}
		}
	}
	return out.sorted(), nil
}

// gemFolders are patterns of folders that hold specifications.
func (h *Host) gemFolders(at Where) []string {
	homes := filepath.SplitList(at.variable("GEM_PATH"))
	homes = append(homes, at.variable("GEM_HOME"))
	if home := at.variable("HOME"); home != "" {
		homes = append(homes, home+"/.gem/ruby/*", home+"/.local/share/gem/ruby/*")
	}
	if ruby := at.program("ruby"); ruby != "" {
		homes = append(homes, filepath.Dir(filepath.Dir(ruby))+"/lib*/ruby/gems/*")
	}
	for _, dir := range []string{"/var/lib/gems/*", "/usr/share/rubygems-integration/*", "/usr/lib/*/rubygems-integration/*", "/usr/local/bundle"} {
		homes = append(homes, h.root+dir)
	}
	var out []string
	for _, dir := range homes {
		if filepath.IsAbs(dir) {
			out = append(out, dir+"/specifications", dir+"/specifications/default")
		}
	}
	return out
}

// readGemspec finds name and version of a gem in the stub line that rubygems
// writes, or else in the name of the file.
func readGemspec(path string) Package {
	if text, err := readHead(path, 4096); err == nil {
		if p, ok := parseGemStub(text); ok {
			return p
		}
	}
	return gemFromName(strings.TrimSuffix(filepath.Base(path), ".gemspec"))
}

// parseGemStub reads "# stub: rake 13.0.6 ruby lib".
func parseGemStub(text []byte) (Package, bool) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if line != "" && line[0] != '#' {
			break
		}
		if stub, ok := strings.CutPrefix(line, "# stub: "); ok {
			if f := strings.Fields(stub); len(f) >= 3 {
				p := Package{Name: f[0], Version: f[1]}
				if f[2] != "ruby" {
					p.Arch = f[2]
				}
				return p, true
			}
		}
	}
	return Package{}, false
}

// gemFromName splits "net-http-0.4.1-x86_64-linux": the version is the first
// part that begins with a digit.
func gemFromName(stem string) Package {
	parts := strings.Split(stem, "-")
	for i, part := range parts {
		if i > 0 && part != "" && part[0] >= '0' && part[0] <= '9' {
			return Package{Name: strings.Join(parts[:i], "-"), Version: part, Arch: strings.Join(parts[i+1:], "-")}
		}
	}
	return Package{}
}
