package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	tokens := func(more string, scopes ...string) string {
		var list []string
		for i, s := range scopes {
			id := string(rune('a' + i))
			list = append(list, `{"id":"`+id+`","scopes":[`+s+`],"token_sha256":"`+sha(id)+`"}`)
		}
		return `"auth":{"tokens":[` + strings.Join(list, ",") + `]` + more + `}`
	}
	deny := `"endpoints":{"files_list":{"paths":{"deny":["x"]}}}`
	token := Options{ServerToken: true, Getenv: env("ABX_SERVER_TOKEN", "s")}
	for _, c := range []struct {
		doc  string
		o    Options
		want string // codes
	}{
		{`{}`, Options{}, ""},
		{`{}`, token, ""},
		{`{"preset":"hardened"}`, Options{}, ""},
		{`{"preset":"hardened","groups":["process"]}`, Options{}, "L1"},
		{`{"preset":"hardened","groups":["dev_tools"]}`, Options{}, "L1"},
		{`{` + deny + `}`, Options{}, "L1"},
		{`{` + deny + `}`, token, "L1"},
		{`{"groups":{"process":false},` + deny + `}`, Options{}, ""},
		{`{"auth":{"anonymous_scopes":["files:read"]},` + deny + `}`, Options{}, ""},
		{`{"auth":{"anonymous_scopes":["process:run"]},` + deny + `}`, Options{}, ""},
		{`{` + tokens("", `"files:read"`, `"process:run"`) + `,` + deny + `}`, Options{}, ""},
		{`{` + tokens("", `"files:read"`, `"process:run","files:*"`) + `,` + deny + `}`, Options{}, "L1"},
		{`{` + tokens(`,"allow_anonymous":true,"anonymous_scopes":["*"]`, `"files:read"`) + `,` + deny + `}`, Options{}, "L1"},
		{`{"endpoints":{"files_list":{"paths":{"read_only":true}}}}`, Options{}, "L1"},
		{`{"endpoints":{"files_list":{"paths":{"symlinks":"never"}}}}`, Options{}, "L1"},
		{`{"endpoints":{"files_list":{"paths":{"hardlinks":"deny","read_only":false,"symlinks":"within"}}}}`, Options{}, ""},
		{`{"endpoints":{"files_list":{"paths":{"allow":["/"]}}}}`, Options{}, "L1 L2"},
		{`{"endpoints":{"files_l*":{"paths":{"allow":["/a","//"]}},"files_stat":{"paths":{"allow":["/x/.."]}}}}`, Options{}, "L1 L2 L2"},
		{`{` + tokens("", `"*"`, `"files:read"`) + `}`, Options{}, "L3"},
		{`{` + tokens("", `"files:*"`, `"files:read"`) + `}`, Options{}, ""},
		{`{` + tokens("", `"*"`) + `}`, Options{}, ""},
		{`{"endpoints":{"files_upload_stream":{"params":{"overwrite":false}}}}`, Options{}, "L4"},
		{`{"endpoints":{"files_upload_stream":{"params":{"overwrite":true}}}}`, Options{}, ""},
		{`{"groups":{"process":false},"endpoints":{"files_upload_stream":{"params":{"overwrite":false},"paths":{"allow":["/a"]}}}}`, Options{}, ""},
		{`{"endpoints":{"file_sys_*":{"enabled":false}}}`, Options{}, "L6"},
		{`{"endpoints":{"ports*":{"limits":{"max_depth":1}}}}`, Options{}, "L7"},
		{`{"endpoints":{"group:system":{"params":{"shells":[]},"paths":{"deny":["x"]}}}}`, Options{}, "L7 L7"},
		{`{"endpoints":{"files_*":{"limits":{"max_depth":1}}},"defaults":{"params":{"overwrite":true},"limits":{"max_files":1}}}`, Options{}, ""},
		{`{` + tokens(`,"allow_anonymous":true`, `"files:read"`) + `}`, Options{}, "L8"},
		{`{` + tokens(`,"allow_anonymous":true,"anonymous_scopes":[]`, `"files:read"`) + `}`, Options{}, ""},
		{`{"auth":{"allow_anonymous":true}}`, token, "L8"},
		{`{"auth":{"allow_anonymous":true}}`, Options{}, ""},
		{`{"auth":{"allow_anonymous":false}}`, Options{}, "L9"},
		{`{"auth":{"allow_anonymous":false}}`, token, ""},
		{`{` + tokens("", `"*"`) + `}`, token, "L10"},
		{
			`{"groups":{"process":false},"endpoints":{"files_*":{"paths":{"allow":["/gone","/here"]}}}}`,
			Options{RootExists: func(p string) bool { return p == "/here" }},
			"L11",
		},
		{`{"groups":{"process":false}}`, Options{EnvGroups: []string{"process", "dev_tools"}}, "L12"},
		{`{"endpoints":{"group:process":{"enabled":false}}}`, Options{EnvGroups: []string{"process"}}, "L12"},
		{`{"endpoints":{"group:process":{"enabled":true}}}`, Options{EnvGroups: []string{"process"}}, ""},
		{`{"groups":{"process":false},"endpoints":{"files_stat":{"paths":{"deny":[""]}}}}`, Options{}, "L13"},
		{`{"groups":{"agents":false}}`, Options{}, ""},
		{`{"groups":{"agents":true},"endpoints":{"agents_x":{"enabled":true},"group:agents":{"scopes":[]}}}`, Options{}, "L14 L14 L14"},
		{`{}`, Options{EnvGroups: []string{"agents"}}, "L14"},
	} {
		warnings := mustCompile(t, c.doc, c.o).Warnings()
		var codes []string
		for _, w := range warnings {
			code, text, _ := strings.Cut(w, ": ")
			codes = append(codes, code)
			if text == "" || strings.Contains(w, "\n") {
				t.Errorf("%s: warning %q", c.doc, w)
			}
		}
		slices.Sort(codes)
		if got := strings.Join(codes, " "); got != c.want {
			t.Errorf("%s: %q, want %s", c.doc, warnings, c.want)
		}
		if !slices.IsSorted(warnings) || len(slices.Compact(slices.Clone(warnings))) != len(warnings) {
			t.Errorf("%s: not sorted and unique: %q", c.doc, warnings)
		}
	}
}

// The texts people read.
func TestLintTexts(t *testing.T) {
	p := mustCompile(t, `{"preset": "hardened", "groups": ["process"], "endpoints": {
		"file_sys_*": {"enabled": false},
		"por*": {"limits": {"max_depth": 2}},
		"files_stat": {"paths": {"allow": ["/"], "deny": [""]}},
		"agents_run": {},
		"files_upload_stream": {"params": {"overwrite": false}}}}`, Options{EnvGroups: []string{"agents"}})
	want := []string{
		"L13: endpoint 'files_stat' has an empty deny pattern, which denies nothing",
		"L14: group 'agents' of ABX_SERVER_ENABLED_GROUPS is ignored: it has no endpoints here",
		"L14: selector 'agents_run' is ignored: there is no such endpoint here",
		"L1: identity 'anonymous' is under path rules of 'files_archive' but can run programs with 'process_start', which they do not bind",
		"L2: endpoint 'files_stat' allows the whole tree '/'",
		"L4: endpoint 'files_upload_stream' has overwrite: false without paths.allow",
		"L6: selector 'file_sys_*' matches no endpoint",
		"L7: policy:endpoints.por*.limits.max_depth applies to none of the selected endpoints",
	}
	if got := strings.Join(p.Warnings(), "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
