package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stuck is a reader who never reads, until it is freed.
type stuck struct {
	free chan struct{}
	lockedBuffer
}

func (w *stuck) Write(p []byte) (int, error) {
	<-w.free
	return w.lockedBuffer.Write(p)
}

func TestLogWithoutAReaderBlocksNobody(t *testing.T) {
	w := &stuck{free: make(chan struct{})}
	s := newSink(w, "json")
	log := slog.New(logHandler(s, "json"))
	written := make(chan struct{})
	const lines = 3 * sinkLines
	go func() {
		defer close(written)
		for i := range lines {
			log.Info("line", "i", i)
		}
	}()
	select {
	case <-written:
	case <-time.After(patience):
		t.Fatal("writing a line waits for the reader")
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(over); err == nil {
		t.Error("Close claims that all was written")
	}
	close(w.free)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	kept, dropped := 0, 0
	for line := range strings.Lines(w.String()) {
		var l struct {
			Msg   string
			Count int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if l.Msg == "line" {
			kept++
		}
		dropped += l.Count
	}
	if dropped == 0 || kept+dropped != lines {
		t.Errorf("%d lines kept, %d reported as dropped, of %d", kept, dropped, lines)
	}
}

func TestLogWritesWhatWasQueuedBeforeItEnds(t *testing.T) {
	var w lockedBuffer
	s := newSink(&w, "text")
	for i := range 100 {
		fmt.Fprintf(s, "%d\n", i)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(s, "late\n"); err != nil {
		t.Errorf("a late line: %v", err)
	}
	if got := strings.Count(w.String(), "\n"); got != 100 {
		t.Errorf("%d lines", got)
	}
}

// TestStopDoesNotWaitForTheReaderOfItsLog: whoever started us may hold our
// stderr and never read it.
func TestStopDoesNotWaitForTheReaderOfItsLog(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &stuck{free: make(chan struct{})}
	port := fmt.Sprint(freePort(t))
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--host=127.0.0.1", "--port", port, "--base-dir", t.TempDir()}, nil, nil, io.Discard, w)
	}()
	err := waitHealthy("http://127.0.0.1:" + port)
	cancel()
	select {
	case status := <-ended:
		if err != nil || status != exitOK {
			t.Errorf("status %d, %v", status, err)
		}
	case <-time.After(patience):
		t.Error("it does not stop")
	}
	close(w.free) // the writer's goroutine can end
}

// TestServerOutlivesTheReaderOfItsLog: launchers close our stderr, and the
// runtime would end a program that writes to it then.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	cmd := exec.Command(exe, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--base-dir", t.TempDir())
	cmd.Args[0] = program0
	cmd.Stderr, cmd.Stdout = pw, pw
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = pw.Close()
	_ = pr.Close() // before it writes its first line, or after: both must do
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := waitHealthy(url); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // each writes a line
			t.Fatal(err)
		}
		if err := waitHealthy(url); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
