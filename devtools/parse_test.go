package devtools

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestStatusRecords(t *testing.T) {
	text := strings.Join([]string{
		"# branch.oid 1234", "# branch.head main", "# branch.upstream origin/main", "# branch.ab +1 -2", "# stash 3",
		"1 .M N... 100644 100644 100644 aa bb sp ace",
		"2 R. N... 100644 100644 100644 aa bb R100 new -> name", "old\nname",
		"1 .M S.M. 160000 160000 160000 aa bb sub",
		"u UU N... 100644 100644 100644 100644 aa bb cc conflict",
		"? dir/", "! ignored", "",
	}, "\x00")
	want := Status{
		Head: "1234", Branch: "main", Upstream: "origin/main", Ahead: 1, Behind: 2, Tracked: true,
		Files: []FileStatus{
			{Path: "sp ace", Index: ' ', Worktree: 'M'},
			{Path: "new -> name", RenamedFrom: "old\nname", Index: 'R', Worktree: ' '},
			{Path: "sub", Index: ' ', Worktree: 'M', Submodule: true},
			{Path: "conflict", Index: 'U', Worktree: 'U'},
			{Path: "dir/", Index: '?', Worktree: '?'},
			{Path: "ignored", Index: '!', Worktree: '!'},
		},
	}
	for piece := 1; piece < len(text); piece++ {
		p := &statusParser{}
		cut := fields{max: maxField}
		for at := 0; at < len(text); at += piece {
			if err := cut.feed([]byte(text[at:min(at+piece, len(text))]), p.field); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(cut); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, p.Status); d != "" {
			t.Fatalf("in pieces of %d: %s", piece, d)
		}
	}
	for _, bad := range []string{"x", "1 .M", "1 .M N... 1 2 3 4 5 ", "1 .MM N... 1 2 3 4 5 a", "9 a", "? ", "# branch.ab x"} {
		if err := (&statusParser{}).field([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("# branch.oid (initial)\x001 A. N... 0 1 2 a b x\x002 R. N... 0 1 2 a b R9 x\x00y\x00"), 3)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		p := &statusParser{}
		cut := fields{max: 1 << 10}
		piece = max(1, piece%len(append(text, 0)))
		for len(text) > 0 {
			n := min(piece, len(text))
			if cut.feed(text[:n], p.field) != nil {
				return
			}
			text = text[n:]
		}
		for _, file := range p.Files {
			if file.Path == "" || strings.ContainsRune(file.Path+file.RenamedFrom, 0) {
				t.Errorf("%+v", file)
			}
		}
	})
}

func TestDiffRecords(t *testing.T) {
	text := ":100644 100644 aa bb M\x00a\x00:100644 100644 aa bb R90\x00old\x00new\x00:000000 160000 aa bb A\x00sub\x00" +
		"2\t1\ta\x001\t0\t\x00old\x00new\x00-\t-\tsub\x00\x00diff --git a/a b/a\nx\x00y\xff\n"
	var seen []change
	for piece := 1; piece < len(text); piece++ {
		seen = nil
		p := &diffParser{admit: func(c change) bool { seen = append(seen, c); return true }}
		for at := 0; at < len(text); at += piece {
			if err := p.feed([]byte(text[at:min(at+piece, len(text))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.end(); err != nil {
			t.Fatal(err)
		}
		want := Diff{Patch: "diff --git a/a b/a\nx\x00y\ufffd\n", Files: 3, Insertions: 3, Deletions: 1}
		if d := cmp.Diff(want, p.Diff); d != "" {
			t.Fatalf("in pieces of %d: %s", piece, d)
		}
	}
	want := []change{{"a", false}, {"old", false}, {"new", false}, {"sub", true}, {"a", false}, {"old", false}, {"new", false}, {"sub", false}}
	if d := cmp.Diff(want, seen, cmp.AllowUnexported(change{})); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{":1 2 3\x00", "x\x00", "1\t2\x00", "1\tx\ta\x00", "-1\t0\ta\x00"} {
		if err := (&diffParser{admit: func(change) bool { return true }}).feed([]byte(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

// Whatever git says, nothing of a refused file comes out.
func TestNothingOfARefusedFileIsShown(t *testing.T) {
	p := &diffParser{admit: func(c change) bool { return c.path != "secret" }}
	err := p.feed([]byte(":1 2 a b M\x00ok\x00:1 2 a b M\x00secret\x001\t1\tok\x001\t1\tsecret\x00\x00diff\n+HIDDEN\n"))
	if err == nil {
		err = p.end()
	}
	if !errors.Is(err, errRefused) || p.Patch != "" || len(p.patch) > 0 {
		t.Errorf("%v, %q %q", err, p.Patch, p.patch)
	}
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte(":1 2 a b M\x00a\x001\t1\ta\x00\x00diff --git"), 4)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		refused := false
		p := &diffParser{admit: func(c change) bool {
			if strings.ContainsRune(c.path, 0) {
				t.Errorf("a name with NUL: %q", c.path)
			}
			refused = refused || c.path == "no"
			return c.path != "no"
		}}
		piece = max(1, piece%len(append(text, 0)))
		var err error
		for len(text) > 0 && err == nil {
			n := min(piece, len(text))
			err = p.feed(text[:n])
			text = text[n:]
		}
		if err == nil {
			err = p.end()
		}
		if err != nil && p.Patch != "" || refused && err == nil {
			t.Errorf("%v %q", err, p.Patch)
		}
		if !utf8.ValidString(p.Patch) || p.Insertions < 0 || p.Deletions < 0 {
			t.Errorf("%+v", p.Diff)
		}
	})
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(rapid.StringOf(rapid.RuneFrom([]rune("aé中\U0001f600\ufffd"))).Draw(t, "text"))
		if len(b) > 0 && rapid.Bool().Draw(t, "broken") {
			b = b[rapid.IntRange(0, len(b)-1).Draw(t, "from"):]
		}
		most := rapid.IntRange(0, 40).Draw(t, "most")
		got, cut := validText(b, most)
		whole := string([]rune(string(b))) // U+FFFD for each bad byte
		if !strings.HasPrefix(whole, got) || len(got) > most || cut != (got != whole) {
			t.Fatalf("%q cut to %d: %q %v", b, most, got, cut)
		}
		if rest := whole[len(got):]; cut {
			if _, n := utf8.DecodeRuneInString(rest); len(got)+n <= most {
				t.Fatalf("%q cut to %d: %q, one more would fit", b, most, got)
			}
		}
	})
}

func TestMarkIsFoundInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringOf(rapid.RuneFrom([]rune("ab")))
		mark := letters.Filter(func(s string) bool { return s != "" }).Draw(t, "mark")
		text := letters.Draw(t, "text") + mark + letters.Draw(t, "behind")
		want := text[:strings.Index(text, mark)]
		m := markScanner{mark: []byte(mark)}
		var out []byte
		found := 0
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			piece, marked := m.feed(bytes.Clone(rest[:n]))
			out = append(out, piece...)
			if marked {
				found++
			}
			rest = rest[n:]
		}
		if string(out) != want || found != 1 || !m.found {
			t.Fatalf("%q in %q: %q, found %d times", mark, text, out, found)
		}
	})
}

