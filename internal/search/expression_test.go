package search

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func scanAll(t testing.TB, pattern, text string, o ExpressionOptions, lines int) []Match {
	t.Helper()
	x, err := CompileExpression(pattern, o)
	if err != nil {
		t.Fatalf("%q: %v", pattern, err)
	}
	found, _ := x.scan(context.Background(), []byte(text), scanOptions{before: lines, after: lines, most: 100, room: 1 << 20})
	return found
}

func TestMatchesAndTheirLines(t *testing.T) {
	b := func(lines ...string) (out [][]byte) {
		for _, l := range lines {
			out = append(out, []byte(l))
		}
		return out
	}
	for _, c := range []struct {
		what, pattern, text string
		o                   ExpressionOptions
		lines               int
		want                []Match
	}{
		{what: "context", pattern: "b", text: "a\nb\nc\nb\n", lines: 1, want: []Match{
			{Line: 2, Column: 1, Text: []byte("b"), Before: b("a"), After: b("c")}, {Line: 4, Column: 1, Text: []byte("b"), Before: b("c")},
		}},
		{what: "once in a line", pattern: "b", text: "abab\nb", want: []Match{{Line: 1, Column: 2, Text: []byte("abab")}, {Line: 2, Column: 1, Text: []byte("b")}}},
		{what: "columns are characters", pattern: "x", text: "é\xff\xfex", want: []Match{{Line: 1, Column: 4, Text: []byte("é\xff\xfex")}}},
		{what: "edges of lines", pattern: "^b$", text: "ab\r\nb\r\nbc\nb", lines: 1, want: []Match{
			{Line: 2, Column: 1, Text: []byte("b"), Before: b("ab"), After: b("bc")}, {Line: 4, Column: 1, Text: []byte("b"), Before: b("bc")},
		}},
		{what: "not over lines", pattern: `a\sb`, text: "a\nb\na b", want: []Match{{Line: 3, Column: 1, Text: []byte("a b")}}},
		{what: "empty lines", pattern: "^$", text: "a\n\nb\n", want: []Match{{Line: 2, Column: 1, Text: []byte{}}}},
		{what: "literal", pattern: "a.b", text: "axb\na.b", o: ExpressionOptions{Literal: true}, want: []Match{{Line: 2, Column: 1, Text: []byte("a.b")}}},
		{what: "case", pattern: "straSSe", text: "STRAßE\nxStrasse", o: ExpressionOptions{IgnoreCase: true}, want: []Match{{Line: 2, Column: 2, Text: []byte("xStrasse")}}},
		{what: "odd case", pattern: "kilo", text: "\u212aILO", o: ExpressionOptions{IgnoreCase: true}, want: []Match{{Line: 1, Column: 1, Text: []byte("\u212aILO")}}},
		{what: "multiline", pattern: `b\nc`, text: "a\nxb\ncy\nd", o: ExpressionOptions{Multiline: true}, lines: 1, want: []Match{
			{Line: 2, Column: 2, Text: []byte("xb\ncy"), Before: b("a"), After: b("d")},
		}},
		{what: "multiline edges", pattern: `^b$`, text: "ab\nb\nb", o: ExpressionOptions{Multiline: true}, want: []Match{{Line: 2, Column: 1, Text: []byte("b")}, {Line: 3, Column: 1, Text: []byte("b")}}},
		{what: "multiline start", pattern: `\Aa`, text: "a\na", o: ExpressionOptions{Multiline: true}, want: []Match{{Line: 1, Column: 1, Text: []byte("a")}}},
		{what: "multiline end of line", pattern: `a\n`, text: "a\nb\n", o: ExpressionOptions{Multiline: true}, lines: 1, want: []Match{{Line: 1, Column: 1, Text: []byte("a"), After: b("b")}}},
	} {
		if d := cmp.Diff(c.want, scanAll(t, c.pattern, c.text, c.o, c.lines)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, d)
		}
	}
}

