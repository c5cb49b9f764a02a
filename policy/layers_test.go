package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// enabledIDs lists the enabled endpoints of the published table, sorted.
func enabledIDs(p *Policy) []string {
	var ids []string
	for _, r := range p.Rules() {
		if r.Enabled && slices.Contains(publishedIDs, r.Row.Name) {
			ids = append(ids, r.Row.Name)
		}
	}
	return ids
}

// ids resolves a list such as "+core +group:file_ops -files_list", sorted.
func ids(list string) []string {
	set := map[string]bool{}
	for item := range strings.FieldsSeq(list) {
		on, name := item[0] == '+', item[1:]
		for _, row := range publishedRows() {
			_, group, isGroup := strings.Cut(name, ":")
			if row.Name == name || isGroup && row.Group == group {
				set[row.Name] = on
			}
			if name == "default" && row.Group != "dev_tools" && row.Group != "browser" {
				set[row.Name] = on
			}
		}
	}
	maps.DeleteFunc(set, func(_ string, on bool) bool { return !on })
	return slices.Sorted(maps.Keys(set))
}

func TestPresets(t *testing.T) {
	const noWrites = "-files_mkdir -files_delete -files_move -files_upload_stream -env_set"
	for preset, c := range map[string]struct {
		on    string
		rules map[string]string
	}{
		"default":       {"+default", nil},
		"transfer-only": {"+group:core +files_upload_stream +files_download_stream", map[string]string{"shell": "preset:transfer-only:endpoints.*"}},
		"read-only": {"+group:core +group:commands +group:file_ops +group:system " + noWrites, map[string]string{
			"shell":       "preset:read-only:groups.process",
			"files_mkdir": "preset:read-only:endpoints.files_mkdir",
			"env_set":     "preset:read-only:endpoints.env_set",
			"code_run":    "preset:read-only:groups.dev_tools",
		}},
		"hardened": {"+group:core +group:commands +group:file_ops +group:system -env_set", map[string]string{
			"pty_connect": "preset:hardened:groups.terminal",
			"env_set":     "preset:hardened:endpoints.env_set",
		}},
		"locked": {"+group:core +group:commands", map[string]string{"shell": "preset:locked:endpoints.*"}},
	} {
		d, err := PresetDocument(preset)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(d, allRows(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids(c.on), enabledIDs(p)); diff != "" {
			t.Errorf("%s: enabled (-want +got)\n%s", preset, diff)
		}
		for id, rule := range c.rules {
			if got := p.Rule(id).Origin; got != rule {
				t.Errorf("%s: %s is off by %q, want %q", preset, id, got, rule)
			}
		}
		if p.Preset() != preset || !p.Configured() || len(p.Warnings()) != 0 {
			t.Errorf("%s: preset %q, configured %v, warnings %v", preset, p.Preset(), p.Configured(), p.Warnings())
		}
	}
}

func TestEnabledCountsOfPresets(t *testing.T) {
	groups := []string{"file_ops", "process", "terminal", "system", "commands"}
	for preset, want := range map[string][]int{
		"default": {10, 8, 6, 6, 2}, "transfer-only": {2, 0, 0, 0, 0}, "read-only": {6, 0, 0, 5, 2},
		"hardened": {10, 0, 0, 5, 2}, "locked": {0, 0, 0, 0, 2},
	} {
		d, _ := PresetDocument(preset)
		p, err := Compile(d, publishedRows(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum := p.GroupSummary()
		for i, g := range groups {
			if sum[g].Enabled != want[i] {
				t.Errorf("%s: %d of %s enabled, want %d", preset, sum[g].Enabled, g, want[i])
			}
		}
		if sum["core"] != (GroupCount{3, 3}) || sum["agents"] != (GroupCount{}) || len(sum) != len(Groups) {
			t.Errorf("%s: summary %v", preset, sum)
		}
	}
}

func TestHardenedPathRules(t *testing.T) {
	p := mustCompile(t, `{"preset": "hardened"}`, Options{})
	want := []string{"/proc", "/sys", "/dev", "**/.ssh", "**/.env", "**/.env.*", "**/*.pem", "**/id_rsa*", "**/id_ed25519*"}
	for _, r := range p.Rules() {
		if !strings.HasPrefix(r.Row.Name, "files_") {
			if len(r.Paths.Deny) != 0 {
				t.Errorf("%s has deny patterns", r.Row.Name)
			}
			continue
		}
		if diff := cmp.Diff(want, r.Paths.Deny); diff != "" {
			t.Errorf("%s: %s", r.Row.Name, diff)
		}
		view := map[string]any{"allow": []string{}, "read_only": false, "deny_count": 9, "symlinks": "within"}
		if diff := cmp.Diff(view, r.PathsView()); diff != "" {
			t.Errorf("%s: %s", r.Row.Name, diff)
		}
	}
}

// The consequences the precedence rules are known by.
func TestPrecedence(t *testing.T) {
	const core = "+group:core "
	for _, c := range []struct {
		doc   string
		env   string
		code  map[string]bool
		on    string
		rules map[string]string
	}{
		{
			doc: `{"endpoints": {"*": OFF, "files_*": ON}}`, on: core,
			rules: map[string]string{"files_list": "policy:endpoints.*"},
		},
		{doc: `{"endpoints": {"*": OFF, "files_list": ON}}`, on: core + "+files_list"},
		{doc: `{"groups": {"file_ops": false}, "endpoints": {"files_*": ON}}`, on: "+default"},
		{
			doc: `{"endpoints": {"group:file_ops": OFF, "files_stat": ON}}`, on: "+default -group:file_ops +files_stat",
			rules: map[string]string{"files_list": "policy:endpoints.group:file_ops"},
		},
		{doc: `{"groups": ["file_ops"], "endpoints": {"group:file_ops": OFF}}`, on: "+default -group:file_ops"},
		{
			doc: `{"defaults": OFF}`, on: core,
			rules: map[string]string{"shell": "policy:defaults", "code_run": "default:opt-in:dev_tools"},
		},
		{doc: `{"defaults": ON}`, on: "+default", rules: map[string]string{"code_run": "default:opt-in:dev_tools"}},
		{doc: `{"endpoints": {"code_*": ON}}`, on: "+default +code_run"},
		{doc: `{"endpoints": {"code_run": ON}}`, on: "+default +code_run"},
		{doc: `{"groups": ["dev_tools"]}`, on: "+default +group:dev_tools"},
		{
			doc: `{"groups": {"dev_tools": true, "system": false}}`, on: "+default +group:dev_tools -group:system",
			rules: map[string]string{"ports": "policy:groups.system"},
		},
		{doc: `{"preset": "transfer-only", "groups": ["file_ops"]}`, on: core + "+files_upload_stream +files_download_stream"},
		{doc: `{"preset": "transfer-only", "endpoints": {"files_*": ON}}`, on: core + "+group:file_ops"},
		{
			doc: `{"preset": "read-only", "groups": ["process"]}`,
			on:  core + "+group:commands +group:process +group:file_ops +group:system -files_mkdir -files_delete -files_move -files_upload_stream -env_set",
		},
		{doc: `{"groups": {"process": false}}`, env: " process , core,,", on: "+default"},
		{
			doc: `{"preset": "locked"}`, env: "process", on: core + "+group:commands",
			rules: map[string]string{"shell": "preset:locked:endpoints.*"},
		},
		{
			doc: `{"endpoints": {"shell": OFF}}`, env: "process", on: "+default -shell",
			rules: map[string]string{"shell": "policy:endpoints.shell"},
		},
		{doc: `{"endpoints": {"health": OFF, "capabilities*": OFF, "group:core": OFF}}`, on: "+default"},
		{
			doc:   `{"endpoints": {"files_[ls]*": OFF, "por?s": OFF, "FILES_*": OFF}}`,
			on:    "+default -files_list -files_stat -files_search -ports",
			rules: map[string]string{"ports": "policy:endpoints.por?s"},
		},
		{doc: `{}`, env: "dev_tools,browser", on: "+default +group:dev_tools +group:browser"},
		{
			doc: `{}`, code: map[string]bool{"dev_tools": true, "terminal": false}, on: "+default +group:dev_tools -group:terminal",
			rules: map[string]string{"pty_detail": "code:enable_group:terminal"},
		},
		{
			doc: `{"groups": {"dev_tools": false}}`, code: map[string]bool{"dev_tools": true}, on: "+default",
			rules: map[string]string{"code_run": "policy:groups.dev_tools"},
		},
		{
			doc: `{"preset": "read-only"}`, code: map[string]bool{"dev_tools": true},
			on:    core + "+group:commands +group:file_ops +group:system -files_mkdir -files_delete -files_move -files_upload_stream -env_set",
			rules: map[string]string{"code_run": "preset:read-only:groups.dev_tools"},
		},
		{
			doc: `{"endpoints": {"s*": ON, "shell*": OFF, "*_stream": ON}}`, on: "+default -shell -shell_stream",
			rules: map[string]string{"shell_stream": "policy:endpoints.shell*"},
		},
		{doc: `{"endpoints": {"shell*": OFF, "*": OFF}}`, on: core, // the shorter selector comes first
			rules: map[string]string{"shell": "policy:endpoints.*", "ports": "policy:endpoints.*"}},
	} {
		doc := strings.NewReplacer("OFF", `{"enabled": false}`, "ON", `{"enabled": true}`).Replace(c.doc)
		env, err := ParseEnabledGroups(c.env)
		if err != nil {
			t.Fatal(err)
		}
		p := mustCompile(t, doc, Options{EnvGroups: env, CodeGroups: c.code})
		if diff := cmp.Diff(ids(c.on), enabledIDs(p)); diff != "" {
			t.Errorf("%s env=%q: enabled (-want +got)\n%s", c.doc, c.env, diff)
		}
		for id, rule := range c.rules {
			if got := p.Rule(id).Origin; got != rule {
				t.Errorf("%s: %s is off by %q, want %q", c.doc, id, got, rule)
			}
		}
		for _, r := range p.Rules() {
			if r.Enabled != (r.Origin == "") {
				t.Errorf("%s: %s enabled %v, origin %q", c.doc, r.Row.Name, r.Enabled, r.Origin)
			}
		}
	}
}

// A document written for the published endpoints must not open new ones.
func TestNewEndpointsFollowPublishedOnes(t *testing.T) {
	for _, c := range []struct {
		doc  string
		id   string
		on   bool
		rule string
	}{
		{`{}`, "envd_init", true, ""},
		{`{}`, "git_clone", false, "default:opt-in:dev_tools"},
		{`{"groups": ["dev_tools"]}`, "git_clone", true, ""},
		{`{"groups": ["dev_tools"], "endpoints": {"code_run": {"enabled": false}}}`, "git_clone", false, "policy:endpoints.code_run"},
		{`{"endpoints": {"code_run": {"enabled": true}}}`, "git_clone", false, "default:opt-in:dev_tools"},
		{`{"groups": ["dev_tools"], "endpoints": {"code_run": {"enabled": false}, "git_clone": {"enabled": true}}}`, "git_clone", true, ""},
		{`{"groups": ["dev_tools"], "endpoints": {"code_run": {"enabled": false}, "git_*": {"enabled": true}}}`, "git_clone", true, ""},
		// A selector that only sets limits does not switch anything.
		{`{"groups": ["dev_tools"], "endpoints": {"code_run": {"enabled": false}, "git_*": {"limits": {"max_concurrency": 1}}}}`, "git_clone", false, "policy:endpoints.code_run"},
		{`{"endpoints": {"git_clone": {"enabled": true}}}`, "git_clone", true, ""},
		{`{"endpoints": {"env_set": {"enabled": false}}}`, "envd_init", false, "policy:endpoints.env_set"},
		{`{"groups": {"system": false}}`, "envd_init", false, "policy:groups.system"},
		{`{"defaults": {"enabled": false}}`, "envd_init", false, "policy:defaults"},
		{`{"endpoints": {"*": {"enabled": false}, "env_set": {"enabled": true}}}`, "envd_init", false, "policy:endpoints.*"},
		{`{"preset": "hardened"}`, "envd_init", false, "preset:hardened:endpoints.env_set"},
		{`{"preset": "read-only"}`, "envd_init", false, "preset:read-only:endpoints.envd_init"},
		{`{"preset": "read-only", "groups": ["dev_tools"]}`, "git_clone", false, "preset:read-only:endpoints.git_clone"},
		{`{"preset": "read-only", "groups": ["dev_tools"], "endpoints": {"git_*": {"enabled": true}}}`, "git_clone", false, "preset:read-only:endpoints.git_clone"},
		{`{"preset": "read-only", "endpoints": {"git_clone": {"enabled": true}}}`, "git_clone", true, ""},
		{`{"preset": "transfer-only", "groups": ["dev_tools", "system"]}`, "git_clone", false, "preset:transfer-only:endpoints.*"},
		{`{"preset": "locked", "endpoints": {"env_set": {"enabled": true}}}`, "envd_init", false, "preset:locked:endpoints.*"},
		{`{"preset": "locked", "endpoints": {"code_run": {"enabled": true}, "browser_evaluate": {"enabled": true}}}`, "browser_cdp", false, "preset:locked:endpoints.*"},
	} {
		r := mustCompile(t, c.doc, Options{}).Rule(c.id)
		if r.Enabled != c.on || r.Origin != c.rule {
			t.Errorf("%s: %s enabled %v by %q, want %v by %q", c.doc, c.id, r.Enabled, r.Origin, c.on, c.rule)
		}
	}
}

// Nothing the published server does not have is on in the closed presets,
// whatever groups the environment adds.
func TestClosedPresetsOpenNothingNew(t *testing.T) {
	for _, preset := range []string{"transfer-only", "locked", "read-only"} {
		d, _ := PresetDocument(preset)
		p, err := Compile(d, allRows(), Options{EnvGroups: []string{"dev_tools", "browser", "system", "process"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Rules() {
			if r.Enabled && r.Row.Follows != "" {
				t.Errorf("%s: %s is on", preset, r.Row.Name)
			}
		}
	}
}

func TestRulePartsMerge(t *testing.T) {
	p := mustCompile(t, `{
		"preset": "hardened",
		"defaults": {"audit": "all", "limits": {"rate_per_minute": 500, "max_bytes": 1}, "paths": {"deny": ["d0"]}},
		"endpoints": {
			"group:file_ops": {"limits": {"rate_per_minute": 400}, "scopes": []},
			"files_*": {"limits": {"rate_per_minute": 700}, "paths": {"deny": ["d1"], "allow": ["/a"]}},
			"files_s*": {"limits": {"rate_per_minute": 800}, "scopes": ["q:r"], "paths": {"allow": ["/b"], "deny": ["d1", "d2"]}},
			"files_stat": {"audit": "off", "limits": {"rate_per_minute": 900}, "paths": {"allow": [], "read_only": true, "symlinks": "never", "hardlinks": "deny"}},
			"files_upload_stream": {"limits": {"max_bytes": "1KiB"}, "params": {"deny_extensions": [".a"]}},
			"files_up*": {"params": {"deny_extensions": [".b", ".a"], "overwrite": false}}
		}}`, Options{})
	type view struct {
		Scopes         []string
		Audit          AuditMode
		Limits, Params map[string]any
		Paths          map[string]any
	}
	paths := func(allow []string, readOnly bool, deny int, symlinks string) map[string]any {
		return map[string]any{"allow": allow, "read_only": readOnly, "deny_count": deny, "symlinks": symlinks}
	}
	hard := paths([]string{}, true, 12, "never")
	hard["hardlinks"] = "deny"
	for id, want := range map[string]view{
		"ports":        {[]string{"system:read"}, "all", map[string]any{"rate_per_minute": int64(500)}, map[string]any{}, nil},
		"files_list":   {[]string{}, "all", map[string]any{"rate_per_minute": int64(700)}, map[string]any{}, paths([]string{"/a"}, false, 11, "within")},
		"files_search": {[]string{"q:r"}, "all", map[string]any{"rate_per_minute": int64(800)}, map[string]any{}, paths([]string{"/b"}, false, 12, "within")},
		"files_stat":   {[]string{"q:r"}, "off", map[string]any{"rate_per_minute": int64(900)}, map[string]any{}, hard},
		"files_upload_stream": {
			[]string{},
			"all",
			map[string]any{"rate_per_minute": int64(700), "max_bytes": int64(1024)},
			map[string]any{"deny_extensions": []string{".b", ".a"}, "overwrite": false},
			paths([]string{"/a"}, false, 11, "within"),
		},
	} {
		r := p.Rule(id)
		got := view{r.Scopes, r.Audit, r.LimitsView(), r.ParamsView(), r.PathsView()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", id, diff)
		}
	}
	if st := p.Rule("files_stat"); !st.Paths.SymlinksNever || !st.Paths.DenyHardlinks || !st.Paths.ReadOnly {
		t.Errorf("path rules of files_stat: %+v", st.Paths)
	}
}

// Deny lists add up over layers and kinds, every other list is replaced.
func TestDenyListsAreUnited(t *testing.T) {
	p := mustCompile(t, `{"groups": ["browser"], "endpoints": {
		"*": {"params": {"deny_commands": ["rm", "dd"], "allow_commands": ["ls"], "deny_vars": ["A*"], "env_deny": ["X"],
			"url_deny": ["http://a/*"], "url_allow": ["http://b/*"], "allow_vars": ["P*"]}},
		"shell": {"params": {"deny_commands": ["dd", "mkfs"], "allow_commands": []}},
		"env_set": {"params": {"deny_vars": ["B*", "A*"], "allow_vars": ["Q*"]}},
		"pty_create_session": {"params": {"env_deny": []}},
		"browser_navigate": {"params": {"url_deny": ["http://c/*"], "url_allow": []}}}}`, Options{})
	for _, c := range []struct {
		id, param string
		want      []string
	}{
		{"shell", "deny_commands", []string{"rm", "dd", "mkfs"}},
		{"shell", "allow_commands", []string{}},
		{"shell_stream", "allow_commands", []string{"ls"}},
		{"env_set", "deny_vars", []string{"A*", "B*"}},
		{"env_set", "allow_vars", []string{"Q*"}},
		{"pty_create_session", "env_deny", []string{"X"}},
		{"browser_navigate", "url_deny", []string{"http://a/*", "http://c/*"}},
		{"browser_navigate", "url_allow", []string{}},
	} {
		got, set := p.Rule(c.id).Strings(c.param)
		if diff := cmp.Diff(c.want, got); diff != "" || !set {
			t.Errorf("%s %s: set %v\n%s", c.id, c.param, set, diff)
		}
	}
	if _, set := p.Rule("env_get").Strings("deny_commands"); set {
		t.Error("env_get has a param it does not take")
	}
}

func TestRuleGetters(t *testing.T) {
	p := mustCompile(t, `{"endpoints": {
		"shell": {"limits": {"timeout_seconds": 2.5, "max_output_bytes": "1 kb"}},
		"code_run": {"limits": {"timeout_seconds": 3}},
		"process_signal": {"params": {"allowed_signals": []}}}}`, Options{})
	sh := p.Rule("shell")
	if v, ok := sh.Seconds("timeout_seconds"); !ok || v != 2.5 {
		t.Error(v, ok)
	}
	if v, ok := sh.Int("timeout_seconds"); !ok || v != 2 {
		t.Error(v, ok)
	}
	if v, ok := sh.Int("max_output_bytes"); !ok || v != 1000 {
		t.Error(v, ok)
	}
	if _, ok := sh.Int("max_processes"); ok {
		t.Error("an absent limit is set")
	}
	if v, ok := p.Rule("code_run").Seconds("timeout_seconds"); !ok || v != 3 {
		t.Error(v, ok)
	}
	if v, ok := p.Rule("process_signal").Ints("allowed_signals"); !ok || v == nil || len(v) != 0 {
		t.Error(v, ok)
	}
	if _, ok := sh.Ints("allowed_signals"); ok {
		t.Error("an absent list is set")
	}
	if _, ok := sh.Bool("overwrite"); ok {
		t.Error("an absent flag is set")
	}
}

// A probe that scopes or limits of everybody's could fail would end the sandbox.
func TestHealthIgnoresScopesAndRates(t *testing.T) {
	p := mustCompile(t, `{"defaults": {"scopes": ["x:y"], "limits": {"rate_per_minute": 1, "max_concurrency": 1, "max_request_bytes": 5}},
		"endpoints": {"health": {"scopes": ["a:b"], "enabled": false, "limits": {"max_concurrency": 2}}}}`, Options{})
	r := p.Rule("health")
	if !r.Enabled || len(r.Scopes) != 0 {
		t.Errorf("enabled %v, scopes %v", r.Enabled, r.Scopes)
	}
	if diff := cmp.Diff(map[string]any{"max_request_bytes": int64(5)}, r.LimitsView()); diff != "" {
		t.Error(diff)
	}
	if d := p.Decide(nobody, "health"); !d.OK() {
		t.Error(d)
	}
	if d := p.Decide(admin(), "capabilities"); !d.OK() {
		t.Error(d)
	}
}
