package connect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// appendJSON adds the JSON form of the message v points to.
func appendJSON(b []byte, v any) []byte {
	return planOf(reflect.TypeOf(v).Elem()).appendJSON(b, reflect.ValueOf(v).Elem())
}

func (p *plan) appendJSON(b []byte, v reflect.Value) []byte {
	b = append(b, '{')
	start := len(b)
	for i := range p.fields {
		f := &p.fields[i]
		fv, ok := f.present(v)
		if !ok {
			continue
		}
		if len(b) > start {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), f.jsonName...), `":`...)
		switch {
		case f.repeated:
			for j := range fv.Len() {
				b = f.appendJSON(append(b, "[,"[min(j, 1)]), fv.Index(j))
			}
			b = append(b, ']')
		case f.kind == kindMap:
			b = appendMap(b, fv.Interface().(map[string]string))
		default:
			b = f.appendJSON(b, fv)
		}
	}
	return append(b, '}')
}

func appendMap(b []byte, m map[string]string) []byte {
	for i, key := range slices.Sorted(maps.Keys(m)) {
		b = append(appendString(append(b, "{,"[min(i, 1)]), key), ':')
		b = appendString(b, m[key])
	}
	return append(b, '}')
}

func (f *field) appendJSON(b []byte, v reflect.Value) []byte {
	switch f.kind {
	case kindString:
		return appendString(b, v.String())
	case kindBytes:
		b = base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes())
		return append(b, '"')
	case kindMessage:
		return planOf(f.message).appendJSON(b, v.Elem())
	case kindTime:
		return append(v.Interface().(time.Time).UTC().AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
	case kindBool:
		return strconv.AppendBool(b, v.Bool())
	case kindUint32:
		return strconv.AppendUint(b, v.Uint(), 10)
	case kindInt64:
		return append(strconv.AppendInt(append(b, '"'), v.Int(), 10), '"')
	case kindEnum:
		if name, ok := f.names[int32(v.Int())]; ok {
			return appendString(b, name)
		}
	}
	return strconv.AppendInt(b, v.Int(), 10)
}

// appendString adds a JSON string; bytes that are no UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always can be
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// readJSON reads one JSON object into the message v points to. Unknown members
// are passed over, null is absent.
func readJSON(text []byte, v any) error {
	if !utf8.Valid(text) {
		return errors.New("the message is not UTF-8")
	}
	if manyValues(text) {
		return errTooMany
	}
	return planOf(reflect.TypeOf(v).Elem()).readJSON(text, reflect.ValueOf(v).Elem())
}

// maxValues bounds the values of one message. Three bytes of text can make more
// than a hundred of memory: without it one message of the largest size takes
// gigabytes, whoever sends it.
const maxValues = 200_000

var errTooMany = fmt.Errorf("the message has more than %d values", maxValues)

// manyValues tells whether a text could have more than maxValues values if it
// is JSON: each begins the text or follows one of three characters. It costs
// nothing but the look.
func manyValues(text []byte) bool {
	if len(text) <= maxValues {
		return false
	}
	n := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ',', '[', '{':
			if n++; n > maxValues {
				return true
			}
		case '"':
			i = endOfString(text, i+1)
		}
	}
	return false
}

// endOfString is where the string that goes on at i has its closing quote.
func endOfString(text []byte, i int) int {
	for i < len(text) {
		at := bytes.IndexAny(text[i:], `"\\`)
		if at < 0 {
			break
		}
		if i += at; text[i] == '"' {
			return i
		}
		i += 2
	}
	return len(text)
}

func (p *plan) readJSON(text []byte, v reflect.Value) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return errors.New("the message is not a JSON object")
	}
	seen := map[string]*field{}
	for name, raw := range members {
		f := p.byName[name]
		if f == nil || string(raw) == "null" {
			continue
		}
		key := f.oneof
		if key == "" {
			key = f.name
		}
		if seen[key] != nil {
			return fmt.Errorf("%s is given twice", key)
		}
		seen[key] = f
		if err := f.readJSON(raw, v); err != nil {
			return fmt.Errorf("%s: %w", f.jsonName, err)
		}
	}
	return nil
}

func (f *field) readJSON(raw []byte, v reflect.Value) error {
	switch {
	case f.repeated:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return errors.New("expected a list")
		}
		for _, item := range items {
			if err := f.readValue(item, f.slot(v)); err != nil {
				return err
			}
		}
		return nil
	case f.kind == kindMap:
		var m map[string]*string
		if err := json.Unmarshal(raw, &m); err != nil {
			return errors.New("expected an object of strings")
		}
		to := reflect.MakeMap(mapType)
		for key, value := range m {
			if value == nil {
				return errors.New("expected an object of strings")
			}
			to.SetMapIndex(reflect.ValueOf(key), reflect.ValueOf(*value))
		}
		v.Field(f.index).Set(to)
		return nil
	}
	return f.readValue(raw, f.slot(v))
}

func (f *field) readValue(raw []byte, to reflect.Value) error {
	switch f.kind {
	case kindMessage:
		return planOf(f.message).readJSON(raw, to.Elem())
	case kindTime:
		return errors.New("no request has a time")
	case kindBool:
		switch string(raw) {
		case "true", "false":
			to.SetBool(string(raw) == "true")
			return nil
		}
		return errors.New("expected true or false")
	case kindString, kindBytes:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return errors.New("expected a string")
		}
		if f.kind == kindString {
			to.SetString(s)
			return nil
		}
		data, err := decodeBase64(s)
		to.SetBytes(data)
		return err
	}
	return f.readNumber(raw, to)
}

func (f *field) readNumber(raw []byte, to reflect.Value) error {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
		if n, ok := f.numbers[text]; ok {
			to.SetInt(int64(n))
			return nil
		}
	}
	low, high := int64(math.MinInt32), int64(math.MaxInt32)
	switch f.kind {
	case kindUint32:
		low, high = 0, math.MaxUint32
	case kindInt64:
		low, high = math.MinInt64, math.MaxInt64
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // 1e3 and 5.0 are whole numbers too
		fl, ferr := strconv.ParseFloat(text, 64)
		if ferr != nil || fl != math.Trunc(fl) || math.Abs(fl) > 1<<53 {
			return errors.New("expected a whole number")
		}
		n = int64(fl)
	}
	if n < low || n > high {
		return errors.New("the number is out of range")
	}
	if f.kind == kindUint32 {
		to.SetUint(uint64(n))
	} else {
		to.SetInt(n)
	}
	return nil
}

// decodeBase64 takes both alphabets, with and without padding.
func decodeBase64(s string) ([]byte, error) {
	enc := base64.StdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.URLEncoding
	}
	if len(s)%4 != 0 {
		enc = enc.WithPadding(base64.NoPadding)
	}
	data, err := enc.DecodeString(s)
	if err != nil {
		return nil, errors.New("expected base64")
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}
