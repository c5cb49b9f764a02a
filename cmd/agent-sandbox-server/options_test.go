package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const operations = "../../docs/operations.md"

// TestEveryOptionIsDocumented holds the table of options to what the program
// says of itself.
func TestEveryOptionIsDocumented(t *testing.T) {
	guide := readGuide(t)
	var help bytes.Buffer
	if status := run(t.Context(), []string{"serve", "-h"}, nil, nil, &help, os.Stderr); status != exitOK {
		t.Fatalf("status %d", status)
	}
	options := regexp.MustCompile(`(?m)^  --([a-z-]+).*\n +(.*)$`).FindAllStringSubmatch(help.String(), -1)
	if len(options) < 10 {
		t.Fatalf("the help has %d options:\n%s", len(options), help.String())
	}
	for _, o := range options {
		row := regexp.MustCompile("(?m)^\\| `--" + o[1] + "` \\|.*$").FindString(guide)
		if row == "" {
			t.Errorf("%s has no row for --%s", operations, o[1])
			continue
		}
		wanted := regexp.MustCompile(`ABX_[A-Z_]+`).FindAllString(o[2], -1)
		if m := regexp.MustCompile(`\(default (.*)\)`).FindStringSubmatch(o[2]); m != nil {
			wanted = append(wanted, "`"+m[1]+"`")
		}
		for _, w := range wanted {
			if !strings.Contains(row, w) {
				t.Errorf("the row of --%s in %s does not say %s", o[1], operations, w)
			}
		}
	}
}

// TestWhatIsMissingIsDocumented holds the guide to what the program refuses,
// and lets nobody forget to take the remark out.
func TestWhatIsMissingIsDocumented(t *testing.T) {
	code, err := os.ReadFile("config.go")
	if err != nil {
		t.Fatal(err)
	}
	const remark = "is not in this build"
	if refused, said := bytes.Contains(code, []byte(remark)), strings.Contains(readGuide(t), remark); refused != said {
		t.Errorf("config.go refuses what %q: %v; %s says so: %v", remark, refused, operations, said)
	}
}

// TestEveryVariableIsDocumented looks for the names of variables in the code.
func TestEveryVariableIsDocumented(t *testing.T) {
	guide, names := readGuide(t), variablesInCode(t)
	if !slices.Contains(names, "ABX_SERVER_TOKEN") {
		t.Fatalf("the search does not work: %q", names)
	}
	for _, name := range names {
		if !strings.Contains(guide, name) {
			t.Errorf("%s does not say what %s is", operations, name)
		}
	}
	for _, name := range regexp.MustCompile("`(ABX_[A-Z_]+)`").FindAllStringSubmatch(guide, -1) {
		if !slices.Contains(names, name[1]) {
			t.Errorf("%s speaks of %s, which no code reads", operations, name[1])
		}
	}
}

func variablesInCode(t *testing.T) []string {
	t.Helper()
	literal := regexp.MustCompile(`"(ABX_[A-Z_]*[A-Z])"`)
	var names []string
	err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "bench" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		goCode := strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go")
		shim := strings.HasSuffix(file, ".py") && strings.Contains(file, "registry/shim/") // install-shim lays it down
		if d.IsDir() || !goCode && !shim {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range literal.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func readGuide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
