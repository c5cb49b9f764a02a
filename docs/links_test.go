package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// everyDocument are all texts for people.
func everyDocument(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md", "../changelog/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// TestLinksLeadSomewhere follows every link to a file of the tree, and to a
// heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	followed := 0
	for _, name := range everyDocument(t) {
		for _, m := range link.FindAllStringSubmatch(textOf(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			followed++
			file, heading, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", name, m[1], err)
				continue
			}
			if heading != "" && !hasHeading(textOf(t, target), heading) {
				t.Errorf("%s: %s has no heading #%s", name, target, heading)
			}
		}
	}
	if followed < 20 {
		t.Errorf("only %d links were found", followed)
	}
}

// hasHeading tells whether a text has a heading with that anchor.
func hasHeading(text, anchor string) bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		plain := drop.ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(plain, " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestDecisionsAreListed holds the index of decisions to the files: numbers
// that follow each other, none given twice, titles that agree.
func TestDecisionsAreListed(t *testing.T) {
	files, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no decisions: %v", err)
	}
	index := textOf(t, "adr/README.md")
	for i, file := range files {
		n := i + 1
		if prefix := fmt.Sprintf("%04d-", n); !strings.HasPrefix(filepath.Base(file), prefix) {
			t.Errorf("%s stands where %s… should: a number is missing or was given twice", file, prefix)
			continue
		}
		first, _, _ := strings.Cut(textOf(t, file), "\n")
		title, ok := strings.CutPrefix(first, fmt.Sprintf("# %d · ", n))
		if !ok {
			t.Errorf("%s begins with %q, not with its number and title", file, first)
			continue
		}
		if row := fmt.Sprintf("| [%d](%s) | %s |", n, filepath.Base(file), title); !strings.Contains(index, row) {
			t.Errorf("adr/README.md lacks %s", row)
		}
	}
	if got := strings.Count(index, ".md) |"); got != len(files) {
		t.Errorf("adr/README.md lists %d decisions, there are %d", got, len(files))
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
