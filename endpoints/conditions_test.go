package endpoints

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTags(t *testing.T) {
	tests := []struct {
		lines []string
		want  tags
	}{
		{nil, nil},
		{[]string{""}, tags{}},
		{[]string{`"a"`}, tags{`"a"`}},
		{[]string{`"a", W/"b" ,,"c"`, `"d"`}, tags{`"a"`, `W/"b"`, `"c"`, `"d"`}},
		{[]string{`"a,b"`}, tags{`"a,b"`}},
		{[]string{`*`}, tags{`*`}},
		{[]string{`a, "b"`}, tags{`a`, `"b"`}},
		{[]string{`"open, "b"`}, tags{`"open, "b"`}},
		{[]string{`"open`, `x`}, tags{`"open`, `x`}},
		{[]string{`"a"b", "c"`}, tags{`"a"b"`, `"c"`}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, parseTags(tt.lines)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.lines, d)
		}
	}
}

func TestConditions(t *testing.T) {
	at := time.Date(2026, 11, 30, 7, 38, 26, 500, time.UTC)
	there := version{exists: true, tag: `"t"`, modified: at}
	date := func(d time.Duration) string { return at.Add(d).Format(http.TimeFormat) }
	tests := []struct {
		header           http.Header
		now              version
		holds, unchanged bool
	}{
		{http.Header{}, there, true, false},
		{http.Header{}, version{}, true, false},
		{http.Header{"If-Match": {`"t"`}}, there, true, false},
		{http.Header{"If-Match": {`"x", "t"`}}, there, true, false},
		{http.Header{"If-Match": {`W/"t"`}}, there, false, false},
		{http.Header{"If-Match": {`"x"`}}, there, false, false},
		{http.Header{"If-Match": {`t`}}, there, false, false},
		{http.Header{"If-Match": {``}}, there, false, false},
		{http.Header{"If-Match": {`*`}}, there, true, false},
		{http.Header{"If-Match": {`*`}}, version{}, false, false},
		{http.Header{"If-None-Match": {`*`}}, there, true, true},
		{http.Header{"If-None-Match": {`*`}}, version{}, true, false},
		{http.Header{"If-None-Match": {`W/"t"`}}, there, true, true},
		{http.Header{"If-None-Match": {`"x"`}}, there, true, false},
		{http.Header{"If-Modified-Since": {date(0)}}, there, true, true},
		{http.Header{"If-Modified-Since": {date(time.Second)}}, there, true, true},
		{http.Header{"If-Modified-Since": {date(-time.Second)}}, there, true, false},
		{http.Header{"If-Modified-Since": {"yesterday"}}, there, true, false},
		{http.Header{"If-Modified-Since": {date(0)}, "If-None-Match": {`"x"`}}, there, true, false},
		{http.Header{"If-Unmodified-Since": {date(0)}}, there, true, false},
		{http.Header{"If-Unmodified-Since": {date(-time.Second)}}, there, false, false},
		{http.Header{"If-Unmodified-Since": {date(-time.Second)}, "If-Match": {`"t"`}}, there, true, false},
	}
	for _, tt := range tests {
		c := readConditions(tt.header)
		if holds, unchanged := c.holds(tt.now), c.unchanged(tt.now); holds != tt.holds || unchanged != tt.unchanged {
			t.Errorf("%v of %+v: holds %v, unchanged %v", tt.header, tt.now, holds, unchanged)
		}
	}
	for header, want := range map[string]bool{
		"": true, `"t"`: true, `W/"t"`: false, `"x"`: false, date(0): true, date(time.Second): false, "yesterday": false,
	} {
		if got := ifRange(header, there); got != want {
			t.Errorf("If-Range %q: %v", header, got)
		}
	}
}

// slowTags cuts at commas outside of quotes that are closed, character by character.
func slowTags(text string) []string {
	out := []string{}
	for len(text) > 0 {
		item, i := "", 0
		text = strings.TrimLeft(text, " \t,")
		if i = 0; strings.HasPrefix(text, "W/") {
			i = 2
		}
		if i < len(text) && text[i] == '"' && strings.Contains(text[i+1:], `"`) {
			for i++; text[i] != '"'; i++ {
			}
			i++
		}
		for i < len(text) && text[i] != ',' {
			i++
		}
		item, text = text[:i], text[i:]
		if item = strings.Trim(item, " \t"); item != "" {
			out = append(out, item)
		}
	}
	return out
}

func FuzzConditional(f *testing.F) {
	f.Add(`"a", W/"b"`, `"c"`, "abc")
	f.Add(`*`, ``, "x")
	f.Add(`"open, "a"`, `,,`, "x,y")
	f.Fuzz(func(t *testing.T, first, second, opaque string) {
		lines := []string{first, second}
		got := parseTags(lines)
		if want := slowTags(strings.Join(lines, ",")); !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", lines, got, want)
		}
		if strings.ContainsAny(opaque, "\"\r\n") {
			return
		}
		now := version{exists: true, tag: `"` + opaque + `"`}
		// A tag in a list is found, whatever its neighbours are.
		h := http.Header{"If-Match": {`"x", ` + now.tag + ` , W/"y"`}, "If-None-Match": {`W/` + now.tag, `"z"`}}
		c := readConditions(h)
		if !c.holds(now) || !c.unchanged(now) || !ifRange(now.tag, now) {
			t.Fatalf("%v does not know %q", h, now.tag)
		}
		if other := (version{exists: true, tag: `"` + opaque + `-"`}); opaque+"-" != "x" && opaque+"-" != "z" && (c.holds(other) || c.unchanged(other)) {
			t.Fatalf("%v takes %q", h, other.tag)
		}
	})
}
