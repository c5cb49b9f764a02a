package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	serverTokenEnv   = "ABX_SERVER_TOKEN"
	enabledGroupsEnv = "ABX_SERVER_ENABLED_GROUPS"
)

// Options are the facts about the server that a document is compiled for.
// The zero value describes a server with an empty environment.
type Options struct {
	// EnvGroups are the groups ABX_SERVER_ENABLED_GROUPS switches on, as
	// ParseEnabledGroups returns them.
	EnvGroups []string
	// CodeGroups are the switches made by template code or a manifest.
	CodeGroups map[string]bool
	// ServerToken tells that ABX_SERVER_TOKEN is set. It counts when the
	// document has no tokens of its own.
	ServerToken bool

	// Getenv reads the variables that hold tokens; nil means that none is set.
	Getenv func(string) string
	// ReadFile reads a token_file; nil means that none can be read.
	ReadFile func(string) ([]byte, error)
	// RootExists, if set, tells whether an allowed root exists, for lint.
	RootExists func(string) bool
	// Now is the clock of expiring tokens; nil means time.Now.
	Now func() time.Time
}

// Policy is a compiled document. It never changes and is safe for concurrent use.
type Policy struct {
	preset     string
	revision   string
	baseDir    string
	configured bool
	warnings   []string
	rules      map[string]*Rule
	sorted     []*Rule
	auth       authenticator
}

// Compile joins a document with the endpoints and the environment of a server.
// Rows with As set are no endpoints of their own and are passed over.
//
// The error is a [*ConfigError] when the document does not fit the server. Any
// other error is a fault of rows.
func Compile(d *Document, rows []Row, o Options) (*Policy, error) {
	endpoints, err := endpointRows(rows)
	if err != nil {
		return nil, err
	}
	if errs := d.CheckRows(rows); len(errs) > 0 {
		return nil, errs[0]
	}
	ignoredToken := o.ServerToken && len(d.auth.tokens) > 0
	if o.ServerToken && !ignoredToken {
		d = d.withServerToken()
	}
	auth, err := newAuthenticator(d.auth, &o)
	if err != nil {
		return nil, err
	}
	p := &Policy{
		preset:     d.preset,
		revision:   d.revision(o.EnvGroups, o.CodeGroups),
		baseDir:    d.baseDir,
		configured: d.configured(),
		rules:      make(map[string]*Rule, len(endpoints)),
		auth:       auth,
	}
	all := layers(d, endpoints, &o)
	if err := p.build(endpoints, all); err != nil {
		return nil, err
	}
	p.warnings = lint(p, d, all, &o, ignoredToken)
	return p, nil
}

// endpointRows are the rows that are endpoints, checked for the mistakes that
// would make a policy silently wrong.
func endpointRows(rows []Row) ([]Row, error) {
	byName := map[string]*Row{}
	var out []Row
	for i := range rows {
		row := &rows[i]
		if row.As != "" {
			continue
		}
		if byName[row.Name] != nil {
			return nil, fmt.Errorf("two endpoints are named %q", row.Name)
		}
		byName[row.Name] = row
		out = append(out, *row)
	}
	for _, row := range out {
		if row.Follows == "" {
			continue
		}
		if leader := byName[row.Follows]; leader == nil || leader.Follows != "" {
			return nil, fmt.Errorf("endpoint %q follows %q, which is not an endpoint that can be followed", row.Name, row.Follows)
		}
	}
	return out, nil
}

// build fills in the rules. Followers come last: they ask for their leaders.
func (p *Policy) build(rows []Row, all []entry) error {
	for _, followers := range []bool{false, true} {
		for i := range rows {
			row := &rows[i]
			if (row.Follows != "") != followers {
				continue
			}
			var matching []*entry
			for j := range all {
				if all[j].selects(row) {
					matching = append(matching, &all[j])
				}
			}
			r := merge(*row, matching)
			if err := r.compileCommands(); err != nil {
				return err
			}
			p.decideEnabled(r, vote(matching))
			p.rules[row.Name] = r
			p.sorted = append(p.sorted, r)
		}
	}
	slices.SortFunc(p.sorted, func(a, b *Rule) int { return cmp.Compare(a.Row.Name, b.Row.Name) })
	return nil
}

