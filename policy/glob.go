package policy

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Glob is a compiled pattern over whole strings: `*` is any run of characters,
// `/` included, `?` any one character, `[abc]`, `[a-z]` and `[!abc]` one
// character of a set or outside it. `**` means `*`, `[^a]` is the set of `^`
// and `a`, an unclosed `[` is an ordinary character, and nothing escapes.
//
// Comparison is exact: no case folding, no Unicode normalisation. A character
// is one UTF-8 sequence, or one byte that belongs to none.
//
// A Glob is safe for concurrent use. The zero Glob matches the empty string.
// Matching a string of n bytes against a pattern of m characters takes at most
// about n·m steps, however many stars the pattern has: nothing backtracks.
type Glob struct {
	// The runs of characters between stars. A pattern without a star has one.
	segments []segment
}

// A segment is a piece of a pattern without a star: it takes a fixed number
// of characters.
type segment struct {
	// plain is set when every item is a literal and the text is valid UTF-8.
	// Then text can be searched for bytewise: a valid sequence is never found
	// inside another one.
	plain bool
	text  string
	items []item
}

type item struct {
	any bool
	lit char
	set *charSet
}

// A char is a code point, or for a byte that is part of no UTF-8 sequence
// that byte above all code points.
type char rune

const strayByte char = unicode.MaxRune + 1

type charSet struct {
	negated bool
	fold    bool
	ranges  []charRange
}

type charRange struct{ lo, hi char }

// CompileGlob compiles a pattern. Every string is a pattern.
func CompileGlob(pattern string) Glob { return compileGlob(pattern, false) }

// compileGlob with fold makes a pattern for strings that went through [fold].
func compileGlob(pattern string, fold bool) Glob {
	var g Glob
	var seg segment
	var text strings.Builder
	flush := func() {
		seg.text = text.String()
		seg.plain = !slices.ContainsFunc(seg.items, func(it item) bool { return it.any || it.set != nil }) &&
			utf8.ValidString(seg.text)
		g.segments = append(g.segments, seg)
		seg = segment{}
		text.Reset()
	}
	for i := 0; i < len(pattern); {
		c, size := charAt(pattern, i)
		raw := pattern[i : i+size]
		i += size
		switch c {
		case '*':
			// Neighbouring stars are one: no empty segment between them.
			if len(g.segments) == 0 || len(seg.items) > 0 {
				flush()
			}
			continue
		case '?':
			seg.items = append(seg.items, item{any: true})
			continue
		case '[':
			if set, next, ok := parseSet(pattern, i); ok {
				set.fold = fold
				seg.items = append(seg.items, item{set: set})
				i = next
				continue
			}
		}
		if fold {
			c = foldChar(c)
			if c < strayByte {
				raw = string(rune(c))
			}
		}
		seg.items = append(seg.items, item{lit: c})
		text.WriteString(raw)
	}
	flush()
	return g
}

// parseSet reads the set whose `[` ends before i. It fails when no `]` closes it.
func parseSet(pattern string, i int) (set *charSet, next int, ok bool) {
	set = &charSet{}
	if strings.HasPrefix(pattern[i:], "!") {
		set.negated = true
		i++
	}
	// A `]` in first place is a member, not the end.
	search := i
	if strings.HasPrefix(pattern[i:], "]") {
		search++
	}
	n := strings.IndexByte(pattern[search:], ']')
	if n < 0 {
		return nil, 0, false
	}
	end := search + n
	for i < end {
		lo, size := charAt(pattern, i)
		i += size
		hi := lo
		if i+1 < end && pattern[i] == '-' {
			hi, size = charAt(pattern, i+1)
			i += 1 + size
		}
		if lo <= hi { // a range backwards holds nothing
			set.ranges = append(set.ranges, charRange{lo, hi})
		}
	}
	return set, end + 1, true
}

// Match tells whether the pattern matches the whole of s.
func (g Glob) Match(s string) bool {
	head, mid, last, starred := g.parts()
	i, ok := head.at(s, 0)
	if !ok || !starred {
		return ok && i == len(s)
	}
	tail, ok := last.atEnd(s)
	if !ok || tail < i {
		return false
	}
	for k := range mid {
		if _, i, ok = mid[k].find(s[:tail], i); !ok {
			return false
		}
	}
	return true
}

