package connect

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// protocol is how messages and failures lie in bodies.
type protocol uint8

const (
	connectUnary protocol = iota
	connectStream
	grpcWeb
	grpcPlain
)

// Flags of an envelope.
const (
	flagPacked   = 1
	flagEnd      = 2    // Connect's last envelope
	flagTrailers = 0x80 // gRPC-Web's
)

// packAbove is the size from which a unary answer is worth compressing.
const packAbove = 1024

// progressSize is how much is written between two words of progress.
const progressSize = 16 << 10

var contentTypes = []struct {
	name     string
	protocol protocol
	binary   bool
}{
	{"application/json", connectUnary, false},
	{"application/proto", connectUnary, true},
	{"application/connect+json", connectStream, false},
	{"application/connect+proto", connectStream, true},
	{"application/grpc-web", grpcWeb, true},
	{"application/grpc-web+proto", grpcWeb, true},
	{"application/grpc-web+json", grpcWeb, false},
	{"application/grpc", grpcPlain, true},
	{"application/grpc+proto", grpcPlain, true},
	{"application/grpc+json", grpcPlain, false},
}

// negotiate reads a content type; false when the method does not speak it.
func negotiate(contentType string, stream bool) (p protocol, isBinary, ok bool) {
	name, params, _ := strings.Cut(contentType, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	if _, charset, found := strings.Cut(strings.ToLower(params), "charset="); found && strings.Trim(charset, ` "`) != "utf-8" {
		return 0, false, false
	}
	for _, t := range contentTypes {
		if t.name == name && serves(t.protocol, stream) {
			return t.protocol, t.binary, true
		}
	}
	return 0, false, false
}

func serves(p protocol, stream bool) bool {
	switch p {
	case connectUnary:
		return !stream
	case connectStream:
		return stream
	}
	return true
}

func acceptPost(stream bool) string {
	var names []string
	for _, t := range contentTypes {
		if serves(t.protocol, stream) {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ", ")
}

func (p protocol) codingHeader() string {
	switch p {
	case connectUnary:
		return "Content-Encoding"
	case connectStream:
		return "Connect-Content-Encoding"
	}
	return "Grpc-Encoding"
}

// contentType is that of the answer.
func (c *Call) contentType() string {
	for _, t := range contentTypes {
		if t.protocol == c.protocol && t.binary == c.binary && strings.HasSuffix(t.name, map[bool]string{true: "proto", false: "json"}[c.binary]) {
			return t.name
		}
	}
	return "application/json"
}

// readEnvelope reads one envelope; io.EOF when there is none.
func readEnvelope(r io.Reader, most int64) (flags byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, bodyError(err)
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > most {
		return 0, nil, tooLarge(most)
	}
	// What is announced costs nothing before it is there.
	var buf bytes.Buffer
	buf.Grow(int(min(size, 64<<10)))
	if n, err := io.CopyN(&buf, r, size); err != nil {
		if n < size && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, bodyError(err)
	}
	return head[0], buf.Bytes(), nil
}

func readAll(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, bodyError(err)
	}
	if int64(len(text)) > most {
		return nil, tooLarge(most)
	}
	return text, nil
}

func unpack(data []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, Errorf(InvalidArgument, "the message is not gzip")
	}
	text, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return nil, Errorf(InvalidArgument, "the message is not gzip")
	}
	if int64(len(text)) > most {
		return nil, tooLarge(most)
	}
	return text, nil
}

func tooLarge(most int64) *Error {
	return Errorf(ResourceExhausted, "payload_too_large: a message may have %d bytes", most)
}

// bodyError is a body that breaks off.
func bodyError(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &Error{Code: InvalidArgument, Msg: "the body ended early", Err: err}
}

// begin sends the head of a streamed answer.
func (c *Call) begin() {
	if c.begun {
		return
	}
	c.begun = true
	h := c.w.Header()
	h.Set("Content-Type", c.contentType())
	if c.protocol == connectStream {
		h.Set("Connect-Accept-Encoding", "gzip")
	}
	c.w.WriteHeader(http.StatusOK)
}

// send sends one message in an envelope.
func (c *Call) send(m any) error {
	b := c.encode(make([]byte, 5, 512), m)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	c.begin()
	for len(b) > 0 {
		n := min(len(b), progressSize)
		if _, err := c.w.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; c.Progress != nil {
			c.Progress()
		}
	}
	return http.NewResponseController(c.w).Flush()
}

// sendOnly sends the message of a unary answer.
func (c *Call) sendOnly(m any) error {
	if c.protocol != connectUnary {
		return c.send(m)
	}
	c.begun = true
	text := c.encode(nil, m)
	h := c.w.Header()
	h.Set("Content-Type", c.contentType())
	h.Add("Vary", "Accept-Encoding")
	if len(text) >= packAbove && acceptsGzip(c.R.Header.Get("Accept-Encoding")) {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		_, _ = z.Write(text) // into memory
		_ = z.Close()
		text = buf.Bytes()
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	c.w.WriteHeader(http.StatusOK)
	_, err := c.w.Write(text)
	return err
}

func acceptsGzip(header string) bool {
	for item := range strings.SplitSeq(header, ",") {
		name, q, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.000")
		}
	}
	return false
}

// finish ends the answer: with what failed, or with nothing.
func (c *Call) finish(e *Error) {
	if e != nil && !c.begun {
		for name, v := range e.Header {
			c.w.Header().Set(name, v)
		}
	}
	switch c.protocol {
	case connectUnary:
		if e == nil || c.begun {
			return
		}
		text := e.json()
		c.w.Header().Set("Content-Type", "application/json")
		c.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		c.w.WriteHeader(e.Code.Status())
		_, _ = c.w.Write(text)
	case connectStream:
		c.begin()
		text := []byte("{}")
		if e != nil {
			text = append(append([]byte(`{"error":`), e.json()...), '}')
		}
		c.last(flagEnd, text)
	case grpcWeb:
		c.begin()
		code, msg := grpcStatus(e)
		c.last(flagTrailers, fmt.Appendf(nil, "grpc-status: %d\r\ngrpc-message: %s\r\n", code, msg))
	case grpcPlain:
		c.begin()
		_ = http.NewResponseController(c.w).Flush() // an answer of known length has no trailers
		code, msg := grpcStatus(e)
		c.w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(code))
		c.w.Header().Set(http.TrailerPrefix+"Grpc-Message", msg)
	}
}

func (c *Call) last(flags byte, text []byte) {
	b := append(make([]byte, 5, 5+len(text)), text...)
	b[0] = flags
	binary.BigEndian.PutUint32(b[1:], uint32(len(text)))
	_, _ = c.w.Write(b) // the peer may have gone
}

// grpcStatus is a failure as gRPC writes it, the text percent-encoded.
func grpcStatus(e *Error) (code int, msg string) {
	if e == nil {
		return 0, ""
	}
	return int(e.Code), strings.ReplaceAll(url.PathEscape(e.Msg), "%20", " ")
}
