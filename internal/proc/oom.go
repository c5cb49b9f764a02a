package proc

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// oomCounter reads how often the kernel killed a process for want of memory in
// the group of the server, which is the container's.
type oomCounter struct {
	f *os.File // nil: no such counter here
}

func (c *oomCounter) open() {
	for _, path := range []string{ownCgroup("cgroup2", "") + "/memory.events", ownCgroup("cgroup", "memory") + "/memory.oom_control"} {
		if path[0] != '/' {
			continue
		}
		if f, err := os.Open(path); err == nil {
			c.f = f
			return
		}
	}
}

func (c *oomCounter) close() {
	if c.f != nil {
		c.f.Close()
	}
}

func (c *oomCounter) count() int64 {
	if c.f == nil {
		return 0
	}
	var buf [512]byte
	n, _ := c.f.ReadAt(buf[:], 0)
	return oomKills(buf[:n])
}

// killed says whether a process that nobody here ended was ended by the
// kernel's want of memory. It is called under p.mu.
func (c *oomCounter) killed(p *Process, sig syscall.Signal) bool {
	if p.killed {
		return false
	}
	if p.cg.oomKilled() {
		return true
	}
	return sig == unix.SIGKILL && c.count() > p.ooms
}

// oomKills finds the line "oom_kill N" of memory.events or memory.oom_control.
func oomKills(text []byte) int64 {
	for line := range bytes.Lines(text) {
		if name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" ")); ok && string(name) == "oom_kill" {
			n, _ := strconv.ParseInt(string(value), 10, 64)
			return n
		}
	}
	return 0
}
