package policy

import (
	"cmp"
	"slices"
	"strings"
)

// ruleKind orders rules by how exactly they name an endpoint. It outranks the
// layer a rule comes from.
type ruleKind uint8

const (
	defaultsKind ruleKind = iota
	groupKind
	globKind
	exactKind
)

// rank orders the layers.
type rank uint8

const (
	builtinRank rank = iota
	codeRank
	presetRank
	documentRank
	environmentRank
)

// entry is one rule of one layer with what it selects.
type entry struct {
	kind   ruleKind
	rank   rank
	prefix int // length of the selector before its first "*"
	origin string
	rule   *ruleSpec

	name string // exact id or group
	glob Glob
	text string // the selector as written, "" for groups and defaults
	at   *node
}

func (e *entry) selects(row *Row) bool {
	switch e.kind {
	case defaultsKind:
		return true
	case groupKind:
		return e.name == row.Group
	case globKind:
		return e.glob.Match(row.Name)
	}
	return e.name == row.Name
}

const groupPrefix = "group:"

// The groups that start switched off.
var optInGroups = []string{"dev_tools", "browser", "agents"}

var switchedOn, switchedOff = &ruleSpec{enabled: new(true)}, &ruleSpec{enabled: new(false)}

func switched(on bool) *ruleSpec {
	if on {
		return switchedOn
	}
	return switchedOff
}

func groupEntry(r rank, group, origin string, on bool) entry {
	return entry{kind: groupKind, rank: r, prefix: len(group), origin: origin, name: group, rule: switched(on)}
}

// layers lists the entries of all layers, ordered as rules are merged: by kind,
// rank, length of the selector and position. The last one has the last word.
func layers(d *Document, rows []Row, o *Options) []entry {
	var all []entry
	for _, g := range optInGroups {
		all = append(all, groupEntry(builtinRank, g, "default:opt-in:"+g, false))
	}
	for _, g := range sortedKeys(o.CodeGroups) {
		all = append(all, groupEntry(codeRank, g, "code:enable_group:"+g, o.CodeGroups[g]))
	}
	all = append(all, presetBodies()[d.preset].entries(presetRank, "preset:"+d.preset+":")...)
	if d.preset == "read-only" {
		all = append(all, readOnlyAdditions(rows)...)
	}
	all = append(all, d.entries(documentRank, "policy:")...)
	for _, g := range o.EnvGroups {
		all = append(all, groupEntry(environmentRank, g, "env:"+enabledGroupsEnv+":"+g, true))
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.rank, b.rank), cmp.Compare(a.prefix, b.prefix))
	})
	return all
}

// readOnlyAdditions switch off what changes something and is unknown to the
// published server, so that the preset keeps its promise for new endpoints.
func readOnlyAdditions(rows []Row) []entry {
	var out []entry
	for i := range rows {
		if row := &rows[i]; row.As == "" && row.Mutates && row.Follows != "" {
			out = append(out, entry{
				kind: exactKind, rank: presetRank, prefix: len(row.Name),
				origin: "preset:read-only:endpoints." + row.Name, name: row.Name, rule: switchedOff,
			})
		}
	}
	return out
}

// entries are the document's own rules.
func (d *Document) entries(r rank, origin string) []entry {
	var out []entry
	if d.defaults != nil {
		out = append(out, entry{kind: defaultsKind, rank: r, origin: origin + "defaults", rule: d.defaults})
	}
	for _, g := range d.groups {
		out = append(out, groupEntry(r, g.group, origin+"groups."+g.group, g.on))
	}
	for _, s := range d.selectors {
		e := entry{rank: r, origin: origin + "endpoints." + s.selector, rule: s.rule, text: s.selector, at: s.at}
		before, _, _ := strings.Cut(s.selector, "*")
		e.prefix = len(before)
		e.kind, e.name = selectorKind(s.selector)
		if e.kind == globKind {
			e.glob = CompileGlob(s.selector)
		}
		out = append(out, e)
	}
	return out
}

func selectorKind(sel string) (ruleKind, string) {
	if strings.ContainsAny(sel, "*?[") {
		return globKind, ""
	}
	if group, ok := strings.CutPrefix(sel, groupPrefix); ok {
		return groupKind, group
	}
	return exactKind, sel
}

// verdict is the outcome of the votes on enabled.
type verdict struct {
	on     bool
	origin string   // of the vote that switched it off
	kind   ruleKind // of the votes that decided
}

// vote decides over sorted entries: those of the highest kind and rank that
// say anything count, and among them one "off" wins. Nobody voting means on.
func vote(matching []*entry) verdict {
	v := verdict{on: true}
	var r rank
	for _, e := range matching {
		if e.rule.enabled == nil {
			continue
		}
		if e.kind != v.kind || e.rank != r {
			v, r = verdict{on: true, kind: e.kind}, e.rank
		}
		if v.on && !*e.rule.enabled {
			v.on, v.origin = false, e.origin
		}
	}
	return v
}

// merge builds the effective rule of a row from the sorted entries that select
// it. Knobs the row does not have are passed over: a glob may name them for
// other endpoints.
func merge(row Row, matching []*entry) *Rule {
	r := &Rule{Row: row, Scopes: row.Scopes, Audit: AuditDeny, limits: map[string]any{}, params: map[string]any{}}
	paths := map[string]any{}
	for _, e := range matching {
		if e.rule.scopes != nil {
			r.Scopes = e.rule.scopes
		}
		if e.rule.audit != "" {
			r.Audit = e.rule.audit
		}
		mergeKnobs(paths, e.rule.paths, row.takesPath)
		mergeKnobs(r.limits, e.rule.limits, row.takesLimit)
		mergeKnobs(r.params, e.rule.params, row.takesParam)
	}
	if row.Name == "health" {
		// A probe that a rule of everybody's could fail would end the sandbox.
		r.Scopes = row.Scopes
		delete(r.limits, "rate_per_minute")
		delete(r.limits, "max_concurrency")
	}
	r.Paths, r.symlinks, r.hardlinks = pathRules(paths)
	return r
}

func mergeKnobs(into map[string]any, knobs []knob, takes func(string) bool) {
	for _, k := range knobs {
		if !takes(k.name) {
			continue
		}
		if old, ok := into[k.name].([]string); ok && slices.Contains(united, k.name) {
			into[k.name] = union(old, k.value.([]string))
			continue
		}
		if list, ok := k.value.([]string); ok && slices.Contains(united, k.name) {
			into[k.name] = union(nil, list)
			continue
		}
		into[k.name] = k.value
	}
}

// union appends what old lacks, in order.
func union(old, more []string) []string {
	out := append(make([]string, 0, len(old)+len(more)), old...)
	seen := make(map[string]bool, cap(out))
	for _, s := range old {
		seen[s] = true
	}
	for _, s := range more {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

func pathRules(m map[string]any) (rules *PathRules, symlinks, hardlinks string) {
	allow, _ := m["allow"].([]string)
	deny, _ := m["deny"].([]string)
	readOnly, _ := m["read_only"].(bool)
	hardlinks, _ = m["hardlinks"].(string)
	if symlinks, _ = m["symlinks"].(string); symlinks == "" {
		symlinks = "within"
	}
	return NewPathRules(allow, deny, readOnly, symlinks == "never", hardlinks == "deny"), symlinks, hardlinks
}

func (r *Row) takesPath(string) bool { return r.Paths }

func (r *Row) takesLimit(name string) bool {
	return slices.Contains(commonLimits, name) || slices.Contains(r.Limits, name)
}

func (r *Row) takesParam(name string) bool { return slices.Contains(r.Params, name) }
