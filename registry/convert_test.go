package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// conversions are values as callers send them.
var conversions = []string{
	`1`, `0`, `-0`, `-12`, `007`, `1.9`, `-1.9`, `-0.0`, `1e3`, `1E400`, `-1e400`, `1e22`, `123456789012345678901234567890`, `0.1`, `1e16`, `123456789.123`, `1e-5`, `0.0001`,
	`true`, `false`, `null`, `[]`, `{}`, `[1]`, `["a"]`, `["a","é",""]`, `["a",null]`, `{"a":1}`,
	`""`, `" "`, `"1"`, `" 12 "`, `"+5"`, `"-0"`, `"007"`, `"1_000"`, `"1__0"`, `"_1"`, `"1_"`, `"0x10"`, `"1.9"`, `"1e3"`, `"-.5"`, `"5."`, `"."`, `"e5"`, `"1e"`, `"1e+5"`, `"1_0.5_0e1_0"`,
	`"inf"`, `"-Infinity"`, `"nan"`, `"+nan"`, `"infinit"`, `"++1"`, `"- 1"`, `"\u0663"`, `"\u0967\u0968"`, `"\ud835\udfce\ud835\udfd7"`, `"\u20031\u2003"`, `"\u001c1"`, `"\u00b2"`, `"1\u0000"`,
	`"true"`, `"TRUE"`, `"Yes"`, `"no"`, `"off"`, `"on"`, `"2"`, `"0"`, `"\u0130"`, `"plain"`,
}

// referee converts with Python's own int, float and str, as the worker does.
const referee = `
import sys, json
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("_coerce", sys.argv[1] + "/_coerce.py")
m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
class A: pass
out = []
for line in sys.stdin:
    v = json.loads(line)
    row = {}
    for t in ("integer", "float", "boolean", "string_array"):
        a = A(); a.name = "v"; a.type = t
        try: row[t] = json.dumps(m.convert(a, v), ensure_ascii=False, separators=(",", ":"))
        except m.ArgumentError as e: row[t] = e.type
    print(json.dumps(row))
`

