package registry

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// param is an argument of a manifest command with its checks.
type param struct {
	Arg
	def       *value
	pattern   *regexp.Regexp
	low, high *big.Rat
	lowText   string
	highText  string
	maxLength int // characters or items; -1 is no bound
}

// effective are the arguments a command runs with: those given and defaults,
// in the order they are declared. Absent ones are missing from it.
func effective(params []*param, given map[string]any) (map[string]value, *Failure) {
	if f := undeclared(params, given); f != nil {
		return nil, f
	}
	out := map[string]value{}
	for _, p := range params {
		v, ok := given[p.Name]
		switch {
		case ok:
			val, f := p.convert(v)
			if f != nil {
				return nil, f
			}
			if why := p.check(val); why != "" {
				return nil, badArgument("ValueError", p.Name, "Argument '%s' %s", p.Name, why)
			}
			out[p.Name] = val
		case p.def != nil:
			out[p.Name] = *p.def
		case p.Required:
			return nil, badArgument("ValueError", p.Name, "Required argument '%s' missing", p.Name)
		}
	}
	return out, nil
}

func undeclared(params []*param, given map[string]any) *Failure {
	declared := make([]string, len(params))
	for i, p := range params {
		declared[i] = p.Name
	}
	var unknown []string
	for name := range given {
		if !slices.Contains(declared, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return failed(400, "ValueError", "", "Unexpected argument(s): %s; declared: %s", quoted(unknown), quoted(declared))
}

func quoted(names []string) string {
	const most = 20
	parts := make([]string, 0, min(len(names), most)+1)
	for i, n := range names {
		if i == most {
			parts = append(parts, "…")
			break
		}
		if len(n) > 100 {
			n = n[:100] + "…"
		}
		parts = append(parts, "'"+strings.ToValidUTF8(n, "\uFFFD")+"'")
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// check says what is wrong with a value of the type, "" for nothing.
func (p *param) check(v value) string {
	texts := []string{v.text}
	if p.Type == "string_array" {
		texts = v.list
	}
	for _, t := range texts {
		if p.Choices != nil && !slices.Contains(p.Choices, t) {
			return "must be one of " + quoted(p.Choices)
		}
		if p.pattern != nil && !p.pattern.MatchString(t) {
			return "does not match its pattern"
		}
	}
	if p.maxLength >= 0 {
		n := utf8.RuneCountInString(v.text)
		if p.Type == "string_array" {
			n = len(v.list)
		}
		if n > p.maxLength {
			return "is too long"
		}
	}
	if p.low != nil && compare(v, p.low) < 0 || p.low != nil && isNaN(v) {
		return "must be at least " + p.lowText
	}
	if p.high != nil && compare(v, p.high) > 0 || p.high != nil && isNaN(v) {
		return "must be at most " + p.highText
	}
	return ""
}

func isNaN(v value) bool { return v.text == "NaN" }

// compare a number with a bound, which is no larger than a float can be.
func compare(v value, bound *big.Rat) int {
	const beyond = 400 // digits; no bound has as many
	text := v.text
	switch {
	case text == "Infinity" || len(text) > beyond && text[0] != '-':
		return 1
	case text == "-Infinity" || len(text) > beyond:
		return -1
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0
	}
	return r.Cmp(bound)
}
