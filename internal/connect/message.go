package connect

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Enum is a type of int32 whose values have names in JSON.
type Enum interface{ EnumNames() map[int32]string }

// kind is how a field's value is written.
type kind uint8

const (
	kindString kind = iota
	kindBool
	kindUint32
	kindInt64
	kindSint32
	kindEnum
	kindBytes
	kindMessage
	kindTime
	kindMap
)

// Kinds of values on the binary wire.
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

func (k kind) wire() int {
	switch k {
	case kindString, kindBytes, kindMessage, kindTime, kindMap:
		return wireBytes
	}
	return wireVarint
}

// field is one field of a message.
type field struct {
	index    int
	number   int
	name     string // as the definition has it
	jsonName string
	kind     kind
	optional bool // a pointer, or bytes: nil is absent and all else is sent
	repeated bool
	oneof    string
	message  reflect.Type     // of kindMessage, the struct
	names    map[int32]string // of kindEnum
	numbers  map[string]int32
}

// plan is how a message is coded.
type plan struct {
	fields   []field
	byNumber map[int]*field
	byName   map[string]*field
}

var (
	plans    sync.Map // reflect.Type → *plan
	timeType = reflect.TypeFor[time.Time]()
	mapType  = reflect.TypeFor[map[string]string]()
	enumType = reflect.TypeFor[Enum]()
)

// planOf is the plan of a struct type. It panics when a tag makes no sense,
// which the first use in any test shows.
func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{byNumber: map[int]*field{}, byName: map[string]*field{}}
	for i := range t.NumField() {
		if tag, ok := t.Field(i).Tag.Lookup("pb"); ok {
			p.fields = append(p.fields, newField(t, i, tag))
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		p.byNumber[f.number] = f
		p.byName[f.name], p.byName[f.jsonName] = f, f
	}
	got, _ := plans.LoadOrStore(t, p)
	return got.(*plan)
}

func newField(t reflect.Type, i int, tag string) field {
	parts := strings.Split(tag, ",")
	number, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 2 {
		panic(fmt.Sprintf("connect: %s.%s: bad tag %q", t, t.Field(i).Name, tag))
	}
	f := field{index: i, number: number, name: parts[1], jsonName: camel(parts[1])}
	signed := false
	for _, opt := range parts[2:] {
		if name, ok := strings.CutPrefix(opt, "oneof="); ok {
			f.oneof = name
		}
		signed = signed || opt == "sint"
	}
	ft := t.Field(i).Type
	switch {
	case ft.Kind() == reflect.Slice && ft.Elem().Kind() != reflect.Uint8:
		f.repeated, ft = true, ft.Elem()
	case ft.Kind() == reflect.Pointer && ft.Elem().Kind() != reflect.Struct:
		f.optional, ft = true, ft.Elem()
	}
	f.setKind(ft, signed)
	return f
}

func (f *field) setKind(t reflect.Type, signed bool) {
	switch {
	case t == timeType:
		f.kind = kindTime
	case t == mapType:
		f.kind = kindMap
	case t.Implements(enumType):
		f.kind = kindEnum
		f.names = reflect.Zero(t).Interface().(Enum).EnumNames()
		f.numbers = map[string]int32{}
		for n, name := range f.names {
			f.numbers[name] = n
		}
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		f.kind, f.message = kindMessage, t.Elem()
	case t.Kind() == reflect.Slice:
		f.kind, f.optional = kindBytes, true
	case t.Kind() == reflect.String:
		f.kind = kindString
	case t.Kind() == reflect.Bool:
		f.kind = kindBool
	case t.Kind() == reflect.Uint32:
		f.kind = kindUint32
	case t.Kind() == reflect.Int64:
		f.kind = kindInt64
	case t.Kind() == reflect.Int32 && signed:
		f.kind = kindSint32
	default:
		panic("connect: no such kind of field: " + t.String())
	}
}

// camel is the name that JSON uses for a name of the definition.
func camel(name string) string {
	parts := strings.Split(name, "_")
	for i, p := range parts {
		if i > 0 && p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// present tells whether a field is written, and gives its value.
func (f *field) present(v reflect.Value) (reflect.Value, bool) {
	fv := v.Field(f.index)
	switch {
	case f.repeated:
		return fv, fv.Len() > 0
	case f.kind == kindBytes:
		return fv, !fv.IsNil()
	case f.optional:
		return fv.Elem(), !fv.IsNil()
	case f.kind == kindMap:
		return fv, fv.Len() > 0
	}
	return fv, !fv.IsZero()
}

// slot is where a decoded value of the field goes; in a list, a new item.
func (f *field) slot(v reflect.Value) reflect.Value {
	fv := v.Field(f.index)
	switch {
	case f.repeated:
		fv.Set(reflect.Append(fv, reflect.Zero(fv.Type().Elem())))
		fv = fv.Index(fv.Len() - 1)
	case f.optional && f.kind != kindBytes:
		fv.Set(reflect.New(fv.Type().Elem()))
		return fv.Elem()
	}
	if f.kind == kindMessage && fv.IsNil() {
		fv.Set(reflect.New(f.message))
	}
	return fv
}

// clearOthers empties the other members of the field's oneof.
func (p *plan) clearOthers(f *field, v reflect.Value) {
	if f.oneof == "" {
		return
	}
	for i := range p.fields {
		if o := &p.fields[i]; o.oneof == f.oneof && o != f {
			v.Field(o.index).SetZero()
		}
	}
}