// TestManifestsConvertAsPythonDoes compares both implementations of the
// conversion, on chosen and on random values.
func TestManifestsConvertAsPythonDoes(t *testing.T) {
	inputs := make([]string, 0, len(conversions)+2000)
	for _, c := range conversions {
		if json.Valid([]byte(c)) {
			inputs = append(inputs, c)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("0123456789012345+-._eE xinfaINF\u0660\u00a0")
	for range 2000 {
		var b strings.Builder
		for range 1 + rng.IntN(6) {
			b.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		if text := b.String(); rng.IntN(3) > 0 || !json.Valid([]byte(text)) {
			inputs = append(inputs, quoteJSON(text))
		} else {
			inputs = append(inputs, text)
		}
	}
	cmd := exec.Command(python3(t), "-c", referee, filepath.Join("shim", "agent_sandbox", "server"))
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1")
	cmd.Stdin = strings.NewReader(strings.Join(inputs, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	rows := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(rows) != len(inputs) {
		t.Fatalf("%d rows of %d", len(rows), len(inputs))
	}
	accepted := 0
	for i, in := range inputs {
		var want map[string]string
		if err := json.Unmarshal(rows[i], &want); err != nil {
			t.Fatal(err)
		}
		for typ, w := range want {
			got := convertText(t, typ, in)
			if got != w {
				t.Errorf("%s to %s: %s, Python %s", in, typ, got, w)
			}
			if w != "TypeError" {
				accepted++
			}
		}
	}
	if accepted < 500 {
		t.Errorf("only %d conversions of %d inputs succeed: the values are too odd", accepted, len(inputs))
	}
}

func convertText(t *testing.T, typ, in string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(in))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(in, err)
	}
	p := &param{Arg: Arg{Name: "v", Type: typ}, maxLength: -1}
	val, fail := p.convert(v)
	if fail != nil {
		if !strings.Contains(fail.Text, "'v'") || fail.Extra["argument"] != "v" || fail.Code != "argument_invalid" {
			t.Errorf("%s: %+v", in, fail)
		}
		return fail.Type
	}
	return val.json
}

func TestTextOfManifestArguments(t *testing.T) {
	for in, want := range map[string]string{
		`"x"`: "x", `true`: "true", `false`: "false", `1`: "1", `1.50`: "1.50", `1e3`: "1e3", `""`: "",
		`null`: "TypeError", `[]`: "TypeError", `{"a":1}`: "TypeError", `["a"]`: "TypeError",
	} {
		p := &param{Arg: Arg{Name: "v", Type: "string"}, maxLength: -1}
		dec := json.NewDecoder(strings.NewReader(in))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		val, fail := p.convert(v)
		if got := val.text; fail != nil && fail.Type != want || fail == nil && got != want {
			t.Errorf("%s: %q, %v; want %q", in, got, fail, want)
		}
	}
}

func TestChecksOfArguments(t *testing.T) {
	r := load(t, map[string]string{"m.yaml": `
version: 1
commands:
  - name: c
    args:
      - {name: i, type: integer, min: -2, max: 10000000000000000000000, required: false}
      - {name: f, type: float, min: 0.1, max: 0.3, required: false}
      - {name: s, max_length: 3, pattern: 'a*|é+', required: false}
      - {name: l, type: string_array, max_length: 2, choices: [x, "y"], required: false}
      - {name: n, type: integer, choices: [1, 20], required: false}
    shell: 'true'
    result: none
`}, nil, "m.yaml")
	huge := "1" + strings.Repeat("0", 100000)
	for args, ok := range map[string]bool{
		`{"i":-2}`: true, `{"i":-3}`: false, `{"i":10000000000000000000000}`: true, `{"i":10000000000000000000001}`: false,
		`{"i":` + huge + `}`: false, `{"i":-` + huge + `}`: false,
		`{"f":0.1}`: true, `{"f":0.3}`: true, `{"f":0.30000000000000004}`: false, `{"f":0.0999}`: false, `{"f":"nan"}`: false, `{"f":"inf"}`: false, `{"f":"-inf"}`: false,
		`{"s":"aaa"}`: true, `{"s":"éé"}`: true, `{"s":"aaaa"}`: false, `{"s":"aé"}`: false, `{"s":"a\n"}`: false, `{"s":""}`: true,
		`{"l":["x","y"]}`: true, `{"l":[]}`: true, `{"l":["x","x","x"]}`: false, `{"l":["z"]}`: false,
		`{"n":20}`: true, `{"n":"1"}`: true, `{"n":2}`: false,
	} {
		got, err := r.run("c", args)
		if ok {
			if err != nil {
				t.Errorf("%.60s: %v", args, err)
			}
			continue
		}
		wantFailure(t, args[:min(60, len(args))], got, err, 400, "ValueError", "argument_invalid")
	}
}

// FuzzQuoteJSON: what is written reads back as the same bytes, where those are
// UTF-8, and is always JSON.
func FuzzQuoteJSON(f *testing.F) {
	f.Add("a\"\\\n\x00é\u2028\xff")
	f.Fuzz(func(t *testing.T, s string) {
		text := quoteJSON(s)
		var back string
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if utf8.ValidString(s) && back != s {
			t.Fatalf("%q became %q", s, back)
		}
	})
}

// FuzzNumbers: conversion of any text to a number ends, and gives canonical
// text.
func FuzzNumbers(f *testing.F) {
	for _, c := range conversions {
		f.Add(strings.Trim(c, `"`))
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, ok := toInteger(s); ok {
			again, ok := toInteger(v.text)
			if !ok || again.text != v.text {
				t.Fatalf("%q → %q → %q %v", s, v.text, again.text, ok)
			}
		}
		if v, ok := toFloat(s); ok {
			again, ok := toFloat(v.text)
			if !ok || again.text != v.text {
				t.Fatalf("%q → %q → %q %v", s, v.text, again.text, ok)
			}
		}
		_ = fmt.Sprint(shown(s))
	})
}
