package envd

import (
	"os"
	"path/filepath"
	"testing"
)

// A listener that was given a lesser user let callers name root all the same,
// though the policy lists who may be named.
func TestListedUsersBoundTheServersOwnToo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	const (
		root   = "Basic cm9vdDo="
		nobody = "Basic bm9ib2R5Og=="
		listed = `{"endpoints":{"process_start":{"params":{"allow_users":["nobody"]}}}}`
	)
	open := func(r *rig) {
		for _, dir := range []string{r.base, filepath.Dir(r.base)} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		user, policy, init, named, want string
	}{
		"named root beside a lesser default":        {"nobody", listed, "", root, "permission_denied"},
		"root made the default by init":             {"nobody", listed, `{"defaultUser":"root"}`, "", "permission_denied"},
		"no default by init is the listener's":      {"nobody", listed, `{"defaultUser":""}`, "", ""},
		"the lesser default":                        {"nobody", listed, "", "", ""},
		"the lesser default by name":                {"nobody", listed, "", nobody, ""},
		"root where it is the default":              {"", listed, "", "", ""},
		"root by name where it is the default":      {"", listed, "", root, ""},
		"root where nobody is listed":               {"nobody", `{}`, "", root, ""},
		"a default that the policy does not list":   {"daemon", listed, "", "", "permission_denied"},
		"somebody whom the policy does not list":    {"", listed, "", "Basic ZGFlbW9uOg==", "permission_denied"},
		"a listed one by name, root as the default": {"", listed, "", nobody, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigAs(t, c.user, c.policy)
			open(r)
			if c.init != "" {
				if status, text := r.send("POST", r.url+"/init", "application/json", c.init); status != 204 {
					t.Fatalf("init: %d %s", status, text)
				}
			}
			var header []string
			if c.named != "" {
				header = []string{"Authorization", c.named}
			}
			out, _ := r.rpc("filesystem.Filesystem/Stat", `{"path":"`+r.base+`"}`, header...)
			code, _ := out["code"].(string)
			if code != c.want {
				t.Errorf("got %v, want code %q", out, c.want)
			}
		})
	}
}
