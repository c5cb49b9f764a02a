package endpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func tokenPolicy(rest string) string {
	return fmt.Sprintf(`{"auth":{"tokens":[
		{"id":"all","scopes":["*"],"token_sha256":"%s"},
		{"id":"none","scopes":[],"token_sha256":"%s"}]}%s}`, digest("all"), digest("none"), rest)
}

// routes are the rows that are HTTP routes, with parameters filled in.
func routes(table []api.Endpoint) []api.Endpoint {
	out := []api.Endpoint{}
	for _, ep := range table {
		if ep.Virtual {
			continue
		}
		for strings.Contains(ep.Path, "{") {
			before, rest, _ := strings.Cut(ep.Path, "{")
			_, after, _ := strings.Cut(rest, "}")
			ep.Path = before + "x1" + after
		}
		out = append(out, ep)
	}
	return out
}

func wantError(t *testing.T, row string, status int, out map[string]any, wantStatus int, code string) {
	t.Helper()
	got, _ := out["code"].(string)
	if status != wantStatus || got != code {
		t.Errorf("%s: got %d %q (%v), want %d %q", row, status, got, out["error"], wantStatus, code)
	}
	if _, ok := out["error"].(string); !ok {
		t.Errorf("%s: no error text in %v", row, out)
	}
	if _, ok := out["type"].(string); !ok {
		t.Errorf("%s: no type in %v", row, out)
	}
}

func TestEveryRowIsWellFormed(t *testing.T) {
	r := newRig(t, rigOptions{})
	names, places := map[string]bool{}, map[string]bool{}
	for _, ep := range r.table {
		if names[ep.Name] {
			t.Errorf("%s is there twice", ep.Name)
		}
		names[ep.Name] = true
		place := ep.Method + " " + ep.Path
		if places[place] {
			t.Errorf("%s is served twice", place)
		}
		places[place] = true
		if !slices.Contains(policy.Groups, ep.Group) {
			t.Errorf("%s: unknown group %q", ep.Name, ep.Group)
		}
		if ep.Summary == "" || !strings.HasSuffix(ep.Summary, ".") {
			t.Errorf("%s: the summary %q is no sentence", ep.Name, ep.Summary)
		}
		if ep.Paths && ep.Group != "file_ops" && ep.Group != "process" && !strings.HasPrefix(ep.ID(), "git_") {
			t.Errorf("%s: takes paths in group %s", ep.Name, ep.Group)
		}
	}
	for _, ep := range r.table {
		if ep.As != "" && !names[ep.As] {
			t.Errorf("%s is judged as %s, which is no row", ep.Name, ep.As)
		}
	}
}

func TestEveryRowRefusesStrangers(t *testing.T) {
	r := newRig(t, rigOptions{policy: tokenPolicy(`,"groups":["dev_tools","browser"]`)})
	for _, ep := range routes(r.table) {
		if ep.Anonymous {
			continue
		}
		status, out := r.call(ep.Method, ep.Path, nil)
		wantError(t, ep.Name, status, out, http.StatusUnauthorized, "unauthorized")
	}
	// What was refused before its body was looked at stays a 401.
	status, out := r.call("POST", "/capabilities/check", "not json")
	wantError(t, "bad body", status, out, http.StatusUnauthorized, "unauthorized")
}

func TestEveryRowNeedsItsScopes(t *testing.T) {
	r := newRig(t, rigOptions{policy: tokenPolicy(`,"groups":["dev_tools","browser"]`)})
	r.token = "none"
	for _, ep := range routes(r.table) {
		if ep.Anonymous || slices.Equal(ep.Scopes, []string{"core:read"}) {
			continue
		}
		status, out := r.call(ep.Method, ep.Path, nil)
		wantError(t, ep.Name, status, out, http.StatusForbidden, "missing_scope")
		if out["endpoint"] != ep.ID() || out["identity"] != "none" {
			t.Errorf("%s: %v", ep.Name, out)
		}
	}
}

