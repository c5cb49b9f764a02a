package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

// terminalLimit bounds what is done with the terminals of one sample.
const terminalLimit = 40 * time.Second

// largestMessage is what the published client takes.
const largestMessage = 1 << 20

// terminal is a session of a server. Its shell is one that does not edit lines, so that the kernel echoes.
type terminal struct {
	s  *server
	id string
}

func openTerminal(ctx context.Context, s *server) (*terminal, error) {
	body, err := s.post(ctx, "/pty/sessions", `{"shell": "/bin/sh", "env": {"PS1": "$ "}}`)
	if err != nil {
		return nil, err
	}
	var made struct {
		ID string `json:"session_id"`
	}
	if err := json.Unmarshal(body, &made); err != nil || made.ID == "" {
		return nil, fmt.Errorf("POST /pty/sessions answered %.200s", body)
	}
	return &terminal{s: s, id: made.ID}, nil
}

// remove ends the session. The published server waits for shells that are left, so they should have been
// asked to end.
func (t *terminal) remove(ctx context.Context) error {
	_, err := t.s.call(ctx, "DELETE", "/pty/sessions/"+t.id, nil)
	return err
}

// viewer is one attachment to a terminal, used by one goroutine at a time.
type viewer struct {
	conn *websocket.Conn
	buf  bytes.Buffer
}

func (t *terminal) attach(ctx context.Context) (*viewer, error) {
	for {
		conn, _, err := websocket.Dial(ctx, "ws://"+t.s.ptyAddr+"/pty?session_id="+t.id, nil) //nolint:bodyclose // Dial says that it needs no closing
		if err == nil {
			conn.SetReadLimit(largestMessage)
			return &viewer{conn: conn}, nil
		}
		// The published server listens only a while after the first session has been made.
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// hangUp closes without a handshake: the peer of one that never reads would not get to answer.
func (v *viewer) hangUp() { _ = v.conn.CloseNow() }

// typeIn sends what a keyboard would.
func (v *viewer) typeIn(ctx context.Context, keys string) error {
	message, err := json.Marshal(map[string]string{"type": "input", "data": keys})
	if err != nil {
		return err
	}
	return v.conn.Write(ctx, websocket.MessageText, message)
}

// until reads what the terminal shows up to and with mark, and returns how often fill was shown.
func (v *viewer) until(ctx context.Context, mark string) (int, error) {
	filled := 0
	shown := finder{mark: []byte(mark)}
	for {
		_, r, err := v.conn.Reader(ctx)
		if err != nil {
			return filled, fmt.Errorf("waiting for %q after %d × %s: %w", mark, filled, fill, err)
		}
		v.buf.Reset()
		if _, err := v.buf.ReadFrom(r); err != nil {
			return filled, err
		}
		text := outputText(v.buf.Bytes())
		filled += bytes.Count(text, []byte(fill))
		if shown.find(text) {
			return filled, nil
		}
	}
}

// outputText is the text of an output message, its escapes left as they are: decoding 20 MB for each of
// many viewers would measure the driver. Other messages have none.
func outputText(message []byte) []byte {
	_, rest, ok := bytes.Cut(message, []byte(`"data":`))
	if !ok {
		return nil
	}
	rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " "), []byte(`"`))
	if !ok {
		return nil
	}
	for i := 0; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return rest[:i]
		}
	}
	return nil
}

// finder looks for a mark in a text that comes in pieces.
type finder struct {
	mark []byte
	last []byte // shorter than the mark
}

func (f *finder) find(piece []byte) bool {
	keep := len(f.mark) - 1
	seam := append(f.last, piece[:min(keep, len(piece))]...)
	if bytes.Contains(seam, f.mark) || bytes.Contains(piece, f.mark) {
		return true
	}
	if len(piece) >= keep {
		seam = append(seam[:0], piece[len(piece)-keep:]...)
	}
	f.last = seam[max(0, len(seam)-keep):]
	return false
}
