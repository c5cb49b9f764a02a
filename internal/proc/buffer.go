package proc

import (
	"slices"
	"sync"
)

// Keep says which bytes a [Buffer] keeps when there are too many.
type Keep uint8

// The first bytes, or the last.
const (
	KeepHead Keep = iota
	KeepTail
)

// Buffers is a [Sink] that keeps each stream up to a limit and drops the rest,
// while the program runs on.
type Buffers struct {
	Out, Err Buffer
}

// NewBuffers makes buffers of at most limit bytes for each stream. They grow
// as they fill.
func NewBuffers(limit int, keep Keep) *Buffers {
	limit = max(limit, 0)
	return &Buffers{Out: Buffer{limit: limit, keep: keep}, Err: Buffer{limit: limit, keep: keep}}
}

func (b *Buffers) take(s Stream, blk *block, n int) bool {
	if s == Stderr {
		b.Err.write(blk[:n])
	} else {
		b.Out.write(blk[:n])
	}
	return false
}

func (b *Buffers) exited() {}

func (b *Buffers) end() {
	b.Out.end()
	b.Err.end()
}

func (b *Buffers) lasting() bool { return false }

// Buffer holds the first or the last bytes of one stream.
type Buffer struct {
	limit int
	keep  Keep

	mu    sync.Mutex
	data  []byte
	at    int // KeepTail and full: where the oldest byte is
	total int64
	ended bool
}

func (b *Buffer) write(p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.total += int64(len(p))
	fits := min(len(p), b.limit-len(b.data))
	if b.keep == KeepHead {
		b.data = append(b.data, p[:fits]...)
		return
	}
	if over := len(p) - b.limit; over > 0 {
		p = p[over:]
		fits = min(len(p), b.limit-len(b.data))
	}
	b.data = append(b.data, p[:fits]...)
	for p = p[fits:]; len(p) > 0; {
		n := copy(b.data[b.at:], p)
		b.at = (b.at + n) % b.limit
		p = p[n:]
	}
}

func (b *Buffer) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// Total is the number of bytes the program wrote to the stream, kept or not.
func (b *Buffer) Total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// Truncated says that bytes were dropped.
func (b *Buffer) Truncated() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total > int64(len(b.data))
}

// Bytes is what was kept. Where bytes were dropped, the cut is moved to the
// border of a character. Once the process is done the slice does not change;
// before, it is a copy of what there is so far.
func (b *Buffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := b.total > int64(len(b.data))
	if b.at > 0 {
		b.data = append(append(make([]byte, 0, len(b.data)), b.data[b.at:]...), b.data[:b.at]...)
		b.at = 0
	}
	data := b.data
	switch {
	case cut && b.keep == KeepHead:
		data = data[:Whole(data)]
	case cut:
		data = data[afterTail(data):]
	}
	if !b.ended {
		data = append([]byte(nil), data...)
	}
	return slices.Clip(data)
}

// afterTail skips what is left of a character whose beginning was dropped.
func afterTail(b []byte) int {
	for i := 0; i < min(3, len(b)); i++ {
		if b[i]&0xC0 != 0x80 {
			return i
		}
	}
	if len(b) > 3 && b[3]&0xC0 == 0x80 {
		return 0 // no character has four of these: leave odd bytes as they are
	}
	return min(3, len(b))
}
