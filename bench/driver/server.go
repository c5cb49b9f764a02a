package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// policyText switches on and raises what would otherwise refuse a row's work on either server.
const policyText = `{"groups": ["dev_tools"], "endpoints": {
	"files_list": {"limits": {"max_entries": 100000, "max_depth": 10}},
	"files_search": {"limits": {"max_results": 100000, "max_depth": 10}},
	"files_archive": {"limits": {"max_files": 100000}},
	"files_upload_stream": {"limits": {"max_bytes": "2GiB", "max_request_bytes": "2GiB"}}}}`

// program is something that can be started as a server.
type program struct {
	name string
	args func(port, ptyPort int) []string
	env  []string
}

// sandboxServer is a program with the command line that both sandbox servers have.
func sandboxServer(name, path, base string, env ...string) program {
	return program{
		name: name,
		env:  env,
		args: func(port, ptyPort int) []string {
			return []string{
				path, "serve", "--host", "127.0.0.1", "--port", strconv.Itoa(port),
				"--pty-port", strconv.Itoa(ptyPort), "--base-dir", base,
			}
		},
	}
}

// server is a running program and one kept connection to it.
type server struct {
	*client
	name    string
	pid     int
	ptyAddr string
	started time.Duration // from before fork until the first healthy answer
	ended   chan struct{} // closed when the process has been waited for
	log     *bytes.Buffer // complete once ended is closed
}

// start runs p and returns once it is healthy.
func start(ctx context.Context, p program) (*server, error) {
	port, ptyPort, err := freePorts()
	if err != nil {
		return nil, err
	}
	argv := p.args(port, ptyPort)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(plainEnv(), p.env...)
	s := &server{
		client: &client{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, name: p.name,
		ptyAddr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ptyPort)),
		ended:   make(chan struct{}), log: new(bytes.Buffer),
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log

	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait() // the status of a killed server says nothing
		close(s.ended)
	}()
	if err := s.untilHealthy(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("start %s: %w\n%s", p.name, err, s.log)
	}
	s.started = time.Since(begin)
	return s, nil
}

func (s *server) untilHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if _, err := s.get(ctx, "/health"); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// stop ends the server and returns when it is gone.
func (s *server) stop() {
	s.hangUp()
	_ = syscall.Kill(s.pid, syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
		<-s.ended
	}
}

// memory sums a field of /proc/<pid>/status ("VmRSS", "VmHWM") over the server and all below it, in bytes.
func (s *server) memory(field string) (float64, error) {
	total, err := statusField(s.pid, field)
	if err != nil {
		return 0, err
	}
	for _, child := range descendants(s.pid) {
		if n, err := statusField(child, field); err == nil { // else it has just ended
			total += n
		}
	}
	return total, nil
}

// forgetPeak begins VmHWM anew, so that the start's own peak is not taken for that of what follows. Where
// that is refused the figures are too large, never too small.
func (s *server) forgetPeak() {
	for _, pid := range append(descendants(s.pid), s.pid) {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

func statusField(pid int, field string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == field+":" {
			kib, err := strconv.ParseFloat(words[1], 64)
			return kib * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of process %d", field, pid)
}

func descendants(pid int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

func freePorts() (int, int, error) {
	var ports [2]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, err
		}
		defer l.Close() // after both, so that they differ
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return 0, 0, fmt.Errorf("no TCP address: %v", l.Addr())
		}
		ports[i] = addr.Port
	}
	return ports[0], ports[1], nil
}

// plainEnv is our environment without what would configure a server.
func plainEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ABX_") {
			env = append(env, v)
		}
	}
	return env
}
