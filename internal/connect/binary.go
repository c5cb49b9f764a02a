package connect

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"
)

var errBinary = errors.New("malformed protobuf message")

// appendBinary adds the binary form of the message v points to.
func appendBinary(b []byte, v any) []byte {
	return planOf(reflect.TypeOf(v).Elem()).appendBinary(b, reflect.ValueOf(v).Elem())
}

func (p *plan) appendBinary(b []byte, v reflect.Value) []byte {
	for i := range p.fields {
		f := &p.fields[i]
		fv, ok := f.present(v)
		switch {
		case !ok:
		case f.repeated:
			for j := range fv.Len() {
				b = f.appendBinary(b, fv.Index(j))
			}
		case f.kind == kindMap:
			m := fv.Interface().(map[string]string)
			for _, key := range slices.Sorted(maps.Keys(m)) {
				entry := appendText(appendText(nil, 1, key), 2, m[key])
				b = appendText(b, f.number, string(entry))
			}
		default:
			b = f.appendBinary(b, fv)
		}
	}
	return b
}

func appendText(b []byte, number int, s string) []byte {
	b = binary.AppendUvarint(b, uint64(number)<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (f *field) appendBinary(b []byte, v reflect.Value) []byte {
	if f.kind.wire() == wireVarint {
		b = binary.AppendUvarint(b, uint64(f.number)<<3|wireVarint)
	}
	switch f.kind {
	case kindString:
		return appendText(b, f.number, v.String())
	case kindBytes:
		b = binary.AppendUvarint(b, uint64(f.number)<<3|wireBytes)
		b = binary.AppendUvarint(b, uint64(v.Len()))
		return append(b, v.Bytes()...)
	case kindMessage:
		inner := planOf(f.message).appendBinary(nil, v.Elem())
		b = binary.AppendUvarint(b, uint64(f.number)<<3|wireBytes)
		b = binary.AppendUvarint(b, uint64(len(inner)))
		return append(b, inner...)
	case kindTime:
		t := v.Interface().(time.Time)
		var inner []byte
		if s := t.Unix(); s != 0 {
			inner = binary.AppendUvarint(append(inner, 1<<3), uint64(s))
		}
		if n := t.Nanosecond(); n != 0 {
			inner = binary.AppendUvarint(append(inner, 2<<3), uint64(n))
		}
		return appendText(b, f.number, string(inner))
	case kindBool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case kindUint32:
		return binary.AppendUvarint(b, v.Uint())
	case kindSint32:
		n := int32(v.Int())
		return binary.AppendUvarint(b, uint64(uint32(n<<1)^uint32(n>>31)))
	}
	return binary.AppendUvarint(b, uint64(v.Int())) // kindInt64, kindEnum
}

// readBinary reads a message into what v points to.
func readBinary(b []byte, v any) error {
	return planOf(reflect.TypeOf(v).Elem()).readBinary(b, reflect.ValueOf(v).Elem())
}

func (p *plan) readBinary(b []byte, v reflect.Value) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29-1 {
			return errBinary
		}
		b = b[n:]
		raw, num, rest, err := cutValue(b, int(key&7))
		if err != nil {
			return err
		}
		b = rest
		f := p.byNumber[int(key>>3)]
		if f == nil || f.kind.wire() != int(key&7) {
			continue // unknown, as far as we are concerned
		}
		if (f.repeated || f.kind == kindMap) && v.Field(f.index).Len() >= maxValues {
			return errTooMany
		}
		p.clearOthers(f, v)
		if err := f.readBinary(raw, num, v); err != nil {
			return err
		}
	}
	return nil
}

// cutValue takes one value off b: its bytes, or its number.
func cutValue(b []byte, wire int) (raw []byte, num uint64, rest []byte, err error) {
	switch wire {
	case wireVarint:
		num, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, 0, nil, errBinary
		}
		return nil, num, b[n:], nil
	case wireBytes:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, 0, nil, errBinary
		}
		return b[n : n+int(size)], 0, b[n+int(size):], nil
	case wire32, wire64:
		size := 4
		if wire == wire64 {
			size = 8
		}
		if len(b) < size {
			return nil, 0, nil, errBinary
		}
		return nil, 0, b[size:], nil
	}
	return nil, 0, nil, errBinary
}

func (f *field) readBinary(raw []byte, num uint64, v reflect.Value) error {
	if f.kind == kindMap {
		return readEntry(raw, v.Field(f.index))
	}
	if f.kind == kindString && !utf8.Valid(raw) {
		return errBinary
	}
	to := f.slot(v)
	switch f.kind {
	case kindString:
		to.SetString(string(raw))
	case kindBytes:
		to.SetBytes(append([]byte{}, raw...))
	case kindMessage:
		return planOf(f.message).readBinary(raw, to.Elem())
	case kindTime:
		return errBinary // no request has one
	case kindBool:
		to.SetBool(num != 0)
	case kindUint32:
		to.SetUint(num & math.MaxUint32)
	case kindSint32:
		n := uint32(num)
		to.SetInt(int64(int32(n>>1) ^ -int32(n&1)))
	case kindEnum:
		to.SetInt(int64(int32(num)))
	default:
		to.SetInt(int64(num))
	}
	return nil
}

// readEntry adds one entry of a map.
func readEntry(b []byte, m reflect.Value) error {
	var pair [2]string
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return errBinary
		}
		raw, _, rest, err := cutValue(b[n:], int(key&7))
		if err != nil {
			return err
		}
		b = rest
		if at := key >> 3; key&7 == wireBytes && (at == 1 || at == 2) {
			if !utf8.Valid(raw) {
				return errBinary
			}
			pair[at-1] = string(raw)
		}
	}
	if m.IsNil() {
		m.Set(reflect.MakeMap(m.Type()))
	}
	m.SetMapIndex(reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1]))
	return nil
}
