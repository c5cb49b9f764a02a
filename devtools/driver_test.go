package devtools

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLastValueIsTheResult(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for _, c := range []struct{ language, code, want string }{
		{"python", "40 + 2", "42"},
		{"python", "x = 1\nx", "1"},
		{"python", "'é'", "'é'"},
		{"python", "None", ""},
		{"python", "7;", ""},
		{"python", "x = 3", ""},
		{"python", "async def f(): return 6\nawait f()", "6"},
		{"python", "import asyncio; asyncio.run(f())", "6"},
		{"python", "class Odd:\n  def __repr__(self): raise ValueError\nOdd()", "<Odd that cannot be shown: ValueError>"},
		{"python", "class A: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(A())))", "<class '__main__.A'>"},
		{"python", "from __future__ import annotations\ndef g(x: Undefined): pass", ""},
		{"python", "def h(x: Undefined): return 5\nh(1)", "5"},
		{"python", "display(1); _", "5"},
		{"python", "float('nan')", "nan"},
		{"node", "40 + 2", "42"},
		{"node", "'é'", "'é'"},
		{"node", "({a: [1, new Map([[1, 2]])]})", "{ a: [ 1, Map(1) { 1 => 2 } ] }"},
		{"node", "undefined", ""},
		{"node", "const y = 1; let z", ""},
		{"node", "const y = 2; y", "2"},
		{"node", "await new Promise(r => setTimeout(() => r(7), 5))", "7"},
		{"node", "-0", "-0"},
		{"node", "10n ** 20n", "100000000000000000000n"},
		{"node", "null", "null"},
		{"node", "require('path').sep", "'/'"},
	} {
		t.Run(c.language+" "+c.code, func(t *testing.T) {
			k, ok := sameContext(t, s, c.language)
			if !ok {
				t.Skip("not installed")
			}
			out, cell := runCell(t, k, c.code)
			if got := out.plain(); got != c.want || cell.Error != nil {
				t.Errorf("%q, %v, stderr %q", got, cell.Error, out.err.String())
			}
			if c.want != "" && out.results[len(out.results)-1]["is_main_result"] != true {
				t.Errorf("not the main result: %v", out.results)
			}
		})
	}
}

// sameContext is one context per language and test.
func sameContext(t *testing.T, s *Contexts, language string) (*Context, bool) {
	t.Helper()
	for _, c := range s.all {
		if c.Language.Name == language {
			return c, true
		}
	}
	l := mustLanguage(t, language)
	find(t, l.Programs()[0])
	return newContext(t, s, language), true
}

func TestErrorsAreTheCells(t *testing.T) {
	s := newContexts(t, ContextOptions{})
	for _, c := range []struct{ language, code, name, value, trace string }{
		{"python", "\n1/0", "ZeroDivisionError", "division by zero", "line 2, in <module>\n    1/0"},
		{"python", "def", "SyntaxError", "invalid syntax", "SyntaxError"},
		{"python", "raise SystemExit(3)", "SystemExit", "3", "SystemExit: 3"},
		{"python", "class E(Exception):\n  def __str__(self): raise ValueError\nraise E", "E", "", ""},
		{"node", "\nnull.foo", "TypeError", "Cannot read properties of null (reading 'foo')", ":2:6"},
		{"node", "let let", "SyntaxError", "", "SyntaxError"},
		{"node", "throw 5", "Uncaught", "5", ""},
	} {
		t.Run(c.language+" "+c.code, func(t *testing.T) {
			k, _ := sameContext(t, s, c.language)
			_, cell := runCell(t, k, c.code)
			e := cell.Error
			if e == nil || e.Name != c.name || !strings.HasPrefix(e.Value, c.value) || !strings.Contains(e.Traceback, c.trace) || cell.Status != 1 {
				t.Errorf("%+v", e)
			}
			if e != nil && (strings.Contains(e.Traceback, "<string>") || strings.Contains(e.Traceback, "Session.post")) {
				t.Errorf("the driver shows: %s", e.Traceback)
			}
		})
	}
}

func TestRichResults(t *testing.T) {
	c := newContext(t, newContexts(t, ContextOptions{}), "python")
	out, cell := runCell(t, c, `
class Rich:
    def __repr__(self): return 'rich'
    def _repr_html_(self): return '<b>rich</b>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_svg_(self): raise ValueError
    def _repr_json_(self): return {'a': [1]}
    def _repr_latex_(self): return None
    def _repr_mimebundle_(self, **kw): return {'x/y': object(), 'text/x': 'own'}, {}
display(Rich(), 3)
Rich()`)
	bundle := map[string]any{
		"text/plain": "rich", "text/html": "<b>rich</b>", "image/png": "iVBORw==", "text/x": "own",
		"application/json": map[string]any{"a": []any{1.0}},
	}
	last := map[string]any{"is_main_result": true}
	maps.Copy(last, bundle)
	if d := cmp.Diff([]map[string]any{bundle, {"text/plain": "3"}, last}, out.results); d != "" || cell.Error != nil {
		t.Error(d, cell.Error)
	}
}

// What matplotlib does that drivers depend on.
var imitation = map[string]string{
	"__init__.py": "",
	"figure.py": `class Figure:
    def __init__(self, number): self.number = number
    def savefig(self, to, format, **kw): to.write(b'figure %d as %s' % (self.number, format.encode()))
    def __repr__(self): return '<Figure>'
`,
	"pyplot.py": `import os, inspect
from .figure import Figure
assert os.environ['MPLBACKEND'] == 'Agg'
open_figures = {}
def figure(number=None):
    if number is None: number = max(open_figures, default=0) + 1
    return open_figures.setdefault(number, Figure(number))
def get_fignums(): return list(open_figures)
def close(f): open_figures.pop(f.number, None)
def show(*a, **k): raise RuntimeError('no display')
def switch(): show.__signature__ = inspect.signature(figure)
`,
}

func TestFiguresNeedNoDisplay(t *testing.T) {
	dir := t.TempDir()
	for name, text := range imitation {
		file := filepath.Join(dir, "matplotlib", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := newContext(t, newContexts(t, ContextOptions{}), "python", "PYTHONPATH="+dir)
	for _, x := range []struct {
		code string
		want []string // in base64
	}{
		{"import matplotlib.pyplot as plt; plt.switch(); plt.figure(); plt.show(block=False)", []string{"ZmlndXJlIDEgYXMgcG5n"}},
		{"for i in range(2): plt.figure(); plt.show()", []string{"ZmlndXJlIDEgYXMgcG5n", "ZmlndXJlIDEgYXMgcG5n"}},
		{"plt.figure(); f = plt.figure(); f", []string{"ZmlndXJlIDIgYXMgcG5n", "ZmlndXJlIDEgYXMgcG5n"}},
		{"1", []string{""}},
	} {
		out, cell := runCell(t, c, x.code)
		var got []string
		for _, r := range out.results {
			image, _ := r["image/png"].(string)
			got = append(got, image)
		}
		if d := cmp.Diff(x.want, got); d != "" || cell.Error != nil {
			t.Errorf("%s: %s %v", x.code, d, cell.Error)
		}
	}
}
