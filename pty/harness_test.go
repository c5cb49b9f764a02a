package pty

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// patience is the deadline of waits that should be over at once.
const patience = 20 * time.Second

// eventually polls until check is true.
func eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// message is any message of the server.
type message struct {
	outputOf
	Event     string
	SessionID string `json:"session_id"`
	PID       int
	Cols      int
	Rows      int
	Title     string
	ExitCode  *int `json:"exit_code"`
	Signal    *string
}

// viewer is a WebSocket client of the JSON protocol.
type viewer struct {
	t    testing.TB
	ws   *websocket.Conn
	text strings.Builder // all output so far
	read int             // of text, by expect
}

func view(t testing.TB, ws *websocket.Conn) *viewer {
	t.Helper()
	v := &viewer{t: t, ws: ws}
	if first, err := v.next(); err != nil || first.Event != "started" {
		t.Fatalf("the first message is %+v, %v", first, err)
	}
	return v
}

func (v *viewer) next() (message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	typ, p, err := v.ws.Read(ctx)
	if err != nil {
		return message{}, err
	}
	var msg message
	if err := json.Unmarshal(p, &msg); err != nil || typ != websocket.MessageText {
		v.t.Fatalf("%v message %.100q: %v", typ, p, err)
	}
	v.text.WriteString(msg.Data)
	return msg, nil
}

// expect reads until text has come after what was expected before.
func (v *viewer) expect(text string) {
	v.t.Helper()
	for {
		if i := strings.Index(v.text.String()[v.read:], text); i >= 0 {
			v.read += i + len(text)
			return
		}
		if _, err := v.next(); err != nil {
			s := v.text.String()
			v.t.Fatalf("waiting for %q: %v; the end is %.300q", text, err, s[max(0, len(s)-300):])
		}
	}
}

// untilExit reads to the exited event and the close after it.
func (v *viewer) untilExit() (exited message, code websocket.StatusCode) {
	v.t.Helper()
	for {
		msg, err := v.next()
		if err != nil {
			return exited, websocket.CloseStatus(err)
		}
		if exited.Event != "" {
			v.t.Fatalf("after the end: %+v", msg)
		}
		if msg.Event == "exited" {
			exited = msg
		}
	}
}

func (v *viewer) send(typ websocket.MessageType, msg string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := v.ws.Write(ctx, typ, []byte(msg)); err != nil {
		v.t.Fatal(err)
	}
}

// typed types text into the terminal.
func (v *viewer) typed(text string) {
	v.t.Helper()
	data, err := json.Marshal(text)
	if err != nil {
		v.t.Fatal(err)
	}
	v.send(websocket.MessageText, `{"type":"input","data":`+string(data)+`}`)
}

// typeTo types without a client.
func typeTo(t testing.TB, s *Session, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n, err := s.Input(ctx, []byte(text)); err != nil || n != len(text) {
		t.Fatalf("typed %d of %d bytes: %v", n, len(text), err)
	}
}

// shown reads a session's output from the start until it holds text.
func shown(t testing.TB, s *Session, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all strings.Builder
	for since := int64(0); ; {
		o, err := s.Output(ctx, since, patience)
		if err != nil {
			t.Fatalf("waiting for %q: %v; shown is %.300q", text, err, all.String())
		}
		all.Write(o.Data)
		if strings.Contains(all.String(), text) {
			return all.String()
		}
		if o.Ended && len(o.Data) == 0 {
			t.Fatalf("ended without %q: %.300q", text, all.String())
		}
		since = o.Next
	}
}

// ended waits for the end of a session.
func ended(t testing.TB, s *Session) proc.Status {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		t.Fatal("the session does not end")
	}
	e, ok := s.Status()
	if !ok {
		t.Fatal("done, but not ended")
	}
	return e
}

// living tells whether a process exists and is no zombie.
func living(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return err != nil || !strings.HasPrefix(after, "Z")
}

// pidFrom waits for a file that holds a process id.
func pidFrom(t testing.TB, name string) int {
	t.Helper()
	pid := 0
	eventually(t, name+" holds a number", func() bool {
		text, _ := os.ReadFile(name)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		pid = n
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return pid
}
