package policy

import (
	"encoding/json"
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowEnabled says whether an endpoint is on by looking the votes up kind by
// kind and layer by layer, the way the precedence rules are told to people.
func slowEnabled(row Row, preset string, groups map[string]bool, selectors map[string]bool, env []string) bool {
	if row.Group == "core" {
		return true
	}
	type votes []bool
	asked := func(all []votes) (bool, bool) { // the last layer that says anything
		for _, a := range slices.Backward(all) {
			if len(a) > 0 {
				return !slices.Contains(a, false), true
			}
		}
		return false, false
	}
	matching := func(m map[string]bool, fits func(string) bool) (v votes) {
		for sel, on := range m {
			if fits(sel) {
				v = append(v, on)
			}
		}
		return v
	}
	isGlob := func(s string) bool { return s == "*" || s[len(s)-1] == '*' || s[0] == '*' }
	glob := func(s string) bool { ok, _ := path.Match(s, row.Name); return isGlob(s) && ok }
	exact := func(s string) bool { return s == row.Name }
	group := func(s string) bool { return s == "group:"+row.Group }
	name := func(s string) bool { return s == row.Group }

	of := map[string]struct{ groups, selectors map[string]bool }{
		"default":       {},
		"locked":        {nil, map[string]bool{"*": false, "list_commands": true, "run_command": true}},
		"transfer-only": {nil, map[string]bool{"*": false, "files_upload_stream": true, "files_download_stream": true}},
		"read-only": {
			map[string]bool{"process": false, "terminal": false, "dev_tools": false, "browser": false},
			map[string]bool{"files_mkdir": false, "files_delete": false, "files_move": false, "files_upload_stream": false, "env_set": false},
		},
	}[preset]
	if on, ok := asked([]votes{matching(of.selectors, exact), matching(selectors, exact)}); ok {
		return on
	}
	if on, ok := asked([]votes{matching(of.selectors, glob), matching(selectors, glob)}); ok {
		return on
	}
	var builtin, environment votes
	if slices.Contains(optInGroups, row.Group) {
		builtin = votes{false}
	}
	if slices.Contains(env, row.Group) {
		environment = votes{true}
	}
	document := append(matching(groups, name), matching(selectors, group)...)
	if on, ok := asked([]votes{builtin, matching(of.groups, name), document, environment}); ok {
		return on
	}
	return true
}

func TestPrecedenceAgainstItsDefinition(t *testing.T) {
	rows := publishedRows()
	names := []string{
		"*", "files_*", "*_stream", "s*", "code_*", "files_stat", "shell", "code_run", "run_command", "env_set",
		"group:file_ops", "group:process", "group:dev_tools", "group:system",
	}
	groupNames := []string{"file_ops", "process", "terminal", "system", "dev_tools", "browser", "commands"}
	rapid.Check(t, func(t *rapid.T) {
		preset := rapid.SampledFrom([]string{"default", "locked", "transfer-only", "read-only"}).Draw(t, "preset")
		groups := rapid.MapOfN(rapid.SampledFrom(groupNames), rapid.Bool(), 0, 4).Draw(t, "groups")
		selectors := rapid.MapOfN(rapid.SampledFrom(names), rapid.Bool(), 0, 6).Draw(t, "selectors")
		env := rapid.SliceOfNDistinct(rapid.SampledFrom(groupNames), 0, 3, rapid.ID[string]).Draw(t, "env")

		endpoints := map[string]any{}
		for sel, on := range selectors {
			endpoints[sel] = map[string]bool{"enabled": on}
		}
		text, err := json.Marshal(map[string]any{"preset": preset, "groups": groups, "endpoints": endpoints})
		if err != nil {
			t.Fatal(err)
		}
		d, err := Parse(text, JSON)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(d, rows, Options{EnvGroups: env})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			r := p.Rule(row.Name)
			if want := slowEnabled(row, preset, groups, selectors, env); r.Enabled != want {
				t.Fatalf("%s env=%v: %s is %v (%s), want %v", text, env, row.Name, r.Enabled, r.Origin, want)
			}
			if r.Enabled != (r.Origin == "") {
				t.Fatalf("%s: %s enabled %v by %q", text, row.Name, r.Enabled, r.Origin)
			}
		}
	})
}
