package pty

import "unicode/utf8"

// tailLen is how many bytes at the end of p begin a character that may yet
// become whole.
func tailLen(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// cutTail is p without an unfinished last character.
func cutTail(p []byte) []byte { return p[:len(p)-tailLen(p)] }

// headLen is how many bytes at the start of p can only be the rest of a
// character that began before it.
func headLen(p []byte) int {
	n := 0
	for n < len(p) && n < utf8.UTFMax-1 && !utf8.RuneStart(p[n]) {
		n++
	}
	return n
}

// verbatim marks the ASCII bytes that a JSON string holds as they are.
var verbatim = func() (t [utf8.RuneSelf]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// appendText appends bytes of p as the inside of a JSON string until dst has
// limit bytes or p is used up. Each byte that is not UTF-8 becomes U+FFFD. It
// returns how many bytes of p it took and whether it replaced any.
//
// It is encoding/json's string writer with a bound and a count, because that
// one can neither stop early nor say what it replaced.
func appendText(dst, p []byte, limit int) (out []byte, taken int, replaced bool) {
	i := 0
	for i < len(p) && len(dst) < limit {
		start := i
		stop := min(len(p), i+limit-len(dst))
		for i < stop && p[i] < utf8.RuneSelf && verbatim[p[i]] {
			i++
		}
		dst = append(dst, p[start:i]...)
		if i == stop {
			continue
		}
		if c := p[i]; c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(p[i:])
		replaced = replaced || r == utf8.RuneError && n == 1
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst, i, replaced
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
