package policy

import (
	"fmt"
	"path"
	"slices"
)

// The lint codes. L5, a policy file that its own server may write, is found by
// the command: it needs the file.
const (
	lintExecBesidePaths   = "L1"  // path rules beside the power to run programs
	lintWholeTree         = "L2"  // "/" is allowed
	lintWildcardToken     = "L3"  // several tokens, one with "*"
	lintOverwriteAnywhere = "L4"  // overwrite: false without allow
	lintEmptyGlob         = "L6"  // a glob that selects nothing
	lintIdleKnob          = "L7"  // a knob none of the selected endpoints has
	lintAnonymousAll      = "L8"  // allow_anonymous beside tokens without anonymous_scopes
	lintNobody            = "L9"  // allow_anonymous: false without tokens
	lintIgnoredToken      = "L10" // ABX_SERVER_TOKEN beside tokens of the document
	lintMissingRoot       = "L11" // an allowed root that does not exist
	lintEnvironmentWins   = "L12" // the environment enables what the document disables
	lintEmptyDeny         = "L13" // a deny pattern that denies nothing
	lintAbsent            = "L14" // a name that is valid but has no endpoint here
)

// linter collects warnings. They never stop a server.
type linter struct {
	p        *Policy
	d        *Document
	all      []entry // of every layer
	o        *Options
	warnings []string
}

func lint(p *Policy, d *Document, all []entry, o *Options, ignoredToken bool) []string {
	l := &linter{p: p, d: d, all: all, o: o}
	l.execBesidePaths()
	l.rules()
	l.auth(ignoredToken)
	l.selectors()
	l.groups()
	slices.Sort(l.warnings)
	return slices.Compact(l.warnings)
}

func (l *linter) warn(code, format string, args ...any) {
	l.warnings = append(l.warnings, code+": "+fmt.Sprintf(format, args...))
}

// execBesidePaths warns of callers that path rules do not bind, because they
// can start programs as the user of the server.
func (l *linter) execBesidePaths() {
	var callers []Identity
	for _, t := range l.p.auth.tokens {
		callers = append(callers, t.who)
	}
	if a := l.p.auth.anonymous; a != nil {
		callers = append(callers, *a)
	}
	for _, who := range callers {
		ruled, exec := "", ""
		for _, r := range l.p.sorted {
			if !l.p.Decide(who, r.Row.Name).OK() {
				continue
			}
			if ruled == "" && r.Row.Paths && r.restrictsPaths() {
				ruled = r.Row.Name
			}
			if exec == "" && r.Row.Exec {
				exec = r.Row.Name
			}
		}
		if ruled != "" && exec != "" {
			l.warn(lintExecBesidePaths, "identity '%s' is under path rules of '%s' but can run programs with '%s', which they do not bind",
				shorten(who.ID), ruled, exec)
		}
	}
}

func (r *Rule) restrictsPaths() bool {
	p := r.Paths
	return len(p.Allow) > 0 || len(p.Deny) > 0 || p.ReadOnly || p.SymlinksNever
}

// rules looks at the effective rules.
func (l *linter) rules() {
	for _, r := range l.p.sorted {
		for _, root := range r.Paths.Allow {
			if path.Clean(root) == "/" {
				l.warn(lintWholeTree, "endpoint '%s' allows the whole tree '/'", r.Row.Name)
			} else if l.o.RootExists != nil && !l.o.RootExists(root) {
				l.warn(lintMissingRoot, "the allowed root '%s' does not exist", shorten(root))
			}
		}
		if slices.Contains(r.Paths.Deny, "") {
			l.warn(lintEmptyDeny, "endpoint '%s' has an empty deny pattern, which denies nothing", r.Row.Name)
		}
		if v, set := r.Bool("overwrite"); set && !v && len(r.Paths.Allow) == 0 {
			l.warn(lintOverwriteAnywhere, "endpoint '%s' has overwrite: false without paths.allow", r.Row.Name)
		}
	}
}

func (l *linter) auth(ignoredToken bool) {
	tokens, spec := l.p.auth.tokens, &l.d.auth
	if len(tokens) >= 2 {
		for _, t := range tokens {
			if slices.Contains(t.who.Scopes, "*") {
				l.warn(lintWildcardToken, "token '%s' has scope '*' beside other tokens", shorten(t.who.ID))
			}
		}
	}
	if ignoredToken {
		l.warn(lintIgnoredToken, "%s is ignored, because the policy has tokens of its own", serverTokenEnv)
	}
	if spec.allowAnonymous == nil {
		return
	}
	if *spec.allowAnonymous && len(tokens) > 0 && spec.anonymous == nil {
		l.warn(lintAnonymousAll, "auth.allow_anonymous without anonymous_scopes gives callers without a token every scope")
	}
	if !*spec.allowAnonymous && len(tokens) == 0 {
		l.warn(lintNobody, "auth.allow_anonymous is false and there are no tokens, so nobody can call anything")
	}
}

// selectors looks for rules of the document that change nothing.
func (l *linter) selectors() {
	for i := range l.all {
		e := &l.all[i]
		if e.rank != documentRank {
			continue
		}
		var selected []*Rule
		for _, r := range l.p.sorted {
			if e.selects(&r.Row) {
				selected = append(selected, r)
			}
		}
		switch {
		case e.text == "" && e.kind == groupKind: // an entry of groups
			continue
		case len(selected) > 0:
			l.idleKnobs(e, selected) // none for an exact selector: those are errors
		case e.kind == globKind:
			l.warn(lintEmptyGlob, "selector '%s' matches no endpoint", shorten(e.text))
		case e.kind == groupKind:
			l.warn(lintAbsent, "selector '%s' is ignored: the group has no endpoints here", shorten(e.text))
		case e.kind == exactKind:
			l.warn(lintAbsent, "selector '%s' is ignored: there is no such endpoint here", shorten(e.text))
		}
	}
}

func (l *linter) idleKnobs(e *entry, selected []*Rule) {
	check := func(section string, knobs []knob, takes func(*Row, string) bool) {
		for _, k := range knobs {
			taken := slices.ContainsFunc(selected, func(r *Rule) bool { return takes(&r.Row, k.name) })
			if !taken {
				l.warn(lintIdleKnob, "%s.%s.%s applies to none of the selected endpoints", shorten(e.origin), section, k.name)
			}
		}
	}
	check("paths", e.rule.paths, (*Row).takesPath)
	check("limits", e.rule.limits, (*Row).takesLimit)
	check("params", e.rule.params, (*Row).takesParam)
}

func (l *linter) groups() {
	off := map[string]bool{}
	for _, g := range l.d.groups {
		if !g.on {
			off[g.group] = true
		} else if g.group == "agents" {
			l.warn(lintAbsent, "policy.groups.agents is ignored: the group has no endpoints here")
		}
	}
	for _, s := range l.d.selectors {
		if kind, name := selectorKind(s.selector); kind == groupKind && s.rule.enabled != nil && !*s.rule.enabled {
			off[name] = true
		}
	}
	for _, g := range l.o.EnvGroups {
		if off[g] {
			l.warn(lintEnvironmentWins, "%s enables group '%s', which the policy switches off", enabledGroupsEnv, g)
		}
		if g == "agents" {
			l.warn(lintAbsent, "group 'agents' of %s is ignored: it has no endpoints here", enabledGroupsEnv)
		}
	}
}
