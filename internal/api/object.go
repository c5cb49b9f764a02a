package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// Object is an answer, a JSON object, whose large members are never in memory
// twice: its length is known before, and it is written in pieces. It is a
// [Body]; members appear in the order they are added.
type Object struct {
	parts  []part
	length int64
	held   []io.Closer
}

// part is a piece of the text: literal bytes, a string to escape, or bytes to
// encode.
type part struct {
	raw  []byte
	text []byte
	src  io.Reader
	size int64
}

// Composed is an answer that its fields describe and that is sent as an Object,
// which costs less where there are very many items. Both have to say the same.
type Composed interface{ Compose() *Object }

func (o *Object) key(name string) {
	lead := []byte{','}
	if len(o.parts) == 0 {
		lead[0] = '{'
	}
	o.raw(append(AppendText(lead, name), ':'))
}

func (o *Object) raw(b []byte) {
	o.parts = append(o.parts, part{raw: b})
	o.length += int64(len(b))
}

// Set adds a small member. A value that cannot be encoded is a mistake of the
// program.
func (o *Object) Set(name string, v any) {
	text, err := encode(v)
	if err != nil {
		panic("api: " + err.Error())
	}
	o.key(name)
	o.raw(text)
}

// Raw adds a member whose value is JSON text already. text must not change
// until the answer was sent.
func (o *Object) Raw(name string, text []byte) {
	o.key(name)
	o.raw(text)
}

// Text adds a member of large text; bytes that are not UTF-8 become U+FFFD.
// text must not change until the answer was sent.
func (o *Object) Text(name string, text []byte) {
	o.key(name)
	o.parts = append(o.parts, part{text: text})
	o.length += textLen(text)
}

// Base64 adds a member with size bytes of src in base64. When src has fewer,
// the answer is torn; what it has beyond is left.
func (o *Object) Base64(name string, src io.Reader, size int64) {
	o.key(name)
	o.parts = append(o.parts, part{src: src, size: size})
	o.length += 2 + (size+2)/3*4
}

// Hold closes c when the answer was sent, or was not.
func (o *Object) Hold(c io.Closer) { o.held = append(o.held, c) }

// Close implements [io.Closer].
func (o *Object) Close() error {
	for _, c := range o.held {
		_ = c.Close()
	}
	o.held = nil
	return nil
}

// Header implements [Body].
func (o *Object) Header(h http.Header) {
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.FormatInt(o.length+int64(len(o.tail())), 10))
}

func (o *Object) tail() string {
	if len(o.parts) == 0 {
		return "{}"
	}
	return "}"
}

// Send implements [Body].
func (o *Object) Send(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for _, p := range o.parts {
		if err := p.write(ctx, out); err != nil {
			return err
		}
	}
	if _, err := out.WriteString(o.tail()); err != nil {
		return err
	}
	return out.Flush()
}

// piece is how much is encoded at a time: a multiple of three, so that base64
// needs no padding inside.
const piece = 48 << 10

func (p part) write(ctx context.Context, out *bufio.Writer) error {
	switch {
	case p.raw != nil:
		_, err := out.Write(p.raw)
		return err
	case p.src != nil:
		return writeBase64(ctx, out, p.src, p.size)
	}
	if err := out.WriteByte('"'); err != nil {
		return err
	}
	var buf []byte
	for text := p.text; len(text) > 0; {
		n := wholeText(text)
		buf = appendUTF8(buf[:0], text[:n])
		text = text[n:]
		if _, err := out.Write(buf); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return out.WriteByte('"')
}

// wholeText is how much of text to take so that no character is cut.
func wholeText(text []byte) int {
	if len(text) <= piece {
		return len(text)
	}
	n := piece
	for i := 0; i < utf8.UTFMax-1 && !utf8.RuneStart(text[n]); i++ {
		n--
	}
	return n
}

func writeBase64(ctx context.Context, out *bufio.Writer, src io.Reader, size int64) error {
	if err := out.WriteByte('"'); err != nil {
		return err
	}
	var in [piece]byte
	enc := make([]byte, base64.StdEncoding.EncodedLen(piece))
	for size > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(src, in[:min(size, piece)])
		if err != nil {
			return err // shorter than announced: no whole document must come out
		}
		size -= int64(n)
		base64.StdEncoding.Encode(enc, in[:n])
		if _, err := out.Write(enc[:base64.StdEncoding.EncodedLen(n)]); err != nil {
			return err
		}
	}
	return out.WriteByte('"')
}

// appendUTF8 appends text escaped as JSON needs and no more.
func appendUTF8(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && plain[s[i]] {
			i++
		}
		dst = append(dst, s[start:i]...)
		if i == len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			dst = appendEscape(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = appendUnicode(dst, r)
		} else {
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return dst
}

// textLen is the length of what part.write makes of text, quotes included.
func textLen(s []byte) int64 {
	n := int64(2)
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case plain[c]:
			n++
			i++
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && size == 1 {
				n += 6
			} else {
				n += int64(size)
			}
			i += size
		default:
			n += int64(len(appendEscape(make([]byte, 0, 6), c)))
			i++
		}
	}
	return n
}
