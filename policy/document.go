package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Format is the notation of a document.
type Format int

// The formats [Parse] reads.
const (
	JSON Format = iota
	YAML
)

// Document is a policy document whose syntax and schema were checked. It never
// changes and is safe for concurrent use. Whether it fits a server (its
// endpoints, its environment) is found by [Compile].
type Document struct {
	root      *node // normalised, see revision.go
	preset    string
	baseDir   string
	groups    []groupSwitch
	defaults  *ruleSpec // nil when absent
	auth      authSpec
	selectors []selectorSpec
}

// groupSwitch is one entry of groups.
type groupSwitch struct {
	group string
	on    bool
	at    *node
}

// selectorSpec is one entry of endpoints.
type selectorSpec struct {
	selector string
	rule     *ruleSpec
	at       *node
}

// Parse reads a document. A byte order mark is accepted; unknown and repeated
// keys, numbers beyond 64 bits, deep nesting and documents over 1 MiB are not.
// The error is a [*DocumentError], the first in the order of the text.
func Parse(data []byte, f Format) (*Document, error) {
	d, errs := ParseAll(data, f)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return d, nil
}

// ParseAll is [Parse] for tools that report every mistake. The document is nil
// when there is any.
func ParseAll(data []byte, f Format) (*Document, []*DocumentError) {
	data, err := prepare(data)
	if err != nil {
		return nil, []*DocumentError{err}
	}
	read := readJSON
	if f == YAML {
		read = readYAML
	}
	root, err := read(data)
	if err != nil {
		return nil, []*DocumentError{err}
	}
	return decode(root)
}

func decode(root *node) (*Document, []*DocumentError) {
	var d decoder
	doc := d.document(root)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return doc, nil
}

// WithPreset returns the document with its preset replaced and everything
// else, above all its tokens, kept. The error is a [*DocumentError].
func (d *Document) WithPreset(name string) (*Document, error) {
	if err := checkPreset("policy.preset", name); err != nil {
		return nil, err
	}
	c := *d
	c.preset = name
	c.root = d.root.with("preset", stringValue(name))
	return &c, nil
}

// BaseDir is the document's base_dir, "" when it has none.
func (d *Document) BaseDir() string { return d.baseDir }

// TokenEnv lists the variables the document's tokens are read from.
func (d *Document) TokenEnv() []string {
	var names []string
	for _, t := range d.auth.tokens {
		if t.env != "" {
			names = append(names, t.env)
		}
	}
	return names
}

// decoder walks a tree and collects what is wrong with it.
type decoder struct{ errs []*DocumentError }

func (d *decoder) fail(at *node, where, format string, args ...any) {
	e := &DocumentError{Where: where, Text: fmt.Sprintf(format, args...)}
	if at != nil {
		e.Line, e.Column = at.line, at.col
	}
	d.errs = append(d.errs, e)
}

var documentKeys = []string{"version", "description", "preset", "base_dir", "groups", "defaults", "auth", "endpoints"}

func (d *decoder) document(n *node) *Document {
	doc := &Document{root: n, preset: "default"}
	d.object(n, "policy", documentKeys, func(key, where string, v *node) {
		switch key {
		case "version":
			if v.kind != intNode || v.i != 1 {
				d.fail(v, where, "must be the integer 1")
			}
		case "description":
			if v.kind == listNode || v.kind == objectNode {
				d.fail(v, where, "expected text, got %s", v.what())
			}
		case "preset":
			if s, ok := d.str(v, where); ok {
				doc.preset = s
				if err := checkPreset(where, s); err != nil {
					d.fail(v, where, "%s", err.Text)
				}
			}
		case "base_dir":
			doc.baseDir = d.absolute(v, where)
		case "groups":
			doc.groups = d.groups(v, where)
		case "defaults":
			doc.defaults = d.rule(v, where)
		case "auth":
			doc.auth = d.auth(v, where)
		case "endpoints":
			doc.selectors = d.endpoints(v, where)
		}
	})
	return doc
}

// object calls visit for each known key and reports the unknown ones.
func (d *decoder) object(n *node, where string, known []string, visit func(key, where string, v *node)) {
	if n.kind != objectNode {
		d.fail(n, where, "expected an object, got %s", n.what())
		return
	}
	for i, key := range n.keys {
		at := member(where, key)
		if !slices.Contains(known, key) {
			d.fail(n.keyAt(i), at, "unknown key%s; allowed: %s", didYouMean(key, known), strings.Join(known, ", "))
			continue
		}
		visit(key, at, n.items[i])
	}
}

