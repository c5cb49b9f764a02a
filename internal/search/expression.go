package search

import (
	"bytes"
	"context"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// Expression is a compiled search for content. It is safe for concurrent use.
type Expression struct {
	re        *regexp.Regexp
	multiline bool
	once      bool // a match must begin at the start of the text
	needles   []needle
}

// ExpressionOptions say how a text is to be read.
type ExpressionOptions struct {
	Literal    bool // the text itself, no expression
	IgnoreCase bool
	Multiline  bool // matches may span lines; else each line is a text of its own
}

// Bounds on expressions. Matching takes time in proportion to the size of the
// program, which a few characters can make huge.
const (
	maxExpression = 8192 // bytes
	maxProgram    = 4000 // about instructions
)

var (
	errTooLong  = errors.New("the expression is longer than 8192 bytes")
	errTooLarge = errors.New("the expression repeats too much")
)

// CompileExpression compiles an RE2 expression. Its errors are the caller's
// mistakes and fit to be shown.
func CompileExpression(text string, o ExpressionOptions) (*Expression, error) {
	if len(text) > maxExpression {
		return nil, errTooLong
	}
	if o.Literal {
		text = regexp.QuoteMeta(text)
	}
	flags := ""
	if o.IgnoreCase {
		flags += "i"
	}
	if o.Multiline {
		flags += "m"
	}
	if flags != "" {
		text = "(?" + flags + ")" + text
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if weight(tree) > maxProgram {
		return nil, errTooLarge
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &Expression{re: re, multiline: o.Multiline, once: o.Multiline && anchored(tree), needles: needlesOf(tree)}, nil
}

// weight is about how many instructions a tree becomes, saturating.
func weight(re *syntax.Regexp) int {
	const most = 1 << 20
	n := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		n = 1 + len(re.Rune)/8
	}
	for _, sub := range re.Sub {
		n = min(most, n+weight(sub))
	}
	if re.Op == syntax.OpRepeat {
		n = min(most, n*max(1, re.Min, re.Max))
	}
	return n
}

// anchored tells whether an expression looks at the start of the text, which
// is lost when the search goes on behind a match.
func anchored(re *syntax.Regexp) bool {
	if re.Op == syntax.OpBeginText {
		return true
	}
	return slices.ContainsFunc(re.Sub, anchored)
}

// Match is one place where an expression was found.
type Match struct {
	Line   int // from 1
	Column int // from 1, in characters
	// The lines of the match, those before and those after, without their
	// ends. Bytes need not be UTF-8.
	Text          []byte
	Before, After [][]byte
	Cut           bool // a line was longer than is shown
}

// scanOptions bound the matches of one file.
type scanOptions struct {
	before, after int
	most          int // matches
	room          int // bytes of lines
}

const (
	shownLine = 2000     // characters of a line that are shown
	longLine  = 16 << 10 // bytes; matching more than this in one go must be able to end early
)

// scan finds the expression in a text, one match in a line. full tells that
// there was no room for all lines. It ends early when ctx does. What it
// returns is no part of text.
func (x *Expression) scan(ctx context.Context, text []byte, o scanOptions) (found []Match, full bool) {
	find := newFinder(text, x.needles)
	line, counted := 1, 0 // the line number at offset counted
	for pos := 0; pos < len(text) && len(found) < o.most; {
		start, end, column, ok := x.next(ctx, find, pos)
		if !ok || ctx.Err() != nil {
			break
		}
		if column >= 0 {
			line += bytes.Count(text[counted:start], newline)
			counted = start
			m := cutOut(text, start, end, o)
			m.Line, m.Column = line, utf8.RuneCount(text[start:column])+1
			if o.room -= m.size(); o.room < 0 {
				return found, true
			}
			found = append(found, m)
		}
		pos = end + 1
	}
	return found, false
}

var newline = []byte{'\n'}

// next looks at the next line from pos on that may have a match, or in
// multiline mode at all that is left. It returns where the lines begin and end
// and where in them the match is, -1 when there is none; ok is false when
// nothing is left. pos is the start of a line.
func (x *Expression) next(ctx context.Context, find *finder, pos int) (start, end, column int, ok bool) {
	text := find.text
	place, ok := find.next(pos)
	if !ok {
		return 0, 0, 0, false
	}
	if x.multiline {
		if x.once && pos > 0 {
			return 0, 0, 0, false
		}
		from, to, found := x.match(ctx, text[pos:])
		if !found {
			return 0, 0, 0, false
		}
		from, to = pos+from, pos+to
		if to > from && text[to-1] == '\n' {
			to-- // an end of line that was matched shows no further line
		}
		start = lineStart(text, pos, from)
		return start, lineEnd(text, max(to, from)), from, start < len(text)
	}
	start, end = lineStart(text, pos, place), lineEnd(text, place)
	column, _, found := x.match(ctx, bytes.TrimSuffix(text[start:end], []byte{'\r'}))
	if !found {
		return start, end, -1, true
	}
	return start, end, start + column, true
}

func lineStart(text []byte, pos, at int) int {
	return pos + bytes.LastIndexByte(text[pos:at], '\n') + 1
}

func lineEnd(text []byte, i int) int { return at(text, min(i, len(text)), '\n') }

// match finds the first match in a text.
func (x *Expression) match(ctx context.Context, text []byte) (from, to int, ok bool) {
	var loc []int
	if len(text) <= longLine {
		loc = x.re.FindIndex(text)
	} else {
		loc = x.re.FindReaderIndex(&runes{ctx: ctx, text: text})
	}
	if loc == nil {
		return 0, 0, false
	}
	return loc[0], loc[1], true
}

// runes gives a text to the matcher until ctx ends: matching by itself cannot
// be stopped.
type runes struct {
	ctx  context.Context
	text []byte
	n    int
}

// ReadRune implements [io.RuneReader].
func (r *runes) ReadRune() (rune, int, error) {
	if r.n++; r.n%4096 == 0 && r.ctx.Err() != nil || len(r.text) == 0 {
		return 0, 0, io.EOF
	}
	c, size := rune(r.text[0]), 1
	if c >= utf8.RuneSelf {
		c, size = utf8.DecodeRune(r.text)
	}
	r.text = r.text[size:]
	return c, size, nil
}

// cutOut copies the lines of a match and those around it.
func cutOut(text []byte, start, end int, o scanOptions) Match {
	var m Match
	m.Text = m.shown(text[start:end])
	from := start
	for range o.before {
		if from == 0 {
			break
		}
		to := from - 1
		from = bytes.LastIndexByte(text[:to], '\n') + 1
		m.Before = append(m.Before, m.shown(text[from:to]))
	}
	for i, j := 0, len(m.Before)-1; i < j; i, j = i+1, j-1 {
		m.Before[i], m.Before[j] = m.Before[j], m.Before[i]
	}
	for range o.after {
		if end+1 >= len(text) {
			break
		}
		from := end + 1
		end = lineEnd(text, from)
		m.After = append(m.After, m.shown(text[from:end]))
	}
	return m
}

// shown is a copy of as much of a line as is shown.
func (m *Match) shown(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	n := 0
	for i := 0; i < shownLine && n < len(line); i++ {
		if line[n] < utf8.RuneSelf {
			n++
			continue
		}
		_, size := utf8.DecodeRune(line[n:])
		n += size
	}
	m.Cut = m.Cut || n < len(line)
	return bytes.Clone(line[:n])
}

// size is about what a match holds in memory.
func (m *Match) size() int {
	const each = 64
	n := each + len(m.Text)
	for _, lines := range [][][]byte{m.Before, m.After} {
		for _, l := range lines {
			n += each + len(l)
		}
	}
	return n
}
