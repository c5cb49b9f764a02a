package pty

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// lines writes a file of n bytes in lines of 1000.
func lines(t testing.TB, n int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lines")
	line := strings.Repeat("x", 999) + "\n"
	if err := os.WriteFile(name, []byte(strings.Repeat(line, n/1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const benchBytes = 50_000_000

// BenchmarkBareTerminal is the yardstick: a loop that reads a terminal.
func BenchmarkBareTerminal(b *testing.B) {
	name := lines(b, benchBytes)
	b.SetBytes(benchBytes + benchBytes/1000)
	buf := make([]byte, pieceMax)
	for b.Loop() {
		term, tty, err := openTerminal(80, 24)
		if err != nil {
			b.Fatal(err)
		}
		c := exec.Command("cat", name)
		c.Stdout = tty
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		_ = tty.Close()
		for err == nil {
			_, err = term.file.Read(buf)
		}
		_ = c.Wait()
		_ = term.close()
	}
}

// BenchmarkStream is the same through a session, to one WebSocket client.
func BenchmarkStream(b *testing.B) {
	for _, mode := range []string{"json", "raw", "ring"} {
		b.Run(mode, func(b *testing.B) {
			m := newManager(b, Options{})
			srv := serve(b, m)
			name := lines(b, benchBytes)
			b.SetBytes(benchBytes + benchBytes/1000)
			for b.Loop() {
				s := create(b, m, shell("-c", "read x; exec cat "+name))
				if mode == "ring" {
					a := s.Attach(0)
					_, _ = s.Input(context.Background(), []byte("\n"))
					p := make([]byte, pieceMax)
					var err error
					for err == nil {
						_, _, err = a.Next(context.Background(), p)
					}
					a.Close()
					continue
				}
				var protocols []string
				if mode == "raw" {
					protocols = []string{RawProtocol}
				}
				ws := dial(b, srv, s, "&since=0", protocols...)
				_, _ = s.Input(context.Background(), []byte("\n"))
				got := 0
				for {
					_, r, err := ws.Reader(context.Background())
					if err != nil {
						break
					}
					n, _ := io.Copy(io.Discard, r)
					got += int(n)
				}
				if got < benchBytes {
					b.Fatalf("%d bytes of %d", got, benchBytes)
				}
			}
		})
	}
}

// BenchmarkEcho is the time from a key to its echo over a WebSocket.
func BenchmarkEcho(b *testing.B) {
	m := newManager(b, Options{})
	srv := serve(b, m)
	s := create(b, m, shell("-c", "stty -icanon; echo ready; exec cat >/dev/null"))
	shown(b, s, "ready\r\n")
	v := view(b, dial(b, srv, s, "&since=99999"))
	keys := 0
	for b.Loop() {
		v.send(websocket.MessageText, `{"type":"input","data":"k"}`)
		for keys++; v.text.Len() < keys; {
			if _, err := v.next(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkIdleSession reports what one idle session costs in memory.
func BenchmarkIdleSession(b *testing.B) {
	m := newManager(b, Options{})
	const n = 200
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		list := make([]*Session, n)
		for i := range list {
			list[i] = create(b, m, shell())
		}
		for _, s := range list {
			if o, err := s.Output(context.Background(), 0, 10*time.Second); err != nil || len(o.Data) == 0 {
				b.Fatal("no prompt", err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.Sys-before.Sys)/n, "sys-B/session")
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "inuse-B/session")
		for _, s := range list {
			if err := m.Delete(s.ID(), Viewer{All: true}); err != nil && !errors.Is(err, ErrUnknown) {
				b.Fatal(err)
			}
		}
	}
}
