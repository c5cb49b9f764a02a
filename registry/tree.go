package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
)

// kind is what a value of a manifest is, by the core schema of YAML 1.2 or by
// JSON, which agree.
type kind uint8

const (
	nullKind kind = iota
	boolKind
	intKind
	floatKind
	stringKind
	listKind
	mapKind
)

func (k kind) String() string {
	return [...]string{"nothing", "a boolean", "an integer", "a number", "a string", "a list", "a mapping"}[k]
}

// node is one value of a manifest.
type node struct {
	kind  kind
	text  string // of a scalar; of a number in plain form
	raw   string // of a scalar, as it was written
	yes   bool   // of a boolean
	items []*node
	keys  []string // of a mapping, in order; items are the values
}

const (
	maxManifest = 1 << 20
	maxNodes    = 200_000
	maxNesting  = 100
)

var errTooMany = errors.New("too many values")

// readTree reads a whole document.
func readTree(text []byte, isJSON bool) (*node, error) {
	switch {
	case len(text) > maxManifest:
		return nil, fmt.Errorf("more than %d bytes", maxManifest)
	case !utf8.Valid(text):
		return nil, errors.New("not UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if isJSON {
		return readJSON(text)
	}
	var doc yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(text))
	if err == nil {
		err = loader.Load(&doc)
	}
	if errors.Is(err, io.EOF) {
		return &node{}, nil
	}
	if err != nil {
		return nil, yamlError(err)
	}
	if err := loader.Load(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		doc = *doc.Content[0]
	}
	r := yamlReader{}
	return r.value(&doc, 0)
}

// yamlError puts what the library says on one line.
func yamlError(err error) error {
	if many, ok := errors.AsType[*yaml.LoadErrors](err); ok && len(many.Errors) > 0 {
		err = many.Errors[0]
	}
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if len(text) > 200 {
		text = text[:200]
	}
	return errors.New("invalid YAML: " + strings.ToValidUTF8(text, ""))
}

type yamlReader struct{ nodes int }

func (r *yamlReader) value(n *yaml.Node, depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, errTooMany // aliases of aliases grow without bound
	}
	if depth > maxNesting {
		return nil, at(n, "nesting deeper than %d", maxNesting)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.ScalarNode:
		return scalar(n)
	case yaml.SequenceNode:
		out := &node{kind: listKind}
		for _, item := range n.Content {
			v, err := r.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out.items = append(out.items, v)
		}
		return out, nil
	case yaml.MappingNode:
		out := &node{kind: mapKind}
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			if k.Kind != yaml.ScalarNode {
				return nil, at(k, "a key must be a string")
			}
			if seen[k.Value] {
				return nil, at(k, "the key %q is there twice", k.Value)
			}
			seen[k.Value] = true
			v, err := r.value(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			out.keys, out.items = append(out.keys, k.Value), append(out.items, v)
		}
		return out, nil
	}
	return &node{}, nil
}

func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
}

var (
	infText   = lazyregexp.New(`^[-+]?\.(inf|Inf|INF)$`)
	nanText   = lazyregexp.New(`^\.(nan|NaN|NAN)$`)
	intText   = lazyregexp.New(`^[-+]?[0-9]+$`)
	baseText  = lazyregexp.New(`^0(o[0-7]+|x[0-9a-fA-F]+)$`)
	floatText = lazyregexp.New(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)
)

// scalar reads a scalar by the core schema. What was quoted is a string.
func scalar(n *yaml.Node) (*node, error) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	s := n.Value
	out := &node{kind: stringKind, text: s, raw: s}
	if n.Style&yaml.TaggedStyle != 0 {
		switch n.Tag {
		case "!!str", "!", "tag:yaml.org,2002:str":
			return out, nil
		}
		return nil, at(n, "unknown tag %q", n.Tag)
	}
	if n.Style&quoted != 0 {
		return out, nil
	}
	switch s {
	case "", "~", "null", "Null", "NULL":
		return &node{text: s, raw: s}, nil
	case "true", "True", "TRUE":
		return &node{kind: boolKind, text: "true", raw: s, yes: true}, nil
	case "false", "False", "FALSE":
		return &node{kind: boolKind, text: "false", raw: s}, nil
	}
	switch {
	case intText.MatchString(s):
		out.kind, out.text = intKind, plainInt(s)
	case baseText.MatchString(s):
		i, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return nil, at(n, "%s is too large", s)
		}
		out.kind, out.text = intKind, strconv.FormatUint(i, 10)
	case floatText.MatchString(s):
		out.kind = floatKind
	case infText.MatchString(s), nanText.MatchString(s):
		out.kind, out.text = floatKind, strings.ToLower(strings.Replace(s, ".", "", 1))
	}
	return out, nil
}

// readJSON reads the same from JSON. Of its strings it takes what the library
// makes of them.
func readJSON(text []byte) (*node, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	r := jsonReader{dec: dec}
	n, err := r.value(0)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("text after the value")
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end")
	}
	if err != nil {
		line := 1 + bytes.Count(text[:min(int64(len(text)), dec.InputOffset())], []byte("\n"))
		return nil, fmt.Errorf("invalid JSON: line %d: %w", line, err)
	}
	return n, nil
}

type jsonReader struct {
	dec   *json.Decoder
	nodes int
}

func (r *jsonReader) value(depth int) (*node, error) {
	if r.nodes++; r.nodes > maxNodes {
		return nil, errTooMany
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("nesting deeper than %d", maxNesting)
	}
	t, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case bool:
		return &node{kind: boolKind, text: strconv.FormatBool(t), raw: strconv.FormatBool(t), yes: t}, nil
	case string:
		return &node{kind: stringKind, text: t, raw: t}, nil
	case json.Number:
		if intText.MatchString(t.String()) {
			return &node{kind: intKind, text: plainInt(t.String()), raw: t.String()}, nil
		}
		return &node{kind: floatKind, text: t.String(), raw: t.String()}, nil
	case json.Delim:
		if t == '[' {
			return r.list(depth)
		}
		return r.mapping(depth)
	}
	return &node{text: "null"}, nil
}

func (r *jsonReader) list(depth int) (*node, error) {
	out := &node{kind: listKind}
	for r.dec.More() {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, v)
	}
	_, err := r.dec.Token()
	return out, err
}

func (r *jsonReader) mapping(depth int) (*node, error) {
	out := &node{kind: mapKind}
	seen := map[string]bool{}
	for r.dec.More() {
		t, err := r.dec.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		if seen[key] {
			return nil, fmt.Errorf("the key %q is there twice", key)
		}
		seen[key] = true
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out.keys, out.items = append(out.keys, key), append(out.items, v)
	}
	_, err := r.dec.Token()
	return out, err
}
