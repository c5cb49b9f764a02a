package policy

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"
)

func readYAML(data []byte) (*node, *DocumentError) {
	var doc yaml.Node
	if err := yaml.Load(data, &doc); err != nil {
		return nil, yamlError(err)
	}
	return treeOf(&doc)
}

// yamlError puts the library's message on one line with its position.
func yamlError(err error) *DocumentError {
	if many, ok := errors.AsType[*yaml.LoadErrors](err); ok && len(many.Errors) > 0 {
		err = many.Errors[0]
	}
	text, where := err.Error(), ""
	d := &DocumentError{Where: "policy"}
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		text = strings.TrimPrefix(e.Message, "yaml: ")
		if d.Line, d.Column = e.Mark.Line, e.Mark.Column; d.Line > 0 {
			where = fmt.Sprintf(" at line %d, column %d", d.Line, d.Column)
		}
	}
	d.Text = "invalid YAML" + where + ": " + shorten(strings.Join(strings.Fields(text), " "))
	return d
}

func treeOf(n *yaml.Node) (*node, *DocumentError) {
	if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	r := yamlReader{depth: maxDocumentDepth}
	return r.value("policy", n, 0)
}

// yamlReader turns library nodes into ours. Scalars mean what they mean to the
// YAML 1.1 reader of the published server and client ("off" is false), not
// what the library would make of them.
type yamlReader struct {
	nodes int
	depth int // the most levels
	// whole is for files of which a policy may be a part: what no policy can
	// hold becomes an otherNode, and repeated keys are collected.
	whole    bool
	repeated []*DocumentError
}

func (r *yamlReader) value(where string, n *yaml.Node, depth int) (*node, *DocumentError) {
	fail := func(format string, args ...any) (*node, *DocumentError) {
		return nil, &DocumentError{where, fmt.Sprintf(format, args...), n.Line, n.Column}
	}
	if r.nodes++; r.nodes > maxDocumentNodes {
		return fail("more than %d values", maxDocumentNodes)
	}
	if depth > r.depth { // also ends an alias inside its own anchor
		return fail("nested deeper than %d", r.depth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if n.Alias == nil {
			return fail("an alias without an anchor")
		}
		return r.value(where, n.Alias, depth+1)
	case yaml.ScalarNode:
		out, text := r.scalar(n)
		if text != "" {
			return fail("%s", text)
		}
		out.line, out.col = n.Line, n.Column
		return out, nil
	case yaml.SequenceNode:
		if tag := explicitTag(n); !r.takesTag(tag, "!!seq") {
			return fail("the tag %s is not allowed", shorten(tag))
		}
		out := &node{kind: listNode, line: n.Line, col: n.Column}
		for i, c := range n.Content {
			v, err := r.value(index(where, i), c, depth+1)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, v)
		}
		return out, nil
	case yaml.MappingNode:
		if tag := explicitTag(n); !r.takesTag(tag, "!!map") {
			return fail("the tag %s is not allowed", shorten(tag))
		}
		return r.mapping(where, n, depth)
	}
	return fail("the document is empty")
}

// takesTag tells whether a collection of the kind own may carry tag.
func (r *yamlReader) takesTag(tag, own string) bool {
	return tag == "" || tag == own || r.whole && collectionTags[tag]
}