func (p *Policy) decideEnabled(r *Rule, v verdict) {
	r.Enabled, r.Origin = v.on, v.origin
	if r.Row.Group == "core" {
		r.Enabled, r.Origin = true, ""
		return
	}
	// A document written before the endpoint existed must not switch it on: it
	// does what the one it follows does, unless a selector names it.
	if r.Row.Follows == "" || v.kind >= globKind {
		return
	}
	if leader := p.rules[r.Row.Follows]; !leader.Enabled {
		r.Enabled, r.Origin = false, leader.Origin
	}
}

func (r *Rule) compileCommands() error {
	allow, _ := r.Strings("allow_commands")
	deny, _ := r.Strings("deny_commands")
	c, err := NewCommandRules(allow, deny)
	if err != nil {
		return fmt.Errorf("endpoint %q: %w", r.Row.Name, err)
	}
	r.Command = c
	return nil
}

// Preset is the name of the document's preset.
func (p *Policy) Preset() string { return p.preset }

// Revision identifies the document and the groups switched from outside it:
// 16 hex digits.
func (p *Policy) Revision() string { return p.revision }

// Configured tells whether the document says anything but its version. The
// token of ABX_SERVER_TOKEN counts.
func (p *Policy) Configured() bool { return p.configured }

// BaseDir is the document's base_dir, "" when it has none.
func (p *Policy) BaseDir() string { return p.baseDir }

// Warnings are the lint warnings, sorted and unique. Callers must not change them.
func (p *Policy) Warnings() []string { return p.warnings }

// HasTokens tells whether any token is configured.
func (p *Policy) HasTokens() bool { return len(p.auth.tokens) > 0 }

// Rule is the effective rule of an endpoint, nil for an unknown id.
func (p *Policy) Rule(id string) *Rule { return p.rules[id] }

// Rules lists all effective rules sorted by id. Callers must not change the list.
func (p *Policy) Rules() []*Rule { return p.sorted }

// Decide answers whether who may call the endpoint at all: known, enabled, all
// scopes held. It is the whole answer of a check without paths.
func (p *Policy) Decide(who Identity, id string) Decision {
	r := p.rules[id]
	if r == nil {
		return Decision{Code: UnknownEndpoint, Endpoint: id, Text: "Unknown endpoint '" + shorten(id) + "'"}
	}
	if !r.Enabled {
		return Decision{Code: EndpointDisabled, Endpoint: id, Rule: r.Origin, Text: r.disabledText()}
	}
	for _, scope := range r.Scopes {
		if !who.Holds(scope) {
			return Decision{
				Code: MissingScope, Endpoint: id, Scope: scope, Identity: who.ID,
				Text: "Identity '" + who.ID + "' lacks scope '" + scope + "' required by endpoint '" + id + "'",
			}
		}
	}
	return Allow()
}

func (r *Rule) disabledText() string {
	if group, ok := strings.CutPrefix(r.Origin, "default:opt-in:"); ok {
		return "Endpoint '" + r.Row.Name + "' is disabled: group '" + group + "' is opt-in; enable it with groups: [\"" +
			group + "\"] in the policy or " + enabledGroupsEnv + "=" + group
	}
	return "Endpoint '" + r.Row.Name + "' is disabled by rule " + r.Origin
}

// GroupCount is how many endpoints of a group there are and are enabled.
type GroupCount struct {
	Enabled int `json:"enabled"`
	Total   int `json:"total"`
}

// GroupSummary counts the endpoints of every group, also of those that have none.
func (p *Policy) GroupSummary() map[string]GroupCount {
	out := make(map[string]GroupCount, len(Groups))
	for _, g := range Groups {
		out[g] = GroupCount{}
	}
	for _, r := range p.sorted {
		c := out[r.Row.Group]
		c.Total++
		if r.Enabled {
			c.Enabled++
		}
		out[r.Row.Group] = c
	}
	return out
}

// ParseEnabledGroups reads ABX_SERVER_ENABLED_GROUPS, a comma list of groups to
// switch on. Blanks, empty items and core are passed over. The error is a
// [*ConfigError].
func ParseEnabledGroups(s string) ([]string, error) {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" || item == "core" || slices.Contains(out, item) {
			continue
		}
		if !slices.Contains(Groups, item) {
			return nil, configErrorf(nil, enabledGroupsEnv, "unknown group '%s'%s", shorten(item), didYouMean(item, Groups))
		}
		out = append(out, item)
	}
	return out, nil
}
