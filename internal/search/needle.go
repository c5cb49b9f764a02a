package search

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// needle is a text of which one of a set is in whatever an expression matches.
// Looking for needles first is what makes most searches as fast as reading.
type needle struct {
	text []byte
	fold bool // ASCII case is not compared; text is in lower case
}

const maxNeedles = 16

// needlesOf returns texts one of which every match contains; nil when nothing
// can be said.
func needlesOf(re *syntax.Regexp) []needle {
	switch re.Op {
	case syntax.OpLiteral:
		if n, ok := literalNeedle(re); ok {
			return []needle{n}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return needlesOf(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return needlesOf(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []needle
		for _, sub := range re.Sub {
			if set := needlesOf(sub); shortest(set) > shortest(best) {
				best = set
			}
		}
		return best
	case syntax.OpAlternate:
		var all []needle
		for _, sub := range re.Sub {
			set := needlesOf(sub)
			if set == nil || len(all)+len(set) > maxNeedles {
				return nil
			}
			all = append(all, set...)
		}
		return all
	}
	return nil
}

func shortest(set []needle) int {
	if len(set) == 0 {
		return 0
	}
	n := len(set[0].text)
	for _, s := range set[1:] {
		n = min(n, len(s.text))
	}
	return n
}

func literalNeedle(re *syntax.Regexp) (needle, bool) {
	if re.Flags&syntax.FoldCase != 0 {
		text := foldable(re.Rune)
		return needle{text, true}, len(text) > 0
	}
	if slices.Contains(re.Rune, utf8.RuneError) {
		return needle{}, false // bytes that are not UTF-8 match it
	}
	return needle{[]byte(string(re.Rune)), false}, len(re.Rune) > 0
}

// foldable is the longest run of characters whose only other case is ASCII too;
// k and s have a third form outside.
func foldable(runes []rune) []byte {
	var best, run []byte
	for _, r := range runes {
		if r >= utf8.RuneSelf || r == 'k' || r == 'K' || r == 's' || r == 'S' {
			run = nil
			continue
		}
		run = append(run, lower(byte(r)))
		if len(run) > len(best) {
			best = bytes.Clone(run)
		}
	}
	return best
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// index finds the needle in b.
func (n needle) index(b []byte) int {
	if !n.fold {
		return bytes.Index(b, n.text)
	}
	first := n.text[0]
	other := first
	if 'a' <= first && first <= 'z' {
		other = first - 'a' + 'A'
	}
	low, up := at(b, 0, first), at(b, 0, other)
	for {
		i := min(low, up)
		if i+len(n.text) > len(b) {
			return -1
		}
		if n.equals(b[i:]) {
			return i
		}
		if low == i {
			low = at(b, i+1, first)
		}
		if up == i {
			up = at(b, i+1, other)
		}
	}
}

func (n needle) equals(b []byte) bool {
	for i, c := range n.text {
		if lower(b[i]) != c {
			return false
		}
	}
	return true
}

// at is the first place of c in b from i on, len(b) when there is none.
func at(b []byte, i int, c byte) int {
	if j := bytes.IndexByte(b[i:], c); j >= 0 {
		return i + j
	}
	return len(b)
}

// finder walks through a text from needle to needle.
type finder struct {
	text    []byte
	needles []needle
	ahead   []int // where each needle is next; len(text) when nowhere
}

func newFinder(text []byte, needles []needle) *finder {
	f := &finder{text: text, needles: needles, ahead: make([]int, len(needles))}
	for i := range f.ahead {
		f.ahead[i] = -1
	}
	return f
}

// next is the first place from pos on where a match may be: a needle, or pos
// itself where there are none to look for. It never goes back.
func (f *finder) next(pos int) (int, bool) {
	if len(f.needles) == 0 {
		return pos, pos < len(f.text)
	}
	first := len(f.text)
	for i, n := range f.needles {
		if f.ahead[i] < pos {
			f.ahead[i] = len(f.text)
			if j := n.index(f.text[pos:]); j >= 0 {
				f.ahead[i] = pos + j
			}
		}
		first = min(first, f.ahead[i])
	}
	return first, first < len(f.text)
}
