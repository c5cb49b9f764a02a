package api

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"unicode/utf8"
)

// maxDepth is the deepest nesting a request body may have.
const maxDepth = 1000

// scanner reads one JSON text strictly (RFC 8259, valid UTF-8, an optional
// byte order mark), either from memory or from a stream. Strings come out as
// bytes: a \udcNN escape stands for the raw byte NN, which is how file names
// that are not UTF-8 travel; any other lone surrogate is kept in its
// three-byte form so that who cares can refuse it.
type scanner struct {
	buf   []byte
	pos   int
	src   io.Reader // nil when the text is wholly in buf
	base  int64     // offset of buf[0] in the text
	begun bool

	most int // values that may be held; 0: any number
	made int
}

// syntaxError is malformed JSON, as opposed to a failing source.
type syntaxError struct {
	off int64
	msg string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at offset %d", e.msg, e.off) }

func scanBytes(text []byte) *scanner { return &scanner{buf: text} }

const scanWindow = 64 << 10

func scanStream(r io.Reader) *scanner {
	return &scanner{buf: make([]byte, 0, scanWindow), src: r}
}

func (s *scanner) fail(format string, args ...any) error {
	return &syntaxError{s.base + int64(s.pos), fmt.Sprintf(format, args...)}
}

// more makes at least one unread byte available, or returns io.EOF.
func (s *scanner) more() error {
	if s.pos < len(s.buf) {
		return nil
	}
	if s.src == nil {
		return io.EOF
	}
	s.base += int64(len(s.buf))
	s.buf, s.pos = s.buf[:0], 0
	for range 100 {
		n, err := s.src.Read(s.buf[:cap(s.buf)])
		s.buf = s.buf[:n]
		if n > 0 {
			return nil // an error comes again with the next read
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// peek returns the next byte without taking it.
func (s *scanner) peek() (byte, error) {
	if err := s.more(); err != nil {
		return 0, err
	}
	return s.buf[s.pos], nil
}

// need is peek where the text may not end.
func (s *scanner) need() (byte, error) {
	c, err := s.peek()
	if errors.Is(err, io.EOF) {
		return 0, s.fail("unexpected end")
	}
	return c, err
}

func (s *scanner) space() error {
	for {
		c, err := s.peek()
		if err != nil {
			return err
		}
		switch c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return nil
		}
	}
}

// token skips white space and returns the first byte of the next token.
func (s *scanner) token() (byte, error) {
	if !s.begun {
		s.begun = true
		if err := s.bom(); err != nil {
			return 0, err
		}
	}
	if err := s.space(); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, s.fail("unexpected end")
		}
		return 0, err
	}
	return s.buf[s.pos], nil
}

func (s *scanner) bom() error {
	c, err := s.peek()
	if err != nil || c != 0xEF {
		return nil // the caller meets the same error at once
	}
	for _, want := range []byte{0xEF, 0xBB, 0xBF} {
		c, err := s.need()
		if err != nil {
			return err
		}
		if c != want {
			return s.fail("invalid character")
		}
		s.pos++
	}
	return nil
}

// end checks that nothing but white space follows, and reads it: a stream is
// then at its end, which is what lets the server notice a peer that leaves.
func (s *scanner) end() error {
	switch err := s.space(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return s.fail("unexpected text after the value")
}

// object reads an object and calls member for each name, which must read the
// value.
func (s *scanner) object(depth int, member func(name string) error) error {
	if depth > maxDepth {
		return s.fail("nesting deeper than %d", maxDepth)
	}
	s.pos++ // the brace
	c, err := s.token()
	if err != nil {
		return err
	}
	if c == '}' {
		s.pos++
		return nil
	}
	for {
		if c, err = s.token(); err != nil {
			return err
		}
		if c != '"' {
			return s.fail("expected a member name")
		}
		name, err := s.name()
		if err != nil {
			return err
		}
		if c, err = s.token(); err != nil {
			return err
		}
		if c != ':' {
			return s.fail("expected ':'")
		}
		s.pos++
		if _, err = s.token(); err != nil {
			return err
		}
		if err = member(name); err != nil {
			return err
		}
		if more, err := s.another('}'); err != nil || !more {
			return err
		}
	}
}

// array reads an array and calls item at the start of each value.
func (s *scanner) array(depth int, item func() error) error {
	if depth > maxDepth {
		return s.fail("nesting deeper than %d", maxDepth)
	}
	s.pos++ // the bracket
	c, err := s.token()
	if err != nil {
		return err
	}
	if c == ']' {
		s.pos++
		return nil
	}
	for {
		if _, err = s.token(); err != nil {
			return err
		}
		if err = item(); err != nil {
			return err
		}
		if more, err := s.another(']'); err != nil || !more {
			return err
		}
	}
}

// maxMember bounds the name of a member, which is held in memory even where
// the text is not.
const maxMember = 64 << 10

func (s *scanner) name() (string, error) { return s.shortText(maxMember) }

// another reads what follows a value of an object or array: a comma and so
// another one, or the closing byte.
func (s *scanner) another(closing byte) (more bool, err error) {
	c, err := s.token()
	if err != nil {
		return false, err
	}
	if c != ',' && c != closing {
		return false, s.fail("expected ',' or '%c'", closing)
	}
	s.pos++
	return c == ',', nil
}

// text reads a string that starts here into memory.
func (s *scanner) text() (string, error) { return s.shortText(math.MaxInt) }

// shortText is text for strings of at most so many bytes.
func (s *scanner) shortText(most int) (string, error) {
	// The common case needs no copy buffer: plain ASCII inside the window.
	for i := s.pos + 1; i < len(s.buf); i++ {
		c := s.buf[i]
		if c == '"' {
			v := string(s.buf[s.pos+1 : i])
			s.pos = i + 1
			return v, nil
		}
		if c == '\\' || c < 0x20 || c >= utf8.RuneSelf {
			break
		}
	}
	var out []byte
	err := s.chunks(func(p []byte) error {
		if len(p) > most-len(out) {
			return s.fail("string too long")
		}
		out = append(out, p...)
		return nil
	})
	return string(out), err
}

// chunks reads a string that starts here and hands it over in pieces, which
// are valid until the next one.
func (s *scanner) chunks(put func([]byte) error) error {
	s.pos++ // the quote
	var esc [utf8.UTFMax * 2]byte
	for {
		if err := s.more(); err != nil {
			if errors.Is(err, io.EOF) {
				return s.fail("unexpected end in a string")
			}
			return err
		}
		start := s.pos
		for s.pos < len(s.buf) {
			if plain[s.buf[s.pos]] {
				s.pos++
				continue
			}
			// Characters beyond ASCII too, if they are whole in the window.
			_, n := utf8.DecodeRune(s.buf[s.pos:])
			if n < 2 {
				break
			}
			s.pos += n
		}
		if s.pos > start {
			if err := put(s.buf[start:s.pos]); err != nil {
				return err
			}
			continue
		}
		switch c := s.buf[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			s.pos++
			b, err := s.escape(esc[:0])
			if err != nil {
				return err
			}
			if err := put(b); err != nil {
				return err
			}
		case c < 0x20:
			return s.fail("control character in a string")
		default:
			b, err := s.rune(esc[:0])
			if err != nil {
				return err
			}
			if err := put(b); err != nil {
				return err
			}
		}
	}
}

// plain marks the bytes a string may hold as they are, ASCII only.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return
}()

// rune reads one character beyond ASCII.
func (s *scanner) rune(dst []byte) ([]byte, error) {
	at := s.base + int64(s.pos)
	for !utf8.FullRune(dst) || len(dst) == 0 {
		c, err := s.need()
		if err != nil {
			return nil, err
		}
		dst = append(dst, c)
		s.pos++
	}
	if r, n := utf8.DecodeRune(dst); r == utf8.RuneError && n <= 1 {
		return nil, &syntaxError{at, "invalid UTF-8"}
	}
	return dst, nil
}

// escape reads what follows a backslash.
func (s *scanner) escape(dst []byte) ([]byte, error) {
	c, err := s.need()
	if err != nil {
		return nil, err
	}
	s.pos++
	switch c {
	case '"', '\\', '/':
		return append(dst, c), nil
	case 'b':
		return append(dst, '\b'), nil
	case 'f':
		return append(dst, '\f'), nil
	case 'n':
		return append(dst, '\n'), nil
	case 'r':
		return append(dst, '\r'), nil
	case 't':
		return append(dst, '\t'), nil
	case 'u':
		u, err := s.hex4()
		if err != nil {
			return nil, err
		}
		return s.surrogates(dst, u)
	}
	s.pos--
	return nil, s.fail("invalid escape")
}

// surrogates finishes a \u escape, joining pairs. A high surrogate without its
// low one is kept; what follows it is then judged on its own.
func (s *scanner) surrogates(dst []byte, u rune) ([]byte, error) {
	for {
		if u < 0xD800 || u > 0xDBFF {
			return appendUnit(dst, u), nil
		}
		c, err := s.need()
		if err != nil {
			return nil, err
		}
		if c != '\\' {
			return appendUnit(dst, u), nil
		}
		s.pos++
		if c, err = s.need(); err != nil {
			return nil, err
		}
		if c != 'u' {
			return s.escape(appendUnit(dst, u))
		}
		s.pos++
		low, err := s.hex4()
		if err != nil {
			return nil, err
		}
		if low >= 0xDC00 && low <= 0xDFFF {
			return utf8.AppendRune(dst, 0x10000+(u-0xD800)<<10+(low-0xDC00)), nil
		}
		dst, u = appendUnit(dst, u), low
	}
}

// appendUnit appends one UTF-16 unit that is no half of a pair.
func appendUnit(dst []byte, u rune) []byte {
	switch {
	case u >= 0xDC80 && u <= 0xDCFF: // the escape of a byte that is no UTF-8
		return append(dst, byte(u))
	case u >= 0xD800 && u <= 0xDFFF:
		return append(dst, 0xE0|byte(u>>12), 0x80|byte(u>>6)&0x3F, 0x80|byte(u)&0x3F)
	}
	return utf8.AppendRune(dst, u)
}

func (s *scanner) hex4() (rune, error) {
	var u rune
	for range 4 {
		c, err := s.need()
		if err != nil {
			return 0, err
		}
		switch {
		case c >= '0' && c <= '9':
			u = u<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			u = u<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			u = u<<4 | rune(c-'A'+10)
		default:
			return 0, s.fail("invalid \\u escape")
		}
		s.pos++
	}
	return u, nil
}

// maxNumber bounds the text of one number.
const maxNumber = 1 << 20

// number reads the text of a number that starts here.
func (s *scanner) number() (Number, error) {
	var out []byte
	take := func() error {
		if len(out) >= maxNumber {
			return s.fail("number too long")
		}
		out = append(out, s.buf[s.pos])
		s.pos++
		return nil
	}
	digits := func() error {
		n := 0
		for {
			c, err := s.peek()
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if err != nil || c < '0' || c > '9' {
				if n == 0 {
					return s.fail("invalid number")
				}
				return nil
			}
			if err := take(); err != nil {
				return err
			}
			n++
		}
	}
	accept := func(set string) (bool, error) {
		c, err := s.peek()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for i := range len(set) {
			if set[i] == c {
				return true, take()
			}
		}
		return false, nil
	}
	if _, err := accept("-"); err != nil {
		return "", err
	}
	if zero, err := accept("0"); err != nil {
		return "", err
	} else if !zero {
		if err := digits(); err != nil {
			return "", err
		}
	}
	if dot, err := accept("."); err != nil {
		return "", err
	} else if dot {
		if err := digits(); err != nil {
			return "", err
		}
	}
	if exp, err := accept("eE"); err != nil {
		return "", err
	} else if exp {
		if _, err := accept("+-"); err != nil {
			return "", err
		}
		if err := digits(); err != nil {
			return "", err
		}
	}
	return Number(out), nil
}

func (s *scanner) word(w string) error {
	for i := range len(w) {
		c, err := s.need()
		if err != nil {
			return err
		}
		if c != w[i] {
			return s.fail("invalid character")
		}
		s.pos++
	}
	return nil
}

// skip reads one value and forgets it.
func (s *scanner) skip(depth int) error {
	c, err := s.token()
	if err != nil {
		return err
	}
	switch c {
	case '{':
		return s.object(depth+1, func(string) error { return s.skip(depth + 1) })
	case '[':
		return s.array(depth+1, func() error { return s.skip(depth + 1) })
	case '"':
		return s.chunks(func([]byte) error { return nil })
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	_, err = s.number()
	return err
}

// value reads one value into memory: nil, bool, string, [Number], []any or
// map[string]any; of equal names the last wins.
func (s *scanner) value(depth int) (any, error) {
	c, err := s.token()
	if err != nil {
		return nil, err
	}
	if s.made++; s.most > 0 && s.made > s.most {
		return nil, &Error{
			Status: http.StatusBadRequest, Type: "ValueError", Code: "too_many_values", NoEndpoint: true,
			Msg: fmt.Sprintf("The request body has more than %d values", s.most),
		}
	}
	switch c {
	case '{':
		out := map[string]any{}
		err := s.object(depth+1, func(name string) (err error) {
			out[name], err = s.value(depth + 1)
			return err
		})
		return out, err
	case '[':
		out := []any{}
		err := s.array(depth+1, func() error {
			v, err := s.value(depth + 1)
			out = append(out, v)
			return err
		})
		return out, err
	case '"':
		return s.text()
	case 't':
		return true, s.word("true")
	case 'f':
		return false, s.word("false")
	case 'n':
		return nil, s.word("null")
	}
	return s.number()
}
