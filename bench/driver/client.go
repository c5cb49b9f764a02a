package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// callLimit bounds one request, whatever it transfers.
const callLimit = 90 * time.Second

// errNotServed says that a server has no such route; the row shows it and goes on.
var errNotServed = errors.New("not served")

// client is one HTTP/1.1 connection, kept while the peer keeps it. It is small so that the figures are the
// server's, and is used by one goroutine at a time.
type client struct {
	addr string
	conn net.Conn
	r    *bufio.Reader
}

func (c *client) url() string { return "http://" + c.addr }

// get returns the body of a 200.
func (c *client) get(ctx context.Context, target string) ([]byte, error) {
	return c.call(ctx, "GET", target, nil)
}

// post sends a JSON body and returns the body of a 200.
func (c *client) post(ctx context.Context, target, body string) ([]byte, error) {
	return c.call(ctx, "POST", target, []byte(body))
}

func (c *client) call(ctx context.Context, method, target string, body []byte) ([]byte, error) {
	var got []byte
	err := c.stream(ctx, method, target, bytes.NewReader(body), int64(len(body)), func(r io.Reader) (err error) {
		got, err = io.ReadAll(r)
		return err
	})
	return got, err
}

// stream sends size bytes of body and hands the answer's body to consume, which need not read all.
func (c *client) stream(ctx context.Context, method, target string, body io.Reader, size int64, consume func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	resp, err := c.send(ctx, method, target, body, size)
	if err != nil {
		c.hangUp()
		return fmt.Errorf("%s %s: %w", method, target, err)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		err = errNotServed
	case resp.StatusCode >= http.StatusMultipleChoices:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		err = fmt.Errorf("%s %s: %s: %s", method, target, resp.Status, text)
	default:
		err = consume(resp.Body)
	}
	// Close reads what is left, so that the connection can carry the next call.
	if closed := resp.Body.Close(); closed != nil || resp.Close {
		c.hangUp()
		err = errors.Join(err, closed)
	}
	return err
}

func (c *client) send(ctx context.Context, method, target string, body io.Reader, size int64) (*http.Response, error) {
	if c.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return nil, err
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	w := bufio.NewWriterSize(c.conn, 64<<10) // head and a small body leave in one write
	fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, c.addr)
	if method != "GET" {
		fmt.Fprintf(w, "Content-Type: application/json\r\nContent-Length: %d\r\n", size)
	}
	_, _ = w.WriteString("\r\n") // Flush tells
	if _, err := io.CopyN(w, body, size); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, &http.Request{Method: method})
}

func (c *client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}
