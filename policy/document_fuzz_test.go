package policy

import (
	"strings"
	"testing"
)

// FuzzParse: no input makes the reader panic, every error is a located line,
// and a document that is accepted survives being written out: its normalised
// form reads to the same revision and the same rules.
func FuzzParse(f *testing.F) {
	for _, text := range presetTexts {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	for _, text := range []string{
		guardedDoc, "[]", "{bad", "\ufeff{}", `{"groups":["dev_tools","core"]}`,
		`{"description":"é 😀 \u0001\u2028","endpoints":{"shell*":{"limits":{"timeout_seconds":1.5e-7,"max_output_bytes":"1.5 MiB"}}}}`,
		`{"endpoints":{"*":{"params":{"allow_commands":["ls ...","cat {path}"],"overwrite":false,"allowed_signals":[9]}}}}`,
		`{"endpoints":{"agents_x":{"paths":{"allow":["/"],"deny":["**/.env",""],"symlinks":"never","hardlinks":"deny"}}}}`,
	} {
		f.Add([]byte(text), false)
	}
	for _, text := range []string{
		"a: &a [*a]", "x: &x {<<: *x}", "endpoints:\n  shell: &a {enabled: off}\n  ports: {<<: *a}\n", "description: !!int 0x1F",
		"description: |\n  text\n", "? [a]\n: b", "groups: {dev_tools: yes}", "description: -1:30.5", "--- 1\n--- 2", "defaults: {audit: 'off'}",
	} {
		f.Add([]byte(text), true)
	}
	rows := allRows()
	f.Fuzz(func(t *testing.T, data []byte, isYAML bool) {
		format := JSON
		if isYAML {
			format = YAML
		}
		d, errs := ParseAll(data, format)
		if (d == nil) != (len(errs) > 0) {
			t.Fatalf("document %v with %d errors", d != nil, len(errs))
		}
		for _, e := range errs {
			if !strings.HasPrefix(e.Where, "policy") || e.Text == "" || strings.ContainsAny(e.Error(), "\n\r") {
				t.Fatalf("error %q", e)
			}
		}
		if d == nil {
			return
		}
		again, err := Parse(d.JSON(), JSON)
		if err != nil {
			t.Fatalf("the normalised form is refused: %v\n%s", err, d.JSON())
		}
		if string(again.JSON()) != string(d.JSON()) || again.revision(nil, nil) != d.revision(nil, nil) {
			t.Fatalf("the document changed\nfrom %s\nto   %s", d.JSON(), again.JSON())
		}
		want, wantErr := Compile(d, rows, Options{})
		got, gotErr := Compile(again, rows, Options{})
		if (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("%v, then %v", wantErr, gotErr)
		}
		if wantErr == nil && strings.Join(enabledIDs(got), " ") != strings.Join(enabledIDs(want), " ") {
			t.Fatal("other endpoints are enabled")
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1", "1.5 MB", "0.4", "99999999999999999999GB", " 7 kib "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err == nil && n < 1 {
			t.Fatalf("%q is %d", s, n)
		}
	})
}
