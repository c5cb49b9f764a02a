package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestObjectIsAsLongAsItSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.Byte()).Draw(t, "text")
		if rapid.Bool().Draw(t, "long") {
			text = bytes.Repeat(append(text, "é€😀\x00\xff"...), 4000)
		}
		raw := rapid.SliceOf(rapid.Byte()).Draw(t, "raw")
		o := &Object{}
		o.Text("text", text)
		o.Base64("raw", bytes.NewReader(raw), int64(len(raw)))
		o.Set("n", 7)
		h := http.Header{}
		o.Header(h)
		var out bytes.Buffer
		if err := o.Send(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
		if want := h.Get("Content-Length"); want != strconv.Itoa(out.Len()) {
			t.Fatalf("%d bytes, announced %s", out.Len(), want)
		}
		var got struct {
			Text, Raw string
			N         int
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(string(text), "\ufffd"); strings.ReplaceAll(got.Text, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Fatalf("text %q became %q", text, got.Text)
		}
		if got.Raw != base64.StdEncoding.EncodeToString(raw) || got.N != 7 {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestObjectTearsWhenItsSourceIsShort(t *testing.T) {
	o := &Object{}
	o.Base64("raw", strings.NewReader("abc"), 4)
	if err := o.Send(t.Context(), &bytes.Buffer{}); err == nil {
		t.Fatal("a short file became a whole answer")
	}
}

func TestEmptyObject(t *testing.T) {
	o, h, out := &Object{}, http.Header{}, &bytes.Buffer{}
	o.Header(h)
	if err := o.Send(t.Context(), out); err != nil || out.String() != "{}" || h.Get("Content-Length") != "2" {
		t.Fatalf("%q %v %v", out, h, err)
	}
}
