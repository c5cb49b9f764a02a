package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

const (
	testMiB = uint64(1) << 20
	testGiB = uint64(1) << 30
)

// recorded is a Host that sees a recorded tree.
func recorded(t testing.TB, name string, cpus ...int) *Host {
	t.Helper()
	tree, err := txtar.ParseFile(filepath.Join("testdata", "trees", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return planted(t, tree, cpus...)
}

func planted(t testing.TB, tree *txtar.Archive, cpus ...int) *Host {
	t.Helper()
	dir := t.TempDir()
	if err := txtar.Write(tree, dir); err != nil {
		t.Fatal(err)
	}
	h := at(dir)
	h.affinity = func() []int { return cpus }
	return h
}

func TestNumbersAreTrueInsideAContainer(t *testing.T) {
	four := []int{0, 1, 2, 3}
	machine := Memory{Total: 8 * testGiB, Available: 6 * testGiB, Used: 2 * testGiB, Cache: 2*testGiB + 200*testMiB, HostTotal: 8 * testGiB}
	bounded := machine
	bounded.Limit = 16 * testGiB
	for _, c := range []struct {
		tree string
		cpus []int
		cpu  CPU
		mem  Memory
	}{
		{"docker-v1", four, CPU{2, 1.5, 4}, Memory{
			Total: 512 * testMiB, Used: 150 * testMiB, Available: 362 * testMiB, Cache: 60 * testMiB, Limit: 512 * testMiB, HostTotal: 8 * testGiB,
		}},
		{"container-v2", four, CPU{1, 0.5, 4}, Memory{
			Total: testGiB, Used: 200 * testMiB, Available: 824 * testMiB, Cache: 200 * testMiB, Limit: testGiB, HostTotal: 8 * testGiB,
		}},
		{"pod-v2", four, CPU{3, 2.2, 4}, Memory{
			Total: 2 * testGiB, Used: 1500 * testMiB, Available: 548 * testMiB, Cache: 700 * testMiB, Limit: 2 * testGiB, HostTotal: 8 * testGiB,
		}},
		{"pod-v2", []int{1}, CPU{1, 2.2, 4}, Memory{
			Total: 2 * testGiB, Used: 1500 * testMiB, Available: 548 * testMiB, Cache: 700 * testMiB, Limit: 2 * testGiB, HostTotal: 8 * testGiB,
		}},
		{"machine-v2", four, CPU{4, 0, 4}, machine},
		{"machine-v2", []int{2, 3}, CPU{2, 0, 4}, machine},
		{"machine-v2", nil, CPU{4, 0, 4}, machine},
		{"hybrid", four, CPU{4, 0, 4}, machine},
		{"hidden-parent-v1", four, CPU{1, 0.5, 4}, Memory{
			Total: 700 * testMiB, Used: 500 * testMiB, Available: 200 * testMiB, Cache: 500 * testMiB, Limit: 700 * testMiB, HostTotal: 8 * testGiB,
		}},
		{"generous-v2", []int{0, 1, 2}, CPU{3, 16, 4}, bounded},
		{"short-machine", []int{0}, CPU{1, 0, 1}, Memory{
			Total: 3 * testGiB, Used: 100 * testMiB, Available: 200 * testMiB, Limit: 3 * testGiB, HostTotal: 8 * testGiB,
		}},
		{"nothing", nil, CPU{1, 0, 1}, Memory{}},
	} {
		h := recorded(t, c.tree, c.cpus...)
		if diff := cmp.Diff(c.cpu, h.CPU()); diff != "" {
			t.Errorf("%s %v: %s", c.tree, c.cpus, diff)
		}
		if diff := cmp.Diff(c.mem, h.Memory()); diff != "" {
			t.Errorf("%s %v: %s", c.tree, c.cpus, diff)
		}
	}
}

// put replaces a file of a planted tree.
func put(t testing.TB, h *Host, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(h.root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProcessorUseIsThatOfTheBoundGroup(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		tree string
		cpus []int
		file string
		then string
		want float64 // after 2 s
	}{
		// 1.5 processors for 2 s are 3 s; 1.5 s were used.
		{"docker-v1", []int{0, 1, 2, 3}, "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "6500000000", 50},
		// Half a processor for 2 s.
		{"container-v2", []int{0}, "sys/fs/cgroup/cpu.stat", "usage_usec 7250000\n", 25},
		{"container-v2", []int{0}, "sys/fs/cgroup/cpu.stat", "usage_usec 6000000\n", 0},
		{"container-v2", []int{0}, "sys/fs/cgroup/cpu.stat", "usage_usec 99000000\n", 100},
		// The quota is the pod's, but there is one processor to run on.
		{"pod-v2", []int{2}, "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod1.slice/cpu.stat", "usage_usec 9500000\n", 25},
		{"hidden-parent-v1", []int{0}, "cg roups/cpuacct/box/cpuacct.usage", "3800000000", 80},
		// Without a quota all that runs on the processors counts: of 1, half.
		{"machine-v2", []int{1}, "proc/stat", "cpu0 900 0 125 2000 25 0 0 0 0 0\ncpu1 300 20 155 2080 45 0 0 0 40 0\n", 50},
		{"machine-v2", nil, "proc/stat", "cpu0 300 0 125 2150 25 0 0 0 0 0\n", 0}, // others went away
		{"nothing", nil, "proc/stat", "cpu0 5 5 5 5\n", 75},
	} {
		h := recorded(t, c.tree, c.cpus...)
		before := h.usage(start)
		put(t, h, c.file, c.then)
		if got := percent(before, h.usage(start.Add(2*time.Second))); got < c.want-0.01 || got > c.want+0.01 {
			t.Errorf("%s %v %q: %v, want %v", c.tree, c.cpus, c.then, got, c.want)
		}
	}
}

func TestCallsCloseTogetherGetTheSameUse(t *testing.T) {
	h := recorded(t, "container-v2", 0)
	h.before = h.usage(time.Now().Add(-time.Hour))
	put(t, h, "sys/fs/cgroup/cpu.stat", "usage_usec 1807000000\n") // 1800 s of 3600 s with half a processor
	first := h.CPUPercent()
	if first < 99 || first > 100 {
		t.Fatalf("got %v", first)
	}
	put(t, h, "sys/fs/cgroup/cpu.stat", "usage_usec 1907000000\n")
	if again := h.CPUPercent(); again != first {
		t.Errorf("%v, then %v", first, again)
	}
	put(t, h, "sys/fs/cgroup/cpu.max", "max 100000\n") // another thing to compare
	if now := h.CPUPercent(); now != 0 {
		t.Errorf("compared what cannot be: %v", now)
	}
}

func TestCountList(t *testing.T) {
	for in, want := range map[string]int{
		"0\n": 1, "0-3\n": 4, "0-3,8": 5, "0,2-3,9\n": 4, "": 0, "3-1": 0, "x": 0, "0-": 0, "0-99999999": 0,
	} {
		if got := countList(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}

func FuzzCgroup(f *testing.F) {
	for _, name := range []string{"docker-v1", "pod-v2", "hidden-parent-v1"} {
		tree, err := txtar.ParseFile(filepath.Join("testdata", "trees", name+".txtar"))
		if err != nil {
			f.Fatal(err)
		}
		var own, mounts string
		for _, file := range tree.Files {
			switch file.Name {
			case "proc/self/cgroup":
				own = string(file.Data)
			case "proc/self/mountinfo":
				mounts = string(file.Data)
			}
		}
		f.Add(own, mounts)
	}
	f.Fuzz(func(t *testing.T, own, mounts string) {
		group, ok := groupOf([]byte(own), "cpu")
		if ok && !strings.HasPrefix(group, "/") {
			t.Fatalf("group %q", group)
		}
		for _, m := range parseMounts([]byte(mounts)) {
			rel := m.below(group)
			if rel != filepath.Clean(rel) || !strings.HasPrefix(rel, "/") {
				t.Fatalf("%q below %q is %q", group, m.root, rel)
			}
			y := hierarchy{top: m.point, rel: rel}
			dirs := y.dirs()
			if len(dirs) > deepest {
				t.Fatalf("%d folders", len(dirs))
			}
			for _, dir := range dirs {
				// A group's name must not lead out of the tree of groups.
				if m.point != "" && dir != filepath.Clean(m.point) && !strings.HasPrefix(dir, strings.TrimSuffix(filepath.Clean(m.point), "/")+"/") {
					t.Fatalf("%q is not below %q", dir, m.point)
				}
			}
		}
	})
}

func FuzzCounters(f *testing.F) {
	f.Add("MemTotal:        8388608 kB\ncpu0 1 2 3 4 5 6 7 8 9\n", "MemTotal")
	f.Add("usage_usec 7\n", "usage_usec")
	f.Fuzz(func(t *testing.T, text, name string) {
		if n, ok := field([]byte(text), name); !ok && n != 0 {
			t.Fatalf("%d, but not found", n)
		}
		for cpu, ticks := range parseStat([]byte(text)) {
			if cpu < 0 || ticks.busy+ticks.idle < ticks.busy {
				t.Fatalf("cpu %d: %+v", cpu, ticks)
			}
		}
		countList(text)
	})
}
