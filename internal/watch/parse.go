package watch

import (
	"bytes"
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// change is one event as the kernel wrote it.
type change struct {
	wd     int32
	mask   uint32
	cookie uint32
	name   string // within the watched directory; empty: the directory itself
	at     int64  // when it was read, Unix nanoseconds
}

func (c change) is(bits uint32) bool { return c.mask&bits != 0 }

// changes walks the records of buf. It stops at the first that is cut short:
// the kernel writes whole records only.
func changes(buf []byte, at int64) iter.Seq[change] {
	return func(yield func(change) bool) {
		for len(buf) >= unix.SizeofInotifyEvent {
			rest := buf[unix.SizeofInotifyEvent:]
			size := binary.NativeEndian.Uint32(buf[12:])
			if uint64(size) > uint64(len(rest)) {
				return
			}
			name, _, _ := bytes.Cut(rest[:size], []byte{0}) // padded with zeros
			c := change{
				wd:     int32(binary.NativeEndian.Uint32(buf)),
				mask:   binary.NativeEndian.Uint32(buf[4:]),
				cookie: binary.NativeEndian.Uint32(buf[8:]),
				name:   string(name),
				at:     at,
			}
			if !yield(c) {
				return
			}
			buf = rest[size:]
		}
	}
}
