package browser

import (
	"errors"
	"strings"
	"testing"
)

func TestKeysAreReadByTheirNames(t *testing.T) {
	for _, c := range []struct {
		text, name, typed string
		modifiers         int
	}{
		{"Enter", "Enter", "\r", 0},
		{"Tab", "Tab", "", 0},
		{"Space", " ", " ", 0},
		{" ", " ", " ", 0},
		{"ArrowDown", "ArrowDown", "", 0},
		{"a", "a", "a", 0},
		{"A", "A", "A", shift},
		{"Shift+A", "A", "A", shift},
		{"é", "é", "é", 0},
		{"世", "世", "世", 0},
		{"Control+a", "a", "", 2},
		{"Control+A", "a", "", 2},
		{"Control+Shift+A", "A", "", 2 | shift},
		{"Ctrl+Enter", "Enter", "", 2},
		{"+", "+", "+", shift},
		{"Control++", "+", "", 2 | shift},
		{"Alt+F4", "F4", "", 1},
		{"Meta+c", "c", "", 4},
		{"!", "!", "!", shift},
	} {
		k, err := ParseKeys(c.text)
		if err != nil || k.key.name != c.name || k.key.text != c.typed || k.key.modifiers != c.modifiers {
			t.Errorf("%q: %+v, %v", c.text, k, err)
		}
	}
	for _, text := range []string{"", "Nope", "ab", "Control+", "Control+Nope", "Nope+a", "\xff"} {
		if k, err := ParseKeys(text); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %+v, %v", text, k, err)
		}
	}
}

func FuzzParseKeys(f *testing.F) {
	for _, s := range []string{"Enter", "Control+Shift+A", "+", "Control++", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := ParseKeys(text); err == nil && (k.key.name == "" || k.key.modifiers > 15) {
			t.Fatalf("%q: %+v", text, k)
		}
	})
}

func TestNamesOfDownloadsStayNames(t *testing.T) {
	for proposed, want := range map[string]string{
		"a.txt": "a.txt", "../../etc/passwd": ".._.._etc_passwd", "a\\b": "a_b", "": "download", "..": "download", " . ": "download",
		"a\x00b\n": "a_b_", "ä.pdf": "ä.pdf", strings.Repeat("x", 300) + ".txt": strings.Repeat("x", 196) + ".txt",
	} {
		if got := fileName(proposed); got != want {
			t.Errorf("%q: %q, want %q", proposed, got, want)
		}
	}
}

func FuzzFileName(f *testing.F) {
	f.Add("../a.txt")
	f.Fuzz(func(t *testing.T, proposed string) {
		got := fileName(proposed)
		if got == "" || got == "." || got == ".." || len(got) > maxFileName || strings.ContainsAny(got, "/\x00") {
			t.Fatalf("%q: %q", proposed, got)
		}
	})
}

func TestSizesOfImagesAreReadFromTheirHeads(t *testing.T) {
	for b64, want := range map[string][2]int{
		"iVBORw0KGgoAAAANSUhEUgAABQAAAALQCAYAAADPfd1WAAAA": {1280, 720},
		"UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQA": {1, 1},
		"":     {0, 0},
		"AAAA": {0, 0},
	} {
		if w, h := pixels(b64); w != want[0] || h != want[1] {
			t.Errorf("%s: %d × %d", b64, w, h)
		}
	}
}

func FuzzPixels(f *testing.F) {
	f.Add("iVBORw0KGgoAAAANSUhEUgAABQAAAALQCAYAAADPfd1WAAAA")
	f.Add("/9j/4AAQSkZJRgABAQAAAQABAAD/wAARCALQBQADASIAAhEBAxEB")
	f.Fuzz(func(_ *testing.T, b64 string) { pixels(b64) })
}
