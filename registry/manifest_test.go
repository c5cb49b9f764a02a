package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEachFaultOfAManifestNamesItsPlace(t *testing.T) {
	command := func(rest string) string { return "version: 1\ncommands: [{name: a, argv: [x], " + rest + "}]" }
	arg := func(rest string) string { return command("args: [{name: p, " + rest + "}]") }
	for _, c := range []struct{ doc, want string }{
		{"", "expected a mapping, got nothing"},
		{"[]", "expected a mapping, got a list"},
		{"commands: []", "version: is required"},
		{"version: 2\ncommands: []", "version: must be 1"},
		{"version: '1'\ncommands: []", "version: must be 1"},
		{"version: 1", "commands: is required"},
		{"version: 1\ncommands: {}", "commands: expected a list, got a mapping"},
		{"version: 1\nversion: 1", `line 2: the key "version" is there twice`},
		{"version: 1\ncommands: [", "invalid YAML"},
		{"version: 1\ncommands: []\n---\nversion: 1", "more than one document"},
		{"version: 1\ncommands: []\nextra: 1", "extra: unknown key"},
		{"version: 1\ncommands: []\n1: 1", "1: unknown key"},
		{"version: 1\ncommands: []\n? [a]\n: 1", "a key must be a string"},
		{"version: 1\ncommands: !!binary x", "unknown tag"},
		{"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c]\n" +
			"e: &e [*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e]", "too many values"},
		{strings.Repeat("[", 500), "invalid YAML"},
		{"version: 1\ncommands: [1]", "commands[0]: expected a mapping, got an integer"},
		{"version: 1\ncommands: [{argv: [x]}]", "commands[0].name: is required"},
		{"version: 1\ncommands: [{name: '', argv: [x]}]", "commands[0].name: expected 1 to 128 characters"},
		{"version: 1\ncommands: [{name: 5, argv: [x]}]", "commands[0].name: expected a string, got an integer"},
		{"version: 1\ncommands: [{name: 'a b', argv: [x]}]", "commands[0].name"},
		{"version: 1\ncommands: [{name: \"a\\u0085\", argv: [x]}]", "commands[0].name"},
		{"version: 1\ncommands: [{name: " + strings.Repeat("n", 129) + ", argv: [x]}]", "commands[0].name"},
		{"version: 1\ncommands: [{name: a, argv: [x]}, {name: a, argv: [x]}]", `commands[1].name: "a" is there twice`},
		{"version: 1\ncommands: [{name: a}]", "commands[0]: needs exactly one of argv, shell and script"},
		{"version: 1\ncommands: [{name: a, shell: x, script: y}]", "commands[0]: needs exactly one"},
		{"version: 1\ncommands: [{name: a, shell: '  '}]", "commands[0].shell: is empty"},
		{"version: 1\ncommands: [{name: a, shell: x, interpreter: [sh]}]", "commands[0].interpreter: goes only with script"},
		{"version: 1\ncommands: [{name: a, script: x, interpreter: []}]", "commands[0].interpreter: is empty"},
		{"version: 1\ncommands: [{name: a, argv: []}]", "commands[0].argv: is empty"},
		{"version: 1\ncommands: [{name: a, argv: [x, [y]]}]", "commands[0].argv[1]: expected a string, got a list"},
		{"version: 1\ncommands: [{name: a, argv: [x, null]}]", "commands[0].argv[1]: expected a string, got nothing"},
		{"version: 1\ncommands: [{name: a, argv: ['{p}'], args: [{name: p}]}]", "commands[0].argv[0]: the program must be named"},
		{"version: 1\ncommands: [{name: a, argv: [{when: p, args: [x]}], args: [{name: p}]}]", "commands[0].argv[0]: the program must be named"},
		{"version: 1\ncommands: [{name: a, argv: [x, '{q}']}]", "commands[0].argv[1]: unknown argument 'q'"},
		{"version: 1\ncommands: [{name: a, argv: [x, '{']}]", "commands[0].argv[1]: unmatched '{'"},
		{"version: 1\ncommands: [{name: a, argv: [x, 'a}b']}]", "commands[0].argv[1]: unmatched '}'"},
		{"version: 1\ncommands: [{name: a, argv: [x, {when: q, args: [y]}]}]", "commands[0].argv[1].when: unknown argument 'q'"},
		{"version: 1\ncommands: [{name: a, argv: [x, {when: p}], args: [{name: p}]}]", "commands[0].argv[1]: needs when and args"},
		{"version: 1\ncommands: [{name: a, argv: [x, {when: p, args: ['{q}']}], args: [{name: p}]}]", "commands[0].argv[1].args[0]: unknown argument 'q'"},
		{"version: 1\ncommands: [{name: a, argv: [x, 'n{t...}'], args: [{name: t, type: string_array}]}]", "commands[0].argv[1]: '...' must be the whole item"},
		{"version: 1\ncommands: [{name: a, argv: [x, '{t}'], args: [{name: t, type: string_array}]}]", "commands[0].argv[1]: the string_array 't' goes only as an item"},
		{"version: 1\ncommands: [{name: a, argv: [x, '{t...}'], args: [{name: t}]}]", "commands[0].argv[1]: '...' goes only with a string_array"},
		{"version: 1\ncommands: [{name: a, argv: [\"x\\0y\"]}]", "commands[0].argv[0]: holds a NUL character"},
		{command("timeout: 0"), "commands[0].timeout: expected a number of seconds above 0"},
		{command("timeout: .nan"), "commands[0].timeout"},
		{command("timeout: soon"), "commands[0].timeout"},
		{command("max_output_bytes: 0"), "commands[0].max_output_bytes"},
		{command("max_output_bytes: many"), "commands[0].max_output_bytes"},
		{command("max_concurrency: 0"), "commands[0].max_concurrency: expected an integer of at least 1"},
		{command("hidden: 1"), "commands[0].hidden: expected true or false, got an integer"},
		{command("scopes: deploy"), "commands[0].scopes: expected a list, got a string"},
		{command("scopes: [1]"), "commands[0].scopes[0]: expected a string"},
		{command("workdir: ''"), "commands[0].workdir: expected a path"},
		{command("result: xml"), "commands[0].result: expected one of text, json, lines, full, none"},
		{command("success_exit_codes: [256]"), "commands[0].success_exit_codes[0]: expected an exit code"},
		{command("success_exit_codes: 0"), "commands[0].success_exit_codes: expected a list"},
		{command("stdin: yaml"), "commands[0].stdin: expected json, none or {arg: NAME}"},
		{command("stdin: {}"), "commands[0].stdin: expected json, none or {arg: NAME}"},
		{command("stdin: {arg: q}"), `commands[0].stdin.arg: unknown argument "q"`},
		{command("env: {ABX_X: y}"), "commands[0].env.ABX_X: ABX_ variables are the server's"},
		{command("env: {abx_x: y}"), "commands[0].env.abx_x"},
		{command("env: {'A B': y}"), "commands[0].env.A B: no name of a variable"},
		{command("env: {A: 1}"), "commands[0].env.A: expected a string, got an integer"},
		{command("env: {A: '{q}'}"), "commands[0].env.A: unknown argument 'q'"},
		{command("env: {A: '{t...}'}, args: [{name: t, type: string_array}]"), "commands[0].env.A: a list cannot be a variable"},
		{"version: 1\ndefaults: {env: {A: '{q}'}}\ncommands: [{name: a, argv: [x]}]", "defaults.env.A: unknown argument 'q'"},
		{"version: 1\ndefaults: {argv: [x]}\ncommands: []", "defaults.argv: unknown key"},
		{"version: 1\ngroups: [nope]\ncommands: []", `groups[0]: unknown group "nope"`},
		{"version: 1\ngroups: {core: false}\ncommands: []", "groups.core: the core group cannot be switched off"},
		{"version: 1\ngroups: {browser: 1}\ncommands: []", "groups.browser: expected true or false"},
		{command("args: [{}]"), "commands[0].args[0].name: is required"},
		{command("args: [{name: 1a}]"), "commands[0].args[0].name: expected a letter"},
		{command("args: [{name: p}, {name: p}]"), `commands[0].args[1].name: "p" is there twice`},
		{arg("type: int"), "commands[0].args[0].type: unknown type 'int'"},
		{arg("help: x"), "commands[0].args[0].help: unknown key"},
		{arg("required: true, default: x"), "commands[0].args[0].default: a required argument has no default"},
		{arg("required: 1"), "commands[0].args[0].required"},
		{arg("default: 5"), "commands[0].args[0].default: expected a value of type string, got an integer"},
		{arg("default: null"), "commands[0].args[0].default: expected a value of type string, got nothing"},
		{arg("type: integer, default: 1.5"), "commands[0].args[0].default: expected a value of type integer"},
		{arg("type: integer, default: '1'"), "commands[0].args[0].default"},
		{arg("type: boolean, default: yes"), "commands[0].args[0].default"},
		{arg("type: string_array, default: [1]"), "commands[0].args[0].default[0]: expected a string"},
		{arg("choices: []"), "commands[0].args[0].choices: is empty"},
		{arg("choices: [a, 1]"), "commands[0].args[0].choices[1]: expected a value of type string"},
		{arg("choices: [a], default: b"), "commands[0].args[0].default: must be one of ['a']"},
		{arg("pattern: '('"), "commands[0].args[0].pattern: error parsing regexp"},
		{arg("type: integer, pattern: x"), "commands[0].args[0].pattern: goes only with strings"},
		{arg("min: 1"), "commands[0].args[0].min: goes only with numbers"},
		{arg("type: integer, min: x"), "commands[0].args[0].min: expected a number"},
		{arg("type: float, max: 1e999999999"), "commands[0].args[0].max: expected a number"},
		{arg("type: float, max: 1e-999999999"), "commands[0].args[0].max: expected a number"},
		{arg("type: integer, max_length: 3"), "commands[0].args[0].max_length: goes only with strings"},
		{arg("max_length: -1"), "commands[0].args[0].max_length: expected an integer of at least 0"},
	} {
		_, err := tryLoad(t, map[string]string{"commands.yaml": c.doc}, nil, "commands.yaml")
		if _, ok := errors.AsType[*ManifestError](err); !ok {
			t.Errorf("%s\ngot %v", c.doc, err)
			continue
		}
		_, text, _ := strings.Cut(err.Error(), "commands.yaml: ")
		anywhere := strings.Contains(c.want, " ") && strings.Contains(text, c.want)
		if !strings.HasPrefix(text, c.want) && !anywhere {
			t.Errorf("%s\ngot  %s\nwant %s", c.doc, text, c.want)
		}
		if strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%s: not one line: %q", c.doc, err)
		}
	}
}