func TestLongLinesAreCut(t *testing.T) {
	text := strings.Repeat("é", 3000) + "x" + strings.Repeat("y", 50_000) + "\n" + strings.Repeat("z", 2000)
	m := scanAll(t, "x", text, ExpressionOptions{}, 1)
	if len(m) != 1 || !m[0].Cut || m[0].Column != 3001 || string(m[0].Text) != strings.Repeat("é", 2000) || len(m[0].After[0]) != 2000 {
		t.Errorf("%d matches, %+.100v", len(m), m)
	}
	if m := scanAll(t, "z", text, ExpressionOptions{}, 0); len(m) != 1 || m[0].Cut {
		t.Errorf("%d matches", len(m))
	}
}

func TestBoundsOfExpressions(t *testing.T) {
	for _, bad := range []string{"(", "a{1000}{1000}", "(a{500}){500}", `\pL{1000}`, strings.Repeat("a", 9000), "[z-a]", "a)(b", "(?P<x", "\xff"} {
		if _, err := CompileExpression(bad, ExpressionOptions{}); err == nil {
			t.Errorf("%.20q was compiled", bad)
		}
	}
	x, err := CompileExpression("line", ExpressionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(strings.Repeat("line "+strings.Repeat("x", 500)+"\n", 1000))
	found, full := x.scan(context.Background(), text, scanOptions{most: 1000, room: 10_000})
	if !full || len(found) > 20 {
		t.Errorf("%d matches, full %v", len(found), full)
	}
	if found, full = x.scan(context.Background(), text, scanOptions{most: 7, room: 1 << 20}); full || len(found) != 7 {
		t.Errorf("%d matches, full %v", len(found), full)
	}
}

// slowScan looks at one line after the other with the expression alone.
func slowScan(pattern, text string, ignoreCase bool) (out [][2]int) {
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	re := regexp.MustCompile(pattern)
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	for i, l := range lines {
		l = strings.TrimSuffix(l, "\r")
		if loc := re.FindStringIndex(l); loc != nil {
			out = append(out, [2]int{i + 1, utf8.RuneCountInString(l[:loc[0]]) + 1})
		}
	}
	return out
}

// Needles must never lose a match.
func TestScanningFindsWhatEachLineHolds(t *testing.T) {
	atom := rapid.SampledFrom([]string{
		"a", "ab", "K", "s", "é", `\d`, ".", "^", "$", "[ab]", "[^a]", `\b`, `\s`, "(?:a|bc)", "(b|c)+", "a*", "b?", "(ab){1,2}", "(?:x|)", "|", "(?i:Sk)", "\uFFFD", `\x{212a}`,
	})
	char := rapid.SampledFrom([]string{"a", "b", "c", "A", "B", "k", "\u212a", "s", "ſ", "é", "É", "\n", "\r\n", "\r", " ", "7", "\xff", "\uFFFD", "x"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(atom, 1, 5).Draw(t, "pattern"), "")
		text := strings.Join(rapid.SliceOfN(char, 0, 40).Draw(t, "text"), "")
		fold := rapid.Bool().Draw(t, "ignore case")
		x, err := CompileExpression(pattern, ExpressionOptions{IgnoreCase: fold})
		if err != nil {
			return
		}
		found, _ := x.scan(context.Background(), []byte(text), scanOptions{most: 1000, room: 1 << 20})
		var got [][2]int
		for _, m := range found {
			got = append(got, [2]int{m.Line, m.Column})
		}
		if d := cmp.Diff(slowScan(pattern, text, fold), got); d != "" {
			t.Fatalf("%q in %q (-want +got):\n%s", pattern, text, d)
		}
	})
}

func FuzzExpression(f *testing.F) {
	f.Add("a|b", "xa\nb", true, false)
	f.Add(`(?s)a.b\z`, "a\nb", false, true)
	f.Fuzz(func(t *testing.T, pattern, text string, ignoreCase, multiline bool) {
		x, err := CompileExpression(pattern, ExpressionOptions{IgnoreCase: ignoreCase, Multiline: multiline})
		if err != nil {
			return
		}
		found, _ := x.scan(context.Background(), []byte(text), scanOptions{before: 2, after: 2, most: 50, room: 1 << 20})
		last := 0
		for _, m := range found {
			if m.Line <= last || m.Line > bytes.Count([]byte(text), newline)+1 || m.Column < 1 {
				t.Fatalf("%q in %q: line %d after %d", pattern, text, m.Line, last)
			}
			last = m.Line
		}
	})
}
