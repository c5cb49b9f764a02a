package host

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU says how much of the machine's processors this process may use.
type CPU struct {
	// Count is how many can be busy with it at once: those it may run on, and
	// no more than Limit rounded up. It is at least 1.
	Count int
	// Limit is the tightest quota of its control groups, in processors; 0
	// when there is none.
	Limit float64
	// Host is how many the machine has running. Never less than Count.
	Host int
}

// CPU reads the processors there are for this process.
func (h *Host) CPU() CPU {
	allowed := len(h.affinity())
	c := CPU{Host: h.online()}
	if allowed == 0 {
		allowed = max(c.Host, 1)
	}
	c.Host = max(c.Host, allowed)
	c.Limit, _ = h.quota()
	c.Count = allowed
	if c.Limit > 0 {
		c.Count = max(1, min(allowed, int(math.Ceil(min(c.Limit, 1e6)))))
	}
	return c
}

// affinity lists the processors this process may run on.
func affinity() []int {
	var set unix.CPUSet
	var out []int
	if unix.SchedGetaffinity(os.Getpid(), &set) == nil {
		for cpu := range len(set) * strconv.IntSize {
			if set.IsSet(cpu) {
				out = append(out, cpu)
			}
		}
		return out
	}
	// More processors than a CPUSet holds: the runtime has counted them.
	for cpu := range runtime.NumCPU() {
		out = append(out, cpu)
	}
	return out
}

// online counts the running processors of the machine.
func (h *Host) online() int {
	if n := countList(string(h.read("/sys/devices/system/cpu/online"))); n > 0 {
		return n
	}
	return len(parseStat(h.read("/proc/stat")))
}

// countList counts the members of a list like "0-3,8".
func countList(s string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || b < a {
			return 0
		}
		n += int(b-a) + 1
	}
	return n
}

// quota is the tightest quota of all groups the process is in, in processors,
// and the folder of the group that has it; 0 when there is none.
func (h *Host) quota() (cpus float64, dir string) {
	y := h.hierarchy("cpu")
	read := h.quotaV1
	if y.v2 {
		read = h.quotaV2
	}
	for _, d := range y.dirs() {
		if q := read(d); q > 0 && (cpus == 0 || q <= cpus) {
			cpus, dir = q, d
		}
	}
	return cpus, dir
}

func (h *Host) quotaV2(dir string) float64 {
	quota, period, ok := strings.Cut(strings.TrimSpace(string(h.read(dir+"/cpu.max"))), " ")
	if !ok {
		return 0
	}
	return ratio(quota, period) // "max" is no number
}

func (h *Host) quotaV1(dir string) float64 {
	one := func(name string) string { return strings.TrimSpace(string(h.read(dir + "/cpu.cfs_" + name + "_us"))) }
	return ratio(one("quota"), one("period"))
}

// ratio divides two positive numbers; 0 where they are not.
func ratio(quota, period string) float64 {
	q, errQ := strconv.ParseInt(quota, 10, 64)
	p, errP := strconv.ParseInt(period, 10, 64)
	if errQ != nil || errP != nil || q <= 0 || p <= 0 {
		return 0
	}
	return float64(q) / float64(p)
}

// usage is how much processor time was used up to a moment.
type usage struct {
	at   time.Time
	from string        // whose time it is; two are compared only when equal
	busy time.Duration // of a group
	// Of the machine's processors that the process may run on, in ticks.
	busyTicks, allTicks uint64
	cpus                float64
}

// shortest is the least time between two samples: the counters have steps of
// 10 ms, and several may ask at once.
const shortest = 200 * time.Millisecond

// CPUPercent is how much of the processor time that this process could have
// had was used since the call before, 0 to 100: by its control group where
// that has a quota, else by everything on the processors it may run on. Calls
// close together get the same answer.
func (h *Host) CPUPercent() float64 {
	now := h.usage(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.at.Sub(h.before.at) < shortest && now.from == h.before.from {
		return h.percent
	}
	h.percent = percent(h.before, now)
	h.before = now
	return h.percent
}

// percent compares two samples; 0 where they cannot be compared.
func percent(a, b usage) float64 {
	part, whole := 0.0, 0.0
	switch {
	case a.from != b.from:
	case b.from == "":
		if b.allTicks > a.allTicks && b.busyTicks > a.busyTicks {
			part, whole = float64(b.busyTicks-a.busyTicks), float64(b.allTicks-a.allTicks)
		}
	default:
		part, whole = float64(b.busy-a.busy), float64(b.at.Sub(a.at))*b.cpus
	}
	if whole <= 0 || part <= 0 {
		return 0
	}
	return min(100, 100*part/whole)
}

// usage samples the processor time.
func (h *Host) usage(now time.Time) usage {
	u := usage{at: now}
	allowed := h.affinity()
	if quota, dir := h.quota(); quota > 0 {
		if busy, ok := h.groupTime(dir); ok {
			u.from, u.busy = dir, busy
			u.cpus = min(quota, float64(max(1, len(allowed))))
			return u
		}
	}
	ticks := parseStat(h.read("/proc/stat"))
	add := func(t cpuTicks) { u.busyTicks += t.busy; u.allTicks += t.busy + t.idle }
	for _, cpu := range allowed {
		add(ticks[cpu])
	}
	if u.allTicks == 0 {
		for _, t := range ticks {
			add(t)
		}
	}
	return u
}

// groupTime is the processor time of the group of a cpu controller's folder.
func (h *Host) groupTime(dir string) (time.Duration, bool) {
	if us, ok := field(h.read(dir+"/cpu.stat"), "usage_usec"); ok {
		return time.Duration(us) * time.Microsecond, true
	}
	// Version 1 counts in the tree of cpuacct, often mounted as the same.
	ns, ok := h.number(h.hierarchy("cpuacct").beside(h.hierarchy("cpu"), dir) + "/cpuacct.usage")
	return time.Duration(ns), ok
}

// cpuTicks is the time of one processor since the start of the machine.
type cpuTicks struct{ busy, idle uint64 }

// parseStat reads the lines "cpuN" of /proc/stat.
func parseStat(text []byte) map[int]cpuTicks {
	out := map[int]cpuTicks{}
	for line := range bytes.Lines(text) {
		words := strings.Fields(string(line))
		if len(words) < 5 {
			continue
		}
		number, ok := strings.CutPrefix(words[0], "cpu")
		cpu, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			continue
		}
		var t cpuTicks
		// user nice system idle iowait irq softirq steal; what follows is
		// counted in the first two already.
		for i, w := range words[1:min(len(words), 9)] {
			n, err := strconv.ParseUint(w, 10, 56)
			switch {
			case err != nil:
			case i == 3 || i == 4:
				t.idle += n
			default:
				t.busy += n
			}
		}
		out[int(cpu)] = t
	}
	return out
}
