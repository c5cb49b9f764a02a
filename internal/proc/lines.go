package proc

import "bytes"

// MaxLine is the longest line that [Lines] gives out whole, in bytes without
// its "\n".
const MaxLine = 1 << 20

// Lines cuts one stream into lines. The zero Lines is ready for use.
type Lines struct {
	part []byte // an unfinished line
}

// Feed calls emit for each line that data completes, without its "\n". A line
// longer than MaxLine comes in pieces of at most MaxLine, cut between
// characters; partial is true for all but the last. line is valid until emit
// returns. The first error of emit ends the call and is returned; the rest of
// data is lost then.
func (l *Lines) Feed(data []byte, emit func(line []byte, partial bool) error) error {
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		line := data[:i]
		data = data[i+1:]
		if len(l.part) > 0 {
			l.part = append(l.part, line...)
			if err := l.long(emit); err != nil {
				return err
			}
			line = l.part
			l.part = l.part[:0]
		}
		for len(line) > MaxLine { // only when data itself is that long
			n := cut(line)
			if err := emit(line[:n], true); err != nil {
				return err
			}
			line = line[n:]
		}
		if err := emit(line, false); err != nil {
			return err
		}
	}
	if len(l.part) == 0 && cap(l.part) > blockSize {
		l.part = nil // one long line must not cost its memory for ever
	}
	l.part = append(l.part, data...)
	return l.long(emit)
}

// long gives out the beginning of a line that grew too long.
func (l *Lines) long(emit func([]byte, bool) error) error {
	rest := l.part
	for len(rest) > MaxLine {
		n := cut(rest)
		if err := emit(rest[:n], true); err != nil {
			return err
		}
		rest = rest[n:]
	}
	if len(rest) < len(l.part) {
		l.part = l.part[:copy(l.part, rest)]
	}
	return nil
}

func cut(line []byte) int {
	if n := Whole(line[:MaxLine]); n > 0 {
		return n
	}
	return MaxLine
}

// Flush gives out a last line that has no "\n", if there is one.
func (l *Lines) Flush(emit func(line []byte, partial bool) error) error {
	if len(l.part) == 0 {
		return nil
	}
	line := l.part
	l.part = nil
	return emit(line, false)
}
