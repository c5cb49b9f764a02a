package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func sha(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

var guardedDoc = `{"auth": {"tokens": [
	{"id": "ro", "token_env": "RO_SECRET", "scopes": ["files:read"]},
	{"id": "adm", "token_sha256": "` + strings.ToUpper(sha("admin-token")) + `", "scopes": ["*"]},
	{"id": "ns", "token_sha256": "` + sha("ns-token") + `", "scopes": ["system:read", "files:*"]},
	{"id": "none", "token_sha256": "` + sha("none-token") + `", "scopes": []},
	{"id": "late", "token_sha256": "` + sha("ns-token") + `", "scopes": ["*"]}]}}`

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// who names the caller, or gives the code of the refusal.
func who(p *Policy, c Credentials) string {
	id, d := p.Authenticate(c)
	if !d.OK() {
		if id.ID != "" || len(id.Scopes) != 0 || id.ByToken {
			return "refused, but still " + id.ID
		}
		return string(d.Code)
	}
	return id.ID
}

func TestAuthenticate(t *testing.T) {
	p := mustCompile(t, guardedDoc, Options{Getenv: env("RO_SECRET", "ro-token-value")})
	l := func(s ...string) []string { return s }
	for _, c := range []struct {
		c    Credentials
		want string
	}{
		{Credentials{}, "unauthorized"},
		{Credentials{Bearer: l("wrong")}, "unauthorized"},
		{Credentials{Bearer: l("")}, "unauthorized"},
		{Credentials{Bearer: l("admin-token ")}, "adm"},
		{Credentials{Bearer: l("ADMIN-TOKEN")}, "unauthorized"},
		{Credentials{Access: l("wrong")}, "unauthorized"},
		{Credentials{Bearer: l("admin-token")}, "adm"},
		{Credentials{Access: l("ro-token-value")}, "ro"},
		{Credentials{Bearer: l("admin-token"), Access: l("gateway-junk")}, "adm"},
		{Credentials{Bearer: l("junk"), Access: l("ro-token-value")}, "ro"},
		{Credentials{Bearer: l("admin-token"), Access: l("ro-token-value")}, "adm"},
		{Credentials{Bearer: l("junk", "none-token", "admin-token")}, "none"},
		{Credentials{Access: l("ro-token-value", "ro-token-value", "")}, "ro"},
		{Credentials{Access: l("ro-token-value", "other")}, "ambiguous_credentials"},
		{Credentials{Bearer: l("admin-token"), Access: l("a", "b")}, "ambiguous_credentials"},
		{Credentials{Query: "admin-token"}, "adm"},
		{Credentials{Query: "junk"}, "unauthorized"},
		{Credentials{Query: "admin-token", Bearer: l("junk")}, "unauthorized"},
		{Credentials{Query: "admin-token", Access: l("junk")}, "unauthorized"},
		{Credentials{Query: "admin-token", Access: l("", " ")}, "adm"},
		{Credentials{Bearer: l("ns-token")}, "ns"}, // the first of two tokens that are the same
	} {
		if got := who(p, c.c); got != c.want {
			t.Errorf("%+v: %s, want %s", c.c, got, c.want)
		}
	}
	id, _ := p.Authenticate(Credentials{Bearer: l("ns-token")})
	if strings.Join(id.Scopes, " ") != "files:* system:read" || !id.ByToken {
		t.Errorf("%+v", id)
	}
}

func TestAnonymous(t *testing.T) {
	token := `"tokens":[{"id":"a","scopes":["*"],"token_sha256":"` + sha("at") + `"}]`
	some := Credentials{Bearer: []string{"whatever"}, Access: []string{"x", "y"}, Query: "z"}
	wrong, right := Credentials{Bearer: []string{"wrong"}}, Credentials{Access: []string{"at"}}
	for _, c := range []struct {
		doc    string
		c      Credentials
		want   string
		scopes string
	}{
		{`{}`, Credentials{}, "anonymous", "*"},
		{`{}`, some, "anonymous", "*"}, // gateways send their own credentials
		{`{"auth":{"anonymous_scopes":["system:*","files:read"]}}`, some, "anonymous", "files:read system:*"},
		{`{"auth":{"anonymous_scopes":[]}}`, Credentials{}, "anonymous", ""},
		{`{"auth":{"allow_anonymous":true}}`, Credentials{}, "anonymous", "*"},
		{`{"auth":{"tokens":[]}}`, some, "anonymous", "*"},
		{`{"auth":{` + token + `}}`, Credentials{}, "unauthorized", ""},
		{`{"auth":{` + token + `,"allow_anonymous":false}}`, Credentials{}, "unauthorized", ""},
		{`{"auth":{` + token + `,"anonymous_scopes":["a:b"]}}`, Credentials{}, "unauthorized", ""},
		{`{"auth":{` + token + `,"allow_anonymous":true,"anonymous_scopes":["files:read"]}}`, Credentials{}, "anonymous", "files:read"},
		{`{"auth":{` + token + `,"allow_anonymous":true}}`, wrong, "unauthorized", ""},
		{`{"auth":{` + token + `,"allow_anonymous":true}}`, right, "a", "*"},
	} {
		p := mustCompile(t, c.doc, Options{})
		if got := who(p, c.c); got != c.want {
			t.Errorf("%s %+v: %s, want %s", c.doc, c.c, got, c.want)
		}
		id, _ := p.Authenticate(c.c)
		if got := strings.Join(id.Scopes, " "); got != c.scopes || id.ByToken != (c.want == "a") {
			t.Errorf("%s: %+v", c.doc, id)
		}
	}
}

// allow_anonymous: false without tokens left everything open to everybody.
func TestNobodyGetsInWithoutTokensWhenAnonymousIsOff(t *testing.T) {
	p := mustCompile(t, `{"auth":{"allow_anonymous":false}}`, Options{})
	for _, c := range []Credentials{{}, {Bearer: []string{"x"}}, {Query: "x"}, {Access: []string{""}}} {
		if got := who(p, c); got != "unauthorized" {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if d := p.Decide(nobody, "health"); !d.OK() {
		t.Error("health is closed")
	}
	if d := p.Decide(nobody, "capabilities"); d.Code != MissingScope {
		t.Error("the capabilities are open to nobody")
	}
}

func TestServerToken(t *testing.T) {
	o := Options{ServerToken: true, Getenv: env("ABX_SERVER_TOKEN", "sekret", "A", "at")}
	p := mustCompile(t, `{}`, o)
	if !p.HasTokens() || !p.Configured() {
		t.Error("the server token does not count")
	}
	if got := who(p, Credentials{Bearer: []string{"sekret"}}); got != "server" {
		t.Error(got)
	}
	if got := who(p, Credentials{}); got != "unauthorized" {
		t.Error(got)
	}
	if got := who(mustCompile(t, `{"auth":{"tokens":[],"allow_anonymous":true,"anonymous_scopes":["a:b"]}}`, o), Credentials{}); got != "anonymous" {
		t.Error(got)
	}
	own := mustCompile(t, `{"auth":{"tokens":[{"id":"a","token_env":"A","scopes":["*"]}]}}`, o)
	if got := who(own, Credentials{Bearer: []string{"sekret"}}); got != "unauthorized" {
		t.Error("the server token counts beside tokens of the policy:", got)
	}
	if got := who(own, Credentials{Bearer: []string{"at"}}); got != "a" {
		t.Error(got)
	}
	_, err := compileJSON(`{}`, Options{ServerToken: true})
	if _, ok := errors.AsType[*ConfigError](err); !ok {
		t.Errorf("an unreadable server token: %v", err)
	}
}

func TestTokenTimes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	doc := `{"auth":{"tokens":[
		{"id":"old","scopes":["*"],"token_sha256":"` + sha("t") + `","expires_at":"2030-01-01T00:00:00Z"},
		{"id":"now","scopes":["*"],"token_sha256":"` + sha("t") + `","not_before":"2030-01-01T01:00:00+01:00","expires_at":"2030-06-01T00:00:00Z"},
		{"id":"new","scopes":["*"],"token_sha256":"` + sha("t") + `","not_before":"2030-03-01T00:00:00Z"}]}}`
	p := mustCompile(t, doc, Options{Now: func() time.Time { return now }})
	for _, c := range []struct {
		at   string
		want string
	}{
		{"2029-12-31T23:59:59Z", "old"}, {"2030-01-01T00:00:00Z", "now"}, {"2030-05-31T23:59:59Z", "now"}, {"2030-06-01T00:00:00Z", "new"},
	} {
		now, _ = time.Parse(time.RFC3339, c.at)
		if got := who(p, Credentials{Bearer: []string{"t"}}); got != c.want {
			t.Errorf("at %s: %s, want %s", c.at, got, c.want)
		}
	}
	// Tokens that are all over do not open the door.
	over := mustCompile(t, `{"auth":{"tokens":[{"id":"o","scopes":[],"token_sha256":"`+sha("t")+`","expires_at":"2000-01-01T00:00:00Z"}]}}`, Options{})
	for _, c := range []Credentials{{}, {Bearer: []string{"t"}}} {
		if got := who(over, c); got != "unauthorized" {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestTokenFile(t *testing.T) {
	const doc = `{"auth":{"tokens":[{"id":"f","scopes":["*"],"token_file":"/run/token"}]}}`
	read := func(text string, err error) Options {
		return Options{ReadFile: func(name string) ([]byte, error) {
			if name != "/run/token" {
				t.Errorf("read %q", name)
			}
			return []byte(text), err
		}}
	}
	p := mustCompile(t, doc, read("# rotated\n\n"+sha("new")+"\r\n"+strings.ToUpper(sha("old")), nil))
	for token, want := range map[string]string{"new": "f", "old": "f", "other": "unauthorized"} {
		if got := who(p, Credentials{Bearer: []string{token}}); got != want {
			t.Errorf("%s: %s", token, got)
		}
	}
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"missing":  {read("", errors.New("no such file")), "no such file"},
		"empty":    {read("# nothing\n", nil), "has 0 sums"},
		"a token":  {read("my-plain-token\n", nil), "line 1 of /run/token: expected the 64 hex digits"},
		"too many": {read(strings.Repeat(sha("x")+"\n", 65), nil), "has 65 sums"},
	} {
		_, err := compileJSON(doc, c.o)
		if _, ok := errors.AsType[*ConfigError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "my-plain-token") {
			t.Errorf("%s: the error repeats the token", name)
		}
	}
}

func TestHolds(t *testing.T) {
	for _, c := range []struct {
		held, need string
		want       bool
	}{
		{"files:read", "files:read", true},
		{"files:read", "files:write", false},
		{"files:*", "files:write", true},
		{"files:*", "filesx:write", false},
		{"file:*", "files:write", false},
		{"*", "files:write", true},
		{"*", "bare", true},
		{"bare", "bare", true},
		{"files:*", "files", false},
		{"files:*", "files:a:b", true},
		{"", "x:y", false},
		{"files:*", "*", false},
		{"*", "*", true},
		{"files:*", "files:*", true},
		{"", "core:read", true},
		{"a:b", "core:read", true},
		{"", "core:write", false},
		{"a:b files:read", "files:read", true},
	} {
		i := Identity{ID: "x", Scopes: strings.Fields(c.held)}
		if got := i.Holds(c.need); got != c.want {
			t.Errorf("%q holds %q: %v", c.held, c.need, got)
		}
	}
	for _, scope := range []string{"core:read", "*", "a:b"} {
		if (Identity{Scopes: []string{"*"}}).Holds(scope) {
			t.Errorf("nobody holds %s", scope)
		}
	}
}

func TestDecide(t *testing.T) {
	p := mustCompile(t, `{"groups":{"system":false},"endpoints":{"shell":{"scopes":["a:b","c:d"]},"ports":{"enabled":true,"scopes":[]}}}`, Options{})
	ro := Identity{ID: "ro", Scopes: []string{"a:*", "files:write"}}
	for _, c := range []struct {
		who  Identity
		id   string
		want Decision
	}{
		{ro, "nope", Decision{Code: UnknownEndpoint, Endpoint: "nope", Text: "Unknown endpoint 'nope'"}},
		{ro, "upload_raw", Decision{Code: UnknownEndpoint, Endpoint: "upload_raw", Text: "Unknown endpoint 'upload_raw'"}},
		{ro, "env_get", Decision{Code: EndpointDisabled, Endpoint: "env_get", Rule: "policy:groups.system", Text: "Endpoint 'env_get' is disabled by rule policy:groups.system"}},
		{admin(), "code_run", Decision{
			Code: EndpointDisabled, Endpoint: "code_run", Rule: "default:opt-in:dev_tools",
			Text: `Endpoint 'code_run' is disabled: group 'dev_tools' is opt-in; enable it with groups: ["dev_tools"] in the policy or ABX_SERVER_ENABLED_GROUPS=dev_tools`,
		}},
		{ro, "shell", Decision{Code: MissingScope, Endpoint: "shell", Scope: "c:d", Identity: "ro", Text: "Identity 'ro' lacks scope 'c:d' required by endpoint 'shell'"}},
		{ro, "files_move", Decision{Code: MissingScope, Endpoint: "files_move", Scope: "files:delete", Identity: "ro", Text: "Identity 'ro' lacks scope 'files:delete' required by endpoint 'files_move'"}},
		{ro, "ports", Allow()},
		{ro, "capabilities_check", Allow()},
		{nobody, "health", Allow()},
		{admin(), "shell", Allow()},
	} {
		if got := p.Decide(c.who, c.id); got != c.want {
			t.Errorf("%s %s\n got %+v\nwant %+v", c.who.ID, c.id, got, c.want)
		}
	}
}

func TestSecretEnv(t *testing.T) {
	p := mustCompile(t, guardedDoc, Options{Getenv: env("RO_SECRET", "x")})
	for name, want := range map[string]bool{
		"RO_SECRET": true, "ro_secret": false, "ABX_SERVER_TOKEN": true, "abx_server_policy": true, "ABX_SERVER_": true,
		"ABX_ENVD_PORT": false, "PATH": false, "": false, "ABX_SERVER": false,
	} {
		if got := p.SecretEnv(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	d, _ := Parse([]byte(guardedDoc), JSON)
	if got := strings.Join(d.TokenEnv(), " "); got != "RO_SECRET" {
		t.Error(got)
	}
}

// Whatever can be printed of a policy, tokens and their sums are not in it.
func TestTokensAreNowhereToBeSeen(t *testing.T) {
	p := mustCompile(t, guardedDoc, Options{Getenv: env("RO_SECRET", "ro-token-value")})
	var out strings.Builder
	for _, r := range p.Rules() {
		fmt.Fprintf(&out, "%+v %v %v %v %v\n", *r, r.LimitsView(), r.ParamsView(), r.PathsView(), p.Decide(nobody, r.Row.Name))
	}
	_, d := p.Authenticate(Credentials{Bearer: []string{"guess"}})
	fmt.Fprint(&out, p.Warnings(), p.Revision(), d, d.Err(), fmt.Sprintf("%+v", p.auth.tokens[0].who))
	for _, secret := range []string{"ro-token-value", sha("ro-token-value"), sha("admin-token"), "guess"} {
		if strings.Contains(strings.ToLower(out.String()), secret) {
			t.Errorf("%q is shown", secret)
		}
	}
}
