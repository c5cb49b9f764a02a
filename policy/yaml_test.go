package policy

import (
	"fmt"
	"strings"
	"testing"
)

// The same document in both notations has the same revision.
func TestYAMLMeansTheSame(t *testing.T) {
	for y, j := range map[string]string{
		"{}":                             `{}`,
		"version: 1":                     `{"version":1}`,
		"\ufeffversion: 1":               `{"version":1}`,
		"---\nversion: 1\n":              `{"version":1}`,
		"preset: \"locked\"":             `{"preset":"locked"}`,
		"groups: [dev_tools, 'process']": `{"groups":["dev_tools","process"]}`,
		"groups:\n  dev_tools: yes\n  process: Off\n  system: on\n  terminal: NO": `{"groups":{"dev_tools":true,"process":false,"system":true,"terminal":false}}`,
		"defaults: {audit: 'off'}":     `{"defaults":{"audit":"off"}}`,
		"defaults: {audit: !!str off}": `{"defaults":{"audit":"off"}}`,
		"description: 2026-01-01":      `{"description":"2026-01-01"}`,
		"description: ~":               `{"description":null}`,
		"description:":                 `{"description":null}`,
		"description: |\n  a\n  b":     `{"description":"a\nb"}`,
		"description: 1e3":             `{"description":"1e3"}`,
		"description: 1.5e+3":          `{"description":1500.0}`,
		"description: .5":              `{"description":0.5}`,
		"description: y":               `{"description":"y"}`,
		"description: '1'":             `{"description":"1"}`,
		"description: 017":             `{"description":15}`,
		"description: 0o17":            `{"description":"0o17"}`,
		"description: 0900":            `{"description":"0900"}`,
		"description: 1.2.0":           `{"description":"1.2.0"}`,
		"description: 0x1F":            `{"description":31}`,
		"description: 0b11":            `{"description":3}`,
		"description: 1_000":           `{"description":1000}`,
		"description: 22:30":           `{"description":1350}`,
		"description: -1:30":           `{"description":-90}`,
		"description: 1:30.5":          `{"description":90.5}`,
		"description: !!int '5'":       `{"description":5}`,
		"endpoints: {shell: {limits: {timeout_seconds: 2.0}}}":                                                            `{"endpoints":{"shell":{"limits":{"timeout_seconds":2.0}}}}`,
		"endpoints: {shell: {limits: {max_output_bytes: 1 KiB}}}":                                                         `{"endpoints":{"shell":{"limits":{"max_output_bytes":1024}}}}`,
		"endpoints:\n  \"*\": &off {enabled: false}\n  shell: *off":                                                       `{"endpoints":{"*":{"enabled":false},"shell":{"enabled":false}}}`,
		"endpoints:\n  shell: &a {enabled: true, scopes: []}\n  ports:\n    <<: *a\n    enabled: false":                   `{"endpoints":{"shell":{"enabled":true,"scopes":[]},"ports":{"enabled":false,"scopes":[]}}}`,
		"endpoints:\n  shell: &a {enabled: true}\n  env_get: &b {enabled: false, audit: all}\n  ports:\n    <<: [*a, *b]": `{"endpoints":{"shell":{"enabled":true},"env_get":{"enabled":false,"audit":"all"},"ports":{"enabled":true,"audit":"all"}}}`,
	} {
		dy, err := Parse([]byte(y), YAML)
		if err != nil {
			t.Errorf("%q: %v", y, err)
			continue
		}
		dj, err := Parse([]byte(j), JSON)
		if err != nil {
			t.Errorf("%s: %v", j, err)
			continue
		}
		if string(dy.JSON()) != string(dj.JSON()) {
			t.Errorf("%q\n is %s\nnot %s", y, dy.JSON(), dj.JSON())
		}
	}
}

// JSON is YAML, so both readers must agree on it.
func TestPresetsReadAsYAML(t *testing.T) {
	for name, text := range presetTexts {
		j, err := Parse([]byte(text), JSON)
		if err != nil {
			t.Fatal(name, err)
		}
		y, err := Parse([]byte(strings.ReplaceAll(text, "\t", " ")), YAML)
		if err != nil {
			t.Fatal(name, err)
		}
		if string(j.JSON()) != string(y.JSON()) {
			t.Errorf("%s: %s and %s", name, j.JSON(), y.JSON())
		}
	}
}

