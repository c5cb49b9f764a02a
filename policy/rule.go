package policy

import "maps"

// AuditMode says which calls leave an audit line.
type AuditMode string

// The audit modes of documents.
const (
	AuditOff  AuditMode = "off"
	AuditDeny AuditMode = "deny"
	AuditAll  AuditMode = "all"
)

// Rule is the merge of all matching rules for one endpoint. It is shared by
// all requests and must not be changed.
type Rule struct {
	Row     Row
	Enabled bool
	Origin  string   // what disabled it, "" when enabled
	Scopes  []string // all are needed; empty means any authenticated identity
	Audit   AuditMode
	Paths   *PathRules    // never nil; the zero rules for endpoints without
	Command *CommandRules // never nil

	limits    map[string]any // int64 or float64
	params    map[string]any // bool, []string or []int64
	symlinks  string
	hardlinks string // "" when not configured
}

// Int is a configured limit, such as "max_entries"; false when the rule sets
// none. A fractional time is cut to whole seconds; see [Rule.Seconds].
func (r *Rule) Int(limit string) (int64, bool) {
	switch v := r.limits[limit].(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), true
	}
	return 0, false
}

// Seconds is a configured time limit; false when the rule sets none.
func (r *Rule) Seconds(limit string) (float64, bool) {
	switch v := r.limits[limit].(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Bool is a configured boolean param.
func (r *Rule) Bool(param string) (v, set bool) {
	v, set = r.params[param].(bool)
	return v, set
}

// Strings is a configured list param. An empty list that was set is not nil.
// Callers must not change it.
func (r *Rule) Strings(param string) (v []string, set bool) {
	v, set = r.params[param].([]string)
	return v, set
}

// Ints is a configured list of integers. Callers must not change it.
func (r *Rule) Ints(param string) (v []int64, set bool) {
	v, set = r.params[param].([]int64)
	return v, set
}

// LimitsView is what discovery shows: exactly the configured limits, int64 or
// float64.
func (r *Rule) LimitsView() map[string]any { return maps.Clone(r.limits) }

// ParamsView is what discovery shows: exactly the configured params.
func (r *Rule) ParamsView() map[string]any { return maps.Clone(r.params) }

// PathsView is what discovery shows of the path rules, nil for an endpoint that
// takes none. Deny patterns are counted, never shown.
func (r *Rule) PathsView() map[string]any {
	if !r.Row.Paths {
		return nil
	}
	v := map[string]any{
		"allow":      append([]string{}, r.Paths.Allow...),
		"read_only":  r.Paths.ReadOnly,
		"deny_count": len(r.Paths.Deny),
		"symlinks":   r.symlinks,
	}
	if r.hardlinks != "" {
		v["hardlinks"] = r.hardlinks
	}
	return v
}
