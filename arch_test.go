// Package architecture has only this test: the arrows between packages, held without the linter.
package architecture

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const module = "github.com/agent-sandbox/agent-sandbox-server"

// rule is one depguard rule of .golangci.yml, the only place where the arrows are written down.
type rule struct {
	ListMode string   `yaml:"list-mode"`
	Files    []string `yaml:"files"`
	Allow    []string `yaml:"allow"`
	Deny     []struct {
		Pkg  string `yaml:"pkg"`
		Desc string `yaml:"desc"`
	} `yaml:"deny"`
}

// refuses says why the rule forbids an import, or "". The longest match decides.
func (r rule) refuses(imported string) string {
	longest, why := 0, ""
	for _, d := range r.Deny {
		if within(imported, d.Pkg) && len(d.Pkg) > longest {
			longest, why = len(d.Pkg), d.Desc
		}
	}
	for _, a := range r.Allow {
		if within(imported, a) && len(a) > longest {
			return ""
		}
	}
	return why
}

func within(imported, pkg string) bool {
	return imported == pkg || strings.HasPrefix(imported, pkg+"/")
}

func readRules(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]rule `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	byDir := map[string]rule{}
	for name, r := range file.Linters.Settings.Depguard.Rules {
		dir, ok := strings.CutPrefix(r.Files[0], "**/")
		dir, ok2 := strings.CutSuffix(dir, "/*.go")
		if !ok || !ok2 || r.ListMode != "lax" || len(r.Deny) == 0 {
			t.Fatalf("rule %q of .golangci.yml is of a shape this test does not read", name)
		}
		byDir[dir] = r
	}
	return byDir
}

// importsOf lists what the non-test files of every package of the module import.
func importsOf(t *testing.T) map[string]map[string][]string {
	t.Helper()
	all := map[string]map[string][]string{} // package folder → file → imports
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(name))
		if all[dir] == nil {
			all[dir] = map[string][]string{}
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all[dir][name] = append(all[dir][name], imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestArrowsPointOneWay(t *testing.T) {
	rules := readRules(t)
	for dir, files := range importsOf(t) {
		r, ruled := rules[dir]
		for name, imports := range files {
			for _, imported := range imports {
				if why := r.refuses(imported); ruled && why != "" {
					t.Errorf("%s imports %s: %s", name, imported, why)
				}
				if within(imported, module+"/cmd") || within(imported, module+"/bench") {
					t.Errorf("%s imports a program: %s", name, imported)
				}
			}
		}
	}
}

// TestEveryPackageHasArrows fails for a new package that nobody gave a place.
func TestEveryPackageHasArrows(t *testing.T) {
	rules := readRules(t)
	free := []string{"bench", "client", "cmd"} // programs and what is generated
	for dir := range importsOf(t) {
		top, _, _ := strings.Cut(dir, "/")
		if _, ok := rules[dir]; ok || slices.Contains(free, top) {
			continue
		}
		t.Errorf("package %s has no depguard rule in .golangci.yml", dir)
	}
}

// TestRulesRefuse keeps the two tests above honest: they must be able to fail.
func TestRulesRefuse(t *testing.T) {
	rules := readRules(t)
	for _, c := range []struct {
		dir, imported string
		refused       bool
	}{
		{"policy", module + "/internal/proc", true},
		{"policy", "net/http", true},
		{"policy", "net/url", false},
		{"internal/proc", module + "/policy", true},
		{"internal/guardfs", module + "/policy", false},
		{"internal/guardfs", module + "/internal/api", true},
		{"internal/api", module + "/internal/guardfs", false},
		{"internal/api", module + "/internal/proc", true},
		{"internal/api", "net/http", false},
		{"pty", "net/http", false},
		{"pty", module + "/internal/proc", false},
		{"pty", module + "/endpoints", true},
		{"registry", "net/http/httputil", true},
		{"endpoints", module + "/internal/envd", true},
		{"endpoints", module + "/browser", false},
	} {
		if got := rules[c.dir].refuses(c.imported) != ""; got != c.refused {
			t.Errorf("%s → %s: refused %v, want %v", c.dir, c.imported, got, c.refused)
		}
	}
}
