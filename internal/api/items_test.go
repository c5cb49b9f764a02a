package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type itemsIn struct {
	List Field[[]any]  `json:"list"`
	Flag Field[bool]   `json:"flag"`
	Note Field[string] `json:"note"`
}

type itemIn struct {
	Name Field[string] `json:"name"`
	Text Field[string] `json:"text"`
}

// readItems gives each item as "name/state:text", a new list as "begin".
func readItems(text string) (in itemsIn, got []string, err error) {
	c := &Call{R: httptest.NewRequest("POST", "/", strings.NewReader(text)), cached: []byte(text)}
	err = c.Items(&in, "list", func() { got = append(got, "begin") }, func(item *Item) error {
		if item == nil {
			got = append(got, "none")
			return nil
		}
		var one itemIn
		var body bytes.Buffer
		err := item.Members(&one, []string{"text"}, func(string) (io.Writer, error) {
			body.Reset()
			if one.Name.V == "stop" {
				return nil, io.ErrClosedPipe
			}
			return &body, nil
		})
		got = append(got, fmt.Sprintf("%s/%d:%s", one.Name.V, one.Text.State, body.String()))
		return err
	})
	return in, got, err
}

func TestItems(t *testing.T) {
	tests := []struct {
		text  string
		got   []string
		state State
		code  string // "" is no error
	}{
		{``, nil, Absent, ""},
		{`{}`, nil, Absent, ""},
		{`{"list":[]}`, []string{"begin"}, Good, ""},
		{`{"list":null}`, nil, Null, ""},
		{`{"list":{"a":[1]},"flag":true}`, nil, Wrong, ""},
		{` { "list" : [ { "name" : "a" , "text" : "x" } , {"text":"y","name":"b","more":[{}]} ] , "flag":true } `, []string{"begin", "a/3:x", "b/3:y"}, Good, ""},
		{`{"flag":true,"note":"n","list":[{"text":"1","text":"2"},{"text":5},{"text":null},{}]}`, []string{"begin", "/3:2", "/2:", "/1:", "/0:"}, Good, ""},
		{`{"list":[1,"x",null,[{}],true,{"name":"a"}]}`, []string{"begin", "none", "none", "none", "none", "none", "a/0:"}, Good, ""},
		{`{"list":[{"name":"a"}],"list":[{"name":"b"}]}`, []string{"begin", "a/0:", "begin", "b/0:"}, Good, ""},
		{`{"list":[{"name":"a"}],"list":"x"}`, []string{"begin", "a/0:"}, Wrong, ""},
		{`{"list":[{"name":"a"},]}`, []string{"begin", "a/0:"}, Absent, "invalid_json"},
		{`{"list":[{"name":"a"}`, []string{"begin", "a/0:"}, Absent, "invalid_json"},
		{`{"list":[{"text":"a`, []string{"begin", "/0:"}, Absent, "invalid_json"},
		{`{"list":[]} x`, []string{"begin"}, Good, "invalid_json"},
		{`[{"list":[]}]`, nil, Absent, "body_not_object"},
		{`{"list":[{"name":"a","text":"x"},{"name":"stop","text":"x"},{"name":"b"}]}`, []string{"begin", "a/3:x", "stop/0:"}, Absent, "closed"},
		{`{"list":[` + strings.Repeat("[", 2000) + `]}`, []string{"begin"}, Absent, "invalid_json"},
		{`{"list":[{"` + strings.Repeat("n", maxMember+1) + `é":1}]}`, []string{"begin", "/0:"}, Absent, "invalid_json"},
	}
	for _, tt := range tests {
		in, got, err := readItems(tt.text)
		code := ""
		if e, ok := errors.AsType[*Error](err); ok {
			code = e.Code
		} else if errors.Is(err, io.ErrClosedPipe) {
			code = "closed"
		} else if err != nil {
			t.Errorf("%.60s: %v", tt.text, err)
		}
		if d := cmp.Diff(tt.got, got); d != "" || in.List.State != tt.state || code != tt.code {
			t.Errorf("%.60s: state %d, %q (-want +got):\n%s", tt.text, in.List.State, code, d)
		}
		if strings.Contains(tt.text, `"flag":true`) && !in.Flag.V {
			t.Errorf("%.60s: the flag was not seen", tt.text)
		}
	}
}

// A name is held in memory, so a long one must not come in one piece after
// the other without end.
func TestALongMemberNameIsRefused(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"é`), io.LimitReader(repeating('x'), 100<<20), strings.NewReader(`":1}`))
	c := &Call{R: httptest.NewRequest("POST", "/", endless)}
	counted := &countingReader{r: endless}
	c.body = &bodyReader{src: io.NopCloser(counted), left: 1 << 30, rc: newAnswer(httptest.NewRecorder()).rc}
	var in echoIn
	if err := c.Members(&in, nil, nil); CodeOf(err) != "invalid_json" {
		t.Errorf("%v", err)
	}
	if counted.n > 1<<20 {
		t.Errorf("%d bytes were read", counted.n)
	}
}

type repeating byte

func (c repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// sink notes what it is asked to copy from, as a connection would.
type sink struct {
	*httptest.ResponseRecorder
	sizes []int64
	files int
}

func (s *sink) ReadFrom(src io.Reader) (int64, error) {
	if l, ok := src.(*io.LimitedReader); ok {
		if _, ok := l.R.(*os.File); ok {
			s.files++
		}
	}
	n, err := io.Copy(s.ResponseRecorder, src)
	s.sizes = append(s.sizes, n)
	return n, err
}

// The kernel copies only where the library finds the file itself.
func TestPartsOfFilesAreCopiedByTheKernel(t *testing.T) {
	p := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte("0123456789abcdef"), 160<<10) // 2.5 MiB
	if err := os.WriteFile(p, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n     int64 // asked for
		want  int64
		sizes []int64
	}{
		{0, 0, nil},
		{1, 1, []int64{1}},
		{1 << 20, 1 << 20, []int64{1 << 20}},
		{2 << 20, 2 << 20, []int64{1 << 20, 1 << 20}},
		{1<<20 + 5, 1<<20 + 5, []int64{1 << 20, 5}},
		{9 << 20, 5 << 19, []int64{1 << 20, 1 << 20, 1 << 19}},
	} {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		s := &sink{ResponseRecorder: httptest.NewRecorder()}
		a := newAnswer(s)
		n, err := io.Copy(a, &io.LimitedReader{R: f, N: c.n})
		if err != nil || n != c.want || a.bytes != n || !bytes.Equal(s.Body.Bytes(), want[:n]) || s.files != len(c.sizes) || cmp.Diff(c.sizes, s.sizes) != "" {
			t.Errorf("%d: %d bytes in pieces of %v, %d of a file, %v", c.n, n, s.sizes, s.files, err)
		}
		_ = f.Close()
	}
}
