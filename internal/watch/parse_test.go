package watch

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// record writes c as the kernel does, its name padded with zeros.
func record(buf []byte, c change) []byte {
	name := c.name
	if name != "" {
		name += strings.Repeat("\x00", 16-len(name)%16)
	}
	buf = binary.NativeEndian.AppendUint32(buf, uint32(c.wd))
	buf = binary.NativeEndian.AppendUint32(buf, c.mask)
	buf = binary.NativeEndian.AppendUint32(buf, c.cookie)
	buf = binary.NativeEndian.AppendUint32(buf, uint32(len(name)))
	return append(buf, name...)
}

func TestChangesReadWhatTheKernelWrites(t *testing.T) {
	want := []change{
		{wd: 1, mask: unix.IN_CREATE | unix.IN_ISDIR, name: "d", at: 7},
		{wd: -1, mask: unix.IN_Q_OVERFLOW, at: 7},
		{wd: 1 << 30, mask: unix.IN_MOVED_TO, cookie: 1 << 31, name: strings.Repeat("\xff", 255), at: 7},
		{wd: 1, mask: unix.IN_DELETE, name: "sixteen-letters!", at: 7},
	}
	var buf []byte
	for _, c := range want {
		buf = record(buf, c)
	}
	compare := cmp.AllowUnexported(change{})
	if d := cmp.Diff(want, slices.Collect(changes(buf, 7)), compare); d != "" {
		t.Error(d)
	}
	for cut := range buf { // a record cut short is not an event
		got := slices.Collect(changes(buf[:cut], 7))
		if len(got) == len(want) || len(got) > 0 && !cmp.Equal(want[:len(got)], got, compare) {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
}

// slowChanges is the obvious version, by the kernel's struct.
func slowChanges(buf []byte) (all []change) {
	for len(buf) >= unix.SizeofInotifyEvent {
		var e unix.InotifyEvent
		if binary.Read(bytes.NewReader(buf), binary.NativeEndian, &e) != nil {
			break
		}
		end := int64(unix.SizeofInotifyEvent) + int64(e.Len)
		if end > int64(len(buf)) {
			break
		}
		name := buf[unix.SizeofInotifyEvent:end]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		all = append(all, change{wd: e.Wd, mask: e.Mask, cookie: e.Cookie, name: string(name)})
		buf = buf[end:]
	}
	return all
}

func FuzzChanges(f *testing.F) {
	f.Add([]byte{})
	f.Add(record(record(nil, change{wd: 3, mask: unix.IN_CREATE, name: "f"}), change{wd: 3, mask: unix.IN_IGNORED}))
	f.Add(record(nil, change{wd: -1, mask: unix.IN_Q_OVERFLOW})[:15])
	f.Add(bytes.Repeat([]byte{0xff}, 40))
	f.Fuzz(func(t *testing.T, buf []byte) {
		got := slices.Collect(changes(buf, 0))
		if d := cmp.Diff(slowChanges(buf), got, cmp.AllowUnexported(change{})); d != "" {
			t.Error(d)
		}
	})
}
