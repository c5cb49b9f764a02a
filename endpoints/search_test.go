package endpoints

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// put writes files below the base directory.
func (r *rig) put(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		p := filepath.Join(r.base, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// object is a JSON object of a request or an answer.
type object = map[string]any

// strings of one field of a list of objects.
func pluck(t *testing.T, list any, field string) []string {
	t.Helper()
	items, ok := list.([]any)
	if !ok {
		t.Fatalf("no list: %v", list)
	}
	out := []string{}
	for _, item := range items {
		out = append(out, fmt.Sprint(item.(object)[field]))
	}
	return out
}

func TestSearchAnswersTheBodyItWasAsked(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"a.py": "needle", "s/b.py": "x\ntwo needle 7\r\nlast", "s/t/c.py": "", "e.txt": ""})
	for _, c := range []struct {
		body   object
		status int
		want   []string
	}{
		{object{"path": ".", "pattern": "*.py"}, 200, []string{"a.py", "b.py", "c.py"}},
		{object{"path": ".", "pattern": "*.py", "max_depth": "2"}, 200, []string{"a.py", "b.py"}},
		{object{"path": ".", "pattern": "*.py", "max_depth": 1.9}, 200, []string{"a.py"}},
		{object{"path": ".", "pattern": "*", "max_results": true}, 200, []string{"a.py"}},
		{object{"path": ".", "pattern": "*", "max_results": 1e300}, 200, []string{"a.py", "e.txt", "b.py", "c.py"}},
		{object{"path": ".", "pattern": "*", "max_results": 0}, 200, []string{}},
		{object{"path": ".", "pattern": "s/**/*.py"}, 200, []string{"b.py", "c.py"}},
		{object{"path": ".", "pattern": "*", "type": "directory"}, 200, []string{"s", "t"}},
		{object{"path": ".", "pattern": "*", "exclude": []string{"s", "*.txt"}}, 200, []string{"a.py"}},
		{object{"path": ".", "pattern": "*", "content": "NEEDLE", "ignore_case": true}, 200, []string{"a.py", "b.py"}},
		{object{"path": ".", "pattern": "*", "content": `needle \d$`}, 200, []string{"b.py"}},
		{object{"path": ".", "pattern": "*", "content": "(", "literal": true}, 200, []string{}},
		{object{"path": ".", "pattern": "*", "content": "("}, 400, nil},
		{object{"path": ".", "pattern": "*", "content": ""}, 400, nil},
		{object{"path": ".", "pattern": "*", "content": 5}, 400, nil},
		{object{"path": ".", "pattern": "*", "type": "link"}, 400, nil},
		{object{"path": ".", "pattern": "*", "exclude": "x"}, 400, nil},
		{object{"path": ".", "pattern": "*", "hidden": "yes"}, 400, nil},
		{object{"path": ".", "pattern": ""}, 400, nil},
		{object{"path": ".", "pattern": "*", "max_depth": nil}, 400, nil},
		{object{"path": ".", "pattern": "*", "max_results": "x"}, 400, nil},
		{object{"pattern": "*"}, 400, nil},
		{object{"path": "none", "pattern": "*"}, 404, nil},
		{object{"path": "a.py", "pattern": "*"}, 404, nil},
		{object{"path": "/etc", "pattern": "*"}, 403, nil},
	} {
		status, out := r.call("POST", "/files/search", c.body)
		if status != c.status {
			t.Errorf("%v: %d %v", c.body, status, out)
			continue
		}
		if c.want != nil {
			if d := cmp.Diff(c.want, pluck(t, out["results"], "name")); d != "" {
				t.Errorf("%v (-want +got):\n%s", c.body, d)
			}
		}
	}
	_, out := r.call("POST", "/files/search", object{"path": ".", "pattern": "*", "content": "("})
	if out["code"] != "invalid_pattern" {
		t.Errorf("a bad expression: %v", out)
	}
}