func TestEveryRowCanBeSwitchedOff(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"endpoints":{"*":{"enabled":false}}}`})
	for _, ep := range routes(r.table) {
		if ep.Group == "core" {
			continue
		}
		status, out := r.call(ep.Method, ep.Path, nil)
		wantError(t, ep.Name, status, out, http.StatusNotFound, "endpoint_disabled")
		if out["endpoint"] != ep.ID() || out["rule"] == nil {
			t.Errorf("%s: %v", ep.Name, out)
		}
	}
}

// served tells whether a row takes the path, by its name or by a parameter.
func served(table []api.Endpoint, method, path string) bool {
	return slices.ContainsFunc(table, func(ep api.Endpoint) bool {
		return !ep.Virtual && ep.Method == method &&
			slices.EqualFunc(strings.Split(ep.Path, "/"), strings.Split(path, "/"), func(row, asked string) bool {
				return row == asked || strings.HasPrefix(row, "{")
			})
	})
}

func TestEveryPathKnowsItsMethods(t *testing.T) {
	r := newRig(t, rigOptions{})
	serves := map[string][]string{}
	for _, ep := range routes(r.table) {
		serves[ep.Path] = append(serves[ep.Path], ep.Method)
	}
	for path, methods := range serves {
		for _, m := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
			if served(r.table, m, path) {
				continue
			}
			res := r.do(m, path, nil)
			res.Body.Close()
			if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") == "" {
				t.Errorf("%s %s: %d, Allow %q", m, path, res.StatusCode, res.Header.Get("Allow"))
			}
		}
		res := r.do("OPTIONS", path, nil)
		res.Body.Close()
		if res.StatusCode != http.StatusNoContent || !strings.Contains(res.Header.Get("Allow"), methods[0]) {
			t.Errorf("OPTIONS %s: %d, Allow %q", path, res.StatusCode, res.Header.Get("Allow"))
		}
	}
	status, out := r.call("GET", "/nope/", nil)
	if status != http.StatusNotFound || out["error"] != "Not found: /nope" || out["code"] != nil {
		t.Errorf("unknown path: %d %v", status, out)
	}
}

func TestEveryBodyMustBeAnObject(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools","browser"]}`})
	for _, ep := range routes(r.table) {
		if ep.Method == "GET" || !ep.TakesJSON() {
			continue
		}
		for _, body := range []string{`{"a"`, `{} x`, "{\"a\":\"\xff\"}"} {
			status, out := r.call(ep.Method, ep.Path, body)
			wantError(t, ep.Name+" "+body, status, out, http.StatusBadRequest, "invalid_json")
		}
		for _, body := range []string{`[]`, `null`, `"x"`, `1`} {
			status, out := r.call(ep.Method, ep.Path, body)
			wantError(t, ep.Name+" "+body, status, out, http.StatusBadRequest, "body_not_object")
		}
	}
}

func TestEveryBodyIsBounded(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools","browser"],"defaults":{"limits":{"max_request_bytes":100}}}`})
	big := `{"x":"` + strings.Repeat("x", 200) + `"}`
	for _, ep := range routes(r.table) {
		if ep.Method == "GET" || !ep.TakesJSON() {
			continue
		}
		status, out := r.call(ep.Method, ep.Path, big)
		wantError(t, ep.Name, status, out, http.StatusRequestEntityTooLarge, "payload_too_large")
		if out["limit"] != 100.0 || out["endpoint"] != nil {
			t.Errorf("%s: %v", ep.Name, out)
		}
		// Without a Content-Length the bytes are counted as they come.
		status, out = r.call(ep.Method, ep.Path, unsized(big))
		wantError(t, ep.Name+" chunked", status, out, http.StatusRequestEntityTooLarge, "payload_too_large")
	}
}

func TestEveryRowRefusesARepeatedParameter(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools","browser"]}`})
	for _, ep := range routes(r.table) {
		status, out := r.call(ep.Method, ep.Path+"?q=1&q=2", nil)
		wantError(t, ep.Name, status, out, http.StatusBadRequest, "duplicate_parameter")
	}
}

func TestEveryRowRefusesForeignOrigins(t *testing.T) {
	r := newRig(t, rigOptions{policy: `{"groups":["dev_tools","browser"]}`})
	for _, ep := range routes(r.table) {
		if ep.Anonymous {
			continue
		}
		status, out := r.call(ep.Method, ep.Path, nil, "Origin", "http://evil.example")
		wantError(t, ep.Name, status, out, http.StatusForbidden, "origin_not_allowed")
	}
}

// TestDiscoveryNamesWhatIsBeyondTheContract lets clients find routes that the
// published server has not.
func TestDiscoveryNamesWhatIsBeyondTheContract(t *testing.T) {
	r := newRig(t, rigOptions{})
	status, out := r.call("GET", "/capabilities", nil)
	if status != 200 {
		t.Fatal(status, out)
	}
	named := fmt.Sprint(out["features"])
	for _, ep := range r.table {
		if has := strings.Contains(named+" ", ep.Method+" "+ep.Path+" ") || strings.Contains(named, ep.Method+" "+ep.Path+"]"); has != (ep.As != "") {
			t.Errorf("%s %s: named %v, stands for %q", ep.Method, ep.Path, has, ep.As)
		}
	}
}
