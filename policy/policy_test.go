package policy

import (
	"errors"
	"strings"
	"testing"
)

// mustCompile compiles a JSON document for all rows.
func mustCompile(t *testing.T, doc string, o Options) *Policy {
	t.Helper()
	p, err := compileJSON(doc, o)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return p
}

func compileJSON(doc string, o Options) (*Policy, error) {
	d, err := Parse([]byte(doc), JSON)
	if err != nil {
		return nil, err
	}
	return Compile(d, allRows(), o)
}

var nobody Identity

func admin() Identity { return Identity{ID: "admin", Scopes: []string{"*"}} }

func TestPublishedTableIsWhole(t *testing.T) {
	rows := publishedRows()
	count := map[string]int{}
	for _, r := range rows {
		count[r.Group]++
	}
	want := map[string]int{"core": 3, "commands": 2, "file_ops": 10, "process": 8, "terminal": 6, "system": 6, "dev_tools": 3, "browser": 8}
	for g, n := range want {
		if count[g] != n {
			t.Errorf("group %s has %d endpoints, want %d", g, count[g], n)
		}
	}
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.Name)
	}
	if strings.Join(ids, " ") != strings.Join(publishedIDs, " ") {
		t.Errorf("publishedIDs differ from the table:\n%v\n%v", publishedIDs, ids)
	}
}

func TestEmptyDocument(t *testing.T) {
	p := mustCompile(t, `{}`, Options{})
	if p.Preset() != "default" || p.Configured() || p.BaseDir() != "" || p.HasTokens() || len(p.Warnings()) != 0 {
		t.Errorf("facts: %q %v %q %v %v", p.Preset(), p.Configured(), p.BaseDir(), p.HasTokens(), p.Warnings())
	}
	for _, row := range publishedRows() {
		r := p.Rule(row.Name)
		if r == nil {
			t.Fatalf("no rule for %s", row.Name)
		}
		optIn := row.Group == "dev_tools" || row.Group == "browser"
		if r.Enabled == optIn {
			t.Errorf("%s enabled is %v", row.Name, r.Enabled)
		}
		if optIn && r.Origin != "default:opt-in:"+row.Group {
			t.Errorf("%s: origin %q", row.Name, r.Origin)
		}
		if strings.Join(r.Scopes, " ") != strings.Join(row.Scopes, " ") || r.Audit != AuditDeny {
			t.Errorf("%s: scopes %v, audit %q", row.Name, r.Scopes, r.Audit)
		}
		if r.Paths == nil || r.Command == nil || len(r.LimitsView()) != 0 || len(r.ParamsView()) != 0 {
			t.Errorf("%s: not the rule of nothing configured: %+v", row.Name, r)
		}
	}
	if p.Rule("upload_raw") != nil {
		t.Error("a route judged as another endpoint has a rule of its own")
	}
}

func TestRowsThatMakeNoTableAreRefused(t *testing.T) {
	for name, rows := range map[string][]Row{
		"twice":            {{Name: "a"}, {Name: "a"}},
		"follows nothing":  {{Name: "a", Follows: "b"}},
		"follows follower": {{Name: "a", Follows: "b"}, {Name: "b", Follows: "c"}, {Name: "c"}},
	} {
		_, err := Compile(Empty(), rows, Options{})
		if _, config := errors.AsType[*ConfigError](err); err == nil || config {
			t.Errorf("%s: %v", name, err)
		}
	}
}