func TestSearchShowsMatchesWithTheirLines(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.put(map[string]string{"a.txt": "one\ntwo nee\xffdle 7\nthree\n", "b.bin": "\x00needle 8"})
	_, out := r.call("POST", "/files/search", object{"path": ".", "pattern": "*", "content": `dle \d`, "context": 1})
	got := out["results"].([]any)[0].(object)["matches"]
	want := []any{object{"line": 2.0, "column": 9.0, "text": "two nee\uFFFDdle 7", "before": []any{"one"}, "after": []any{"three"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("matches (-want +got):\n%s", d)
	}
	if out["files_scanned"] != 2.0 || out["timed_out"] != false || out["truncated"] != false {
		t.Errorf("%v", out)
	}
}

// Content is shown only to callers who may download, by the download's rules.
func TestSearchForContentNeedsTheDownload(t *testing.T) {
	for _, c := range []struct {
		policy string
		status int
		code   string
		want   []string
	}{
		{`{}`, 200, "", []string{"a.key", "b"}},
		{`{"endpoints":{"files_download_stream":{"enabled":false}}}`, 404, "endpoint_disabled", nil},
		{`{"endpoints":{"files_download_stream":{"paths":{"deny":["**/*.key"]}}}}`, 200, "", []string{"b"}},
		{`{"endpoints":{"files_download_stream":{"limits":{"max_bytes":6}}}}`, 200, "", []string{"a.key"}},
	} {
		r := newRig(t, rigOptions{policy: c.policy})
		r.put(map[string]string{"a.key": "needle", "b": "needle "})
		status, out := r.call("POST", "/files/search", object{"path": ".", "pattern": "*", "content": "needle"})
		if status != c.status || c.code != "" && (out["code"] != c.code || out["endpoint"] != "files_download_stream") {
			t.Errorf("%s: %d %v", c.policy, status, out)
			continue
		}
		if c.want != nil {
			if d := cmp.Diff(c.want, pluck(t, out["results"], "name")); d != "" {
				t.Errorf("%s (-want +got):\n%s", c.policy, d)
			}
		}
		if status, _ := r.call("POST", "/files/search", object{"path": ".", "pattern": "*"}); status != 200 {
			t.Errorf("%s: names alone: %d", c.policy, status)
		}
	}
}

func TestSearchKeepsToThePolicysLimits(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_search":{"limits":{"max_results":2,"max_depth":1}}}}`})
	r.put(map[string]string{"a": "", "b": "", "c": "", "d/e": ""})
	_, out := r.call("POST", "/files/search", object{"path": ".", "pattern": "*", "max_results": 50})
	if n := len(out["results"].([]any)); n != 2 || out["truncated"] != true {
		t.Errorf("%d results, truncated %v", n, out["truncated"])
	}
	_, out = r.call("POST", "/files/search", object{"path": ".", "pattern": "e", "max_depth": 9})
	if n := len(out["results"].([]any)); n != 0 {
		t.Errorf("%d results below the depth", n)
	}
}

// The text of an answer is bounded, whatever is in the files.
func TestSearchAnswersDoNotGrowWithoutBound(t *testing.T) {
	r := newRig(t, rigOptions{})
	line := strings.Repeat("\u0001needle", 250) + "\n"
	text := strings.Repeat(line, 100)
	files := map[string]string{}
	for i := range 60 {
		files[fmt.Sprintf("f%d", i)] = text
	}
	r.put(files)
	res := r.do("POST", "/files/search", object{"path": ".", "pattern": "*", "content": "needle", "context": 20, "max_results": 1000})
	defer res.Body.Close()
	var out struct{ Truncated bool }
	counted := &countingReader{r: res.Body}
	if err := json.NewDecoder(counted).Decode(&out); err != nil {
		t.Fatal(err)
	}
	if !out.Truncated || counted.n > mostHitBytes+(8<<20) || counted.n != res.ContentLength {
		t.Errorf("%d bytes of %d, truncated %v", counted.n, res.ContentLength, out.Truncated)
	}
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
