package endpoints

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
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

// conditions are the headers that make a request depend on what is there.
// Those that are missing, or dates that cannot be read, are nil or zero.
type conditions struct {
	match, noneMatch               tags
	unmodifiedSince, modifiedSince time.Time
}

func readConditions(h http.Header) *conditions {
	c := &conditions{match: parseTags(h.Values("If-Match")), noneMatch: parseTags(h.Values("If-None-Match"))}
	c.unmodifiedSince, _ = http.ParseTime(h.Get("If-Unmodified-Since"))
	c.modifiedSince, _ = http.ParseTime(h.Get("If-Modified-Since"))
	return c
}

// holds tells whether what is there is what the caller knows.
func (c *conditions) holds(now version) bool {
	switch {
	case c.match != nil:
		return c.match.strongly(now)
	case !c.unmodifiedSince.IsZero() && now.exists:
		return !now.modified.Truncate(time.Second).After(c.unmodifiedSince)
	}
	return true
}

// unchanged tells whether a reader has what is there already.
func (c *conditions) unchanged(now version) bool {
	switch {
	case c.noneMatch != nil:
		return c.noneMatch.weakly(now)
	case !c.modifiedSince.IsZero():
		return !now.modified.Truncate(time.Second).After(c.modifiedSince)
	}
	return false
}

// ifRange tells whether a range is still wanted.
func ifRange(header string, now version) bool {
	if header = strings.TrimSpace(header); header == "" {
		return true
	}
	if t, err := http.ParseTime(header); err == nil {
		return t.Equal(now.modified.Truncate(time.Second))
	}
	return tags{header}.strongly(now)
}

// tags is a list of entity tags, as written; nil is no list.
type tags []string

// parseTags reads a list of tags, or "*". What is no tag by the grammar stays
// in the list and is equal to none, so that a condition never holds by mistake
// of writing it down.
func parseTags(lines []string) tags {
	if len(lines) == 0 {
		return nil
	}
	out := tags{}
	for rest := strings.Join(lines, ","); rest != ""; {
		rest = strings.TrimLeft(rest, " \t,")
		end := len(rest)
		start := 0
		if strings.HasPrefix(rest, "W/") {
			start = 2
		}
		if strings.HasPrefix(rest[start:], `"`) { // commas belong to the tag
			if i := strings.IndexByte(rest[start+1:], '"'); i >= 0 {
				start += i + 2
			}
		}
		if i := strings.IndexByte(rest[start:], ','); i >= 0 {
			end = start + i
		}
		if tag := strings.Trim(rest[:end], " \t"); tag != "" {
			out = append(out, tag)
		}
		rest = rest[end:]
	}
	return out
}

// strongly tells whether one of the tags stands for the very same bytes.
func (t tags) strongly(now version) bool {
	return t.any(now, func(tag string) bool { return tag == now.tag && !strings.HasPrefix(tag, "W/") })
}

// weakly tells whether one of the tags stands for the same content.
func (t tags) weakly(now version) bool {
	return t.any(now, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(now.tag, "W/") })
}

func (t tags) any(now version, same func(string) bool) bool {
	if !now.exists {
		return false
	}
	for _, tag := range t {
		if tag == "*" || same(tag) {
			return true
		}
	}
	return false
}