func (r *yamlReader) mapping(where string, n *yaml.Node, depth int) (*node, *DocumentError) {
	out := &node{kind: objectNode, line: n.Line, col: n.Column}
	seen := map[string]bool{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && isPlain(k) {
			merges = append(merges, v)
			continue
		}
		key, err := r.value(where, k, depth+1)
		if err != nil {
			return nil, err
		}
		if r.whole && key.kind != stringNode && key.kind < listNode || key.kind == otherNode {
			v, err := r.value(where, v, depth+1)
			if err != nil {
				return nil, err
			}
			out.odd = append(out.odd, oddMember{key, v})
			continue
		}
		if key.kind != stringNode {
			return nil, &DocumentError{where, "a key is " + key.what() + ", not a string", k.Line, k.Column}
		}
		if seen[key.s] {
			err := repeated(where, key.s)
			err.Line, err.Column = k.Line, k.Column
			if !r.whole {
				return nil, err
			}
			r.repeated = append(r.repeated, err)
		}
		seen[key.s] = true
		val, err := r.value(member(where, key.s), v, depth+1)
		if err != nil {
			return nil, err
		}
		out.add(key.s, position{k.Line, k.Column}, val)
	}
	for _, m := range merges {
		if err := r.merge(where, out, seen, m, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n *node) add(key string, at position, v *node) {
	n.keys = append(n.keys, key)
	n.keyPos = append(n.keyPos, at)
	n.items = append(n.items, v)
}

// merge adds the keys of a "<<" value that the object does not have itself.
func (r *yamlReader) merge(where string, out *node, seen map[string]bool, m *yaml.Node, depth int) *DocumentError {
	v, err := r.value(where, m, depth)
	if err != nil {
		return err
	}
	sources := []*node{v}
	if v.kind == listNode {
		sources = v.items
	}
	for _, s := range sources {
		if s.kind != objectNode {
			return &DocumentError{where, "'<<' merges objects, not " + s.what(), m.Line, m.Column}
		}
		for i, key := range s.keys {
			if !seen[key] {
				seen[key] = true
				out.add(key, s.keyPos[i], s.items[i])
			}
		}
	}
	return nil
}

// The other tags of YAML 1.1 that its readers know.
var (
	scalarTags     = map[string]bool{"!!timestamp": true, "!!binary": true}
	collectionTags = map[string]bool{"!!set": true, "!!omap": true, "!!pairs": true}
)

const quotedStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func isPlain(n *yaml.Node) bool { return n.Style&(quotedStyles|yaml.TaggedStyle) == 0 }

// explicitTag is the tag written at a node, "" without one.
func explicitTag(n *yaml.Node) string {
	if n.Style&yaml.TaggedStyle == 0 {
		return ""
	}
	return n.ShortTag()
}

// scalar returns the value of a scalar, or what is wrong with it.
func (r *yamlReader) scalar(n *yaml.Node) (*node, string) {
	switch tag := explicitTag(n); {
	case tag == "!!str" || tag == "" && n.Style&quotedStyles != 0:
		return stringValue(n.Value), ""
	case tag == "":
	case tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null":
		v, text := plainScalar(n.Value)
		if tagOf(v) != tag {
			return nil, "not a value of the tag " + tag
		}
		return v, text
	case r.whole && scalarTags[tag]:
		return &node{kind: otherNode, s: "a value of the tag " + tag}, ""
	default:
		return nil, "the tag " + shorten(tag) + " is not allowed"
	}
	if r.whole && yamlDate().MatchString(n.Value) {
		return &node{kind: otherNode, s: "a date", plain: true}, ""
	}
	v, text := plainScalar(n.Value)
	if text != "" && r.whole {
		v, text = &node{kind: otherNode, s: "a number that is not finite or beyond 64 bits"}, ""
	}
	if v != nil {
		v.plain = true
	}
	return v, text
}

func tagOf(n *node) string {
	if n == nil {
		return ""
	}
	return map[kind]string{nullNode: "!!null", boolNode: "!!bool", intNode: "!!int", floatNode: "!!float"}[n.kind]
}

// yamlDate is the plain scalars of YAML 1.1 that are dates.
var yamlDate = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9]{4}-([0-9]{2}-[0-9]{2}|[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?)$`)
})

// The plain scalars of YAML 1.1 that are numbers.
var yamlNumbers = sync.OnceValue(func() (re struct{ integer, fraction *regexp.Regexp }) {
	re.integer = regexp.MustCompile(`^[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*(:[0-5]?[0-9])*)$`)
	re.fraction = regexp.MustCompile(`^[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$`)
	return re
})

func plainScalar(s string) (*node, string) {
	const range64 = "the number is not finite or beyond 64 bits"
	switch s {
	case "", "~", "null", "Null", "NULL":
		return &node{kind: nullNode}, ""
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return boolValue(true), ""
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return boolValue(false), ""
	}
	if s[0] != '-' && s[0] != '+' && s[0] != '.' && (s[0] < '0' || s[0] > '9') {
		return stringValue(s), ""
	}
	re := yamlNumbers()
	switch {
	case re.integer.MatchString(s):
		if i, ok := yamlInteger(s); ok {
			return &node{kind: intNode, i: i}, ""
		}
		return nil, range64
	case re.fraction.MatchString(s):
		f, ok := yamlFraction(s)
		if n, err := float("", f); ok && err == nil {
			return n, ""
		}
		return nil, range64
	}
	return stringValue(s), ""
}

func yamlInteger(s string) (int64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	if strings.Contains(s, ":") {
		f, ok := sexagesimal(s)
		if sign == "-" {
			f = -f
		}
		return int64(f), ok && f == math.Trunc(f) && math.Abs(f) < 1<<53
	}
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"):
		base, s = 16, s[2:]
	case strings.HasPrefix(s, "0b"):
		base, s = 2, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	i, err := strconv.ParseInt(sign+s, base, 64)
	return i, err == nil
}

func yamlFraction(s string) (float64, bool) {
	s = strings.ReplaceAll(s, "_", "")
	if strings.Contains(s, ":") {
		negative := s[0] == '-'
		f, ok := sexagesimal(strings.TrimLeft(s, "+-"))
		if negative {
			f = -f
		}
		return f, ok
	}
	f, err := strconv.ParseFloat(s, 64) // refuses ".inf" and ".nan", as it should
	return f, err == nil
}

// sexagesimal reads "1:30:00", a number to the base 60.
func sexagesimal(s string) (float64, bool) {
	sum := 0.0
	for part := range strings.SplitSeq(s, ":") {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, false
		}
		sum = sum*60 + f
	}
	return sum, true
}
