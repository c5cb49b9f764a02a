package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

func TestRevisions(t *testing.T) {
	token := Options{ServerToken: true, Getenv: func(string) string { return "any" }}
	for _, c := range []struct {
		doc  string
		o    Options
		want string
	}{
		{`{}`, Options{}, "2430f1a2ad2982d0"},
		{`{"version":1}`, Options{}, "2430f1a2ad2982d0"},
		{`{"preset":"locked"}`, Options{}, "23044476048c9315"},
		{`{"preset":"hardened"}`, Options{}, "e2320bfc13232e38"},
		{`{"preset":"read-only"}`, Options{}, "8f7af29a16b6f92c"},
		{`{"groups":["dev_tools"]}`, Options{}, "6eb987eb9f0795d2"},
		{`{"groups":{"dev_tools":true}}`, Options{}, "6eb987eb9f0795d2"},
		{`{}`, token, "d1ef803dd4ff43bb"},
		{`{"version":1}`, token, "d1ef803dd4ff43bb"},
		{`{}`, Options{EnvGroups: []string{}, CodeGroups: map[string]bool{}}, "2430f1a2ad2982d0"},
	} {
		if got := mustCompile(t, c.doc, c.o).Revision(); got != c.want {
			t.Errorf("%s: %s, want %s", c.doc, got, c.want)
		}
	}
	for _, preset := range []string{"locked", "hardened", "read-only"} {
		d, err := PresetDocument(preset)
		if err != nil {
			t.Fatal(err)
		}
		same, _ := Parse([]byte(`{"preset":"`+preset+`"}`), JSON)
		if got, want := d.revision(nil, nil), same.revision(nil, nil); got != want {
			t.Errorf("%s: %s by name, %s as document", preset, got, want)
		}
	}
}

// What is hashed, byte for byte.
func TestNormalisedDocument(t *testing.T) {
	for doc, want := range map[string]string{
		`{}`: `{"version":1}`,
		`{"version":1,"description":"é 😀 \u007f \"\\ \n\t\b\f\r \u0001 \u2028 ~"}`:             `{"description":"\u00e9 \ud83d\ude00 \u007f \"\\ \n\t\b\f\r \u0001 \u2028 ~","version":1}`,
		`{"endpoints":{"shell":{"limits":{"timeout_seconds":2.0,"max_output_bytes":"1KiB"}}}}`: `{"endpoints":{"shell":{"limits":{"max_output_bytes":1024,"timeout_seconds":2.0}}},"version":1}`,
		`{"endpoints":{"shell":{"limits":{"timeout_seconds":1e16}}}}`:                          `{"endpoints":{"shell":{"limits":{"timeout_seconds":1e+16}}},"version":1}`,
		`{"endpoints":{"shell":{"limits":{"timeout_seconds":1e3}}}}`:                           `{"endpoints":{"shell":{"limits":{"timeout_seconds":1000.0}}},"version":1}`,
		`{"endpoints":{"shell":{"limits":{"timeout_seconds":0.00001}}}}`:                       `{"endpoints":{"shell":{"limits":{"timeout_seconds":1e-05}}},"version":1}`,
		`{"endpoints":{"shell":{"limits":{"timeout_seconds":0.0001}}}}`:                        `{"endpoints":{"shell":{"limits":{"timeout_seconds":0.0001}}},"version":1}`,
		`{"groups":["system","process","system"]}`:                                             `{"groups":{"process":true,"system":true},"version":1}`,
		`{"description":null}`: `{"description":null,"version":1}`,
		`{"description":5}`:    `{"description":5,"version":1}`,
		`{"auth":{"tokens":[{"scopes":[],"id":"a","token_sha256":"` + digestA + `"}]}}`: `{"auth":{"tokens":[{"id":"a","scopes":[],"token_sha256":"` + "abcdef0000000000000000000000000000000000000000000000000000000000" + `"}]},"version":1}`,
		`{"endpoints":{},"defaults":{},"auth":{}}`:                                      `{"auth":{},"defaults":{},"endpoints":{},"version":1}`,
	} {
		d, err := Parse([]byte(doc), JSON)
		if err != nil {
			t.Errorf("%s: %v", doc, err)
			continue
		}
		if got := string(d.JSON()); got != want {
			t.Errorf("%s\n got %s\nwant %s", doc, got, want)
		}
		sum := sha256.Sum256([]byte(want))
		if got := d.revision(nil, nil); got != hex.EncodeToString(sum[:8]) {
			t.Errorf("%s: revision %s", doc, got)
		}
	}
}

const digestA = "ABCDEF0000000000000000000000000000000000000000000000000000000000"

// Groups switched from outside change the answers, so they change the revision.
func TestRevisionCoversGroupsFromOutside(t *testing.T) {
	rev := func(o Options) string { return mustCompile(t, `{}`, o).Revision() }
	one := rev(Options{EnvGroups: []string{"dev_tools"}})
	both := rev(Options{EnvGroups: []string{"dev_tools", "browser"}})
	code := rev(Options{CodeGroups: map[string]bool{"dev_tools": true}})
	off := rev(Options{CodeGroups: map[string]bool{"dev_tools": false}})
	seen := map[string]bool{rev(Options{}): true}
	for _, r := range []string{one, both, code, off} {
		if seen[r] {
			t.Errorf("revision %s for two states", r)
		}
		seen[r] = true
	}
	if again := rev(Options{EnvGroups: []string{"browser", "dev_tools", "browser"}}); again != both {
		t.Error("the order of the environment's groups changes the revision")
	}
	sum := sha256.Sum256([]byte(`{"code_groups":{"dev_tools":true},"env_groups":["browser","dev_tools"],"version":1}`))
	got := rev(Options{EnvGroups: []string{"dev_tools", "browser"}, CodeGroups: map[string]bool{"dev_tools": true}})
	if want := hex.EncodeToString(sum[:8]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWithPresetKeepsTheRest(t *testing.T) {
	d, err := Parse([]byte(`{"preset":"locked","base_dir":"/srv","auth":{"tokens":[{"id":"a","scopes":["*"],"token_sha256":"`+digestA+`"}]}}`), JSON)
	if err != nil {
		t.Fatal(err)
	}
	before := string(d.JSON())
	c, err := d.WithPreset("read-only")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(c, allRows(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Preset() != "read-only" || p.BaseDir() != "/srv" || !p.HasTokens() {
		t.Errorf("preset %q, base %q, tokens %v", p.Preset(), p.BaseDir(), p.HasTokens())
	}
	if string(d.JSON()) != before || d.preset != "locked" {
		t.Error("the original changed")
	}
	for _, bad := range []string{"nope", "", "harden"} {
		if _, err := d.WithPreset(bad); err == nil {
			t.Errorf("preset %q accepted", bad)
		}
	}
}
