package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups makes a cgroup v2 directory per start below the server's own, where
// the server may. Empty ones are used again: making one costs as much as a
// tenth of a start. All methods do nothing on nil.
type cgroups struct {
	root string
	held *os.File // root, locked as long as the manager lives

	mu       sync.Mutex
	off      bool // a start into one failed
	detached bool // something was started that stays
	n        int
	free     []*cgroup
	filled   []*cgroup // their start is done, but something it left behind lives
}

// maxFree bounds the empty cgroups that are kept.
const maxFree = 32

type cgroup struct {
	path   string
	dir    *os.File
	memory bool  // it counts memory
	used   bool  // it must not be used for another start: it has limits, or was killed
	gen    int   // counts its starts; under cgroups.mu
	ooms   int64 // at the start
}

// newCgroups returns nil where cgroups cannot be made.
func newCgroups() *cgroups {
	own := ownCgroup("cgroup2", "")
	if own == "" {
		return nil
	}
	if unix.Access(own+"/cgroup.procs", unix.W_OK) != nil {
		return nil
	}
	clearOld(own)
	root := own + "/" + cgroupPrefix + strconv.Itoa(os.Getpid())
	for i := 0; ; i++ {
		name := root + "-" + strconv.Itoa(i)
		err := os.Mkdir(name, 0o755)
		if os.IsExist(err) && i < 1000 {
			continue
		}
		if err != nil {
			return nil
		}
		c := &cgroups{root: name, held: hold(name)}
		if g := c.make(); g != nil && unix.Access(g.path+"/cgroup.kill", unix.W_OK) == nil {
			c.free = append(c.free, g)
			return c
		} else if g != nil {
			g.remove()
		}
		_ = c.held.Close()
		_ = os.Remove(name)
		return nil
	}
}

// hold locks a directory, so that other servers know it is in use. A process
// id would not tell them: they may live in another namespace of those.
func hold(dir string) *os.File {
	f, err := os.Open(dir)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return f
}

// inUse tells whether somebody holds a directory.
func inUse(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

const cgroupPrefix = "agent-sandbox-"

// clearOld removes what servers that were killed have left. Only empty cgroups
// can be removed.
func clearOld(own string) {
	old, _ := filepath.Glob(own + "/" + cgroupPrefix + "*-*")
	for _, root := range old {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(root), cgroupPrefix), "-")
		pid, err := strconv.Atoi(id)
		if err != nil || unix.Kill(pid, 0) != unix.ESRCH || inUse(root) {
			continue
		}
		inner, _ := filepath.Glob(root + "/*/cgroup.procs")
		for _, procs := range inner {
			_ = os.Remove(filepath.Dir(procs))
		}
		_ = os.Remove(root)
	}
}

// make is called under c.mu or before c is shared.
func (c *cgroups) make() *cgroup {
	c.n++
	path := c.root + "/" + strconv.Itoa(c.n)
	if os.Mkdir(path, 0o755) != nil {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		_ = os.Remove(path)
		return nil
	}
	return &cgroup{path: path, dir: dir, memory: unix.Access(path+"/memory.events", unix.R_OK) == nil}
}

// get returns an empty cgroup with the limits set as far as the controllers
// are there, and the number of this start in it; or nil.
func (c *cgroups) get(l Limits, detach bool) (g *cgroup, gen int) {
	if c == nil {
		return nil, 0
	}
	c.mu.Lock()
	if c.off {
		c.mu.Unlock()
		return nil, 0
	}
	c.detached = c.detached || detach
	if n := len(c.free); n > 0 && l == (Limits{}) {
		g = c.free[n-1]
		c.free = c.free[:n-1]
	} else {
		g = c.make()
	}
	c.mu.Unlock()
	if g == nil {
		return nil, 0
	}
	g.used = l != (Limits{})
	if l.MemoryBytes > 0 {
		g.write("memory.max", strconv.FormatUint(l.MemoryBytes, 10))
		g.write("memory.swap.max", "0")
	}
	if l.Processes > 0 {
		g.write("pids.max", strconv.FormatUint(l.Processes, 10))
	}
	g.ooms = g.oomCount()
	return g, g.gen // nobody else changes it while the start is not done
}

// fails is told that a fork into a cgroup went wrong: from now on there are
// none.
func (c *cgroups) fails() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
}

// put takes a cgroup back when its start is done.
func (c *cgroups) put(g *cgroup) {
	if c == nil || g == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filled = append(c.filled, g)
	c.sort()
}

// tidy looks whether what was left behind has ended.
func (c *cgroups) tidy() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sort()
}

// sort moves empty cgroups from filled to free. It is called under c.mu.
func (c *cgroups) sort() {
	still := c.filled[:0]
	for _, g := range c.filled {
		switch {
		case g.populated():
			still = append(still, g)
		case len(c.free) < maxFree && !g.used:
			g.gen++
			c.free = append(c.free, g)
		default:
			g.gen++
			g.remove()
		}
	}
	clear(c.filled[len(still):])
	c.filled = still
}

// kill ends everything in g at once, if it is still that of start number gen.
// A cgroup is not used again after that: Linux 6.18 kills at birth what is
// forked into one that was ever killed.
func (c *cgroups) kill(g *cgroup, gen int) {
	if c == nil || g == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.gen != gen {
		return
	}
	g.used = true
	g.write("cgroup.kill", "1")
}

// close removes what it made. The kernel lets go of a cgroup a moment after
// its last process has ended; one with something detached in it stays.
func (c *cgroups) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.held.Close()
	for _, g := range append(c.free, c.filled...) {
		g.remove()
	}
	for range 20 {
		entries, err := os.ReadDir(c.root)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = os.Remove(c.root + "/" + e.Name())
			}
		}
		if os.Remove(c.root) == nil || c.detached {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (g *cgroup) write(name, value string) {
	fd, err := unix.Openat(int(g.dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	_, _ = unix.Write(fd, []byte(value))
}

func (g *cgroup) read(name string) []byte {
	fd, err := unix.Openat(int(g.dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var buf [512]byte
	n, _ := unix.Read(fd, buf[:])
	return buf[:max(n, 0)]
}

func (g *cgroup) populated() bool {
	return !bytes.Contains(g.read("cgroup.events"), []byte("populated 0"))
}

func (g *cgroup) oomCount() int64 {
	if !g.memory {
		return 0
	}
	return oomKills(g.read("memory.events"))
}

func (g *cgroup) oomKilled() bool { return g != nil && g.oomCount() > g.ooms }

func (g *cgroup) remove() {
	g.dir.Close()
	_ = os.Remove(g.path)
}

// ownCgroup is the directory of this process in the hierarchy of that file
// system ("cgroup2", or "cgroup" with a controller), or "".
func ownCgroup(fstype, controller string) string {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return findCgroup(string(groups), string(mounts), fstype, controller)
}

func findCgroup(groups, mounts, fstype, controller string) string {
	var own string
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && hasWord(f[1], controller) {
			own = f[2]
			break
		}
	}
	if own == "" {
		return ""
	}
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 || g[0] != fstype {
			continue
		}
		if controller != "" && !hasWord(g[2], controller) {
			continue
		}
		root, point := f[3], f[4]
		rel, err := filepath.Rel(root, own)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		return filepath.Join(point, rel)
	}
	return ""
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}