// configKey is a setting as git names it.
func configKey(s setting) string {
	if s.hasSub {
		return s.section + "." + s.sub + "." + s.name
	}
	return s.section + "." + s.name
}

// gitConfig is what git itself reads in a configuration; ok is false when it
// refuses it.
func gitConfig(t testing.TB, text []byte) (out string, ok bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "config", "--file", file, "--no-includes", "--list", "-z")
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=/"}, "/"
	b, err := cmd.Output()
	return string(b), err == nil
}

// listed are settings as git config --list -z shows them.
func listed(all []setting) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%s\n%s\x00", configKey(s), s.value)
	}
	return b.String()
}

var configs = []string{
	"", "\ufeff[a]\n\tb = c\n", "[core]\n\tbare = false\n\tfilemode\n[remote \"or ig\\\"in\"]\n  url=x y  ; comment\n",
	"[a \"B\\\\c\"] d = \"q # uoted \" un ; no\n", "[A.B]Name=1\n[a]\r\nb=c\r\n", "[a]\n b = one \\\n two\n", "# c\n; d\n[a]\nb = \\t\\n\\\"\\\\\n",
	"[a]\nb=c#d\n\"", "[a", "[]\nb=c", "a=b", "[a]\nb = \"open\n", "[a]\nb = \\x\n", "[a \"b]\n", "[a]b=c", "[a]\n1b=c\n", "[a-b]\nc-d=e", "[a]\n\nb\n=c",
	"[include]\npath=/etc/passwd\n", "[a \"\"]\nb=c\n", "[a]\nb = a\tb\f\vc  \n", "[a] ; x\n b=c", "[a]\nb\t=\tc", "[a]\nb c", "[a]\nb=c\rd\n", "[a]\nb =\n",
}

// git reads a name alone as true, and shows it without a value. Some versions
// turn blanks in values into spaces; what is in no section has no name.
func sameConfig(got, want string) bool {
	blanks := strings.NewReplacer("\t", " ", "\r", " ")
	got, want = blanks.Replace(got), strings.TrimPrefix(blanks.Replace(want), "a\nb\x00")
	for g, w := strings.Split(got, "\x00"), strings.Split(want, "\x00"); ; g, w = g[1:], w[1:] {
		if len(g) != len(w) {
			return false
		}
		if len(g) == 0 {
			return true
		}
		if g[0] != w[0] && (strings.Contains(w[0], "\n") || g[0] != w[0]+"\ntrue") {
			return false
		}
	}
}

func TestConfigIsReadAsGitReadsIt(t *testing.T) {
	find(t, "git")
	for _, text := range configs {
		want, ok := gitConfig(t, []byte(text))
		got, err := parseConfig([]byte(text))
		if (err == nil) != ok {
			t.Errorf("%q: %v, git says %v", text, err, ok)
		} else if ok && !sameConfig(listed(got), want) {
			t.Errorf("%q: %q, git says %q", text, listed(got), want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, text := range configs {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := parseConfig(text)
		if err != nil {
			return
		}
		written := writeConfig(all)
		again, err := parseConfig(written)
		if err != nil {
			t.Fatalf("%q written as %q: %v", text, written, err)
		}
		kept := all[:0:0]
		for _, s := range all {
			if !strings.ContainsAny(s.sub, "\n\x00") && !strings.ContainsRune(s.value, 0) {
				kept = append(kept, s)
			}
		}
		if d := cmp.Diff(listed(kept), listed(again)); d != "" {
			t.Fatalf("%q written as %q: %s", text, written, d)
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte("{\"type\":\"done\",\"status\":1}\n{\"type\":\"result\",\"data\":{}}\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		c := &cell{sink: &collector{}, done: make(chan struct{}), answer: make(chan struct{})}
		for line := range bytes.Lines(text) {
			c.take(line)
		}
	})
}
