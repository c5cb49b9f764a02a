package search

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// benchTree has 50,000 files in 600 directories.
func benchTree(b *testing.B) *field {
	b.Helper()
	f := newField(b)
	text := []byte(strings.Repeat("A line of some text, as there is in files; nothing to be found here.\n", 15))
	for d := range 600 {
		dir := filepath.Join(f.base, fmt.Sprintf("part%02d/section%03d", d%20, d))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := range 50_000 / 600 {
			ext := "txt"
			if i%10 == 0 {
				ext = "py"
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%05d.%s", i, ext)), text, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ResetTimer()
	return f
}

func BenchmarkSearch(b *testing.B) {
	f := benchTree(b)
	x := func(text string) *Content {
		x, err := CompileExpression(text, ExpressionOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return &Content{Expression: x, Guard: f.guard(nil), MaxMatches: 100, MaxSize: 10 << 20}
	}
	for _, c := range []struct {
		name, pattern string
		content       *Content
		ignore        bool
	}{
		{"names, no hit", "*.none", nil, false},
		{"names, some hits", "*.py", nil, false},
		{"names, all hits", "*", nil, false},
		{"paths", "part1*/**/*.py", nil, false},
		{"names, gitignore", "*.none", nil, true},
		{"content, text", "*", x("needle"), false},
		{"content, expression", "*", x(`foun[dt]\s+\d+`), false},
		{"content, no needle", "*", x(`[A-Z]{3,}\d`), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				q := Query{Path: ".", Name: Compile(c.pattern, false), Depth: 10, Max: 100_000, Timeout: time.Minute, Content: c.content, GitIgnore: c.ignore}
				if _, err := Run(b.Context(), f.guard(nil), q, func(Hit) bool { return true }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for name, args := range map[string][]string{
		"find":             {"find", f.base, "-name", "*.none"},
		"find, with stat":  {"find", f.base, "-printf", "%f %s %T@\n"},
		"grep, text":       {"grep", "-r", "needle", f.base},
		"grep, expression": {"grep", "-rE", `foun[dt]\s+[0-9]+`, f.base},
		"grep, no needle":  {"grep", "-rE", `[A-Z]{3,}[0-9]`, f.base},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_ = exec.Command(args[0], args[1:]...).Run() // grep fails when it finds nothing
			}
		})
	}
}
