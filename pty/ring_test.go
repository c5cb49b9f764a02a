package pty

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestRingAgainstSlice holds the ring against a plain slice of all bytes.
func TestRingAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 3*ringMin).Draw(t, "max")
		r := ring{max: size}
		var all []byte
		next := byte(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			p := make([]byte, rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 2*size)).Draw(t, "n"))
			for i := range p {
				p[i] = next
				next = next*5 + 1
			}
			r.write(p)
			all = append(all, p...)
			if rapid.IntRange(0, 9).Draw(t, "trim") == 0 {
				r.trim()
			}

			start := max(0, len(all)-size)
			if r.start != int64(start) || r.end != int64(len(all)) {
				t.Fatalf("[%d, %d) is kept, want [%d, %d)", r.start, r.end, start, len(all))
			}
			if len(r.buf) > size {
				t.Fatalf("%d bytes of memory for a ring of %d", len(r.buf), size)
			}
			off := rapid.Int64Range(-5, int64(len(all))+5).Draw(t, "off")
			buf := make([]byte, rapid.IntRange(0, size+5).Draw(t, "len"))
			from, n := r.read(off, buf)
			wantFrom := min(max(off, int64(start)), int64(len(all)))
			want := all[wantFrom:min(wantFrom+int64(len(buf)), int64(len(all)))]
			if from != wantFrom || !bytes.Equal(buf[:n], want) {
				t.Fatalf("read(%d) of %d is %d bytes at %d, want %d at %d", off, len(buf), n, from, len(want), wantFrom)
			}
		}
	})
}

// TestRingGrowsAsItFills: an idle session must not cost its scrollback.
func TestRingGrowsAsItFills(t *testing.T) {
	r := ring{max: DefaultScrollback}
	r.write([]byte("$ "))
	if len(r.buf) > ringMin {
		t.Errorf("a prompt takes %d bytes", len(r.buf))
	}
	r.write(make([]byte, 10<<20))
	if len(r.buf) != DefaultScrollback {
		t.Errorf("a full ring takes %d bytes", len(r.buf))
	}
}
