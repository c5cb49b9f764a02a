package search

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestIgnoreRules(t *testing.T) {
	for _, c := range []struct {
		file, path string // a path that ends with a slash is a directory
		want       bool
	}{
		{"a", "a", true},
		{"a", "x/a", true},
		{"a", "ab", false},
		{"/a", "a", true},
		{"/a", "x/a", false},
		{"x/a", "x/a", true},
		{"x/a", "y/x/a", false},
		{"a/", "a", false},
		{"a/", "a/", true},
		{"a/", "x/a/", true},
		{"/a/", "x/a/", false},
		{"x/a/", "x/a/", true},
		{"*.o", "x/y.o", true},
		{"*.o", ".o", true},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"a*c", "abbc", true},
		{"x/*.o", "x/y/a.o", false},
		{"**/a", "a", true},
		{"**/a", "x/y/a", true},
		{"a/**", "a/x/y", true},
		{"a/**", "a/", false},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"**", "x", true},
		{"/**", "x/y", true},
		{"a**b", "axxb", true},
		{"x/a**b", "x/a/b", false},
		{"**/**/a", "a", true},
		{"[ab]c", "bc", true},
		{"[!ab]c", "bc", false},
		{"[^ab]c", "xc", true},
		{"[a-c]", "b", true},
		{"[]a]", "]", true},
		{"[a", "[a", false},
		{"[[:digit:]]x", "5x", true},
		{"[[:alpha:]_]", "_", true},
		{`[\]]`, "]", true},
		{`[a\-z]`, "-", true},
		{`[a\-z]`, "b", false},
		{"[a-]", "-", true},
		{"a\n!a", "a", false},
		{"!a\na", "a", true},
		{"*\n!x.o", "x.o", false},
		{"#a", "#a", false},
		{`\#a`, "#a", true},
		{`\!a`, "!a", true},
		{"!!a", "!a", false},
		{"a ", "a", true},
		{`a\ `, "a ", true},
		{`a\\ `, `a\`, true},
		{"a\t", "a", false},
		{" a", " a", true},
		{"a\r\n", "a", true},
		{"\xef\xbb\xbfa", "a", true},
		{`a\`, `a\`, false},
		{`\a`, "a", true},
		{`\*`, "*", true},
		{`\*`, "x", false},
		{`x\/y`, "x/y", true},
		{`*\/**/`, "x/y/", true},
		{`x\\/y`, `x\/y`, true},
		{`\/x`, "x", false},
		{"", "a", false},
		{"/", "a", false},
		{"//", "a", false},
		{"a//b", "a/b", false},
		{"\xff", "\xff", true},
		{"é?", "éa", true},
	} {
		p, dir := strings.CutSuffix(c.path, "/")
		f := &ignoreFile{dir: "/", rules: parseIgnore([]byte(c.file))}
		if got := f.ignores("/"+p, path.Base(p), dir); got != c.want {
			t.Errorf("%q on %q: %v", c.file, c.path, got)
		}
	}
}

// git itself is the definition.
func TestIgnoreRulesAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	dir := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.Command(git, append([]string{"-C", dir, "-c", "core.excludesFile="}, args...)...)
		cmd.Env = []string{"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "PATH=" + os.Getenv("PATH")}
		cmd.Stdin = strings.NewReader(stdin)
		out, _ := cmd.Output() // check-ignore fails when it finds nothing
		return string(out)
	}
	run("", "init", "-q")
	names := []string{"a", "b", "ab", "abc", ".a", "a.o", "#a", "!a", "a ", "[a", "]", `a\`, "*", "-"}
	paths := []string{"x/", "x/y/", "x/y/z/"}
	for _, d := range []string{"", "x/", "x/y/", "x/y/z/"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, d, n), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, d+n)
		}
	}
	piece := rapid.SampledFrom([]string{
		"a", "b", "c", "*", "?", "**", "/", "x", "y", "z", ".", "[ab]", "[!a]", "[^b]", "[a-c]", "[]a]", "[[:alpha:]]", `[\]]`, "[a-]", `\a`, `\*`, `\#`, `\`, "!", "#", " ", "o", "/**/", "**/", "/**", "[",
	})
	line := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "pieces"), "")
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(line, 1, 4).Draw(t, "lines"), "\n")
		if slashInSet(text) || midStars.MatchString(text) {
			return // where git does not do what its manual says
		}
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		asked := strings.ReplaceAll(strings.Join(paths, "\x00")+"\x00", "/\x00", "\x00")
		ignored := strings.Split(strings.TrimSuffix(run(asked, "check-ignore", "--no-index", "-z", "--stdin"), "\x00"), "\x00")
		f := &ignoreFile{dir: "/", rules: parseIgnore([]byte(text))}
		for _, p := range paths {
			got := false
			// What lies in a directory that is left out is never reached.
			for i := range p {
				if p[i] == '/' {
					got = got || f.ignores("/"+p[:i], path.Base(p[:i]), true)
				}
			}
			if name, isDir := strings.CutSuffix(p, "/"); !isDir {
				got = got || f.ignores("/"+name, path.Base(name), false)
			}
			if want := slices.Contains(ignored, strings.TrimSuffix(p, "/")); got != want {
				t.Fatalf("%q on %q: %v, git says %v", text, p, got, want)
			}
		}
	})
}

// midStars are two stars that do not begin a component: "a**/b" means "a*/b",
// but git also takes it for "ab".
var midStars = regexp.MustCompile(`[^/\n]\*\*`)

// slashInSet tells whether a line has a slash between [ and ].
func slashInSet(text string) bool {
	for line := range strings.Lines(text) {
		open := strings.IndexByte(line, '[')
		if open >= 0 && strings.LastIndexByte(line, ']') > open && strings.Contains(line[open:strings.LastIndexByte(line, ']')], "/") {
			return true
		}
	}
	return false
}

func FuzzIgnoreFile(f *testing.F) {
	f.Add([]byte("*.log\n!keep\n/a/**/b/\n[a-z]\n\\#x"), "a/x/b")
	f.Add([]byte("[[:alpha:]-"), "a")
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		rules := parseIgnore(text)
		if len(rules) > bytes.Count(text, []byte("\n"))+1 {
			t.Errorf("%d rules", len(rules))
		}
		if name = strings.Trim(path.Clean("/"+name), "/"); name == "" {
			return
		}
		file := &ignoreFile{dir: "/", rules: rules}
		got := file.ignores("/"+name, path.Base(name), true)
		// A file says the same wherever it lies.
		below := &ignoreFile{dir: "/some/where", rules: rules}
		if below.ignores("/some/where/"+name, path.Base(name), true) != got {
			t.Errorf("%q on %q depends on where it lies", text, name)
		}
	})
}
