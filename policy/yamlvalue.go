package policy

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ValueKind says what a [Value] is.
type ValueKind int

// The kinds of values. Other is what JSON cannot hold: a date, binary data, a
// number that is not finite or beyond 64 bits.
const (
	Null ValueKind = iota
	Bool
	Int
	Float
	String
	List
	Object
	Other
)

// Value is one value of a YAML file of which a policy may be a part. Scalars
// mean what they mean to a YAML 1.1 reader. It is read only.
type Value struct {
	Kind  ValueKind
	Plain bool // an unquoted scalar, which may not be what was meant

	Bool  bool
	Int   int64
	Float float64
	Text  string // of a String

	Items   []*Value // of a List
	Members []Member // of an Object, in the order of the file

	Line, Column int // counted from 1

	node *node
}

// Member is one key of an object. Odd says what the key is when it is no
// string; Key is then empty.
type Member struct {
	Key, Odd     string
	Line, Column int // of the key
	Value        *Value
}

// ReadYAML reads a YAML file that may hold more than a policy: at most 1 MiB
// of UTF-8 text, a single document of at most depth levels and 100 000 values,
// no tags but those of YAML itself. The value is nil when the text cannot be
// read at all; keys given twice are reported beside it. Places in errors start
// with "." for the file itself.
func ReadYAML(data []byte, depth int) (*Value, []*DocumentError) {
	data, err := prepare(data)
	if err != nil {
		return nil, placed(err)
	}
	var doc yaml.Node
	if err := yaml.Load(data, &doc); err != nil {
		return nil, placed(yamlError(err))
	}
	n := &doc
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	r := yamlReader{depth: depth, whole: true}
	root, err := r.value("policy", n, 0)
	if err != nil {
		return nil, placed(err)
	}
	return root.export(), placed(r.repeated...)
}

// placed turns the places of errors into those of a larger file.
func placed(errs ...*DocumentError) []*DocumentError {
	for _, e := range errs {
		if e.Where = strings.TrimPrefix(strings.TrimPrefix(e.Where, "policy"), "."); e.Where == "" {
			e.Where = "."
		}
	}
	return errs
}

func (n *node) export() *Value {
	v := &Value{
		Kind: ValueKind(n.kind), Plain: n.plain, Bool: n.b, Int: n.i, Float: n.f, Line: n.line, Column: n.col, node: n,
	}
	switch n.kind {
	case stringNode:
		v.Text = n.s
	case listNode:
		for _, item := range n.items {
			v.Items = append(v.Items, item.export())
		}
	case objectNode:
		for i, key := range n.keys {
			v.Members = append(v.Members, Member{Key: key, Line: n.keyAt(i).line, Column: n.keyAt(i).col, Value: n.items[i].export()})
		}
		for _, o := range n.odd {
			v.Members = append(v.Members, Member{Odd: o.key.what(), Line: o.key.line, Column: o.key.col, Value: o.value.export()})
		}
	}
	return v
}

// What names the value for an error: "a list", "null", "a date".
func (v *Value) What() string { return v.node.what() }

// Get is the value of a key, nil without it.
func (v *Value) Get(key string) *Value {
	for _, m := range v.Members {
		if m.Odd == "" && m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Document reads the value as a policy document. Places in errors start with
// "policy". The document is nil when there is any error.
func (v *Value) Document() (*Document, []*DocumentError) {
	var d decoder
	root := d.strict(v.node, "policy", 0)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return decode(root)
}

// strict returns a copy, for decode changes what it reads, and reports what no
// document can hold.
func (d *decoder) strict(n *node, where string, depth int) *node {
	c := *n
	if depth > maxDocumentDepth {
		d.fail(n, where, "nested deeper than %d", maxDocumentDepth)
		return &c
	}
	if n.kind == otherNode {
		hint := ""
		if n.plain {
			hint = "; quote it"
		}
		d.fail(n, where, "%s has no place in a policy%s", n.s, hint)
	}
	for _, o := range n.odd {
		d.fail(o.key, where, "a key is %s, not a string", o.key.what())
	}
	c.items = nil
	for i, item := range n.items {
		at := index(where, i)
		if n.kind == objectNode {
			at = member(where, n.keys[i])
		}
		c.items = append(c.items, d.strict(item, at, depth+1))
	}
	return &c
}

// JSON is the value in compact JSON and ASCII, its keys in the order of the
// file. The error says what JSON cannot hold.
func (v *Value) JSON() ([]byte, error) {
	var d decoder
	d.strict(v.node, "policy", 0)
	if len(d.errs) > 0 {
		return nil, fmt.Errorf("no JSON: %w", d.errs[0])
	}
	return appendJSON(nil, v.node, false), nil
}

// Suggestion is " (did you mean 'x'?)" for the known name closest to name, or
// nothing when none is close.
func Suggestion(name string, known []string) string { return didYouMean(name, known) }