// matchAncestor tells whether the pattern matches the path s or one of its
// ancestors: a prefix of s that ends before a slash.
func (g Glob) matchAncestor(s string) bool {
	head, mid, last, starred := g.parts()
	i, ok := head.at(s, 0)
	if !ok || !starred {
		return ok && atBoundary(s, i)
	}
	for k := range mid {
		if _, i, ok = mid[k].find(s, i); !ok {
			return false
		}
	}
	if len(last.items) == 0 {
		return true // the star takes all the rest
	}
	for {
		start, end, ok := last.find(s, i)
		if !ok || atBoundary(s, end) {
			return ok
		}
		_, size := charAt(s, start)
		i = start + size
	}
}

func atBoundary(s string, i int) bool { return i == len(s) || s[i] == '/' }

// parts splits the segments into the anchored first, the floating ones, and
// the anchored last. Without a star there is only the first.
func (g Glob) parts() (head segment, mid []segment, last segment, starred bool) {
	n := len(g.segments)
	switch n {
	case 0:
		return segment{plain: true}, nil, segment{}, false
	case 1:
		return g.segments[0], nil, segment{}, false
	}
	return g.segments[0], g.segments[1 : n-1], g.segments[n-1], true
}

// at matches the segment at offset i and returns where it ends.
func (p *segment) at(s string, i int) (end int, ok bool) {
	if p.plain {
		if !strings.HasPrefix(s[i:], p.text) {
			return 0, false
		}
		return i + len(p.text), true
	}
	for _, it := range p.items {
		if i == len(s) {
			return 0, false
		}
		c, size := charAt(s, i)
		if !it.matches(c) {
			return 0, false
		}
		i += size
	}
	return i, true
}

// atEnd matches the segment against the end of s and returns where it starts.
func (p *segment) atEnd(s string) (start int, ok bool) {
	if p.plain {
		return len(s) - len(p.text), strings.HasSuffix(s, p.text)
	}
	start = len(s)
	for range p.items {
		if start == 0 {
			return 0, false
		}
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	_, ok = p.at(s, start)
	return start, ok
}

// find looks for the first place at or after i where the segment matches.
func (p *segment) find(s string, i int) (start, end int, ok bool) {
	if p.plain {
		n := strings.Index(s[i:], p.text)
		if n < 0 {
			return 0, 0, false
		}
		return i + n, i + n + len(p.text), true
	}
	for i <= len(s) {
		if end, ok := p.at(s, i); ok {
			return i, end, true
		}
		if i == len(s) {
			break
		}
		_, size := charAt(s, i)
		i += size
	}
	return 0, 0, false
}

func (it item) matches(c char) bool {
	switch {
	case it.any:
		return true
	case it.set != nil:
		return it.set.holds(c)
	}
	return it.lit == c
}

func (set *charSet) holds(c char) bool {
	in := set.lists(c)
	if set.fold && c < strayByte {
		for r := unicode.SimpleFold(rune(c)); !in && char(r) != c; r = unicode.SimpleFold(r) {
			in = set.lists(char(r))
		}
	}
	return in != set.negated
}

func (set *charSet) lists(c char) bool {
	return slices.ContainsFunc(set.ranges, func(r charRange) bool { return r.lo <= c && c <= r.hi })
}

// charAt decodes the character at offset i of s, which is not the end.
func charAt(s string, i int) (c char, size int) {
	if b := s[i]; b < utf8.RuneSelf {
		return char(b), 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == utf8.RuneError && size == 1 {
		return strayByte + char(s[i]), 1
	}
	return char(r), size
}

// fold maps strings that differ by case only onto one.
func fold(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c, size := charAt(s, i)
		if c >= strayByte {
			b.WriteString(s[i : i+size])
		} else {
			b.WriteRune(rune(foldChar(c)))
		}
		i += size
	}
	return b.String()
}

// foldChar gives the least of the characters that differ from c by case only.
func foldChar(c char) char {
	least := c
	if c >= strayByte {
		return c
	}
	for r := unicode.SimpleFold(rune(c)); char(r) != c; r = unicode.SimpleFold(r) {
		least = min(least, char(r))
	}
	return least
}
