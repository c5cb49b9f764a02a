package proc

import (
	"sync"
	"unicode/utf8"
)

// Stream is one of the two outputs of a program.
type Stream uint8

// The two outputs.
const (
	Stdout Stream = iota
	Stderr
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Sink takes what a program prints. [Buffers], [Log] and [Feed] are the sinks
// there are; each belongs to one start.
type Sink interface {
	// take is given n bytes of a block and says whether it keeps the block.
	// It may wait to slow the program down.
	take(s Stream, b *block, n int) (kept bool)
	// exited tells that the program has ended and that all it wrote is here.
	exited()
	// end tells that nothing more will come; a take that waits or comes later
	// drops what it has.
	end()
	// lasting sinks are filled to end of file, whoever holds the pipe.
	lasting() bool
}

// blockSize is the largest piece that is read from a pipe at once, and what a
// pipe holds by default.
const blockSize = 64 << 10

type block [blockSize]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

func getBlock() *block  { return blocks.Get().(*block) }
func putBlock(b *block) { blocks.Put(b) }

// Whole returns how many bytes of b can be shown without cutting its last
// character: len(b), or less when b ends in the beginning of a UTF-8 sequence.
// Bytes that can never become a character are not held back.
func Whole(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		at := len(b) - back
		if !utf8.RuneStart(b[at]) {
			continue
		}
		if b[at] >= utf8.RuneSelf && !utf8.FullRune(b[at:]) {
			return at
		}
		break
	}
	return len(b)
}
