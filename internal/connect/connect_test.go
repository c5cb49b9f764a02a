package connect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type colour int32

func (colour) EnumNames() map[int32]string { return map[int32]string{0: "NONE", 3: "RED"} }

type inner struct {
	N uint32 `pb:"1,n"`
}

type message struct {
	Text   string            `pb:"1,text"`
	On     bool              `pb:"2,is_on"`
	Size   int64             `pb:"3,size"`
	Code   int32             `pb:"4,exit_code,sint"`
	Colour colour            `pb:"5,colour"`
	Data   []byte            `pb:"6,data,oneof=what"`
	PID    *uint32           `pb:"7,pid,oneof=what"`
	Inner  *inner            `pb:"8,inner"`
	List   []*inner          `pb:"9,list"`
	Words  []string          `pb:"10,words"`
	Vars   map[string]string `pb:"11,vars"`
	When   time.Time         `pb:"12,when"`
}

func TestMessagesInBothCodecs(t *testing.T) {
	seven := uint32(0)
	for _, c := range []struct {
		m    message
		json string
		wire string
	}{
		{message{}, `{}`, ""},
		{
			message{Text: "a\"\u2028ü", On: true, Size: 11, Code: -1, Colour: 3},
			`{"text":"a\"\u2028ü","isOn":true,"size":"11","exitCode":-1,"colour":"RED"}`,
			"\x0a\x07a\"\u2028ü\x10\x01\x18\x0b\x20\x01\x28\x03",
		},
		{message{PID: &seven, Inner: &inner{}}, `{"pid":0,"inner":{}}`, "\x38\x00\x42\x00"},
		{message{Data: []byte{}, Colour: 9}, `{"colour":9,"data":""}`, "\x28\x09\x32\x00"},
		{
			message{List: []*inner{{1}, {}}, Words: []string{"", "b"}, Vars: map[string]string{"k": "v", "a": ""}},
			`{"list":[{"n":1},{}],"words":["","b"],"vars":{"a":"","k":"v"}}`,
			"\x4a\x02\x08\x01\x4a\x00\x52\x00\x52\x01b\x5a\x05\x0a\x01a\x12\x00\x5a\x06\x0a\x01k\x12\x01v",
		},
	} {
		if got := string(appendJSON(nil, &c.m)); got != c.json {
			t.Errorf("JSON: got %s, want %s", got, c.json)
		}
		if got := string(appendBinary(nil, &c.m)); got != c.wire {
			t.Errorf("%s: binary: got %q, want %q", c.json, got, c.wire)
		}
		var fromJSON, fromBinary message
		if err := readJSON([]byte(c.json), &fromJSON); err != nil {
			t.Errorf("%s: %v", c.json, err)
		}
		if err := readBinary([]byte(c.wire), &fromBinary); err != nil {
			t.Errorf("%q: %v", c.wire, err)
		}
		for _, got := range []message{fromJSON, fromBinary} {
			if diff := cmp.Diff(c.m, got); diff != "" {
				t.Errorf("%s: %s", c.json, diff)
			}
		}
	}
	at := message{When: time.Unix(1580702706, 5000).UTC()}
	if got := string(appendJSON(nil, &at)); got != `{"when":"2020-02-03T04:05:06.000005Z"}` {
		t.Errorf("time: %s", got)
	}
	if got := string(appendBinary(nil, &at)); got != "\x62\x09\x08\xf2\xb7\xde\xf1\x05\x10\x88\x27" {
		t.Errorf("time: %q", got)
	}
}

