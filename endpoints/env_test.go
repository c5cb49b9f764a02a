package endpoints

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func (r *rig) variables(query string) map[string]any {
	r.t.Helper()
	status, out := r.call("GET", "/env"+query, nil)
	if status != http.StatusOK {
		r.t.Fatalf("GET /env%s: %d %v", query, status, out)
	}
	return out["variables"].(map[string]any)
}

func TestSecretsInTheEnvironmentAreNotShown(t *testing.T) {
	secret := map[string]string{
		"FOO_TOKEN": "1", "api_secret": "2", "MONKEY": "3", "DbPassword": "4", "GOOGLE_CREDENTIALS": "5", "HOLDER": "6",
		"DB_PASS": "7", "NPM_AUTH": "8", "SESSION_COOKIE": "9", "DATABASE_URL": "postgres://u:p@h/db", "abx_server_x": "10",
	}
	plain := map[string]string{"PLAIN_ONE": "v", "EMPTY_ONE": "", "ABX_OTHER": "o", "COMPASS": "n", "HOME_URL": "https://h/p"}
	env := map[string]string{}
	for _, some := range []map[string]string{secret, plain} {
		maps.Copy(env, some)
	}
	r := newRig(t, rigOptions{env: env, policy: `{"auth":{"tokens":[{"id":"a","token_env":"HOLDER","scopes":["*"]}]}}`})
	r.token = "6"
	got := r.variables("")
	for name := range secret {
		if v, there := got[name]; there {
			t.Errorf("%s is shown as %v", name, v)
		}
	}
	for name, want := range plain {
		if got[name] != want {
			t.Errorf("%s is %v, want %q", name, got[name], want)
		}
	}
	for query, want := range map[string]map[string]any{
		"?filter=PLAIN_ONE,FOO_TOKEN,NOPE,DATABASE_URL,ABX_SERVER_TOKEN": {"PLAIN_ONE": "v"},
		"?filter=+PLAIN_ONE+,+,EMPTY_ONE,":                               {"PLAIN_ONE": "v", "EMPTY_ONE": ""},
		"?filter=,":                                                      {},
		"?filter=plain_one":                                              {},
	} {
		if diff := cmp.Diff(want, r.variables(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	if len(r.variables("?filter=")) != len(got) {
		t.Error("an empty filter is not all")
	}
}

func TestBytesInTheEnvironmentAreKept(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"BYTES": "a\xffb"}})
	text := func() string {
		res := r.do("GET", "/env?filter=BYTES,COPY", nil)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := text(); got != `{"variables":{"BYTES":"a\udcffb"}}` {
		t.Errorf("got %s", got)
	}
	if status, out := r.call("POST", "/env", `{"vars":{"COPY":"a\udcffb"}}`); status != 200 {
		t.Fatal(status, out)
	}
	if got := text(); got != `{"variables":{"BYTES":"a\udcffb","COPY":"a\udcffb"}}` {
		t.Errorf("got %s", got)
	}
	if got := r.srv.Env.Now()["COPY"]; got != "a\xffb" {
		t.Errorf("got %q", got)
	}
}

func TestVariablesReachLaterPrograms(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"FROM_START": "s"}})
	status, out := r.call("POST", "/env", `{"vars":{"ZED_V":"zé\nw","ALPHA_V":"","MY_TOKEN":"hush"}}`)
	if diff := cmp.Diff(map[string]any{"updated": []any{"ALPHA_V", "MY_TOKEN", "ZED_V"}, "removed": []any{}}, out); status != 200 || diff != "" {
		t.Fatalf("%d %s", status, diff)
	}
	if diff := cmp.Diff(map[string]any{"ZED_V": "zé\nw", "ALPHA_V": ""}, r.variables("?filter=ZED_V,ALPHA_V,MY_TOKEN")); diff != "" {
		t.Error(diff)
	}
	run := func() any {
		_, out := r.call("POST", "/shell", map[string]string{"command": `sh -c 'echo "[$ZED_V][$MY_TOKEN][${FROM_START-none}]"'`})
		return out["stdout"]
	}
	if got := run(); got != "[zé\nw][hush][s]\n" {
		t.Errorf("got %q", got)
	}
	status, out = r.call("POST", "/env", `{"vars":{"ZED_V":"2"},"unset":["MY_TOKEN","NEVER_WAS","FROM_START"]}`)
	if diff := cmp.Diff(map[string]any{"updated": []any{"ZED_V"}, "removed": []any{"FROM_START", "MY_TOKEN"}}, out); status != 200 || diff != "" {
		t.Fatalf("%d %s", status, diff)
	}
	if got := run(); got != "[2][][none]\n" {
		t.Errorf("got %q", got)
	}
}

func TestSettingNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, body := range []any{nil, "", "{}", `{"vars":{}}`, `{"other":1}`, `{"unset":[]}`, `{"unset":null}`} {
		status, out := r.call("POST", "/env", body)
		if diff := cmp.Diff(map[string]any{"updated": []any{}, "removed": []any{}}, out); status != 200 || diff != "" {
			t.Errorf("%v: %d %s", body, status, diff)
		}
	}
}