func TestYAMLMistakes(t *testing.T) {
	for doc, want := range map[string]string{
		"":                                "policy policy: invalid YAML: no documents in stream",
		"# nothing\n":                     "policy policy: invalid YAML: no documents in stream",
		"null":                            "policy policy: expected an object, got null",
		"- a":                             "policy policy: expected an object, got a list",
		"a: [":                            "policy policy: invalid YAML at line 2, column 1: did not find expected node content",
		"version: 1\n---\nversion: 1\n":   "policy policy: invalid YAML: expected single document, found multiple",
		"preset: locked\npreset: default": "policy policy.preset: the key is given twice",
		"endpoints: {shell: {enabled: true, \"enabled\": true}}": "policy policy.endpoints.shell.enabled: the key is given twice",
		"1: x":                       "policy policy: a key is an integer, not a string",
		"groups: {on: true}":         "policy policy.groups: a key is true, not a string",
		"? [a]\n: b":                 "policy policy: a key is a list, not a string",
		"defaults: {audit: off}":     "policy policy.defaults.audit: expected a string, got false; quote it",
		"preset: 5":                  "policy policy.preset: expected a string, got an integer; quote it",
		"description: !foo bar":      "policy policy.description: the tag !foo is not allowed",
		"description: !!binary aGk=": "policy policy.description: the tag !!binary is not allowed",
		"description: !!int x":       "policy policy.description: not a value of the tag !!int",
		"groups: !!set {core}":       "policy policy.groups: the tag !!set is not allowed",
		"defaults: {<<: 5}":          "policy policy.defaults: '<<' merges objects, not an integer",
		"description: *nope":         "policy policy: invalid YAML at line 1, column 14: unknown anchor 'nope' referenced",
		"version: 1.0":               "policy policy.version: must be the integer 1",
		"endpoints: {shell: {limits: {timeout_seconds: .nan}}}":              "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		"endpoints: {shell: {limits: {timeout_seconds: .inf}}}":              "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		"endpoints: {shell: {limits: {timeout_seconds: -.INF}}}":             "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		"endpoints: {shell: {limits: {max_processes: 9223372036854775808}}}": "policy policy.endpoints.shell.limits.max_processes: the number is not finite or beyond 64 bits",
		"endpoints: {files_lst: {}}":                                         "config policy.endpoints.files_lst: unknown endpoint 'files_lst' (did you mean 'files_list'?)",
	} {
		got := parseOrCompile(doc, YAML, Options{})
		if !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q\n got %s\nwant %s", doc, got, want)
		}
	}
}

func TestPolicyInsideALargerFile(t *testing.T) {
	const text = "\ufeffname: x\n1: odd\nwhen: 2026-01-01\nhuge: 99999999999999999999\nserver:\n  preset: lokced\n"
	root, errs := ReadYAML([]byte(text), 100)
	if root == nil || len(errs) != 0 {
		t.Fatalf("%+v", errs)
	}
	if when, huge := root.Get("when"), root.Get("huge"); when.Kind != Other || when.What() != "a date" || huge.Kind != Other {
		t.Errorf("%+v, %+v", when, huge)
	}
	if odd := root.Members[len(root.Members)-1]; odd.Odd != "an integer" || odd.Line != 2 {
		t.Errorf("%+v", odd)
	}
	_, errs = root.Get("server").Document()
	if len(errs) != 1 || fmt.Sprintf("%d:%d", errs[0].Line, errs[0].Column) != "6:11" || errs[0].Where != "policy.preset" {
		t.Fatalf("%+v", errs)
	}
}

// A value can be read as a document twice, and shown as it was written after
// that: reading a document changes the tree it is read from.
func TestReadingADocumentLeavesTheValueAlone(t *testing.T) {
	root, _ := ReadYAML([]byte("version: 1\nendpoints: {shell: {limits: {max_output_bytes: 1 KiB}}}\ngroups: [dev_tools]\n"), 100)
	const want = `{"version":1,"endpoints":{"shell":{"limits":{"max_output_bytes":"1 KiB"}}},"groups":["dev_tools"]}`
	for range 2 {
		d, errs := root.Document()
		if len(errs) > 0 {
			t.Fatal(errs[0])
		}
		if got, err := root.JSON(); err != nil || string(got) != want {
			t.Fatalf("%s, %v", got, err)
		}
		if again, err := Parse([]byte(want), JSON); err != nil || string(again.JSON()) != string(d.JSON()) {
			t.Fatalf("%s, %v", d.JSON(), err)
		}
	}
}

func TestWhatNoPolicyCanHold(t *testing.T) {
	for text, want := range map[string]string{
		"description: 2026-01-01":    "policy.description: a date has no place in a policy; quote it",
		"description: .inf":          "policy.description: a number that is not finite or beyond 64 bits has no place in a policy; quote it",
		"endpoints: {1: {}}":         "policy.endpoints: a key is an integer, not a string",
		"description: !!binary aGk=": "policy.description: a value of the tag !!binary has no place in a policy",
		strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40): "nested deeper than 32",
	} {
		root, errs := ReadYAML([]byte(text), 100)
		if root == nil {
			t.Errorf("%q: %v", text, errs[0])
			continue
		}
		if _, errs := root.Document(); len(errs) == 0 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want %q", text, errs, want)
		}
		if _, err := root.JSON(); err == nil {
			t.Errorf("%q can be written", text)
		}
	}
}
