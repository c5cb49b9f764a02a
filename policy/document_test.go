package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// parseOrCompile returns the error text of a document with its kind in front.
func parseOrCompile(doc string, f Format, o Options) string {
	d, err := Parse([]byte(doc), f)
	if err == nil {
		_, err = Compile(d, allRows(), o)
	}
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*DocumentError](err); ok {
		return "policy " + err.Error()
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return "config " + err.Error()
	}
	return "other " + err.Error()
}

// Each mistake is named with its place, and told apart by who can see it.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	rule := func(id, body string) string { return `{"endpoints":{"` + id + `":` + body + `}}` }
	limit := func(id, body string) string { return rule(id, `{"limits":{`+body+`}}`) }
	param := func(id, body string) string { return rule(id, `{"params":{`+body+`}}`) }
	token := func(body string) string { return `{"auth":{"tokens":[` + body + `]}}` }
	for doc, want := range map[string]string{
		// syntax
		`[]`:    "policy policy: expected an object, got a list",
		`null`:  "policy policy: expected an object, got null",
		`"x"`:   "policy policy: expected an object, got a string",
		``:      "policy policy: invalid JSON at line 1, column 1: unexpected end of JSON input",
		`{bad`:  "policy policy: invalid JSON at line 1, column 2: invalid character 'b' looking for beginning of object key string",
		"{\n x": "policy policy: invalid JSON at line 2, column 2: invalid character 'x' looking for beginning of object key string",
		`{} {}`: "policy policy: invalid JSON at line 1, column 4: invalid character '{' after top-level value",
		`{"preset":"hardened","preset":"default"}`:       "policy policy.preset: the key is given twice",
		rule("shell", `{"enabled":true,"enabled":true}`): "policy policy.endpoints.shell.enabled: the key is given twice",
		"{\"description\":\"\xff\"}":                     "policy policy: the document is not UTF-8 text",

		// keys and scalars
		`{"versoin":1}`:                        "policy policy.versoin: unknown key (did you mean 'version'?); allowed: version, description, preset, base_dir, groups, defaults, auth, endpoints",
		`{"xyzzy":1}`:                          "policy policy.xyzzy: unknown key; allowed: version, description, preset, base_dir, groups, defaults, auth, endpoints",
		`{"version":2}`:                        "policy policy.version: must be the integer 1",
		`{"version":true}`:                     "policy policy.version: must be the integer 1",
		`{"version":1.0}`:                      "policy policy.version: must be the integer 1",
		`{"version":"1"}`:                      "policy policy.version: must be the integer 1",
		`{"description":[]}`:                   "policy policy.description: expected text, got a list",
		`{"preset":"harden"}`:                  "policy policy.preset: unknown preset 'harden' (did you mean 'hardened'?); one of default, transfer-only, read-only, hardened, locked",
		`{"preset":null}`:                      "policy policy.preset: expected a string, got null",
		`{"base_dir":"relative"}`:              "policy policy.base_dir: 'relative' is not an absolute path",
		`{"base_dir":"/a\u0000"}`:              "policy policy.base_dir: contains a NUL byte",
		`{"base_dir":5}`:                       "policy policy.base_dir: expected a string, got an integer",
		`{"groups":{"proces":false}}`:          "policy policy.groups.proces: unknown group 'proces' (did you mean 'process'?)",
		`{"groups":["devtools"]}`:              "policy policy.groups[0]: unknown group 'devtools' (did you mean 'dev_tools'?)",
		`{"groups":{"process":1}}`:             "policy policy.groups.process: expected true or false, got an integer",
		`{"groups":{"core":false}}`:            "policy policy.groups.core: the core endpoints cannot be switched off",
		`{"groups":null}`:                      "policy policy.groups: expected an object of switches or a list of names, got null",
		`{"groups":[1]}`:                       "policy policy.groups[0]: expected a string, got an integer",
		`{"auth":"x"}`:                         "policy policy.auth: expected an object, got a string",
		`{"auth":{"allow_anonymous":"yes"}}`:   "policy policy.auth.allow_anonymous: expected true or false, got a string",
		`{"auth":{"anonymous_scopes":["a:"]}}`: "policy policy.auth.anonymous_scopes[0]: 'a:' is not a scope; expected '*', 'space:*', 'space:name' or 'name'",
		`{"auth":{"anonymous_scopes":null}}`:   "policy policy.auth.anonymous_scopes: expected a list of strings, got null",
		`{"auth":{"token":[]}}`:                "policy policy.auth.token: unknown key (did you mean 'tokens'?); allowed: tokens, allow_anonymous, anonymous_scopes",

		// rules
		`{"defaults":null}`:                                     "policy policy.defaults: expected an object, got null",
		`{"defaults":{"audit":"loud"}}`:                         "policy policy.defaults.audit: must be one of off, deny, all, not 'loud'",
		`{"defaults":{"audit":false}}`:                          "policy policy.defaults.audit: expected a string, got false",
		`{"defaults":{"scopes":["Bad Scope"]}}`:                 "policy policy.defaults.scopes[0]: 'Bad Scope' is not a scope; expected '*', 'space:*', 'space:name' or 'name'",
		`{"endpoints":[]}`:                                      "policy policy.endpoints: expected an object, got a list",
		`{"endpoints":{"":{}}}`:                                 "policy policy.endpoints: a selector is empty",
		rule("shell", `null`):                                   "policy policy.endpoints.shell: expected an object, got null",
		rule("files_lst", `{}`):                                 "config policy.endpoints.files_lst: unknown endpoint 'files_lst' (did you mean 'files_list'?)",
		rule("git_clon", `{}`):                                  "config policy.endpoints.git_clon: unknown endpoint 'git_clon' (did you mean 'git_clone'?)",
		rule("upload_raw", `{}`):                                "config policy.endpoints.upload_raw: unknown endpoint 'upload_raw'",
		rule("group:nope", `{}`):                                "config policy.endpoints.group:nope: unknown group 'nope'",
		rule("group:proces", `{}`):                              "config policy.endpoints.group:proces: unknown group 'proces' (did you mean 'process'?)",
		rule("files_list", `{"enable":true}`):                   "policy policy.endpoints.files_list.enable: unknown key (did you mean 'enabled'?); allowed: enabled, scopes, audit, paths, limits, params",
		rule("files_list", `{"enabled":"yes"}`):                 "policy policy.endpoints.files_list.enabled: expected true or false, got a string",
		rule("files_list", `{"scopes":"files:read"}`):           "policy policy.endpoints.files_list.scopes: expected a list of strings, got a string",
		rule("ports", `{"paths":{"allow":["/a"]}}`):             "config policy.endpoints.ports.paths.allow: not applicable to endpoint 'ports'",
		rule("files_list", `{"paths":{"allow":["rel"]}}`):       "policy policy.endpoints.files_list.paths.allow[0]: 'rel' is not an absolute path",
		rule("files_list", `{"paths":{"allow":["/\u0000"]}}`):   "policy policy.endpoints.files_list.paths.allow[0]: contains a NUL byte",
		rule("files_list", `{"paths":{"deny":["a\u0000"]}}`):    "policy policy.endpoints.files_list.paths.deny[0]: contains a NUL byte",
		rule("files_list", `{"paths":{"deny":"*.pem"}}`):        "policy policy.endpoints.files_list.paths.deny: expected a list of strings, got a string",
		rule("files_list", `{"paths":{"read_only":1}}`):         "policy policy.endpoints.files_list.paths.read_only: expected true or false, got an integer",
		rule("files_list", `{"paths":{"symlinks":"follow"}}`):   "policy policy.endpoints.files_list.paths.symlinks: must be one of within, never, not 'follow'",
		rule("files_list", `{"paths":{"hardlinks":"no"}}`):      "policy policy.endpoints.files_list.paths.hardlinks: must be one of allow, deny, not 'no'",
		rule("files_list", `{"paths":{"allowed":[]}}`):          "policy policy.endpoints.files_list.paths.allowed: unknown key (did you mean 'allow'?); allowed: allow, deny, read_only, symlinks, hardlinks",
		limit("files_list", `"max_bytes":5`):                    "config policy.endpoints.files_list.limits.max_bytes: not applicable to endpoint 'files_list'",
		limit("files_list", `"max_entries":0`):                  "policy policy.endpoints.files_list.limits.max_entries: expected a positive integer, got one that is not positive",
		limit("files_list", `"max_entries":1.5`):                "policy policy.endpoints.files_list.limits.max_entries: expected a positive integer, got a fraction",
		limit("files_list", `"max_entries":true`):               "policy policy.endpoints.files_list.limits.max_entries: expected a positive integer, got true",
		limit("files_list", `"max_entries":"5"`):                "policy policy.endpoints.files_list.limits.max_entries: expected a positive integer, got a string",
		limit("files_list", `"max_entries":null`):               "policy policy.endpoints.files_list.limits.max_entries: expected a positive integer, got null",
		limit("shell", `"timeout_seconds":0`):                   "policy policy.endpoints.shell.limits.timeout_seconds: expected a positive number, got one that is not positive",
		limit("shell", `"timeout_seconds":-0.5`):                "policy policy.endpoints.shell.limits.timeout_seconds: expected a positive number, got one that is not positive",
		limit("shell", `"timeout_seconds":1e999`):               "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		limit("shell", `"timeout_seconds":1e19`):                "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		limit("shell", `"timeout_seconds":9223372036854775808`): "policy policy.endpoints.shell.limits.timeout_seconds: the number is not finite or beyond 64 bits",
		limit("shell", `"timeout_seconds":NaN`):                 "policy policy: invalid JSON at line 1, column 52: invalid character 'N' looking for beginning of value",
		limit("files_upload_stream", `"max_byte":5`): "policy policy.endpoints.files_upload_stream.limits.max_byte: unknown key (did you mean 'max_bytes'?); allowed: " +
			"max_bytes, max_concurrency, max_depth, max_duration_seconds, max_entries, max_files, max_output_bytes, max_processes, max_request_bytes, max_results, max_sessions, rate_per_minute, timeout_seconds",
		limit("files_upload_stream", `"max_bytes":"5XB"`):                    "policy policy.endpoints.files_upload_stream.limits.max_bytes: '5XB': expected a size such as 1048576, '5MB' or '1.5 GiB'",
		limit("files_upload_stream", `"max_bytes":"99999999999999999999GB"`): "policy policy.endpoints.files_upload_stream.limits.max_bytes: '99999999999999999999GB': the size is beyond 64 bits",
		limit("files_upload_stream", `"max_bytes":1.5`):                      "policy policy.endpoints.files_upload_stream.limits.max_bytes: expected a positive number of bytes or a size such as '5MB', got a fraction",
		limit("files_upload_stream", `"max_bytes":-1`):                       "policy policy.endpoints.files_upload_stream.limits.max_bytes: expected a positive number of bytes or a size such as '5MB', got one that is not positive",
		param("shell", `"languages":["python"]`):                             "config policy.endpoints.shell.params.languages: not applicable to endpoint 'shell'",
		param("process_signal", `"allowed_signals":["TERM"]`):                "policy policy.endpoints.process_signal.params.allowed_signals[0]: expected an integer, got a string",
		param("process_signal", `"allowed_signals":[true]`):                  "policy policy.endpoints.process_signal.params.allowed_signals[0]: expected an integer, got true",
		param("process_signal", `"allowed_signals":9`):                       "policy policy.endpoints.process_signal.params.allowed_signals: expected a list of integers, got an integer",
		param("files_upload_stream", `"overwrite":0`):                        "policy policy.endpoints.files_upload_stream.params.overwrite: expected true or false, got an integer",
		param("files_upload_stream", `"deny_extensions":[1]`):                "policy policy.endpoints.files_upload_stream.params.deny_extensions[0]: expected a string, got an integer",
		param("shell", `"allow_command":[]`):                                 "policy policy.endpoints.shell.params.allow_command: unknown key (did you mean 'allow_commands'?); allowed: " + strings.Join(paramKeys, ", "),
		`{"defaults":{"limits":{"max_bytez":1}}}`:                            "policy policy.defaults.limits.max_bytez: unknown key (did you mean 'max_bytes'?); allowed: " + strings.Join(limitKeys, ", "),

		// tokens
		token(`5`):                      "policy policy.auth.tokens[0]: expected an object, got an integer",
		token(`{"id":"a","scopes":[]}`): "policy policy.auth.tokens[0]: needs exactly one of token_env, token_sha256 and token_file",
		token(`{"id":"a","scopes":[],"token_env":"A","token_file":"/x"}`):                                                        "policy policy.auth.tokens[0]: needs exactly one of token_env, token_sha256 and token_file",
		token(`{"id":"a","token":"x","scopes":[]}`):                                                                              "policy policy.auth.tokens[0].token: unknown key; allowed: id, scopes, token_env, token_sha256, token_file, not_before, expires_at",
		token(`{"id":"a","token_sha256":"zz","scopes":[]}`):                                                                      "policy policy.auth.tokens[0].token_sha256: expected the 64 hex digits of a SHA-256 sum",
		token(`{"id":"a","token_sha256":"` + digestA + `"}`):                                                                     "policy policy.auth.tokens[0].scopes: is missing",
		token(`{"token_sha256":"` + digestA + `","scopes":[]}`):                                                                  "policy policy.auth.tokens[0].id: is missing",
		token(`{"id":"","token_sha256":"` + digestA + `","scopes":[]}`):                                                          "policy policy.auth.tokens[0].id: must not be empty",
		token(`{"id":"a","token_env":"","scopes":[]}`):                                                                           "policy policy.auth.tokens[0].token_env: must not be empty",
		token(`{"id":"a","token_env":"A=B","scopes":[]}`):                                                                        "policy policy.auth.tokens[0].token_env: is not the name of a variable",
		token(`{"id":"a","token_env":"NOT_SET","scopes":[]}`):                                                                    "config policy.auth.tokens[0].token_env: the variable NOT_SET is not set",
		token(`{"id":"a","token_file":"x","scopes":[]}`):                                                                         "policy policy.auth.tokens[0].token_file: 'x' is not an absolute path",
		token(`{"id":"a","token_file":"/x","scopes":[]}`):                                                                        "config policy.auth.tokens[0].token_file: files cannot be read here",
		token(`{"id":"a","token_env":"A","scopes":[],"expires_at":"1"}`):                                                         "policy policy.auth.tokens[0].expires_at: expected a time such as '2030-01-31T12:00:00Z'",
		token(`{"id":"a","token_env":"A","scopes":[],"not_before":1}`):                                                           "policy policy.auth.tokens[0].not_before: expected a string, got an integer",
		token(`{"id":"a","scopes":[],"token_sha256":"` + digestA + `"},{"id":"a","scopes":[],"token_sha256":"` + digestA + `"}`): "policy policy.auth.tokens[1].id: the id 'a' is used by another token",
	} {
		if got := parseOrCompile(doc, JSON, Options{}); got != want {
			t.Errorf("%s\n got %s\nwant %s", doc, got, want)
		}
	}
}

