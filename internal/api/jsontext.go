package api

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Name is text that may hold any bytes, such as a file name. In JSON each byte
// that is not UTF-8 is the lone escape \udcNN, which request bodies accept
// back; a plain Go string would lose it.
type Name string

// MarshalJSON implements [json.Marshaler].
func (n Name) MarshalJSON() ([]byte, error) {
	return appendText(make([]byte, 0, len(n)+2), string(n), true), nil
}

const hexDigits = "0123456789abcdef"

// AppendText appends s as a JSON string in pure ASCII, bytes that are not
// UTF-8 as U+FFFD. Event streams need ASCII because line readers split at
// U+0085 and U+2028 too.
func AppendText[T string | []byte](dst []byte, s T) []byte { return appendText(dst, s, false) }

func appendText[T string | []byte](dst []byte, s T, bytesAsSurrogates bool) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && plain[s[i]] && s[i] != 0x7f {
			i++
		}
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		switch {
		case r == utf8.RuneError && n == 1 && bytesAsSurrogates:
			dst = appendUnicode(dst, 0xDC00|rune(c))
		case r > 0xFFFF:
			r -= 0x10000
			dst = appendUnicode(dst, 0xD800|r>>10)
			dst = appendUnicode(dst, 0xDC00|r&0x3FF)
		default:
			dst = appendUnicode(dst, r)
		}
		i += n
	}
	return append(dst, '"')
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
	return appendUnicode(dst, rune(c))
}

func appendUnicode(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// encode renders an answer. HTML escaping is off: nobody embeds these answers
// in pages, and file contents full of '<' would grow sixfold.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// encodeASCII renders v on one line of pure ASCII.
func encodeASCII(dst []byte, v any) ([]byte, error) {
	text, err := encode(v)
	if err != nil {
		return dst, err
	}
	for i := 0; i < len(text); {
		start := i
		for i < len(text) && text[i] < utf8.RuneSelf {
			i++
		}
		dst = append(dst, text[start:i]...)
		if i == len(text) {
			break
		}
		r, n := utf8.DecodeRune(text[i:])
		if r > 0xFFFF {
			r -= 0x10000
			dst = appendUnicode(dst, 0xD800|r>>10)
			r = 0xDC00 | r&0x3FF
		}
		dst = appendUnicode(dst, r)
		i += n
	}
	return dst, nil
}
