package policy

import (
	"slices"
	"strings"
)

// ruleSpec is one rule as written. Absent parts are nil.
type ruleSpec struct {
	enabled *bool
	scopes  []string // nil when absent, empty when []
	audit   AuditMode
	paths   []knob // allow, deny, read_only, symlinks, hardlinks
	limits  []knob
	params  []knob
}

// knob is one named value of a rule: bool, int64, float64, string, []string or
// []int64.
type knob struct {
	name  string
	value any
	at    *node
}

// What a limit takes.
type limitKind uint8

const (
	sizeLimit limitKind = iota
	countLimit
	secondsLimit
)

// limitKinds is the closed list of limits.
var limitKinds = map[string]limitKind{
	"max_request_bytes":    sizeLimit,
	"max_bytes":            sizeLimit,
	"max_output_bytes":     sizeLimit,
	"rate_per_minute":      countLimit,
	"max_concurrency":      countLimit,
	"max_entries":          countLimit,
	"max_depth":            countLimit,
	"max_results":          countLimit,
	"max_files":            countLimit,
	"max_processes":        countLimit,
	"max_sessions":         countLimit,
	"timeout_seconds":      secondsLimit,
	"max_duration_seconds": secondsLimit,
}

// commonLimits are taken by every endpoint.
var commonLimits = []string{"max_request_bytes", "rate_per_minute", "max_concurrency"}

// What a param takes.
type paramKind uint8

const (
	flagParam paramKind = iota
	namesParam
	patternsParam // command patterns
	numbersParam
)

// paramKinds is the closed list of params.
var paramKinds = map[string]paramKind{
	"overwrite":              flagParam,
	"block_private_networks": flagParam,
	"allow_loopback":         flagParam,
	"allow_extensions":       namesParam,
	"deny_extensions":        namesParam,
	"allow_commands":         patternsParam,
	"deny_commands":          patternsParam,
	"allow_users":            namesParam,
	"shells":                 namesParam,
	"env_deny":               namesParam,
	"allow_vars":             namesParam,
	"deny_vars":              namesParam,
	"languages":              namesParam,
	"url_allow":              namesParam,
	"url_deny":               namesParam,
	"allowed_signals":        numbersParam,
}

// united lists the lists that add up over rules instead of replacing each other.
var united = []string{"deny", "deny_extensions", "deny_commands", "deny_vars", "env_deny", "url_deny"}

var (
	ruleKeys  = []string{"enabled", "scopes", "audit", "paths", "limits", "params"}
	pathKeys  = []string{"allow", "deny", "read_only", "symlinks", "hardlinks"}
	limitKeys = sortedKeys(limitKinds)
	paramKeys = sortedKeys(paramKinds)
)

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (d *decoder) rule(n *node, where string) *ruleSpec {
	r := &ruleSpec{}
	d.object(n, where, ruleKeys, func(key, where string, v *node) {
		switch key {
		case "enabled":
			if on, ok := d.boolean(v, where); ok {
				r.enabled = &on
			}
		case "scopes":
			r.scopes = d.scopes(v, where)
		case "audit":
			r.audit = AuditMode(d.oneOf(v, where, string(AuditOff), string(AuditDeny), string(AuditAll)))
		case "paths":
			d.object(v, where, pathKeys, func(key, where string, v *node) {
				r.paths = append(r.paths, knob{key, d.pathKnob(v, key, where), v})
			})
		case "limits":
			d.object(v, where, limitKeys, func(key, where string, v *node) {
				r.limits = append(r.limits, knob{key, d.limit(v, limitKinds[key], where), v})
			})
		case "params":
			d.object(v, where, paramKeys, func(key, where string, v *node) {
				r.params = append(r.params, knob{key, d.param(v, paramKinds[key], where), v})
			})
		}
	})
	return r
}

func (d *decoder) pathKnob(n *node, key, where string) any {
	switch key {
	case "allow":
		return d.strings(n, where, checkAbsolute)
	case "deny":
		return d.strings(n, where, checkNoNUL)
	case "read_only":
		v, _ := d.boolean(n, where)
		return v
	case "symlinks":
		return d.oneOf(n, where, "within", "never")
	}
	return d.oneOf(n, where, "allow", "deny")
}

// limit reads one limit. A size is turned into bytes in the tree too, so that
// "1KiB" and 1024 have one revision.
func (d *decoder) limit(n *node, k limitKind, where string) any {
	if k == sizeLimit && n.kind == stringNode {
		size, err := ParseSize(n.s)
		if err != nil {
			d.fail(n, where, "'%s': %v", shorten(n.s), err)
			return nil
		}
		n.kind, n.i, n.s = intNode, size, ""
	}
	switch {
	case n.kind == intNode && n.i > 0:
		return n.i
	case n.kind == floatNode && n.f > 0 && k == secondsLimit:
		return n.f
	}
	want := map[limitKind]string{
		sizeLimit:    "a positive number of bytes or a size such as '5MB'",
		countLimit:   "a positive integer",
		secondsLimit: "a positive number",
	}[k]
	got := n.what()
	if n.kind == intNode || n.kind == floatNode && k == secondsLimit {
		got = "one that is not positive"
	}
	d.fail(n, where, "expected %s, got %s", want, got)
	return nil
}

func (d *decoder) param(n *node, k paramKind, where string) any {
	switch k {
	case flagParam:
		v, _ := d.boolean(n, where)
		return v
	case patternsParam:
		return d.strings(n, where, checkCommandPattern)
	case numbersParam:
		return d.integers(n, where)
	}
	return d.strings(n, where, anyString)
}

// checkCommandPattern refuses at load what the first call would stumble over.
func checkCommandPattern(s string) string {
	if _, err := NewCommandRules([]string{s}, nil); err != nil {
		return strings.TrimSpace(err.Error())
	}
	return ""
}

func (d *decoder) integers(n *node, where string) []int64 {
	if n.kind != listNode {
		d.fail(n, where, "expected a list of integers, got %s", n.what())
		return nil
	}
	out := make([]int64, 0, len(n.items))
	for i, item := range n.items {
		if item.kind != intNode {
			d.fail(item, index(where, i), "expected an integer, got %s", item.what())
		}
		out = append(out, item.i)
	}
	return out
}
