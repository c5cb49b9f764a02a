package proc

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// Usage is the processor time the process has used so far, with the children
// it waited for, and its largest resident size in bytes.
func (p *Process) Usage() (cpu time.Duration, maxRSS int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return p.status.CPU, p.status.MaxRSS
	}
	const tick = time.Second / 100 // USER_HZ is 100 on every machine we run on
	if s, ok := readStat(p.pid); ok {
		cpu = time.Duration(s.ticks) * tick
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/status")
	if err != nil {
		return cpu, 0
	}
	return cpu, statusKiB(status, "VmHWM:")
}

// statusKiB reads a size from /proc/<pid>/status, in bytes.
func statusKiB(status []byte, name string) int64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(f[0]), 10, 64)
	return kib << 10
}
