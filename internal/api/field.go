package api

import (
	"math"
	"strconv"
	"strings"
)

// Number is a JSON number as it was written.
type Number string

// Float is the nearest float64; huge numbers become infinite.
func (n Number) Float() float64 {
	f, _ := strconv.ParseFloat(string(n), 64)
	return f
}

// Int is the number cut toward zero, saturating at the ends of int64.
func (n Number) Int() int64 {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	return cut(n.Float())
}

// cut turns a float into an int64 toward zero, saturating; NaN is 0.
func cut(f float64) int64 {
	switch {
	case math.IsNaN(f):
		return 0
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return int64(f)
}

// State tells what a body held for a field.
type State uint8

// The states of a [Field].
const (
	Absent State = iota // the body does not name it
	Null                // null
	Wrong               // a value of another type
	Good                // a value of the type
)

// Field is a member of a request body whose presence and type the handler
// judges, in the order its contract gives. T is string, bool, [Number], any,
// []string, map[string]string, []any or map[string]any.
type Field[T any] struct {
	V     T
	State State
}

// Set tells whether the body held anything but null.
func (f Field[T]) Set() bool { return f.State == Wrong || f.State == Good }

// Or is the value, or def where there is no good one.
func (f Field[T]) Or(def T) T {
	if f.State == Good {
		return f.V
	}
	return def
}

// Want is the value of a field that must be there with the right type;
// otherwise the error names the field as the published server does.
func (f Field[T]) Want(name string) (T, error) {
	if f.State != Good {
		return f.V, Invalidf("Missing or invalid '%s'", name)
	}
	return f.V, nil
}

// Optional is the value, or def where the field is absent or null; another
// type is an error that names the field.
func (f Field[T]) Optional(name string, def T) (T, error) {
	switch f.State {
	case Good:
		return f.V, nil
	case Wrong:
		return def, Invalidf("Invalid '%s'", name)
	}
	return def, nil
}

// fill sets the field from a decoded value.
func (f *Field[T]) fill(v any) {
	f.State = Wrong
	switch dst := any(&f.V).(type) {
	case *any:
		*dst, f.State = v, Good
		if v == nil {
			f.State = Null
		}
		return
	case *[]string:
		if list, ok := v.([]any); ok {
			if out, ok := texts(list); ok {
				*dst, f.State = out, Good
			}
		}
	case *map[string]string:
		if m, ok := v.(map[string]any); ok {
			out := make(map[string]string, len(m))
			for k, item := range m {
				s, ok := item.(string)
				if !ok {
					return
				}
				out[k] = s
			}
			*dst, f.State = out, Good
		}
	default:
		if t, ok := v.(T); ok {
			f.V, f.State = t, Good
		}
	}
	if v == nil {
		f.State = Null
	}
}

// setter lets the decoder fill any Field without knowing its type.
type setter interface{ fill(v any) }

func texts(list []any) ([]string, bool) {
	out := make([]string, len(list))
	for i, item := range list {
		s, ok := item.(string)
		if !ok {
			return nil, false
		}
		out[i] = s
	}
	return out, true
}

// Lenient reads a number the way the published server's fields do: numbers,
// booleans and numeric text; ok is false for all else, NaN included.
func Lenient(v any) (f float64, ok bool) {
	switch v := v.(type) {
	case Number:
		return v.Float(), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) {
			return 0, false
		}
		return f, true
	}
	return 0, false
}

// LenientInt is [Lenient] cut to an integer.
func LenientInt(v any) (int64, bool) {
	if n, isNumber := v.(Number); isNumber {
		return n.Int(), true
	}
	f, ok := Lenient(v)
	return cut(f), ok
}

// Truthy reads the flag of a query: true, yes and 1 in any case.
func Truthy(s string) bool {
	switch strings.ToLower(s) {
	case "true", "yes", "1":
		return true
	}
	return false
}
