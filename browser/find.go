package browser

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// programs are the names browsers have on PATH, the first found is used.
var programs = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable",
	"chrome-headless-shell", "headless_shell",
}

// caches are where test tools keep the browsers they bring, below a folder
// that a variable names or below the home.
var caches = []struct{ variable, home, pattern string }{
	{"PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", "chromium-*/chrome-linux*/chrome"},
	{"PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright", "chromium_headless_shell-*/chrome-*/*headless*shell"},
	{"PUPPETEER_CACHE_DIR", ".cache/puppeteer", "chrome/*/chrome-linux*/chrome"},
	{"PUPPETEER_CACHE_DIR", ".cache/puppeteer", "chrome-headless-shell/*/chrome-*/chrome-headless-shell"},
}

// find is the path of the browser to start, "" when there is none. env is the
// server's environment.
func find(env map[string]string) string {
	if path := env["ABX_BROWSER_PATH"]; path != "" {
		found, err := proc.LookPath(path, env["PATH"], "/")
		if err != nil {
			return ""
		}
		return found
	}
	for _, name := range programs {
		if path, err := proc.LookPath(name, env["PATH"], "/"); err == nil {
			return path
		}
	}
	for _, c := range caches {
		root := env[c.variable]
		if root == "" && env["HOME"] != "" {
			root = filepath.Join(env["HOME"], c.home)
		}
		if root == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(root, c.pattern))
		if err != nil || len(found) == 0 {
			continue
		}
		slices.SortFunc(found, func(a, b string) int { return byVersion(b, a) })
		for _, path := range found {
			if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}

// byVersion orders paths by the numbers in them, so that 1200 is after 999.
func byVersion(a, b string) int {
	return cmp.Or(slices.Compare(numbers(a), numbers(b)), strings.Compare(a, b))
}

func numbers(s string) []int {
	var out []int
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, n)
		}
	}
	return out
}
