package registry

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
)

// value is an argument in its declared type.
type value struct {
	text string   // what placeholders and variables show
	json string   // the same as JSON
	list []string // of a string_array
	f    float64  // of a float
}

// convert turns a JSON value into the type of p. Python commands convert by
// the same rules, which are Python's own; only text differs: here null, lists
// and mappings are no strings.
func (p *param) convert(v any) (value, *Failure) {
	var out value
	ok := false
	switch p.Type {
	case "string":
		out, ok = toString(v)
	case "integer":
		out, ok = toInteger(v)
	case "float":
		out, ok = toFloat(v)
	case "boolean":
		out, ok = toBoolean(v)
	case "string_array":
		out, ok = toStrings(v)
	}
	if !ok {
		return out, badArgument("TypeError", p.Name, "Cannot convert argument '%s' to %s: %s", p.Name, p.Type, shown(v))
	}
	return out, nil
}

// shown is a value as an error may quote it.
func shown(v any) string {
	text := ""
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		text = strconv.Quote(v[:min(len(v), 200)])
	case json.Number:
		text = v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	default:
		return "an object"
	}
	if len(text) > 200 {
		return text[:200] + "…"
	}
	return text
}

func textValue(s string) value { return value{text: s, json: quoteJSON(s)} }

func boolValue(b bool) value {
	s := strconv.FormatBool(b)
	return value{text: s, json: s}
}

func intValue(s string) value { return value{text: s, json: s} }

func floatValue(f float64) value {
	s := pythonFloatText(f)
	return value{text: s, json: s, f: f}
}

func listValue(list []string) value {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = quoteJSON(s)
	}
	s := "[" + strings.Join(parts, ",") + "]"
	return value{text: s, json: s, list: list}
}

func toString(v any) (value, bool) {
	switch v := v.(type) {
	case string:
		return textValue(v), true
	case bool:
		return textValue(strconv.FormatBool(v)), true
	case json.Number:
		return textValue(v.String()), true
	}
	return value{}, false
}

func toInteger(v any) (value, bool) {
	switch v := v.(type) {
	case json.Number:
		if intText.MatchString(v.String()) {
			return intValue(plainInt(v.String())), true
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return value{}, false
		}
		i, _ := big.NewFloat(f).Int(nil)
		return intValue(i.String()), true
	case string:
		s, ok := asciiNumber(v)
		if !ok || !pythonInt.MatchString(s) {
			return value{}, false
		}
		return intValue(plainInt(strings.ReplaceAll(s, "_", ""))), true
	}
	return value{}, false
}

func toFloat(v any) (value, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return floatValue(1), true
		}
		return floatValue(0), true
	case json.Number:
		text := v.String()
		whole := intText.MatchString(text)
		if whole {
			text = plainInt(text) // there is no minus zero among integers
		}
		f, _ := strconv.ParseFloat(text, 64) // huge ones become infinite
		return floatValue(f), !whole || !math.IsInf(f, 0)
	case string:
		s, ok := asciiNumber(v)
		if !ok {
			return value{}, false
		}
		if pythonNaN.MatchString(s) {
			return floatValue(math.NaN()), true
		}
		if !pythonFloat.MatchString(s) {
			return value{}, false
		}
		f, _ := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		return floatValue(f), true
	}
	return value{}, false
}

func toBoolean(v any) (value, bool) {
	text := ""
	switch v := v.(type) {
	case bool:
		return boolValue(v), true
	case string:
		text = strings.ToLower(v)
	case json.Number:
		if !intText.MatchString(v.String()) {
			return value{}, false // 1.0 is no flag
		}
		text = plainInt(v.String())
	}
	switch text {
	case "true", "yes", "1":
		return boolValue(true), true
	case "false", "no", "0":
		return boolValue(false), true
	}
	return value{}, false
}

func toStrings(v any) (value, bool) {
	items, ok := v.([]any)
	if !ok {
		return value{}, false
	}
	list := make([]string, len(items))
	for i, item := range items {
		if list[i], ok = item.(string); !ok {
			return value{}, false
		}
	}
	return listValue(list), true
}

// Numbers as Python reads them from text that is ASCII and trimmed.
var (
	pythonInt   = lazyregexp.New(`^[-+]?[0-9]+(_[0-9]+)*$`)
	pythonFloat = lazyregexp.New(`^[-+]?(([0-9]+(_[0-9]+)*(\.([0-9]+(_[0-9]+)*)?)?|\.[0-9]+(_[0-9]+)*)([eE][-+]?[0-9]+(_[0-9]+)*)?|(?i:inf|infinity))$`)
	pythonNaN   = lazyregexp.New(`^[-+]?(?i:nan)$`)
)

// asciiNumber trims white space and writes decimal digits of all scripts as
// ASCII. What is white space depends on whether all of it is ASCII; so it does
// in Python.
func asciiNumber(s string) (string, bool) {
	if !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.Trim(s, " \t\n\r\f\v"), true
	}
	if !utf8.ValidString(s) {
		return "", false
	}
	s = strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f })
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf || !unicode.Is(unicode.Nd, r) {
			return r
		}
		for _, t := range unicode.Nd.R16 {
			if uint32(r) <= uint32(t.Hi) {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		for _, t := range unicode.Nd.R32 {
			if uint32(r) <= t.Hi {
				return '0' + (r-rune(t.Lo))%10
			}
		}
		return r
	}, s), true
}

// plainInt is decimal text without plus, zeros in front and minus zero.
func plainInt(s string) string {
	negative := strings.HasPrefix(s, "-")
	s = strings.TrimLeft(strings.TrimLeft(s, "+-"), "0")
	switch {
	case s == "":
		return "0"
	case negative:
		return "-" + s
	}
	return s
}

// pythonFloatText is the shortest text that reads back as f, in Python's form.
func pythonFloatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quoteJSON is s as JSON. A byte that is not UTF-8 is the lone escape \udcNN,
// by which request bodies carry it too.
func quoteJSON(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\udc%02x`, s[i])
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(s[i])
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteByte('"')
	return b.String()
}
