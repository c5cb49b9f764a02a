package endpoints

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// outcomes are the codes of an answer's files: "new" and "old" for those
// written, the code or type of those that failed.
func outcomes(out map[string]any) []string {
	var got []string
	files, _ := out["files"].([]any)
	for _, f := range files {
		file := f.(map[string]any)
		switch {
		case file["created"] == true:
			got = append(got, "new")
		case file["created"] == false:
			got = append(got, "old")
		case file["code"] != nil:
			got = append(got, file["code"].(string))
		default:
			got = append(got, fmt.Sprint(file["type"]))
		}
	}
	return got
}

func TestWriteManyAnswersInOrder(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":20},"params":{"deny_extensions":[".exe"]}}}}`})
	r.write("there", "old")
	if err := unix.Mkfifo(filepath.Join(r.base, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	items := []struct{ item, want string }{
		{`{"path":"a/b","content":"höi"}`, "new"},
		{`{"path":"/etc/x","content":"1"}`, "path_not_allowed"},
		{`{"content_base64":"AP8=","path":"c"}`, "new"},
		{`{"path":"there","content":"new","mode":"0600"}`, "old"},
		{`{"path":"there","content":"x","overwrite":false}`, "file_exists"},
		{`{"path":"a.exe","content_base64":"AP8="}`, "extension_not_allowed"},
		{`{"path":"d","content_base64":"AP8"}`, "ValueError"},
		{`{"path":"d","content_base64":"` + b64(make([]byte, 21)) + `"}`, "payload_too_large"},
		{`{"path":"d","content":"` + strings.Repeat("x", 21) + `"}`, "payload_too_large"},
		{`{"path":"d","content":"` + strings.Repeat("x", 20) + `"}`, "new"},
		{`{"path":"e","content":""}`, "new"},
		{`{"path":"e2","content_base64":""}`, "new"},
		{`{"path":"f"}`, "ValueError"},
		{`{"path":"f","content":null}`, "ValueError"},
		{`{"path":"f","content":5}`, "ValueError"},
		{`{"path":"f","content":"x","mode":"4755"}`, "ValueError"},
		{`{"path":5,"content":"x"}`, "ValueError"},
		{`{"content":"x"}`, "ValueError"},
		{`{"path":"","content":"x"}`, "ValueError"},
		{`{"path":"` + strings.Repeat("p", 5000) + `","content":"x"}`, "invalid_path"},
		{`{"path":"a","content":"x"}`, "is_a_directory"},
		{`{"path":"there/x","content":"x"}`, "not_a_directory"},
		{`{"path":"fifo","content":"x"}`, "not_a_regular_file"},
		{`{"path":".abx-tmp-x","content":"x"}`, "invalid_path"},
		{`{"path":"g","content_base64":"!","content":"of equal kinds the last counts"}`, "payload_too_large"},
		{`{"path":"g","content_base64":"!","content_base64":"AP8="}`, "new"},
		{`{"path":"/etc/x","content_base64":"AP8=","path":"h"}`, "path_not_allowed"},
		{`{"path":"i","content":"x","sha256":"` + hashOf("y") + `"}`, "checksum_mismatch"},
		{`{"path":"there","content":"+","append":true}`, "old"},
		{`7`, "ValueError"},
		{`null`, "ValueError"},
		{`[]`, "ValueError"},
		{`"path"`, "ValueError"},
		{`{}`, "ValueError"},
	}
	var body []string
	var want []string
	for _, i := range items {
		body, want = append(body, i.item), append(want, i.want)
	}
	for round := range 2 { // "atomic" before and behind
		fields := []string{`"files":[` + strings.Join(body, ",") + `]`, `"atomic":false`}
		if round == 1 {
			slices.Reverse(fields)
			for i := range want {
				if want[i] == "new" {
					want[i] = "old"
				}
			}
			r.write("there", "old")
		}
		status, out := r.call("POST", "/files/write-many", "{"+strings.Join(fields, ",")+"}")
		got := outcomes(out)
		if status != 200 || len(got) != len(want) {
			t.Fatalf("%d %v", status, out)
		}
		good := 0
		for i, w := range want {
			if got[i] != w {
				t.Errorf("%.60s: %s, want %s (%v)", items[i].item, got[i], w, out["files"].([]any)[i])
			}
			if w == "new" || w == "old" {
				good++
			}
		}
		if out["written"] != float64(good) || out["failed"] != float64(len(want)-good) {
			t.Errorf("%v written, %v failed", out["written"], out["failed"])
		}
	}
	for name, text := range map[string]string{"a/b": "höi", "c": "\x00\xff", "there": "new+", "e": "", "g": "\x00\xff"} {
		if got := r.read(name); got != text {
			t.Errorf("%s holds %q", name, got)
		}
	}
	for _, n := range r.names() {
		if !slices.Contains([]string{"a", "c", "d", "e", "e2", "fifo", "g", "there"}, n) {
			t.Errorf("%s is there", n)
		}
	}
}

func TestWriteManyOfWrongShape(t *testing.T) {
	r := newRig(t, rigOptions{})
	many := `{"path":"x","content":""}` + strings.Repeat(`,{"path":"x","content":""}`, mostFiles)
	for body, code := range map[string]string{
		``: "", `{}`: "", `{"files":null}`: "", `{"files":{}}`: "", `{"files":"x"}`: "",
		`{"files":[{"path":"x","content":"1"}],"atomic":"yes"}`: "",
		`{"files":[{"path":"x","content":"1"}]`:                 "invalid_json",
		`{"files":[{"path":"x","content":"1"},]}`:               "invalid_json",
		`{"files":[{"path":"x","content":"1`:                    "invalid_json",
		`{"files":[{"path":"x","content":"1"}]} {}`:             "invalid_json",
		`{"files":[{"path":"x","content":"1"}],"files":5}`:      "",
		`{"files":[` + many + `]}`:                              "",
	} {
		if status, out := r.call("POST", "/files/write-many", body); status != 400 || code != "" && out["code"] != code {
			t.Errorf("%.80s: %d %v", body, status, out)
		}
	}
	r.left()
	if status, out := r.call("POST", "/files/write-many", `{"files":[]}`); status != 200 || out["written"] != 0.0 || out["files"] == nil {
		t.Errorf("no files: %d %v", status, out)
	}
	status, out := r.call("POST", "/files/write-many", `{"files":[{"path":"x","content":"1"}],"files":[{"path":"y","content":"2"}]}`)
	if status != 200 || fmt.Sprint(outcomes(out)) != "[new]" || r.read("y") != "2" {
		t.Errorf("of two lists the last counts: %d %v", status, out)
	}
	r.left("y")
	if status, out = r.call("POST", "/files/write-many", `{"files":[`+strings.TrimSuffix(many, `,{"path":"x","content":""}`)+`]}`); status != 200 || out["written"] != float64(mostFiles) {
		t.Errorf("as many as may be: %d %v", status, out["error"])
	}
}

func TestLongFilesInOneCallInEveryOrder(t *testing.T) {
	r := newRig(t, rigOptions{})
	data := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	text := strings.Repeat("höi☃", 200_000)
	coded := `"content_base64":"` + b64(data) + `"`
	plain := `"content":"` + text + `"`
	items := []string{
		`{"path":"0",` + coded + `}`, `{` + coded + `,"path":"1"}`, `{"path":"2",` + plain + `}`, `{` + plain + `,"path":"3"}`,
		`{"path":"4",` + coded + `,"mode":"0600"}`, `{"path":"/etc/5",` + coded + `}`, `{` + coded + `,"path":"/etc/6"}`,
		`{"path":"7",` + plain + `,` + coded + `}`, `{"path":"8","content":"short"}`,
	}
	want := []string{"new", "new", "new", "new", "new", "path_not_allowed", "path_not_allowed", "new", "new"}
	status, out := r.call("POST", "/files/write-many", `{"files":[`+strings.Join(items, ",")+`]}`)
	if status != 200 || !slices.Equal(outcomes(out), want) {
		t.Fatalf("%d %v", status, outcomes(out))
	}
	for name, want := range map[string]string{"0": string(data), "1": string(data), "2": text, "3": text, "4": string(data), "7": string(data), "8": "short"} {
		if got := r.read(name); got != want {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
	}
	r.left("0", "1", "2", "3", "4", "7", "8")
}

func TestWriteManyAsAWhole(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_bytes":1000}}}}`})
	r.write("old", "old")
	r.write("dir/x", "")
	good := `{"path":"n/e/w","content":"1"},{"path":"old","content":"2"},{"path":"n/e/w2","content":"3"}`
	for bad, want := range map[string]struct {
		status int
		code   string
	}{
		`{"path":"/etc/x","content":"1"}`:                            {403, "path_not_allowed"},
		`{"path":"dir","content":"1"}`:                               {409, "is_a_directory"},
		`{"path":"old","content":"1","overwrite":false}`:             {409, "file_exists"},
		`{"path":"n/e/w","content":"1","overwrite":false}`:           {409, "file_exists"}, // made by the same call
		`{"path":"n/e","content":"1"}`:                               {409, "is_a_directory"},
		`{"path":"x","content":"1","sha256":"` + hashOf("y") + `"}`:  {422, "checksum_mismatch"},
		`{"path":"x","content":"` + strings.Repeat("x", 1001) + `"}`: {413, "payload_too_large"},
		`{"path":"x","content_base64":"?"}`:                          {400, ""},
		`5`:                                                          {400, ""},
	} {
		for _, atomic := range []string{`"atomic":true,"files":[%s,%s]`, `"files":[%s,%s],"atomic":true`} {
			status, out := r.call("POST", "/files/write-many", fmt.Sprintf("{"+atomic+"}", good, bad))
			if code, _ := out["code"].(string); status != want.status || code != want.code || out["index"] != 3.0 || out["path"] == nil {
				t.Errorf("%s: %d %v", bad, status, out)
			}
			r.left("dir", "old")
			if got := r.read("old"); got != "old" {
				t.Fatalf("%s: old holds %q", bad, got)
			}
		}
	}
	status, out := r.call("POST", "/files/write-many", `{"files":[`+good+`],"atomic":true}`)
	if status != 200 || fmt.Sprint(outcomes(out)) != "[new old new]" || r.read("n/e/w")+r.read("old")+r.read("n/e/w2") != "123" {
		t.Errorf("%d %v", status, out)
	}
}

// One file of several that cannot be read to its end cannot be told apart from
// the next, so the request as a whole is at fault.
func TestWriteManyWithinItsLimits(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"files_upload_stream":{"limits":{"max_request_bytes":200,"rate_per_minute":3}}}}`})
	body := `{"files":[{"path":"a","content":"1"},{"path":"b","content":"` + strings.Repeat("x", 200) + `"}]}`
	for _, send := range []any{body, unsized(body)} {
		if status, out := r.call("POST", "/files/write-many", send); status != 413 || out["limit"] != 200.0 {
			t.Errorf("%d %v", status, out)
		}
	}
	r.left()
	// However many files, one call is one call.
	if status, _ := r.call("POST", "/files/write-many", `{"files":[{"path":"a","content":"1"},{"path":"b","content":"1"}]}`); status != 200 {
		t.Error(status)
	}
	if status, out := r.call("POST", "/files/write-many", `{"files":[]}`); status != 429 || out["endpoint"] != "files_upload_stream" {
		t.Errorf("%d %v", status, out)
	}
}

// contentHandler serves the routes of this area alone from a directory.
func contentHandler(t testing.TB, base string) http.Handler {
	t.Helper()
	files := guardfs.New(func() string { return base }, base)
	s := &Server{Files: files}
	table := append(s.transfers(), s.content()...)
	p, err := policy.Compile(policy.Empty(), api.Rows(table), policy.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	audit := api.NewAudit(&lockedBuffer{}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		_ = audit.Close(t.Context())
		_ = files.Close()
	})
	return api.Mount(table, &api.Gate{
		Policy: func() *policy.Policy { return p }, Limiter: &policy.Limiter{}, Brake: &policy.GuessBrake{},
		Files: files, Audit: audit, Log: slog.New(slog.DiscardHandler), MaxUpload: func() int64 { return 1 << 20 }, BodyTimeout: time.Minute,
	})
}

func FuzzWriteMany(f *testing.F) {
	for _, s := range []string{
		`{"files":[{"path":"a","content":"x"},{"content_base64":"AP8=","path":"b/c"}],"atomic":true}`,
		`{"atomic":false,"files":[{"path":"a","content":"\ud83d\ude00é"},{"path":"a","content_base64":"aGk="},5,null,{}]}`,
		`{"files":[],"files":[{"path":"a","content":"1","content":"2"}]}`,
		`{"files":[{"path":"../x","content":""},{"path":"a/../b","content":"","mode":"0600"},{"path":"\udcff","content":"\udcff"}]}`,
		`{"files":[{"path":"a","content":"x"},{"path":"a/b","content":"y"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 4096 || bytes.Contains(body, []byte("\\u")) && len(body) > 300 {
			return
		}
		base, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		contentHandler(t, base).ServeHTTP(w, httptest.NewRequest("POST", "/files/write-many", bytes.NewReader(body)))
		if w.Code != 200 {
			if left, _ := os.ReadDir(base); len(left) > 0 {
				t.Fatalf("%d left %v", w.Code, left)
			}
			if w.Code >= 500 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return
		}
		var asked struct {
			Files []json.RawMessage `json:"-"`
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatalf("accepted: %v", err)
		}
		if err := json.Unmarshal(members["files"], &asked.Files); err != nil {
			t.Fatalf("accepted: %v", err)
		}
		var out struct {
			Files []struct {
				Path  string
				Bytes *int64
				Error string
			}
			Written, Failed int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		if len(out.Files) != len(asked.Files) || out.Written+out.Failed != len(out.Files) {
			t.Fatalf("%d files asked: %s", len(asked.Files), w.Body)
		}
		last := map[string]int{}
		for i, got := range out.Files {
			if (got.Bytes == nil) != (got.Error != "") {
				t.Fatalf("neither written nor failed: %s", w.Body)
			}
			if got.Bytes != nil {
				last[got.Path] = i
			}
		}
		for path, i := range last {
			compareFile(t, base, path, asked.Files[i])
		}
	})
}

// compareFile checks a written file against what another decoder reads of the
// request, where the two must agree.
func compareFile(t *testing.T, base, path string, item json.RawMessage) {
	t.Helper()
	var in map[string]any
	if err := json.Unmarshal(item, &in); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(path, "\uFFFD") || bytes.Contains(item, []byte(`\u`)) || in["append"] != nil {
		return // lone surrogates mean bytes here
	}
	if !strings.HasPrefix(path, base+"/") {
		t.Fatalf("%s was written", path)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, isText := in["content"].(string)
	if coded, ok := in["content_base64"].(string); ok {
		if in["content"] != nil {
			return // the last of the two counts, whose order this decoder forgets
		}
		b, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			t.Fatalf("%q was taken for base64", coded)
		}
		want, isText = string(b), true
	}
	if !isText || string(got) != want {
		t.Fatalf("%s holds %q, want %q", path, got, want)
	}
}
