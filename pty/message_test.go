package pty

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDecode(t *testing.T) {
	typed := func(s string) *command { return &command{input: []byte(s)} }
	resize := func(cols, rows int) *command { return &command{resize: &size{cols, rows}} }
	for msg, want := range map[string]*command{
		`{"type":"input","data":"ls\n"}`:                        typed("ls\n"),
		` {"data":"x", "type":"input", "more":[1,{"a":null}]} `: typed("x"),
		`{"type":"input","data":""}`:                            typed(""),
		`{"type":"input","data":"\u00e9\ud83d\ude42"}`:          typed("é🙂"),
		`{"type":"input","data_base64":"/wA="}`:                 typed("\xff\x00"),
		`{"type":"input","data":"a","data_base64":"Yg=="}`:      typed("b"),
		`{"type":"input","data_base64":"Yg"}`:                   nil,
		`{"type":"input","data_base64":"Yh=="}`:                 nil,
		`{"type":"input","data_base64":5}`:                      nil,
		`{"type":"input","data":5}`:                             nil,
		`{"type":"input","data":null}`:                          nil,
		`{"type":"input"}`:                                      nil,
		`{"TYPE":"input","data":"x"}`:                           nil,
		`{"type":"input","Data":"x"}`:                           nil,
		`{"type":"resize","cols":90,"rows":20}`:                 resize(90, 20),
		`{"type":"resize","cols":90}`:                           resize(90, 0),
		`{"type":"resize","rows":1000}`:                         resize(0, 1000),
		`{"type":"resize","rows":2e1,"cols":80.0}`:              resize(80, 20),
		`{"type":"resize"}`:                                     nil,
		`{"type":"resize","cols":0,"rows":5}`:                   nil,
		`{"type":"resize","cols":-1,"rows":1e9}`:                nil,
		`{"type":"resize","cols":1001,"rows":5}`:                nil,
		`{"type":"resize","cols":1.5,"rows":5}`:                 nil,
		`{"type":"resize","cols":"90","rows":5}`:                nil,
		`{"type":"resize","cols":null,"rows":5}`:                nil,
		`{"type":"resize","cols":1e999,"rows":5}`:               nil,
		`{"type":"signal","signal":"SIGTERM"}`:                  {signal: syscall.SIGTERM},
		`{"type":"signal"}`:                                     {signal: syscall.SIGINT},
		`{"type":"signal","signal":"SIGNOPE"}`:                  nil,
		`{"type":"signal","signal":9}`:                          nil,
		`{"type":"signal","signal":null}`:                       nil,
		`{"type":"nope"}`:                                       nil, `{"type":7}`: nil, `{}`: nil, `[]`: nil, `5`: nil, `null`: nil, `"x"`: nil,
		`not json`: nil, ``: nil, "\xff\xfe": nil, `{"type":"input","data":"x"} trailing`: nil,
	} {
		got, ok := decode([]byte(msg))
		if ok != (want != nil) {
			t.Errorf("%s: understood: %v", msg, ok)
			continue
		}
		if ok && (!bytes.Equal(got.input, want.input) || got.signal != want.signal || !cmp.Equal(got.resize, want.resize, cmp.AllowUnexported(size{}))) {
			t.Errorf("%s: %+v, want %+v", msg, got, *want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"input","data":"\ud800x","data_base64":"/wA="}`))
	f.Add([]byte(`{"type":"resize","cols":90,"rows":1e3}`))
	f.Add([]byte(`{"type":"signal","signal":"SIGQUIT"}`))
	f.Add([]byte(`[{"type":"input"}]`))
	f.Fuzz(func(t *testing.T, msg []byte) {
		cmd, ok := decode(msg)
		if !ok {
			return
		}
		if !json.Valid(msg) {
			t.Errorf("understood what is no JSON: %q", msg)
		}
		if r := cmd.resize; r != nil && (r.cols < 0 || r.cols > MaxSize || r.rows < 0 || r.rows > MaxSize || *r == size{}) {
			t.Errorf("a size of %+v", *r)
		}
		if len(cmd.input) > 3*len(msg) {
			t.Errorf("%d bytes of input from a message of %d", len(cmd.input), len(msg))
		}
	})
}

// outputOf is what a client makes of an output message.
type outputOf struct {
	Type   string
	Offset int64
	Data   string
	Bytes  *int64
}

// next is the offset after the message, by the rule clients have.
func (o outputOf) next() int64 {
	if o.Bytes != nil {
		return o.Offset + *o.Bytes
	}
	return o.Offset + int64(len(o.Data))
}

// messagesOf sends p as output that arrives in pieces cut anywhere, and
// returns what a client puts together.
func messagesOf(t *rapid.T, p []byte) string {
	var text strings.Builder
	off, have := 0, 0
	for off < len(p) {
		have = max(have, rapid.IntRange(off, len(p)).Draw(t, "arrived"))
		last := have == len(p)
		msg, taken := appendOutput(nil, int64(off), p[off:have], last)
		if taken == 0 {
			if have-off >= utf8.UTFMax || last {
				t.Fatalf("nothing sent of %d bytes", have-off)
			}
			continue
		}
		if taken > pieceMax || len(msg) > textMax+200 {
			t.Fatalf("a message of %d bytes for %d", len(msg), taken)
		}
		if !utf8.Valid(msg) {
			t.Fatalf("not UTF-8: %q", msg)
		}
		var o outputOf
		if err := json.Unmarshal(msg, &o); err != nil {
			t.Fatalf("%v: %q", err, msg)
		}
		if o.Type != "output" || o.Offset != int64(off) || o.next() != int64(off+taken) {
			t.Fatalf("%d bytes at %d are told as %+v", taken, off, o)
		}
		off += taken
		text.WriteString(o.Data)
	}
	return text.String()
}

// TestOutputMessagesJoinToTheOutput: whatever the pieces, characters are whole
// and each byte that belongs to none is one U+FFFD.
func TestOutputMessagesJoinToTheOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.SliceOf(rapid.SampledFrom([]string{"é", "€", "🙂", "\xe2\x82", "\xf0\x9f", "\x80", "\x00", "\"\\\r\n", "a"})), func(s []string) []byte { return []byte(strings.Join(s, "")) }),
		).Draw(t, "output")
		if got, want := messagesOf(t, p), string([]rune(string(p))); got != want {
			t.Fatalf("%q is read as %q", p, got)
		}
	})
}

func TestLongOutputMessages(t *testing.T) {
	for name, text := range map[string]string{
		"plain": strings.Repeat("x", 300_000), "wide": strings.Repeat("a漢", 60_000), "control": strings.Repeat("\x00", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for off := 0; off < len(text); {
				msg, taken := appendOutput(nil, 0, []byte(text[off:]), false)
				var o outputOf
				if err := json.Unmarshal(msg, &o); err != nil || taken == 0 || taken > pieceMax || len(msg) > textMax+200 {
					t.Fatalf("%d bytes in a message of %d: %v", taken, len(msg), err)
				}
				off += taken
				got.WriteString(o.Data)
			}
			if got.String() != text {
				t.Error("not what was sent")
			}
		})
	}
}

func TestTailLen(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "é": 0, "\xc3": 1, "a\xe2\x82": 2, "\xf0\x9f\x99": 3, "\xf0\x9f\x99\x82": 0,
		"\x82": 0, "\xe2\x82\x82\x82": 0, "\xff": 0, "\xe2a": 0, "\xc0": 0, "\xed\xa0": 0, "€\xe2": 1,
	} {
		if got := tailLen([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestBase64Input(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	msg := `{"type":"input","data_base64":"` + base64.StdEncoding.EncodeToString(all) + `"}`
	if cmd, ok := decode([]byte(msg)); !ok || !bytes.Equal(cmd.input, all) {
		t.Errorf("%v %v", cmd.input, ok)
	}
}