// What the first call would stumble over is found at load.
func TestBadCommandPatternsAreFoundAtLoad(t *testing.T) {
	for _, pattern := range []string{`'x`, ``, ` `, `a ... ... ... ...`} {
		for _, list := range []string{"allow_commands", "deny_commands"} {
			doc := fmt.Sprintf(`{"endpoints":{"shell":{"params":{%q:["ls",%q]}}}}`, list, pattern)
			got := parseOrCompile(doc, JSON, Options{})
			if want := "policy policy.endpoints.shell.params." + list + "[1]: "; !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q", doc, got)
			}
		}
	}
}

func TestSoundDocuments(t *testing.T) {
	o := Options{Getenv: func(string) string { return "x" }}
	for _, doc := range []string{
		`{"version": 1, "description": "x", "endpoints": {}}`,
		`{"description": null}`,
		"\ufeff{}",
		` {"preset": "default", "base_dir": "/srv/../x", "groups": [], "defaults": {}, "auth": {}} `,
		`{"endpoints": {"group:process": {"enabled": false}, "shell*": {"scopes": []}}}`,
		`{"defaults": {"audit": "all", "limits": {"max_concurrency": 8}}}`,
		`{"auth": {"allow_anonymous": true, "anonymous_scopes": ["files:read"]}}`,
		`{"auth": {"tokens": []}}`,
		`{"auth": {"tokens": [{"id": "anonymous", "token_env": "A", "scopes": []}]}}`,
		`{"endpoints": {"files_list": {"paths": {"allow": ["/srv"], "deny": [], "read_only": true, "symlinks": "within"}}}}`,
		`{"endpoints": {"zzz*": {"enabled": false}}}`,
		`{"endpoints": {"agents_list": {"limits": {"max_depth": 3}}, "group:agents": {"enabled": true}}, "groups": {"agents": true}}`,
		`{"groups": ["core", "core"]}`,
		`{"endpoints": {"ports": {"paths": {}, "limits": {}, "params": {}}}}`,
		`{"auth": {"tokens": [{"id": "a", "token_env": "A", "scopes": ["*", "a:*", "a:b.c-d:e", "b_1"]}]}}`,
	} {
		if got := parseOrCompile(doc, JSON, o); got != "" {
			t.Errorf("%s: %s", doc, got)
		}
	}
}

