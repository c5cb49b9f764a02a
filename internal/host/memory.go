package host

// Memory says in bytes what there is of memory for this process. Used and
// Available never exceed Total.
//
// Without a control group that bounds it these are the machine's: Available is
// what can be had without swapping, Used the rest. With one, Total is the
// smaller of the bound and the machine, Used is the group's own use without
// file pages that were not used for a while, and Available what it may still
// take, unless the machine itself has less.
type Memory struct {
	Total, Available, Used uint64
	Cache                  uint64 // file pages, of the group or the machine
	Limit                  uint64 // the tightest bound of a group; 0: none
	HostTotal              uint64
}

// unbounded is where limits of version 1 that mean "none" begin.
const unbounded = 1 << 60

// Memory reads what there is of memory now.
func (h *Host) Memory() Memory {
	info := h.read("/proc/meminfo")
	kib := func(name string) uint64 { n, _ := field(info, name); return n << 10 }
	m := Memory{Total: kib("MemTotal"), Cache: kib("Cached") + kib("SReclaimable")}
	m.HostTotal = m.Total
	available, told := field(info, "MemAvailable")
	m.Available = available << 10
	if !told { // before Linux 3.14
		m.Available = kib("MemFree") + kib("Buffers") + kib("Cached")
	}
	m.Available = min(m.Available, m.Total)
	m.Used = m.Total - m.Available

	tight, room := h.tightest()
	m.Limit = tight.limit
	if tight.limit == 0 || tight.limit >= m.Total && m.Total > 0 {
		return m
	}
	m.Total = tight.limit
	m.Available = min(m.Available, room, m.Total)
	m.Used = min(tight.used, m.Total)
	m.Cache = min(tight.cache, m.Total)
	return m
}

// memoryGroup is one group's bound and use.
type memoryGroup struct{ limit, used, cache uint64 }

// tightest is the group with the smallest bound of all the process is in, the
// outermost of equals, since there most of its use is counted; and the least
// room that any of them leaves.
func (h *Host) tightest() (tight memoryGroup, room uint64) {
	y := h.hierarchy("memory")
	room = ^uint64(0)
	read := h.memoryV1
	if y.v2 {
		read = h.memoryV2
	}
	for _, dir := range y.dirs() {
		g := read(dir)
		if g.limit == 0 {
			continue
		}
		if tight.limit == 0 || g.limit <= tight.limit {
			tight = g
		}
		room = min(room, g.limit-min(g.used, g.limit))
	}
	return tight, room
}

func (h *Host) memoryV2(dir string) memoryGroup {
	limit, ok := h.number(dir + "/memory.max") // "max" is no number
	if !ok || limit == 0 || limit >= unbounded {
		return memoryGroup{}
	}
	g := memoryGroup{limit: limit}
	g.used, _ = h.number(dir + "/memory.current")
	stat := h.read(dir + "/memory.stat")
	inactive, _ := field(stat, "inactive_file")
	g.used -= min(inactive, g.used)
	g.cache, _ = field(stat, "file")
	return g
}

func (h *Host) memoryV1(dir string) memoryGroup {
	limit, ok := h.number(dir + "/memory.limit_in_bytes")
	if !ok {
		return memoryGroup{}
	}
	stat := h.read(dir + "/memory.stat")
	// The bound of a group above, which may be out of our sight.
	if above, ok := field(stat, "hierarchical_memory_limit"); ok {
		limit = min(limit, above)
	}
	if limit == 0 || limit >= unbounded {
		return memoryGroup{}
	}
	g := memoryGroup{limit: limit}
	g.used, _ = h.number(dir + "/memory.usage_in_bytes")
	inactive, ok := field(stat, "total_inactive_file")
	if !ok {
		inactive, _ = field(stat, "inactive_file")
	}
	g.used -= min(inactive, g.used)
	if g.cache, ok = field(stat, "total_cache"); !ok {
		g.cache, _ = field(stat, "cache")
	}
	return g
}