func TestJSONIsReadAsProto3SaysIt(t *testing.T) {
	for text, want := range map[string]message{
		`{"is_on":true,"zzz":{"a":[1]},"size":7,"colour":3}`:    {On: true, Size: 7, Colour: 3},
		`{"size":"-9223372036854775808","pid":"5","text":null}`: {Size: -1 << 63, PID: new(uint32)},
		`{"data":"_-8"}`:               {Data: []byte{0xff, 0xef}},
		`{"size":1e3,"exit_code":5.0}`: {Size: 1000, Code: 5},
	} {
		if want.PID != nil {
			*want.PID = 5
		}
		var got message
		if err := readJSON([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
	for _, text := range []string{
		``, `[]`, `null`, `{`, `{} {}`, `{"text":1}`, `{"isOn":"true"}`, `{"pid":-1}`, `{"pid":4294967296}`, `{"exitCode":2147483648}`,
		`{"size":1.5}`, `{"colour":"BLUE"}`, `{"data":"*"}`, `{"data":"","pid":1}`, `{"list":{}}`, `{"vars":{"a":1}}`, `{"vars":{"a":null}}`, "{\"text\":\"\xff\"}",
	} {
		if err := readJSON([]byte(text), &message{}); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

type echoServer struct {
	url    string
	admits error
}

func newEcho(t *testing.T) *echoServer {
	s := &echoServer{}
	opts := &Options{
		Admit: func(ctx context.Context, c *Call) (context.Context, func(*Error), error) {
			c.MaxMessage = 1 << 16
			return ctx, nil, s.admits
		},
	}
	echo := func(_ context.Context, _ *Call, in *message) (*message, error) {
		if in.Text == "fail" {
			return nil, &Error{Code: ResourceExhausted, Msg: "wait, 100% full", Header: map[string]string{"Retry-After": "3"}}
		}
		return in, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/unary", Unary(opts, echo))
	mux.Handle("/down", ServerStream(opts, func(ctx context.Context, c *Call, in *message, out Sender[message]) error {
		for range in.Size {
			if err := out.Send(in); err != nil {
				return err
			}
		}
		_, err := echo(ctx, c, in)
		return err
	}))
	mux.Handle("/up", ClientStream(opts, func(_ context.Context, _ *Call, in Receiver[message]) (*message, error) {
		sum := &message{}
		for {
			m, err := in.Next()
			if errors.Is(err, io.EOF) {
				return sum, nil
			}
			if err != nil {
				return nil, err
			}
			sum.Text += m.Text
		}
	}))
	ts := httptest.NewServer(mux)
	t.Cleanup(ts.Close)
	s.url = ts.URL
	return s
}

// answer is what is left of a response that has been read and closed.
type answer struct {
	StatusCode      int
	Header, Trailer http.Header
}

func (s *echoServer) post(t *testing.T, path, kind, body string, header ...string) (answer, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, resp.Trailer}, string(text)
}

func envelope(flags byte, text string) string {
	b := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))
	return string(b) + text
}

func zipped(text string) string {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write([]byte(text))
	_ = z.Close()
	return buf.String()
}

func TestProtocols(t *testing.T) {
	const (
		cj = "application/connect+json"
		in = `{"text":"x"}`
	)
	s := newEcho(t)
	for _, c := range []struct {
		path, kind, body string
		header           []string
		status           int
		want             string // the whole body
	}{
		{"/unary", "application/json", in, nil, 200, in},
		{"/unary", "application/json; charset=utf-8", in, nil, 200, in},
		{"/unary", "application/json; charset=latin1", in, nil, 415, ""},
		{"/unary", "application/proto", "\x0a\x01x", nil, 200, "\x0a\x01x"},
		{"/unary", "application/json", "", nil, 400, `{"code":"invalid_argument","message":"the message is not a JSON object"}`},
		{"/unary", "application/json", `{"text":"fail"}`, nil, 429, `{"code":"resource_exhausted","message":"wait, 100% full"}`},
		{"/unary", "application/json", zipped(in), []string{"Content-Encoding", "gzip"}, 200, in},
		{"/unary", "application/json", in, []string{"Content-Encoding", "gzip"}, 400, `{"code":"invalid_argument","message":"the message is not gzip"}`},
		{"/unary", "application/json", in, []string{"Content-Encoding", "br"}, 501, `{"code":"unimplemented","message":"unknown compression; gzip is supported"}`},
		{"/unary", "application/json", in, []string{"Connect-Protocol-Version", "2"}, 400, `{"code":"invalid_argument","message":"Connect-Protocol-Version must be 1"}`},
		{"/unary", "application/json", in, []string{"Connect-Timeout-Ms", "x"}, 400, `{"code":"invalid_argument","message":"the time limit is not a number"}`},
		{"/unary", "application/json", in, []string{"Connect-Timeout-Ms", "0"}, 504, `{"code":"deadline_exceeded","message":"the time limit is over"}`},
		{"/unary", "application/json", strings.Repeat(" ", 1<<16+1), nil, 429, `{"code":"resource_exhausted","message":"payload_too_large: a message may have 65536 bytes"}`},
		{"/unary", "application/json", zipped(strings.Repeat(" ", 1<<20)), []string{"Content-Encoding", "gzip"}, 429, `{"code":"resource_exhausted","message":"payload_too_large: a message may have 65536 bytes"}`},
		{"/unary", cj, envelope(0, in), nil, 415, ""},
		{"/unary", "application/grpc-web+proto", envelope(0, "\x0a\x01x"), nil, 200, envelope(0, "\x0a\x01x") + envelope(0x80, "grpc-status: 0\r\ngrpc-message: \r\n")},
		{"/unary", "application/grpc-web+json", envelope(0, `{"text":"fail"}`), nil, 200, envelope(0x80, "grpc-status: 8\r\ngrpc-message: wait%2C 100%25 full\r\n")},
		{"/down", "application/json", in, nil, 415, ""},
		{"/down", cj, envelope(0, `{"size":2}`), nil, 200, envelope(0, `{"size":"2"}`) + envelope(0, `{"size":"2"}`) + envelope(2, "{}")},
		{"/down", cj, envelope(0, `{"size":1,"text":"fail"}`), nil, 200, envelope(0, `{"text":"fail","size":"1"}`) + envelope(2, `{"error":{"code":"resource_exhausted","message":"wait, 100% full"}}`)},
		{"/down", cj, envelope(1, zipped(in)), []string{"Connect-Content-Encoding", "gzip"}, 200, envelope(2, "{}")},
		{"/down", cj, envelope(1, zipped(in)), nil, 200, envelope(2, `{"error":{"code":"internal","message":"a compressed message without a compression header"}}`)},
		{"/down", cj, "", nil, 200, envelope(2, `{"error":{"code":"invalid_argument","message":"the call has no message"}}`)},
		{"/down", cj, envelope(0, in) + envelope(0, in), nil, 200, envelope(2, `{"error":{"code":"unimplemented","message":"the call has more than one message"}}`)},
		{"/down", cj, "\x00\xff\xff\xff\xff", nil, 200, envelope(2, `{"error":{"code":"resource_exhausted","message":"payload_too_large: a message may have 65536 bytes"}}`)},
		{"/down", cj, envelope(0, in)[:9], nil, 200, envelope(2, `{"error":{"code":"invalid_argument","message":"the body ended early"}}`)},
		{"/up", cj, envelope(0, in) + envelope(0, in), nil, 200, envelope(0, `{"text":"xx"}`) + envelope(2, "{}")},
		{"/up", cj, "", nil, 200, envelope(0, `{}`) + envelope(2, "{}")},
		{"/up", cj, envelope(4, in), nil, 200, envelope(2, `{"error":{"code":"invalid_argument","message":"odd envelope flags"}}`)},
	} {
		resp, got := s.post(t, c.path, c.kind, c.body, c.header...)
		if resp.StatusCode != c.status || got != c.want {
			t.Errorf("%s %s %.40q %v: got %d %q, want %d %q", c.path, c.kind, c.body, c.header, resp.StatusCode, got, c.status, c.want)
		}
	}
	resp, _ := s.post(t, "/unary", "application/grpc", envelope(0, "\x0a\x04fail"))
	if resp.StatusCode != 200 || resp.Trailer.Get("Grpc-Status") != "8" {
		t.Errorf("gRPC: %d, trailers %v", resp.StatusCode, resp.Trailer)
	}
	resp, _ = s.post(t, "/unary", "text/plain", "")
	if accept := resp.Header.Get("Accept-Post"); !strings.Contains(accept, "application/json") || strings.Contains(accept, cj) {
		t.Errorf("Accept-Post: %q", accept)
	}
	resp, got := s.post(t, "/unary", "application/json", `{"text":"`+strings.Repeat("y", 4000)+`"}`, "Accept-Encoding", "gzip")
	if resp.Header.Get("Content-Encoding") != "gzip" || len(got) > 1000 {
		t.Errorf("a long answer was not packed: %v", resp.Header)
	}
	resp, _ = s.post(t, "/unary", "application/json", `{"text":"fail"}`)
	if resp.Header.Get("Retry-After") != "3" {
		t.Error("the headers of a failure were lost")
	}
}

func TestWhoIsNotAdmittedIsToldInHisCodec(t *testing.T) {
	s := newEcho(t)
	s.admits = Errorf(Unauthenticated, "who are you")
	resp, got := s.post(t, "/unary", "application/json", "{oops")
	if resp.StatusCode != 401 || got != `{"code":"unauthenticated","message":"who are you"}` {
		t.Errorf("unary: %d %q", resp.StatusCode, got)
	}
	resp, got = s.post(t, "/down", "application/connect+json", "")
	if resp.StatusCode != 200 || got != envelope(2, `{"error":{"code":"unauthenticated","message":"who are you"}}`) {
		t.Errorf("stream: %d %q", resp.StatusCode, got)
	}
}

func TestOnlyPostIsTaken(t *testing.T) {
	s := newEcho(t)
	resp, err := http.Get(s.url + "/unary")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTimeouts(t *testing.T) {
	for text, want := range map[string]time.Duration{"1": time.Millisecond, "60000": time.Minute, "9999999999": 9999999999 * time.Millisecond} {
		if got, ok := parseTimeout(text, false); !ok || got != want {
			t.Errorf("%s: %v %v", text, got, ok)
		}
	}
	for text, want := range map[string]time.Duration{"5S": 5 * time.Second, "2H": 2 * time.Hour, "7u": 7 * time.Microsecond} {
		if got, ok := parseTimeout(text, true); !ok || got != want {
			t.Errorf("%s: %v %v", text, got, ok)
		}
	}
	for _, text := range []string{"-1", "+1", "1.5", "12345678901", " 1"} {
		if _, ok := parseTimeout(text, false); ok {
			t.Errorf("%q was read", text)
		}
	}
}

// FuzzBinary reads any bytes, and writes what it read in a form that reads the
// same.
func FuzzBinary(f *testing.F) {
	f.Add([]byte("\x0a\x01x\x38\x00\x42\x02\x08\x01\x5a\x06\x0a\x01k\x12\x01v"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second message
		if readBinary(data, &first) != nil {
			return
		}
		if err := readBinary(appendBinary(nil, &first), &second); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%q: %+v became %+v (%v)", data, first, second, err)
		}
	})
}

// FuzzJSON is FuzzBinary for the other codec.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"text":"a","isOn":true,"size":"1","pid":3,"list":[{"n":1}],"vars":{"a":"b"},"colour":"RED"}`))
	f.Add([]byte(`{"data":"eA==","inner":{},"words":["\ud800"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second message
		if readJSON(data, &first) != nil {
			return
		}
		if err := readJSON(appendJSON(nil, &first), &second); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%q: %+v became %+v (%v)", data, first, second, err)
		}
	})
}

// FuzzEnvelope reads any stream: no more is kept than is there, and it ends.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(envelope(0, "{}") + envelope(2, "")))
	f.Add([]byte("\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1 << 10
		r := bytes.NewReader(data)
		for {
			before := r.Len()
			_, payload, err := readEnvelope(r, most)
			if len(payload) > most || len(payload) > before {
				t.Fatalf("%d bytes out of %d", len(payload), before)
			}
			if err != nil {
				if errors.Is(err, io.EOF) && before != 0 {
					t.Fatalf("the stream ends with %d bytes left", before)
				}
				return
			}
		}
	})
}
