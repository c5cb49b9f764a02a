package host

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Host reads the facts. Its methods are safe for concurrent use.
type Host struct {
	root     string // "" in the server; tests read recorded trees
	began    time.Time
	affinity func() []int

	mu      sync.Mutex // of the two below
	before  usage
	percent float64
}

// New makes a Host. Uptime and the first CPUPercent count from here.
func New() *Host {
	h := at("")
	h.affinity = affinity
	h.before = h.usage(time.Now())
	return h
}

func at(root string) *Host {
	return &Host{root: root, began: time.Now(), affinity: func() []int { return nil }}
}

// Uptime is the time since New.
func (h *Host) Uptime() time.Duration { return time.Since(h.began) }

// Kernel is what uname(2) says.
type Kernel struct{ Name, Machine, Hostname string }

// Kernel asks for the names of system, machine and host.
func (h *Host) Kernel() Kernel {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return Kernel{}
	}
	return Kernel{
		Name: unix.ByteSliceToString(u.Sysname[:]), Machine: unix.ByteSliceToString(u.Machine[:]),
		Hostname: unix.ByteSliceToString(u.Nodename[:]),
	}
}

// Disk says in bytes what there is of a file system. Free is what a user
// without privileges may still write, Used all that is taken.
type Disk struct{ Total, Free, Used uint64 }

// Disk is the file system of /.
func (h *Host) Disk() Disk {
	var st unix.Statfs_t
	if unix.Statfs("/", &st) != nil {
		return Disk{}
	}
	block := uint64(max(st.Frsize, 0))
	return Disk{
		Total: st.Blocks * block, Free: min(st.Bavail, st.Blocks) * block,
		Used: (st.Blocks - min(st.Bfree, st.Blocks)) * block,
	}
}

// Load is the load of the last 1, 5 and 15 minutes.
func (h *Host) Load() (load [3]float64) {
	words := strings.Fields(string(h.read("/proc/loadavg")))
	for i := range min(len(words), len(load)) {
		if f, err := strconv.ParseFloat(words[i], 64); err == nil && f >= 0 && f < 1e9 {
			load[i] = f
		}
	}
	return load
}

// ProcessCount is the number of processes that can be seen.
func (h *Host) ProcessCount() int {
	pids, _ := h.pids()
	return len(pids)
}

// mostProcesses is more than the kernel can number.
const mostProcesses = 1 << 22

// pids lists the processes that can be seen, as /proc has them: ascending.
func (h *Host) pids() ([]int, error) {
	dir, err := os.Open(h.root + "/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var out []int
	for len(out) < mostProcesses {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
		if err != nil || len(names) == 0 {
			break // at the end, or as far as it could be read
		}
	}
	return out, nil
}
