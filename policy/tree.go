package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a document. They are far above any real policy and keep a hostile
// or broken one from costing time and memory.
const (
	maxDocumentBytes = 1 << 20
	maxDocumentDepth = 32
	maxDocumentNodes = 100_000 // counted after YAML aliases are expanded
)

type kind uint8

const (
	nullNode kind = iota
	boolNode
	intNode
	floatNode
	stringNode
	listNode
	objectNode
	otherNode // what no document can hold, named by s; only in larger files
)

// node is one value of a document. Objects keep the order of their keys,
// because position decides between rules of equal rank.
type node struct {
	kind   kind
	plain  bool // an unquoted YAML scalar, which may not be what was meant
	b      bool
	i      int64
	f      float64
	s      string
	items  []*node // list items, or the values of keys
	keys   []string
	line   int
	col    int
	keyPos []position // of keys; nil without positions
	odd    []oddMember
}

// oddMember is a member of an object whose key is no string; only in larger
// files.
type oddMember struct{ key, value *node }

type position struct{ line, col int }

func (n *node) what() string {
	switch n.kind {
	case nullNode:
		return "null"
	case boolNode:
		return strconv.FormatBool(n.b)
	case intNode:
		return "an integer"
	case floatNode:
		return "a fraction"
	case stringNode:
		return "a string"
	case listNode:
		return "a list"
	case otherNode:
		return n.s
	}
	return "an object"
}

func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return nil
}

// with returns a copy of an object in which key has the value v.
func (n *node) with(key string, v *node) *node {
	c := *n
	c.keyPos = nil
	c.keys = append([]string(nil), n.keys...)
	c.items = append([]*node(nil), n.items...)
	for i, k := range c.keys {
		if k == key {
			c.items[i] = v
			return &c
		}
	}
	c.keys = append(c.keys, key)
	c.items = append(c.items, v)
	return &c
}

// keyAt is where the i-th key stands, as a node that only has a position.
func (n *node) keyAt(i int) *node {
	if n.keyPos == nil {
		return n
	}
	return &node{line: n.keyPos[i].line, col: n.keyPos[i].col}
}

func stringValue(s string) *node { return &node{kind: stringNode, s: s} }
func boolValue(b bool) *node     { return &node{kind: boolNode, b: b} }

func listOf(ss ...string) *node {
	n := &node{kind: listNode}
	for _, s := range ss {
		n.items = append(n.items, stringValue(s))
	}
	return n
}

// syntaxError is an error of the whole text.
func syntaxError(format string, args ...any) *DocumentError {
	return &DocumentError{Where: "policy", Text: fmt.Sprintf(format, args...)}
}

// prepare checks what both formats have in common and drops a byte order mark.
func prepare(data []byte) ([]byte, *DocumentError) {
	if len(data) > maxDocumentBytes {
		return nil, syntaxError("the document is larger than %d bytes", maxDocumentBytes)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return nil, syntaxError("the document is not UTF-8 text")
	}
	return data, nil
}

// readJSON reads one JSON value. Unlike encoding/json alone it refuses
// repeated keys, numbers no int64 or finite float can hold, and deep nesting.
func readJSON(data []byte) (*node, *DocumentError) {
	// The decoder below names offsets of tokens; this names the broken byte.
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, jsonError(data, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	r := jsonReader{dec: dec}
	n, err := r.value("policy", 0)
	if err != nil {
		return nil, err
	}
	if _, end := dec.Token(); end != io.EOF {
		return nil, syntaxError("invalid JSON: text after the document")
	}
	return n, nil
}

func jsonError(data []byte, err error) *DocumentError {
	e, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return syntaxError("invalid JSON: %v", err)
	}
	before := data[:min(max(int(e.Offset)-1, 0), len(data))]
	line := bytes.Count(before, []byte("\n")) + 1
	col := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	d := syntaxError("invalid JSON at line %d, column %d: %v", line, col, e)
	d.Line, d.Column = line, col
	return d
}

type jsonReader struct {
	dec   *json.Decoder
	nodes int
}

func (r *jsonReader) value(where string, depth int) (*node, *DocumentError) {
	tok, err := r.dec.Token()
	if err != nil {
		return nil, syntaxError("invalid JSON: %v", err)
	}
	if r.nodes++; r.nodes > maxDocumentNodes {
		return nil, syntaxError("more than %d values", maxDocumentNodes)
	}
	switch t := tok.(type) {
	case nil:
		return &node{kind: nullNode}, nil
	case bool:
		return boolValue(t), nil
	case string:
		return stringValue(t), nil
	case json.Number:
		return number(where, t.String())
	case json.Delim:
		if depth >= maxDocumentDepth {
			return nil, &DocumentError{Where: where, Text: fmt.Sprintf("nested deeper than %d", maxDocumentDepth)}
		}
		if t == '[' {
			return r.list(where, depth)
		}
		return r.object(where, depth)
	}
	return nil, syntaxError("invalid JSON: unexpected %v", tok)
}

func (r *jsonReader) list(where string, depth int) (*node, *DocumentError) {
	n := &node{kind: listNode}
	for r.dec.More() {
		v, err := r.value(index(where, len(n.items)), depth+1)
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, v)
	}
	_, _ = r.dec.Token() // the bracket; the text was checked as a whole
	return n, nil
}

func (r *jsonReader) object(where string, depth int) (*node, *DocumentError) {
	n := &node{kind: objectNode}
	seen := map[string]bool{}
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return nil, syntaxError("invalid JSON: %v", err)
		}
		key, _ := tok.(string)
		if seen[key] {
			return nil, repeated(where, key)
		}
		seen[key] = true
		v, fault := r.value(member(where, key), depth+1)
		if fault != nil {
			return nil, fault
		}
		n.keys = append(n.keys, key)
		n.items = append(n.items, v)
	}
	_, _ = r.dec.Token()
	return n, nil
}

func repeated(where, key string) *DocumentError {
	return &DocumentError{Where: member(where, key), Text: "the key is given twice"}
}

// number reads a JSON number: an integer when it has neither fraction nor
// exponent, as the published server tells them apart.
func number(where, text string) (*node, *DocumentError) {
	if !strings.ContainsAny(text, ".eE") {
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, outOfRange(where)
		}
		return &node{kind: intNode, i: i}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, outOfRange(where)
	}
	return float(where, f)
}

func float(where string, f float64) (*node, *DocumentError) {
	if math.IsNaN(f) || math.Abs(f) >= 1<<63 {
		return nil, outOfRange(where)
	}
	return &node{kind: floatNode, f: f}, nil
}

func outOfRange(where string) *DocumentError {
	return &DocumentError{Where: where, Text: "the number is not finite or beyond 64 bits"}
}

func member(where, key string) string { return where + "." + shorten(key) }

func index(where string, i int) string { return where + "[" + strconv.Itoa(i) + "]" }

// shorten keeps a quoted value from filling the one line an error has.
func shorten(s string) string {
	const most = 80
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		q := strconv.Quote(s)
		s = q[1 : len(q)-1]
	}
	return s
}