// A name of the published table that a build lacks is not a mistake.
func TestPublishedEndpointMissingFromTheBuild(t *testing.T) {
	d, err := Parse([]byte(`{"endpoints": {"browser_pdf": {"enabled": true, "limits": {"max_depth": 1}}}}`), JSON)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(d, []Row{{Name: "health", Group: "core"}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if w := p.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "L14: selector 'browser_pdf' is ignored") {
		t.Error(w)
	}
}

func TestBounds(t *testing.T) {
	deep := strings.Repeat("[", maxDocumentDepth+1) + strings.Repeat("]", maxDocumentDepth+1)
	big := `{"description":"` + strings.Repeat("x", maxDocumentBytes) + `"}`
	many := `{"description":[` + strings.Repeat("0,", maxDocumentNodes) + `0]}`
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i < 'k'; i++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", i, i, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1, i-1)
	}
	for name, c := range map[string]struct {
		doc, want string
		f         Format
	}{
		"deep JSON":  {`{"description":` + deep + `}`, "nested deeper than 32", JSON},
		"deep YAML":  {`description: ` + deep, "nested deeper than 32", YAML},
		"big JSON":   {big, "larger than 1048576 bytes", JSON},
		"big YAML":   {big, "larger than 1048576 bytes", YAML},
		"many JSON":  {many, "more than 100000 values", JSON},
		"alias bomb": {bomb, "more than 100000 values", YAML},
		"own alias":  {"description: &a [*a]", "", YAML},
	} {
		_, err := Parse([]byte(c.doc), c.f)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tools that report every mistake get them in the order of the text.
func TestAllMistakesWithTheirLines(t *testing.T) {
	_, errs := ParseAll([]byte("versoin: 1\npreset: nope\ngroups:\n  proces: true\nendpoints:\n  shell:\n    audit: off\n    limits:\n      max_byte: 1\n"), YAML)
	var got []string
	for _, e := range errs {
		got = append(got, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Where))
	}
	want := "1:1 policy.versoin|2:9 policy.preset|4:3 policy.groups.proces|7:12 policy.endpoints.shell.audit|9:7 policy.endpoints.shell.limits.max_byte"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
	d, err := Parse([]byte("endpoints:\n  nope: {}\n  ports:\n    limits: {max_depth: 1}\n    params: {shells: []}\n"), YAML)
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, e := range d.CheckRows(allRows()) {
		got = append(got, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Where))
	}
	want = "2:3 policy.endpoints.nope|4:25 policy.endpoints.ports.limits.max_depth|5:22 policy.endpoints.ports.params.shells"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}