func TestFaultsOfTheFileItself(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo.yaml")
	if err := makeFIFO(fifo); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"missing.yaml", "", "no such file or directory"},
		{"fifo.yaml", "", "not a regular file"},
		{"big.yaml", "version: 1\ncommands: []\n#" + strings.Repeat("x", maxManifest), "more than 1048576 bytes"},
		{"latin.yaml", "version: 1 # \xe9\ncommands: []\n", "not UTF-8"},
		{"a.json", `{"version": 1, "commands": [], "commands": []}`, `the key "commands" is there twice`},
		{"b.json", `{"version": 1, "commands": []} x`, "invalid JSON: line 1"},
		{"c.json", "{\"version\": 1,\n\"commands\": [}", "invalid JSON: line 2"},
		{"d.json", `{"version": 1, "commands": [`, "invalid JSON: line 1: unexpected end"},
		{"e.json", "version: 1\ncommands: []", "invalid JSON"},
		{"f.json", strings.Repeat("[", 500), "nesting deeper than 100"},
	} {
		file := filepath.Join(dir, c.name)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := tryLoad(t, nil, nil, file)
		if err == nil || !strings.HasPrefix(err.Error(), file+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

const everything = `
version: 1
defaults: {timeout: 20, env: {A: a, B: "{who}"}, scopes: [x]}
groups: {dev_tools: true, process: false}
commands:
  - name: full
    description: All there is
    hidden: true
    scopes: [deploy:run]
    args:
      - {name: who, description: whom, choices: [a, b]}
      - {name: n, type: integer, default: 0x10}
      - {name: big, type: integer, default: 123456789012345678901234567890}
      - {name: f, type: float, default: 1}
      - {name: g, type: float, default: 1e-7}
      - {name: b, type: boolean, default: True}
      - {name: t, type: string_array, default: ["é", '"']}
      - {name: o, required: false}
    argv: [printf, "%s ", 1.50, 0o17, True, "{who}"]
    env: {B: mine}
    max_output_bytes: 4MB
    max_concurrency: 2
    inherit_env: false
`

func TestManifestIsReadAsItIsMeant(t *testing.T) {
	r := load(t, map[string]string{"m.yml": everything}, nil, "m.yml")
	c := r.Lookup("full")
	if c.Description != "All there is" || !c.Hidden || !slices.Equal(c.Scopes, []string{"deploy:run"}) || c.Source != "manifest" {
		t.Errorf("%+v", c)
	}
	var got []string
	for _, a := range c.Args {
		def := "-"
		if a.Default != nil {
			def = *a.Default
		}
		got = append(got, fmt.Sprint(a.Name, " ", a.Type, " ", a.Required, " ", def, " ", a.Description, a.Choices))
	}
	want := []string{
		"who string true - whom[a b]", "n integer false 16 []", "big integer false 123456789012345678901234567890 []", "f float false 1.0 []",
		"g float false 1e-07 []", "b boolean false true []", `t string_array false ["é","\""] []`, "o string false - []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if g := r.Groups(); len(g) != 2 || !g["dev_tools"] || g["process"] {
		t.Errorf("groups %v", g)
	}
	r.want("full", `{"who":"a"}`, `"1.50 0o17 True a "`)
}

func TestJSONManifestMeansTheSame(t *testing.T) {
	r := load(t, map[string]string{"m.json": "\ufeff" + `{
		"version": 1,
		"commands": [
			{"name": "p", "args": [{"name": "x", "type": "float", "default": 2.50, "max": 3}], "argv": ["printf", "%s \ud83d\ude00 \/", "{x}"]}
		]}`}, nil, "m.json")
	r.want("p", `{}`, `"2.5 😀 /"`)
	r.want("p", `{"x":"-.5"}`, `"-0.5 😀 /"`)
	f := r.fails("p", `{"x":3.01}`, 400, "ValueError", "argument_invalid")
	if f.Extra["argument"] != "x" {
		t.Errorf("%v", f.Extra)
	}
}

func TestLaterItemsReplaceEarlierOnesInTheirPlace(t *testing.T) {
	one := `{"version":1,"commands":[{"name":"a","argv":["printf","1a"]},{"name":"b","argv":["printf","1b"]}]}`
	two := `{"version":1,"commands":[{"name":"c","argv":["printf","2c"]},{"name":"a","argv":["printf","2a"]}]}`
	r := load(t, map[string]string{"1.json": one, "2.json": two}, nil, "1.json", "2.json")
	var names []string
	for _, c := range r.Commands() {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("%v", names)
	}
	r.want("a", "{}", `"2a"`)
	r.want("b", "{}", `"1b"`)
}

// FuzzManifest: whatever the text, reading ends with commands or with one line
// that names a place.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(everything), false)
	f.Add([]byte(`{"version":1,"commands":[{"name":"a","argv":["x",{"when":"p","args":["{p}","{{"]}],"args":[{"name":"p"}]}]}`), true)
	f.Add([]byte("version: 1\ncommands: [{name: a, script: x, stdin: {arg: p}, args: [{name: p, pattern: 'a+', min: 1}]}]"), false)
	f.Add([]byte("a: &a [*a]"), false)
	f.Add([]byte("? |\n x\n: !!str y\n<<: {a: 1}"), false)
	f.Add([]byte("!%0a"), false)
	f.Fuzz(func(t *testing.T, text []byte, isJSON bool) {
		h := &host{}
		m, err := h.parseManifest(text, isJSON, "/dir")
		if err != nil {
			if e, ok := errors.AsType[*ManifestError](err); !ok || e.Reason == "" || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, c := range m.commands {
			if c.Name == "" || c.run == nil {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// FuzzTemplate: a template fills to what a slow reading of it says.
func FuzzTemplate(f *testing.F) {
	f.Add("a{p}b{{c}}", "v", true)
	f.Add("{t...}", "v", false)
	f.Add("}}{", "", true)
	p := &param{Arg: Arg{Name: "p", Type: "string"}}
	l := &param{Arg: Arg{Name: "t", Type: "string_array"}}
	f.Fuzz(func(t *testing.T, text, v string, there bool) {
		tpl, err := parseTemplate(text, []*param{p, l})
		if err != nil {
			return
		}
		values := map[string]value{"t": listValue([]string{v, v})}
		if there {
			values["p"] = textValue(v)
		}
		out, ok, fail := tpl.fill(values)
		bad := strings.ContainsRune(v, 0) || len(v) > maxPlaceholder
		if fail != nil {
			if !bad {
				t.Fatalf("%q: %v", text, fail)
			}
			return
		}
		if text == "{t...}" {
			if !slices.Equal(out, []string{v, v}) {
				t.Fatalf("%q", out)
			}
			return
		}
		if strings.Contains(text, "{{{") || strings.Contains(text, "}}}") {
			return // the slow reading pairs braces otherwise
		}
		plain := strings.NewReplacer("{{", "\x01", "}}", "\x02").Replace(text)
		uses := strings.Contains(plain, "{p}")
		if ok == (uses && !there) {
			t.Fatalf("%q: ok %v", text, ok)
		}
		if !ok || strings.ContainsAny(text, "\x01\x02") {
			return
		}
		want := strings.NewReplacer("{p}", v, "\x01", "{", "\x02", "}").Replace(plain)
		if out[0] != want {
			t.Fatalf("%q with %q: %q, want %q", text, v, out[0], want)
		}
	})
}
