package endpoints

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// TestAListIsWrittenAsItsFieldsSay: what is written by hand and what the
// description of the answer says must not drift apart.
func TestAListIsWrittenAsItsFieldsSay(t *testing.T) {
	s := newRig(t, rigOptions{}).srv
	infos := []guardfs.Info{
		{Name: "plain", Path: "/b/plain", Kind: guardfs.File, Size: 7, Mode: 0o4755, Mtime: 1_700_000_000_123_456_789, UID: 0, GID: 65534},
		{Name: "d\"\\\n\u00e9\U0001F600", Path: "/b/d", Kind: guardfs.Directory, Mode: 0o7, Mtime: -1},
		{Name: "l", Path: "/b/l", Kind: guardfs.Symlink, Target: "to <there>\xff", Mode: 0o777},
		{Name: "\xff\xfe", Path: "/b/\xff\xfe", Kind: guardfs.FIFO},
		{},
	}
	full, basic := listOut{Entries: []listEntry{}}, listOut{Entries: []listEntry{}, Truncated: true, Next: "n\xff"}
	for _, i := range infos {
		full.Entries = append(full.Entries, s.listEntry(i, false))
		basic.Entries = append(basic.Entries, s.listEntry(i, true))
	}
	full.Errors = []entryError{{Path: "/b/x", Code: api.CodeOf(fs.ErrPermission)}}
	for name, out := range map[string]listOut{"full": full, "basic": basic, "empty": {Entries: []listEntry{}}} {
		want := asJSON(t, out)
		var got bytes.Buffer
		if err := out.Compose().Send(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(got.Bytes(), &a); err != nil {
			t.Fatalf("%s: %v in %s", name, err, got.Bytes())
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if x, y := asJSON(t, a), asJSON(t, b); !bytes.Equal(x, y) {
			t.Errorf("%s:\n%s\n%s", name, x, y)
		}
	}
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