// An error is one line, whatever the document holds.
func TestErrorsAreOneShortLine(t *testing.T) {
	long := strings.Repeat("k", 5000)
	for _, doc := range []string{
		`{"a\nb": 1}`, `{"preset": "x\ny"}`, `{"` + long + `": 1}`, `{"preset": "` + long + `"}`,
		`{"endpoints": {"` + long + `": {}}}`, `{"endpoints": {"a\u001b1m": {}}}`, `{"base_dir": "x\r\ny"}`,
		`{"defaults": {"limits": {"max_bytes": "` + long + `"}}}`,
	} {
		got := parseOrCompile(doc, JSON, Options{})
		if got == "" || len(got) > 800 || strings.ContainsAny(got, "\n\r\x1b") {
			t.Errorf("%.60s: %q", doc, got)
		}
	}
}

func TestParseEnabledGroups(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " , core,,": "", " process , dev_tools,process": "process dev_tools", "agents": "agents",
	} {
		got, err := ParseEnabledGroups(in)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	_, err := ParseEnabledGroups("system,devtools")
	if _, ok := errors.AsType[*ConfigError](err); !ok {
		t.Fatal(err)
	}
	if got, want := err.Error(), "ABX_SERVER_ENABLED_GROUPS: unknown group 'devtools' (did you mean 'dev_tools'?)"; got != want {
		t.Errorf("%s", got)
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, " 7 ": 7, "1 kb": 1000, "1KiB": 1024, "1.5MB": 1500000, "2mib": 2097152, "1.9": 1, "1b": 1, "10 B": 10,
		"3gb": 3000000000, "1GiB": 1 << 30, "0.5kb": 500, "4.35kb": 4350, "007": 7, "\t1\tkb\n": 1000,
		"9223372036854775807": 1<<63 - 1, "1.0009kb": 1000,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", " ", "0", "0.4", "-1", "+1", "1e3", "5XB", "kb", "1.", ".5", "1.2.3", "1 k b", "1 000",
		"9223372036854775808", "99999999999999999999GB", "१", "0x10", "NaN", "inf", "1_000", "1/2", strings.Repeat("1", 100),
	} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q: %d", in, got)
		}
	}
}

