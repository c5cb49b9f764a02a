package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// transferer is the published client, kept running by bench/transfer.py.
type transferer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

func startTransferer(ctx context.Context, python string) (*transferer, error) {
	cmd := exec.CommandContext(ctx, python, "bench/transfer.py")
	cmd.Env = plainEnv()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &transferer{cmd: cmd, in: in, lines: bufio.NewScanner(out)}, nil
}

// seconds is what the client took for one upload or download of size bytes.
func (t *transferer) seconds(op, url, path string, size int) (float64, error) {
	ask, err := json.Marshal(map[string]any{"op": op, "url": url, "path": path, "bytes": size})
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(t.in, "%s\n", ask); err != nil {
		return 0, err
	}
	if !t.lines.Scan() {
		return 0, errors.Join(errors.New("the published client ended"), t.lines.Err())
	}
	var told struct {
		Seconds float64
		Error   string
	}
	if err := json.Unmarshal(t.lines.Bytes(), &told); err != nil {
		return 0, err
	}
	if told.Error != "" {
		return 0, errors.New(told.Error)
	}
	return told.Seconds, nil
}

func (t *transferer) close() {
	_ = t.in.Close()
	_ = t.cmd.Wait()
}