func TestVariablesAreSetAllOrNone(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"HOLDER": "tok", "KEPT_V": "kept"}, policy: `{
		"auth":{"tokens":[{"id":"a","token_env":"HOLDER","scopes":["*"]}]},
		"endpoints":{"env_set":{"params":{"deny_vars":["NO_*"]}}}}`})
	r.token = "tok"
	before := r.variables("")
	long := strings.Repeat("x", longestVariable)
	for _, c := range []struct {
		body      string
		status    int
		typ, code string
	}{
		{`{"vars":[]}`, 400, "ValueError", ""},
		{`{"vars":null}`, 400, "ValueError", ""},
		{`{"vars":"x"}`, 400, "ValueError", ""},
		{`{"vars":5}`, 400, "ValueError", ""},
		{`{"unset":"KEPT_V"}`, 400, "ValueError", ""},
		{`{"unset":[5]}`, 400, "ValueError", ""},
		{`{"vars":{"SIDE":"1","KEPT_V":"2"},"unset":["KEPT_V"]}`, 400, "ValueError", ""},
		{`{"vars":{"SIDE":"1","1A":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","A B":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","A=B":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","Ü":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","OK_N":5}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","OK_N":null}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","OK_N":"a\u0000b"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","OK_N":"` + long + `"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1"},"unset":["a-b"]}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"SIDE":"1","ABX_FOO":"x"}}`, 403, "PolicyDenied", "env_var_denied"},
		{`{"vars":{"SIDE":"1","abx_foo":"x"}}`, 403, "PolicyDenied", "env_var_denied"},
		{`{"vars":{"SIDE":"1"},"unset":["ABX_SERVER_TOKEN"]}`, 403, "PolicyDenied", "env_var_denied"},
		{`{"vars":{"SIDE":"1","PATH":"x"}}`, 403, "PermissionError", ""},
		{`{"vars":{"SIDE":"1"},"unset":["HOME"]}`, 403, "PermissionError", ""},
		{`{"vars":{"SIDE":"1","HOLDER":"x"}}`, 403, "PolicyDenied", "env_var_not_allowed"},
		{`{"vars":{"SIDE":"1"},"unset":["HOLDER"]}`, 403, "PolicyDenied", "env_var_not_allowed"},
		{`{"vars":{"SIDE":"1","NO_WAY":"x"}}`, 403, "PolicyDenied", "env_var_not_allowed"},
		// Each check goes over all names before the next one.
		{`{"vars":{"ABX_A":"x","HOLDER":"x","PATH":"x","Z-":"x"}}`, 400, "ValueError", "env_invalid"},
		{`{"vars":{"HOLDER":"x","PATH":"x","ZZ":"x"},"unset":["ABX_A"]}`, 403, "PolicyDenied", "env_var_denied"},
		{`{"vars":{"HOLDER":"x"},"unset":["USER"]}`, 403, "PermissionError", ""},
	} {
		status, out := r.call("POST", "/env", c.body)
		code, _ := out["code"].(string)
		if status != c.status || out["type"] != c.typ || code != c.code {
			t.Errorf("%.80s: %d %v", c.body, status, out)
		}
		if c.code != "" && out["endpoint"] != "env_set" {
			t.Errorf("%.80s: endpoint %v", c.body, out["endpoint"])
		}
	}
	if diff := cmp.Diff(before, r.variables("")); diff != "" {
		t.Errorf("a refused call changed something: %s", diff)
	}
	// What differs from a protected name in case is free.
	if status, out := r.call("POST", "/env", `{"vars":{"path":"x"}}`); status != 200 {
		t.Errorf("%d %v", status, out)
	}
}

func TestProgramsStartHoweverMuchIsSet(t *testing.T) {
	r := newRig(t, rigOptions{})
	value := strings.Repeat("x", longestVariable-len("BIG_00")-1)
	refused := false
	for i := range 12 {
		status, out := r.call("POST", "/env", map[string]any{"vars": map[string]string{fmt.Sprintf("BIG_%02d", i): value}})
		if status != 200 {
			refused = true
			wantError(t, "a large environment", status, out, 400, "env_invalid")
		}
	}
	if !refused {
		t.Error("the environment has no bound")
	}
	if status, out := r.call("POST", "/shell", map[string]string{"command": "echo runs"}); status != 200 || out["stdout"] != "runs\n" {
		t.Errorf("%d %v", status, out)
	}
}

func TestVariableRulesBoundReadingAndWriting(t *testing.T) {
	rules := `{"params":{"allow_vars":["OK_*"],"deny_vars":["OK_NO*"]}}`
	r := newRig(t, rigOptions{
		policy: `{"endpoints":{"env_get":` + rules + `,"env_set":` + rules + `}}`,
		env:    map[string]string{"OK_1": "1", "OK_NO1": "2", "ELSE_1": "3", "OK_KEY": "4"},
	})
	if diff := cmp.Diff(map[string]any{"OK_1": "1"}, r.variables("")); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"ELSE_2", "OK_NO2", "ok_3"} {
		for _, body := range []any{
			map[string]any{"vars": map[string]string{"OK_4": "x", bad: "x"}},
			map[string]any{"vars": map[string]string{"OK_4": "x"}, "unset": []string{bad}},
		} {
			status, out := r.call("POST", "/env", body)
			wantError(t, bad, status, out, 403, "env_var_not_allowed")
		}
	}
	if status, _ := r.call("POST", "/env", `{"vars":{"OK_2":"2"},"unset":["OK_1"]}`); status != 200 {
		t.Errorf("got %d", status)
	}
	if diff := cmp.Diff(map[string]any{"OK_2": "2"}, r.variables("")); diff != "" {
		t.Error(diff)
	}
}