func TestScopeSyntax(t *testing.T) {
	for _, s := range []string{"*", "a:*", "a:b", "a_1:b", "a:b:c.d-e_f", "name", "n1.x-y_z"} {
		if !validScope(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "a:", ":a", "1a:b", "a:*x", "a-b:c", "a.b:c", "Bad Scope", "A:b", "a:B", "a:1", "a:*:b", "**", "*:a", "1", "a b", "é", ":", "a:-"} {
		if validScope(s) {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestSuggestions(t *testing.T) {
	keys := documentKeys
	for _, c := range []struct {
		name  string
		known []string
		want  string
	}{
		{"versoin", keys, "version"},
		{"harden", Presets, "hardened"},
		{"proces", Groups, "process"},
		{"enable", ruleKeys, "enabled"},
		{"files_lst", publishedIDs, "files_list"},
		{"devtools", Groups, "dev_tools"},
		{"PROCESS", Groups, "process"},
		{"readonly", Presets, "read-only"},
		{"max_entrys", limitKeys, "max_entries"},
		{"x", keys, ""},
		{"nope", Groups, ""},
		{strings.Repeat("a", 10000), keys, ""},
		{"", keys, ""},
		{"preset", nil, ""},
	} {
		want := ""
		if c.want != "" {
			want = " (did you mean '" + c.want + "'?)"
		}
		if got := didYouMean(c.name, c.known); got != want {
			t.Errorf("%.20s: %q, want %q", c.name, got, want)
		}
	}
}
