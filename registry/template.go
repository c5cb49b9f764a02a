package registry

import (
	"errors"
	"fmt"
	"strings"
)

// template is text with placeholders for arguments.
type template struct {
	parts []part
}

// part is literal text, or an argument when param is set.
type part struct {
	text  string
	param *param
	all   bool // "{name...}": as many arguments as there are items
}

// parseTemplate reads "{name}", "{name...}", "{{" and "}}".
func parseTemplate(s string, params []*param) (template, error) {
	var t template
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			t.parts = append(t.parts, part{text: lit.String()})
			lit.Reset()
		}
	}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			lit.WriteString(s)
			break
		}
		lit.WriteString(s[:i])
		brace := s[i]
		s = s[i+1:]
		if s != "" && s[0] == brace {
			lit.WriteByte(brace)
			s = s[1:]
			continue
		}
		end := strings.IndexByte(s, '}')
		if brace == '}' || end < 0 {
			return t, fmt.Errorf("unmatched '%c'; write it twice for itself", brace)
		}
		name, all := strings.CutSuffix(s[:end], "...")
		p := find(params, name)
		switch {
		case p == nil:
			return t, fmt.Errorf("unknown argument '%s'", name)
		case all && p.Type != "string_array":
			return t, fmt.Errorf("'...' goes only with a string_array")
		case !all && p.Type == "string_array":
			return t, fmt.Errorf("the string_array '%s' goes only as an item of its own, \"{%s...}\"", name, name)
		}
		flush()
		t.parts = append(t.parts, part{param: p, all: all})
		s = s[end+1:]
	}
	flush()
	if t.spread() && len(t.parts) > 1 {
		return t, errors.New("'...' must be the whole item")
	}
	return t, nil
}

// spread tells whether the template stands for any number of arguments.
func (t template) spread() bool {
	for _, p := range t.parts {
		if p.all {
			return true
		}
	}
	return false
}

// constant is the text of a template without placeholders.
func (t template) constant() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].param == nil:
		return t.parts[0].text, true
	}
	return "", false
}

// maxPlaceholder is the longest value that is put into text; the kernel takes
// no longer argument.
const maxPlaceholder = 131_000

// fill puts values in. ok is false when an argument is absent.
func (t template) fill(values map[string]value) (out []string, ok bool, err *Failure) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.param == nil {
			b.WriteString(p.text)
			continue
		}
		v, present := values[p.param.Name]
		if !present {
			return nil, false, nil
		}
		texts := []string{v.text}
		if p.all {
			texts = v.list
		}
		for _, text := range texts {
			if err := usable(p.param.Name, text); err != nil {
				return nil, false, err
			}
		}
		if p.all {
			return texts, true, nil
		}
		b.WriteString(v.text)
	}
	return []string{b.String()}, true, nil
}

func usable(name, text string) *Failure {
	switch {
	case len(text) > maxPlaceholder:
		return badArgument("ValueError", name, "Argument '%s' is longer than %d bytes", name, maxPlaceholder)
	case strings.IndexByte(text, 0) >= 0:
		return badArgument("ValueError", name, "Argument '%s' holds a NUL character", name)
	}
	return nil
}

// item is one entry of argv: text, or items that are there under a condition.
type item struct {
	template
	when *param // nil for always
	then []item
}

// fill appends the arguments the item stands for.
func (i item) fill(argv []string, values map[string]value) ([]string, *Failure) {
	if i.when == nil {
		words, _, err := i.template.fill(values)
		return append(argv, words...), err
	}
	v, present := values[i.when.Name]
	if !present || v.text == "" || i.when.Type == "boolean" && v.text == "false" || i.when.Type == "string_array" && len(v.list) == 0 {
		return argv, nil
	}
	var err *Failure
	for _, below := range i.then {
		if argv, err = below.fill(argv, values); err != nil {
			return nil, err
		}
	}
	return argv, nil
}

// argv reads the items of a command line.
func (d *decoder) argv(n *node, path string, params []*param) ([]item, error) {
	items, err := d.items(n, path, params, 0)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, fault(path, "is empty")
	}
	if name, ok := items[0].constant(); !ok || name == "" || items[0].when != nil {
		return nil, fault(path+"[0]", "the program must be named without placeholders")
	}
	return items, nil
}

func (d *decoder) items(n *node, path string, params []*param, depth int) ([]item, error) {
	const deepest = 8
	var out []item
	err := d.list(n, path, func(n *node, path string) error {
		var it item
		var err error
		switch {
		case n.kind == mapKind && depth >= deepest:
			err = fault(path, "nesting deeper than %d", deepest)
		case n.kind == mapKind:
			it, err = d.conditional(n, path, params, depth)
		case n.kind == listKind || n.kind == nullKind:
			err = fault(path, "expected a string, got %s", n.kind)
		case strings.Contains(n.raw, "\x00"):
			err = fault(path, "holds a NUL character")
		default: // a number is the text it was written as
			if it.template, err = parseTemplate(n.raw, params); err != nil {
				err = fault(path, "%s", err)
			}
		}
		out = append(out, it)
		return err
	})
	return out, err
}

func (d *decoder) conditional(n *node, path string, params []*param, depth int) (item, error) {
	var it item
	err := d.each(n, path, fields{
		"when": func(n *node, path string) error {
			name, err := d.text(n, path)
			if it.when = find(params, name); err == nil && it.when == nil {
				err = fault(path, "unknown argument '%s'", name)
			}
			return err
		},
		"args": func(n *node, path string) (err error) {
			it.then, err = d.items(n, path, params, depth+1)
			return err
		},
	})
	if err == nil && (it.when == nil || it.then == nil) {
		err = fault(path, "needs when and args")
	}
	return it, err
}
