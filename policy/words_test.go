package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"a b", []string{"a", "b"}},
		{" \t\r\na\r\nb\t", []string{"a", "b"}},
		{"a\vb\fc\u00a0d\u2003e", []string{"a\vb\fc\u00a0d\u2003e"}},
		{`'a b' "c d"`, []string{"a b", "c d"}},
		{`'a\n"$x'`, []string{`a\n"$x`}},
		{`"\"\\\$d\n'"`, []string{`"\\$d\n'`}},
		{`a\ b \'c \\`, []string{"a b", "'c", `\`}},
		{"a\\\nb", []string{"a\nb"}},
		{"\"a\\\nb\"", []string{"a\\\nb"}},
		{`x '' ""`, []string{"x", "", ""}},
		{`'a'b"c"`, []string{"abc"}},
		{`'' x`, []string{"", "x"}},
		{`A=1 cmd # $HOME * ~ && | ; > &`, []string{"A=1", "cmd", "#", "$HOME", "*", "~", "&&", "|", ";", ">", "&"}},
		{"é \xff", []string{"é", "\xff"}},
	} {
		got, err := SplitWords(c.in)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestBadCommandLinesAreCommandInvalid(t *testing.T) {
	for _, in := range []string{
		"", " ", "\t\r\n", "'", "a 'b", `"`, `a "b`, `a "b\"`, `a\`, `"a\`, strings.Repeat("a ", MaxArguments+1),
	} {
		words, err := SplitWords(in)
		denied, ok := errors.AsType[*Denied](err)
		if !ok || denied.Code != CommandInvalid || words != nil {
			t.Errorf("%.20q: %q, %v", in, words, err)
		}
	}
	if w, err := SplitWords(strings.Repeat("a ", MaxArguments)); err != nil || len(w) != MaxArguments {
		t.Errorf("as many words as may be: %d, %v", len(w), err)
	}
}

func TestArgumentLimits(t *testing.T) {
	for name, c := range map[string]struct {
		argv []string
		want Code
	}{
		"none":          {nil, CommandInvalid},
		"one":           {[]string{"a"}, Allowed},
		"most":          {slices.Repeat([]string{"a"}, 4096), Allowed},
		"too many":      {slices.Repeat([]string{"a"}, 4097), CommandInvalid},
		"longest":       {[]string{"bash", strings.Repeat("a", 131071)}, Allowed},
		"too long":      {[]string{"bash", strings.Repeat("a", 131072)}, CommandInvalid},
		"NUL":           {[]string{"a", "b\x00"}, CommandInvalid},
		"empty is fine": {[]string{"a", ""}, Allowed},
	} {
		if d := ArgumentsDecision(c.argv); d.Code != c.want {
			t.Errorf("%s: %q", name, d.Code)
		}
	}
}

func TestProgramsInSystemTreesAreNotRun(t *testing.T) {
	for _, c := range []struct {
		argv0, file, real string
		want              Code
	}{
		{"", "", "", ProcessInvalid},
		{"ls", "/usr/bin/ls", "/usr/bin/ls", Allowed},
		{"nothing", "", "", Allowed},
		{"/proc/self/exe", "/proc/self/exe", "/srv/server", ProcessDenied},
		{"/bin/../proc/self/exe", "", "", ProcessDenied},
		{"./x", "/dev/shm/x", "/dev/shm/x", ProcessDenied},
		{"/base/x", "/base/x", "/proc/1/exe", ProcessDenied},
		{"/sys", "", "", ProcessDenied},
		{"proc/x", "/base/proc/x", "/base/proc/x", Allowed},
	} {
		if d := ProgramDecision(c.argv0, c.file, c.real); d.Code != c.want {
			t.Errorf("%+v: %q", c, d.Code)
		}
	}
}

func FuzzSplitWords(f *testing.F) {
	for _, s := range []string{`a 'b c' "d\"\\\x"`, `a\ b`, `'`, `""`, "a\\\nb \t\r", `\'"'"`, "\x00 \xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > MaxArguments {
			return
		}
		got, err := SplitWords(s)
		want, ok := slowWords(s)
		if ok = ok && len(want) > 0; (err == nil) != ok || ok && !slices.Equal(got, want) {
			t.Fatalf("%q: %q, %v; want %q", s, got, err, want)
		}
		if err != nil {
			return
		}
		// Whatever the words are, quoting them gives them back.
		var quoted []string
		for _, w := range got {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		if again, err := SplitWords(strings.Join(quoted, " ")); err != nil || !slices.Equal(again, got) {
			t.Fatalf("quoted %q: %q, %v", got, again, err)
		}
	})
}

// slowWords goes from state to state, a byte at a time.
func slowWords(s string) (words []string, ok bool) {
	const (
		between = iota
		bare
		bareEscape
		single
		double
		doubleEscape
	)
	state, word := between, ""
	for _, c := range []byte(s) {
		ch := string([]byte{c})
		switch state {
		case between, bare:
			switch {
			case strings.Contains(" \t\r\n", ch):
				if state == bare {
					words, word = append(words, word), ""
				}
				state = between
			case ch == "'":
				state = single
			case ch == `"`:
				state = double
			case ch == `\`:
				state = bareEscape
			default:
				state, word = bare, word+ch
			}
		case bareEscape:
			state, word = bare, word+ch
		case single:
			if ch == "'" {
				state = bare
			} else {
				word += ch
			}
		case double:
			switch ch {
			case `"`:
				state = bare
			case `\`:
				state = doubleEscape
			default:
				word += ch
			}
		case doubleEscape:
			if ch != `"` && ch != `\` {
				word += `\`
			}
			state, word = double, word+ch
		}
	}
	if state == bare {
		words = append(words, word)
	}
	return words, state == bare || state == between
}
