package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func scanAll(s *scanner) (any, error) {
	v, err := s.value(0)
	if err == nil {
		err = s.end()
	}
	return v, err
}

func TestScanValues(t *testing.T) {
	tests := []struct {
		in   string
		want any
	}{
		{`{}`, map[string]any{}},
		{"\ufeff {\"a\": [1, -0.5e+3, true, null, \"x\"]} \n", map[string]any{"a": []any{Number("1"), Number("-0.5e+3"), true, nil, "x"}}},
		{`{"a":1,"a":2}`, map[string]any{"a": Number("2")}},
		{`"\u00e9\n\/\ud83d\ude00"`, "é\n/😀"},
		{`"caf\udcc3\udca9"`, "caf\xc3\xa9"},
		{`"a\udcffb"`, "a\xffb"},
		{`"\ud800"`, "\xed\xa0\x80"},
		{`"\ud800x"`, "\xed\xa0\x80x"},
		{`"\ud800\n"`, "\xed\xa0\x80\n"},
		{`"\ud800\ud83d\ude00"`, "\xed\xa0\x80😀"},
		{`123456789012345678901234567890`, Number("123456789012345678901234567890")},
	}
	for _, tt := range tests {
		for name, s := range map[string]*scanner{
			"memory": scanBytes([]byte(tt.in)),
			"stream": scanStream(iotest.OneByteReader(strings.NewReader(tt.in))),
		} {
			got, err := scanAll(s)
			if err != nil {
				t.Errorf("%s %q: %v", name, tt.in, err)
			} else if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s %q: %s", name, tt.in, diff)
			}
		}
	}
}

func TestScanRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, in := range []string{
		``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `{'a':1}`, `{"a":1} x`, `{"a":1}{}`, `// c`, `nul`, `NaN`, `Infinity`,
		`01`, `1.`, `.5`, `1e`, `-`, `+1`, "\"\x01\"", "\"\t\"", `"\x"`, `"\u12"`, `"abc`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\"", deep,
		strings.Repeat("[", 200000),
	} {
		for name, s := range map[string]*scanner{
			"memory": scanBytes([]byte(in)),
			"stream": scanStream(iotest.OneByteReader(strings.NewReader(in))),
		} {
			if _, err := scanAll(s); err == nil {
				t.Errorf("%s: %.40q was accepted", name, in)
			} else if _, ok := errors.AsType[*syntaxError](err); !ok {
				t.Errorf("%s: %.40q: %v is no syntax error", name, in, err)
			}
		}
	}
	ok := strings.Repeat("[", 500) + strings.Repeat("]", 500)
	if _, err := scanAll(scanBytes([]byte(ok))); err != nil {
		t.Errorf("500 levels: %v", err)
	}
}

func TestScanPassesOnTheFailureOfItsSource(t *testing.T) {
	boom := errors.New("boom")
	s := scanStream(io.MultiReader(strings.NewReader(`{"a": "xyz`), iotest.ErrReader(boom)))
	if _, err := scanAll(s); !errors.Is(err, boom) {
		t.Fatalf("got %v, want the source's error", err)
	}
}

// FuzzScan compares the scanner with encoding/json and the two ways of
// reading with one another.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00"],"b":null}`, `"\udcff\ud800"`, "\ufeff{}", `[[[[]]]]`, `{"content_base64":"AAAA","path":"x"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, errA := scanAll(scanBytes(text))
		b, errB := scanAll(scanStream(iotest.HalfReader(bytes.NewReader(text))))
		if (errA == nil) != (errB == nil) || !cmp.Equal(a, b) && errA == nil {
			t.Fatalf("memory %v %v, stream %v %v", a, errA, b, errB)
		}
		skipErr := func() error {
			s := scanBytes(text)
			if err := s.skip(0); err != nil {
				return err
			}
			return s.end()
		}()
		if (skipErr == nil) != (errA == nil) {
			t.Fatalf("skip says %v, value says %v", skipErr, errA)
		}
		plain := bytes.TrimPrefix(text, []byte("\ufeff"))
		strict := utf8.Valid(text) && json.Valid(plain)
		if strict && errA != nil && !strings.Contains(errA.Error(), "nesting") && !strings.Contains(errA.Error(), "too long") {
			t.Fatalf("valid text refused: %v", errA)
		}
		if !strict && errA == nil {
			t.Fatalf("invalid text accepted: %q", text)
		}
		if errA != nil || bytes.Contains(text, []byte(`\u`)) || bytes.Contains(text, []byte(`\U`)) {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(plain))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err == nil && !cmp.Equal(want, normal(a)) {
			t.Fatalf("got %#v, want %#v", a, want)
		}
	})
}

// normal turns our numbers into those of encoding/json.
func normal(v any) any {
	switch v := v.(type) {
	case Number:
		return json.Number(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = normal(v[k])
		}
		return out
	}
	return v
}

func TestTextIsASCIIAndComesBack(t *testing.T) {
	for _, in := range []string{"", "plain", "é\u0085\u2028😀", "\x00\x1f\x7f\"\\\n", "a\xffb\xc3", "\xed\xa0\x80"} {
		text, err := json.Marshal(Name(in))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range text {
			if c < 0x20 || c > 0x7e {
				t.Errorf("%q: byte %#x in %q", in, c, text)
			}
		}
		got, err := scanAll(scanBytes(text))
		if err != nil || got != in {
			t.Errorf("%q came back as %q, %v", in, got, err)
		}
		if lossy := AppendText(nil, in); !json.Valid(lossy) {
			t.Errorf("%q: invalid %q", in, lossy)
		}
	}
}

func TestParseQuery(t *testing.T) {
	tests := []struct {
		raw   string
		want  Query
		twice string
	}{
		{"", Query{}, ""},
		{"a=1&b=x+y%20z", Query{"a": "1", "b": "x y z"}, ""},
		{"a=&a=1", Query{"a": "1"}, ""},
		{"a=1&a=2", Query{"a": "2"}, "a"},
		{"a=1&A=2", Query{"a": "1", "A": "2"}, ""},
		{"p=%FF;x&q=%zz%", Query{"p": "\xff;x", "q": "%zz%"}, ""},
		{"a=b=c&&=x&c", Query{"a": "b=c", "": "x"}, ""},
	}
	for _, tt := range tests {
		got, twice := parseQuery(tt.raw)
		if diff := cmp.Diff(tt.want, got); diff != "" || twice != tt.twice {
			t.Errorf("%q: twice %q, %s", tt.raw, twice, diff)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add("a=1&b=%41+c&a=2")
	f.Add("%=%&&;=;")
	f.Fuzz(func(t *testing.T, raw string) {
		q, twice := parseQuery(raw)
		for k, v := range q {
			if v == "" {
				t.Fatalf("blank value for %q", k)
			}
		}
		if _, ok := q[twice]; twice != "" && !ok {
			t.Fatalf("%q is said to come twice, and is not there", twice)
		}
		if len(q) > strings.Count(raw, "&")+1 {
			t.Fatalf("%d keys from %q", len(q), raw)
		}
	})
}
