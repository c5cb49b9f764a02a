package endpoints

import (
	"math"
	"strconv"
	"strings"
)

// span is a run of bytes of a file.
type span struct{ from, n int64 }

// of is the Content-Range of a span that is not empty.
func (s span) of(size int64) string {
	return "bytes " + strconv.FormatInt(s.from, 10) + "-" + strconv.FormatInt(s.from+s.n-1, 10) + "/" + strconv.FormatInt(size, 10)
}

// rangeKind says what a Range header asks for.
type rangeKind uint8

const (
	wholeRange         rangeKind = iota // no range, several, or nothing we understand
	partialRange                        // one range
	unsatisfiableRange                  // one range that has no byte of the file
)

// parseRange reads a Range header for a file of a size. What is not exactly
// one well-formed range of bytes asks for the whole file.
func parseRange(header string, size int64) (span, rangeKind) {
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return span{}, wholeRange
	}
	first, last, ok := strings.Cut(strings.Trim(set, " \t"), "-")
	if !ok {
		return span{}, wholeRange
	}
	from, hasFrom := position(first)
	to, hasTo := position(last)
	switch {
	case first == "" && hasTo: // the last so many bytes
		if to == 0 {
			return span{}, unsatisfiableRange
		}
		if size == 0 {
			return span{}, wholeRange // no Content-Range can say "all of nothing"
		}
		n := min(to, size)
		return span{size - n, n}, partialRange
	case !hasFrom || last != "" && !hasTo || last != "" && to < from:
		return span{}, wholeRange
	case from >= size:
		return span{}, unsatisfiableRange
	case last == "":
		to = size - 1
	}
	to = min(to, size-1)
	return span{from, to - from + 1}, partialRange
}

// position reads a number of digits; one too large for us is as good as the
// largest.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}
