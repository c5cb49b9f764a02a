package registry

import (
	"fmt"
	"math"
	"math/big"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// decoder turns the values of one manifest into commands. Errors are
// [*ManifestError] with the path of the value at fault.
type decoder struct {
	host *host
	dir  string // of the manifest, absolute
}

func fault(path, format string, args ...any) error {
	return &ManifestError{Path: path, Reason: fmt.Sprintf(format, args...)}
}

// fields are the keys a mapping may have, each with what reads its value.
type fields map[string]func(n *node, path string) error

// each reads a mapping. Keys that nobody knows are mistakes.
func (d *decoder) each(n *node, path string, known fields) error {
	if n.kind != mapKind {
		return fault(path, "expected a mapping, got %s", n.kind)
	}
	for i, key := range n.keys {
		below := keyPath(path, key)
		read := known[key]
		if read == nil {
			return fault(below, "unknown key")
		}
		if err := read(n.items[i], below); err != nil {
			return err
		}
	}
	return nil
}

// keyPath is the path of a member. A key that is no name is shown so that it
// stays on one line.
func keyPath(path, key string) string {
	if len(key) > 100 || strings.ContainsFunc(key, unicode.IsControl) {
		key = strconv.Quote(key[:min(len(key), 100)])
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) list(n *node, path string, read func(n *node, path string) error) error {
	if n.kind != listKind {
		return fault(path, "expected a list, got %s", n.kind)
	}
	for i, item := range n.items {
		if err := read(item, path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) text(n *node, path string) (string, error) {
	if n.kind != stringKind {
		return "", fault(path, "expected a string, got %s", n.kind)
	}
	return n.text, nil
}

func (d *decoder) texts(n *node, path string) ([]string, error) {
	out := []string{}
	err := d.list(n, path, func(n *node, path string) error {
		s, err := d.text(n, path)
		out = append(out, s)
		return err
	})
	return out, err
}

func (d *decoder) boolean(n *node, path string) (bool, error) {
	if n.kind != boolKind {
		return false, fault(path, "expected true or false, got %s", n.kind)
	}
	return n.yes, nil
}

func (d *decoder) count(n *node, path string, least int) (int, error) {
	i, err := strconv.Atoi(n.text)
	if n.kind != intKind || err != nil || i < least || i > math.MaxInt32 {
		return 0, fault(path, "expected an integer of at least %d", least)
	}
	return i, nil
}

func (d *decoder) size(n *node, path string) (int64, error) {
	if n.kind == intKind || n.kind == stringKind {
		if size, err := policy.ParseSize(n.text); err == nil {
			return size, nil
		}
	}
	return 0, fault(path, "expected a number of bytes or a size such as 4MB")
}

func (d *decoder) seconds(n *node, path string) (time.Duration, error) {
	f, err := strconv.ParseFloat(n.text, 64)
	if n.kind != intKind && n.kind != floatKind || err != nil || !(f > 0) {
		return 0, fault(path, "expected a number of seconds above 0")
	}
	return max(time.Duration(min(f, maxSeconds)*float64(time.Second)), 1), nil
}

func (d *decoder) oneOf(n *node, path string, among ...string) (string, error) {
	if n.kind != stringKind || !slices.Contains(among, n.text) {
		return "", fault(path, "expected one of %s", strings.Join(among, ", "))
	}
	return n.text, nil
}

func (d *decoder) name(n *node, path string) (string, error) {
	s, err := d.text(n, path)
	if err != nil {
		return "", err
	}
	bad := func(r rune) bool { return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r) }
	if chars := utf8.RuneCountInString(s); chars < 1 || chars > 128 || strings.ContainsFunc(s, bad) {
		return "", fault(path, "expected 1 to 128 characters without '/', white space or control characters")
	}
	return s, nil
}

// workdir is made absolute; whether it exists is asked when the command runs.
func (d *decoder) workdir(n *node, path string) (string, error) {
	s, err := d.text(n, path)
	switch {
	case err != nil:
		return "", err
	case s == "" || strings.Contains(s, "\x00"):
		return "", fault(path, "expected a path")
	case filepath.IsAbs(s):
		return filepath.Clean(s), nil
	}
	return filepath.Join(d.dir, s), nil
}

var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables adds to base, whose entries of the same name it replaces.
func (d *decoder) variables(n *node, path string, base []variable) ([]variable, error) {
	if n.kind != mapKind {
		return nil, fault(path, "expected a mapping, got %s", n.kind)
	}
	out := slices.Clone(base)
	for i, name := range n.keys {
		below, item := keyPath(path, name), n.items[i]
		switch {
		case !variableName.MatchString(name):
			return nil, fault(below, "no name of a variable")
		case strings.HasPrefix(strings.ToUpper(name), "ABX_"):
			return nil, fault(below, "ABX_ variables are the server's")
		case item.kind != stringKind:
			return nil, fault(below, "expected a string, got %s", item.kind)
		case strings.Contains(item.text, "\x00"):
			return nil, fault(below, "holds a NUL character")
		}
		out = slices.DeleteFunc(out, func(v variable) bool { return v.name == name })
		out = append(out, variable{name, *item, below})
	}
	return out, nil
}

func (d *decoder) exitCodes(n *node, path string) ([]int, error) {
	out := []int{}
	err := d.list(n, path, func(n *node, path string) error {
		code, err := strconv.Atoi(n.text)
		if n.kind != intKind || err != nil || code < 0 || code > 255 {
			return fault(path, "expected an exit code from 0 to 255")
		}
		out = append(out, code)
		return nil
	})
	return out, err
}

// program is text that a shell or an interpreter reads.
func (d *decoder) program(n *node, path string) (string, error) {
	s, err := d.text(n, path)
	switch {
	case err != nil:
		return "", err
	case strings.TrimSpace(s) == "":
		return "", fault(path, "is empty")
	case strings.Contains(s, "\x00"):
		return "", fault(path, "holds a NUL character")
	}
	return s, nil
}

func (d *decoder) interpreter(n *node, path string) ([]string, error) {
	words, err := d.texts(n, path)
	switch {
	case err != nil:
		return nil, err
	case len(words) == 0 || words[0] == "":
		return nil, fault(path, "is empty")
	case strings.Contains(strings.Join(words, ""), "\x00"):
		return nil, fault(path, "holds a NUL character")
	}
	return words, nil
}

func (d *decoder) stdin(n *node, path string, p *program) error {
	switch {
	case n.kind == stringKind && n.text == "json":
		p.stdin = stdinJSON
		return nil
	case n.kind == stringKind && n.text == "none":
		p.stdin = stdinNone
		return nil
	case n.kind != mapKind:
		return fault(path, "expected json, none or {arg: NAME}")
	}
	err := d.each(n, path, fields{"arg": func(n *node, path string) (err error) {
		if p.stdinArg, err = d.text(n, path); err == nil && find(p.params, p.stdinArg) == nil {
			err = fault(path, "unknown argument %q", p.stdinArg)
		}
		return err
	}})
	if err == nil && p.stdinArg == "" {
		err = fault(path, "expected json, none or {arg: NAME}")
	}
	p.stdin = stdinArg
	return err
}

func find(params []*param, name string) *param {
	for _, p := range params {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func isGroup(name string) bool { return slices.Contains(policy.Groups, name) }

var (
	argumentName  = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	argumentTypes = []string{"string", "integer", "float", "boolean", "string_array"}
)

func (d *decoder) params(n *node, path string, p *program) error {
	return d.list(n, path, func(n *node, path string) error {
		a, err := d.param(n, path)
		if err != nil {
			return err
		}
		if find(p.params, a.Name) != nil {
			return fault(path+".name", "%q is there twice", a.Name)
		}
		p.params = append(p.params, a)
		return nil
	})
}

func (d *decoder) param(n *node, path string) (*param, error) {
	a := &param{Arg: Arg{Type: "string", Required: true}, maxLength: -1}
	var required, def, choices, pattern, low, high, length *node
	keep := func(to **node) func(*node, string) error {
		return func(n *node, _ string) error { *to = n; return nil }
	}
	err := d.each(n, path, fields{
		"name": func(n *node, path string) (err error) {
			if a.Name, err = d.text(n, path); err == nil && !argumentName.MatchString(a.Name) {
				err = fault(path, "expected a letter or _ and up to 63 more letters, digits or _")
			}
			return err
		},
		"type": func(n *node, path string) (err error) {
			if a.Type, err = d.text(n, path); err == nil && !slices.Contains(argumentTypes, a.Type) {
				err = fault(path, "unknown type '%s'", a.Type)
			}
			return err
		},
		"description": func(n *node, path string) (err error) {
			a.Description, err = d.text(n, path)
			return err
		},
		"required": keep(&required), "default": keep(&def), "choices": keep(&choices),
		"pattern": keep(&pattern), "min": keep(&low), "max": keep(&high), "max_length": keep(&length),
	})
	if err != nil {
		return nil, err
	}
	if a.Name == "" {
		return nil, fault(path+".name", "is required")
	}
	if err := d.checks(a, path, choices, pattern, low, high, length); err != nil {
		return nil, err
	}
	return a, d.absent(a, path, required, def)
}

// absent reads what happens when a call does not give the argument.
func (d *decoder) absent(a *param, path string, required, def *node) error {
	if required != nil {
		yes, err := d.boolean(required, path+".required")
		if err != nil {
			return err
		}
		if yes && def != nil {
			return fault(path+".default", "a required argument has no default")
		}
		a.Required = yes
	}
	if def == nil {
		return nil
	}
	a.Required = false
	v, err := d.native(def, path+".default", a.Type)
	if err != nil {
		return err
	}
	if why := a.check(v); why != "" {
		return fault(path+".default", "%s", why)
	}
	a.def, a.Default = &v, &v.text
	return nil
}

// native is a value written in the manifest in the type it must have.
func (d *decoder) native(n *node, path, typ string) (value, error) {
	switch {
	case typ == "string" && n.kind == stringKind:
		return textValue(n.text), nil
	case typ == "integer" && n.kind == intKind:
		return intValue(n.text), nil
	case typ == "float" && (n.kind == intKind || n.kind == floatKind):
		f, _ := strconv.ParseFloat(n.text, 64)
		return floatValue(f), nil
	case typ == "boolean" && n.kind == boolKind:
		return boolValue(n.yes), nil
	case typ == "string_array" && n.kind == listKind:
		list, err := d.texts(n, path)
		return listValue(list), err
	}
	return value{}, fault(path, "expected a value of type %s, got %s", typ, n.kind)
}

func (d *decoder) checks(a *param, path string, choices, pattern, low, high, length *node) (err error) {
	numeric := a.Type == "integer" || a.Type == "float"
	textual := a.Type == "string" || a.Type == "string_array"
	if choices != nil {
		typ := a.Type
		if typ == "string_array" {
			typ = "string" // each item is one of them
		}
		a.Choices = []string{}
		if err := d.list(choices, path+".choices", func(n *node, path string) error {
			v, err := d.native(n, path, typ)
			a.Choices = append(a.Choices, v.text)
			return err
		}); err != nil {
			return err
		}
		if len(a.Choices) == 0 {
			return fault(path+".choices", "is empty")
		}
	}
	if pattern != nil {
		if !textual {
			return fault(path+".pattern", "goes only with strings")
		}
		text, err := d.text(pattern, path+".pattern")
		if err != nil {
			return err
		}
		if a.pattern, err = regexp.Compile(`\A(?:` + text + `)\z`); err != nil {
			return fault(path+".pattern", "%s", err)
		}
	}
	if length != nil {
		if !textual {
			return fault(path+".max_length", "goes only with strings and lists of them")
		}
		if a.maxLength, err = d.count(length, path+".max_length", 0); err != nil {
			return err
		}
	}
	for _, b := range []struct {
		key  string
		node *node
		to   **big.Rat
		text *string
	}{{".min", low, &a.low, &a.lowText}, {".max", high, &a.high, &a.highText}} {
		if b.node == nil {
			continue
		}
		if !numeric {
			return fault(path+b.key, "goes only with numbers")
		}
		if *b.to, err = d.bound(b.node, path+b.key); err != nil {
			return err
		}
		*b.text = b.node.text
	}
	return nil
}

func (d *decoder) bound(n *node, path string) (*big.Rat, error) {
	if n.kind == intKind || n.kind == floatKind {
		// Only what a float holds too: an exponent of a million would cost as
		// many digits with every call.
		f, err := strconv.ParseFloat(n.text, 64)
		small := math.Abs(f) < 1e-300 && strings.ContainsAny(n.text, "eE")
		if err == nil && !small && len(n.text) < 400 {
			if r, ok := new(big.Rat).SetString(n.text); ok {
				return r, nil
			}
		}
	}
	return nil, fault(path, "expected a number")
}