// groups reads an object of switches or a list of names. A list is turned into
// the object it stands for, so that both have one revision.
func (d *decoder) groups(n *node, where string) []groupSwitch {
	var out []groupSwitch
	add := func(at *node, where, name string, on bool) {
		switch {
		case !slices.Contains(Groups, name):
			d.fail(at, where, "unknown group '%s'%s", shorten(name), didYouMean(name, Groups))
		case name == "core" && !on:
			d.fail(at, where, "the core endpoints cannot be switched off")
		default:
			out = append(out, groupSwitch{name, on, at})
		}
	}
	switch n.kind {
	case objectNode:
		for i, key := range n.keys {
			at := member(where, key)
			if on, ok := d.boolean(n.items[i], at); ok {
				add(n.keyAt(i), at, key, on)
			}
		}
	case listNode:
		set := &node{kind: objectNode, line: n.line, col: n.col}
		seen := map[string]bool{}
		for i, item := range n.items {
			at := index(where, i)
			name, ok := d.str(item, at)
			if !ok {
				continue
			}
			add(item, at, name, true)
			if !seen[name] {
				seen[name] = true
				set.keys = append(set.keys, name)
				set.items = append(set.items, boolValue(true))
			}
		}
		*n = *set
	default:
		d.fail(n, where, "expected an object of switches or a list of names, got %s", n.what())
	}
	return out
}

func (d *decoder) endpoints(n *node, where string) []selectorSpec {
	if n.kind != objectNode {
		d.fail(n, where, "expected an object, got %s", n.what())
		return nil
	}
	var out []selectorSpec
	for i, sel := range n.keys {
		if sel == "" {
			d.fail(n.keyAt(i), where, "a selector is empty")
			continue
		}
		rule := d.rule(n.items[i], member(where, sel))
		out = append(out, selectorSpec{sel, rule, n.keyAt(i)})
	}
	return out
}

// The scalars. Each reports what it did not get; strings are never coerced.

func (d *decoder) str(n *node, where string) (string, bool) {
	if n.kind != stringNode {
		hint := ""
		if n.plain {
			hint = "; quote it"
		}
		d.fail(n, where, "expected a string, got %s%s", n.what(), hint)
	}
	return n.s, n.kind == stringNode
}

func (d *decoder) boolean(n *node, where string) (bool, bool) {
	if n.kind != boolNode {
		d.fail(n, where, "expected true or false, got %s", n.what())
	}
	return n.b, n.kind == boolNode
}

func (d *decoder) oneOf(n *node, where string, allowed ...string) string {
	s, ok := d.str(n, where)
	if ok && !slices.Contains(allowed, s) {
		d.fail(n, where, "must be one of %s, not '%s'%s", strings.Join(allowed, ", "), shorten(s), didYouMean(s, allowed))
	}
	return s
}

// strings reads a list; each item that is a string goes through check, whose
// text, if any, is reported at the item.
func (d *decoder) strings(n *node, where string, check func(string) string) []string {
	if n.kind != listNode {
		d.fail(n, where, "expected a list of strings, got %s", n.what())
		return nil
	}
	out := make([]string, 0, len(n.items))
	for i, item := range n.items {
		at := index(where, i)
		s, ok := d.str(item, at)
		if !ok {
			continue
		}
		if fault := check(s); fault != "" {
			d.fail(item, at, "%s", fault)
		}
		out = append(out, s)
	}
	return out
}

func anyString(string) string { return "" }

func (d *decoder) scopes(n *node, where string) []string {
	return d.strings(n, where, func(s string) string {
		if validScope(s) {
			return ""
		}
		return "'" + shorten(s) + "' is not a scope; expected '*', 'space:*', 'space:name' or 'name'"
	})
}

func (d *decoder) absolute(n *node, where string) string {
	s, ok := d.str(n, where)
	if ok {
		if fault := checkAbsolute(s); fault != "" {
			d.fail(n, where, "%s", fault)
		}
	}
	return s
}

func checkAbsolute(s string) string {
	if fault := checkNoNUL(s); fault != "" {
		return fault
	}
	if !path.IsAbs(s) {
		return "'" + shorten(s) + "' is not an absolute path"
	}
	return ""
}

func checkNoNUL(s string) string {
	if strings.ContainsRune(s, 0) {
		return "contains a NUL byte"
	}
	return ""
}
