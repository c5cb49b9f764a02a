package registry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMessagesKeepTheBodyAsItWasWritten(t *testing.T) {
	for _, c := range []struct{ line, body string }{
		{`{"op":"result","id":7,"status":200,"body":NaN}`, `NaN`},
		{`{"op":"result","id":7,"status":200,"body":[1, -Infinity,{"a":"]}\"\\"}]}`, `[1, -Infinity,{"a":"]}\"\\"}]`},
		{`{"body":"x","op":"result","id":7,"status":200}`, `"x"`},
		{` { "op" : "result" , "id" : 7 , "status":200, "body" : null } `, `null`},
		{`{"op":"result","id":7,"status":200,"body":12345678901234567890123,"headers":{}}`, `12345678901234567890123`},
	} {
		m, err := parseMessage([]byte(c.line))
		if err != nil || m.op != "result" || m.id != 7 || m.status != 200 || string(m.body) != c.body {
			t.Errorf("%s: %+v, %v", c.line, m, err)
		}
	}
}

func TestGarbageIsNoMessage(t *testing.T) {
	for _, line := range []string{
		``, `x`, `{`, `{}`, `[]`, `{"op"}`, `{"op":}`, `{"op":"a"`, `{"op":"a"}}`, `{"op":"a",}`, `{"op":"a" "id":1}`, `{"op":1}`, `{"op":"a","id":-1}`, `{"op":"a","id":1.5}`,
		`{"op":"a","body":[}`, `{"op":"a","body":[1}]}`, `{"op":"a","body":"x}`, `{"op":"a","body":"\"}`, `{"op":"a","body":}`, `{op:"a"}`,
		`{"\`, `{"op":"\`, `{"op":"\\`,
	} {
		if m, err := parseMessage([]byte(line)); !errors.Is(err, errMessage) {
			t.Errorf("%s: %+v, %v", line, m, err)
		}
	}
}

func TestLinesAreBounded(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
		err  bool
	}{
		{"abc\n", "abc", false},
		{"\n", "", false},
		{strings.Repeat("x", 100) + "\n", strings.Repeat("x", 100), false},
		{strings.Repeat("x", 300) + "\n", "", true},
		{"cut", "", true},
		{"", "", true},
	} {
		line, err := readLine(bufio.NewReaderSize(strings.NewReader(c.in), 16), 200)
		if (err != nil) != c.err || string(line) != c.want {
			t.Errorf("%.20q: %.20q, %v", c.in, line, err)
		}
	}
	if _, err := readLine(bufio.NewReader(strings.NewReader("")), 10); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

// FuzzMessage: no line of a worker does harm, and what JSON says about an
// object is what the fast reading says.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"op":"result","id":7,"status":200,"headers":{"A":"b"},"body":{"x":[1,"\u00e9",null]}}`))
	f.Add([]byte(`{"op":"chunk","id":18446744073709551615,"data":"event: a\n\n"}`))
	f.Add([]byte(`{"op":"a","body":NaN,"body":[[[]]]}`))
	f.Add([]byte("{\"op\":\"\\u0061\"\t,\"failed\":true}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMessage(bytes.Clone(line))
		if !json.Valid(line) || !utf8.Valid(line) {
			return
		}
		var all map[string]json.RawMessage
		if json.Unmarshal(line, &all) != nil {
			if err == nil {
				t.Fatalf("%q is no object", line)
			}
			return
		}
		if err != nil {
			return // the types of members may be wrong
		}
		var op string
		_ = json.Unmarshal(all["op"], &op)
		if m.op != op || !bytes.Equal(m.body, all["body"]) || !bytes.Equal(m.headers, all["headers"]) || !bytes.Equal(m.data, all["data"]) {
			t.Fatalf("%q: %+v", line, m)
		}
	})
}

// FuzzAppendLine: the text stays the same JSON and is one line of ASCII.
func FuzzAppendLine(f *testing.F) {
	f.Add([]byte("{\"é\":\n[\"\u2028\U0001f600\x7f\", 1e5]\t}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || !utf8.Valid(text) {
			return
		}
		out := AppendLine(nil, text)
		for _, c := range out {
			if c < 0x20 || c >= 0x80 {
				t.Fatalf("%q", out)
			}
		}
		var before, after any
		if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(out, &after)); err != nil {
			if json.Valid(out) {
				return // numbers that no float holds
			}
			t.Fatal(err)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", text, out)
		}
	})
}
