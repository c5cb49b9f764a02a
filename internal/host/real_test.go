package host

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// told is what a test program says of itself; see TestMain.
type told struct {
	CPU    CPU
	Memory Memory
	Busy   float64
}

// tell spins for a moment on one processor and prints the facts.
func tell() error {
	h := New()
	for end := time.Now().Add(2 * shortest); time.Now().Before(end); {
		runtime.Gosched()
	}
	return json.NewEncoder(os.Stdout).Encode(told{h.CPU(), h.Memory(), h.CPUPercent()})
}

// ask starts the test program through a shell line that ends in exec "$0".
func ask(t *testing.T, line string) told {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line, os.Args[0])
	cmd.Env = append(os.Environ(), "HOST_TEST_TELL=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var got told
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v in %q", line, err, out)
	}
	return got
}

// group makes a control group below the test's own and removes it in the end;
// the test is skipped where that is not allowed.
func group(t *testing.T, y hierarchy) string {
	t.Helper()
	if y.top == "" {
		t.Skip("no tree of control groups")
	}
	dir := filepath.Join(y.dirs()[0], "host-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("control groups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(patience); ; {
			err := os.Remove(dir)
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Errorf("a control group is left: %v", err)
				return
			}
		}
	})
	return dir
}

func limit(t *testing.T, dir, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
		t.Skipf("the controller is not there to use: %v", err)
	}
}

func TestTheRealGroupBoundsTheMemory(t *testing.T) {
	y := New().hierarchy("memory")
	dir := group(t, y)
	file := "memory.limit_in_bytes"
	if y.v2 {
		file = "memory.max"
	}
	limit(t, dir, file, "201326592")
	got := ask(t, "echo $$ >"+dir+"/cgroup.procs && exec \"$0\"").Memory
	if got.Limit != 201326592 || got.Total != got.Limit || got.HostTotal <= got.Total {
		t.Errorf("got %+v", got)
	}
	if got.Used == 0 || got.Used > got.Total || got.Available == 0 || got.Used+got.Available > got.Total {
		t.Errorf("got %+v", got)
	}
}

func TestTheRealGroupBoundsTheProcessors(t *testing.T) {
	y := New().hierarchy("cpu")
	dir := group(t, y)
	if y.v2 {
		limit(t, dir, "cpu.max", "40000 100000")
	} else {
		limit(t, dir, "cpu.cfs_quota_us", "40000")
	}
	line := "echo $$ >" + dir + "/cgroup.procs && exec \"$0\""
	if acct := New().hierarchy("cpuacct"); !y.v2 && acct.top != y.top {
		line = "echo $$ >" + group(t, acct) + "/cgroup.procs && " + line
	}
	got := ask(t, line)
	if got.CPU.Limit != 0.4 || got.CPU.Count != 1 || got.CPU.Host < 1 {
		t.Errorf("got %+v", got.CPU)
	}
	if got.Busy <= 0 || got.Busy > 100 {
		t.Errorf("busy for %v %%", got.Busy)
	}
}

func TestTheProcessorsAreThoseWeMayRunOn(t *testing.T) {
	mine := affinity()
	if len(mine) < 2 {
		t.Skip("one processor only")
	}
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip("no taskset")
	}
	got := ask(t, "exec taskset -c "+strconv.Itoa(mine[1])+" \"$0\"").CPU
	if got.Count != 1 || got.Host < 2 {
		t.Errorf("got %+v", got)
	}
}

func TestTheRealMachine(t *testing.T) {
	h := New()
	c, m, d := h.CPU(), h.Memory(), h.Disk()
	if c.Count < 1 || c.Count > c.Host || c.Count > runtime.NumCPU() {
		t.Errorf("%+v of %d", c, runtime.NumCPU())
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	if total := info.Totalram * uint64(info.Unit); m.HostTotal>>20 != total>>20 {
		t.Errorf("%d bytes of memory, sysinfo has %d", m.HostTotal, total)
	}
	if m.Total == 0 || m.Total > m.HostTotal || m.Used == 0 || m.Used > m.Total || m.Available == 0 || m.Available > m.Total {
		t.Errorf("%+v", m)
	}
	if d.Total == 0 || d.Used > d.Total || d.Free+d.Used > d.Total {
		t.Errorf("%+v", d)
	}
	name, err := os.Hostname()
	if k := h.Kernel(); k.Name != "Linux" || k.Machine == "" || err != nil || k.Hostname != name {
		t.Errorf("%+v, %q %v", k, name, err)
	}
	if n := h.ProcessCount(); n < 1 {
		t.Errorf("%d processes", n)
	}
	for _, load := range h.Load() {
		if load < 0 || load > 1e6 {
			t.Errorf("load %v", h.Load())
		}
	}
	if a, b := h.Uptime(), h.Uptime(); a < 0 || b < a {
		t.Errorf("up for %v, then %v", a, b)
	}
}

func TestLoadIsReadAsFarAsItMakesSense(t *testing.T) {
	h := at(t.TempDir())
	if err := os.Mkdir(h.root+"/proc", 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][3]float64{
		"0.75 0.91 0.55 2/123 4567\n": {0.75, 0.91, 0.55},
		"1.5\n":                       {1.5, 0, 0},
		"NaN -1 +Inf 1/1 1\n":         {},
		strings.Repeat(" ", 100):      {},
	} {
		put(t, h, "proc/loadavg", text)
		if got := h.Load(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
