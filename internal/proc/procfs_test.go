package proc

import (
	"os"
	"testing"
)

func TestParseStat(t *testing.T) {
	line := "42 (a ) b (c) S 1 40 39 0 -1 4194560 1 0 0 0 7 3 2 1 20 0 1 0 123456 0 0 18446744073709551615"
	s, ok := parseStat([]byte(line))
	if want := (stat{'S', 1, 40, 39, 123456, 13}); !ok || s != want {
		t.Errorf("%+v %v", s, ok)
	}
	self, ok := readStat(os.Getpid())
	if !ok || self.ppid != os.Getppid() || self.start == 0 || self.dead() {
		t.Errorf("%+v %v", self, ok)
	}
	if _, ok := readStat(1 << 30); ok {
		t.Error("a process that is not there")
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 1 40 39 0 -1 4194560 1 0 0 0 7 3 2 1 20 0 1 0 123456 0 0"))
	f.Add([]byte(") ) ("))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, ok := parseStat(text)
		if ok && (s.ppid < 0 || s.pgrp < 0 || s.state == 0) {
			t.Fatalf("%+v", s)
		}
	})
}

func TestFindCgroup(t *testing.T) {
	const (
		v2     = "0::/a/b\n"
		hybrid = "4:memory:/mem\n1:name=systemd:/x\n0::/\n"
		mounts = `30 25 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw
31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 25 0:28 /mem/sub /other rw - cgroup cgroup rw,memory
`
		below = "30 25 0:26 /a /cg rw - cgroup2 cgroup2 rw\n"
	)
	for _, tc := range []struct{ groups, mounts, fstype, controller, want string }{
		{v2, mounts, "cgroup2", "", "/sys/fs/cgroup/unified/a/b"},
		{v2, below, "cgroup2", "", "/cg/b"},
		{"0::/other\n", below, "cgroup2", "", ""},
		{hybrid, mounts, "cgroup2", "", "/sys/fs/cgroup/unified"},
		{hybrid, mounts, "cgroup", "memory", "/sys/fs/cgroup/memory/mem"},
		{hybrid, mounts, "cgroup", "pids", ""},
		{"", mounts, "cgroup2", "", ""},
		{v2, "", "cgroup2", "", ""},
		{"nonsense\n", "nonsense - \n", "cgroup2", "", ""},
	} {
		if got := findCgroup(tc.groups, tc.mounts, tc.fstype, tc.controller); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.groups, got, tc.want)
		}
	}
}

func FuzzFindCgroup(f *testing.F) {
	f.Add("0::/a\n", "30 25 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
	f.Fuzz(func(_ *testing.T, groups, mounts string) {
		_ = findCgroup(groups, mounts, "cgroup2", "")
		_ = findCgroup(groups, mounts, "cgroup", "memory")
	})
}

func TestOOMKills(t *testing.T) {
	for text, want := range map[string]int64{
		"low 0\nhigh 3\nmax 1\noom 2\noom_kill 7\noom_group_kill 1\n": 7,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 4\n":               4,
		"oom_kill x\n": 0,
		"":             0,
	} {
		if got := oomKills([]byte(text)); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestMarksCanBeReadTheLongWay(t *testing.T) {
	m := newManager(t, Options{})
	if !m.marks.on {
		t.Skip("no marks here")
	}
	p := start(t, m, sh("sleep 60"))
	defer p.End("")
	short, ok := markOf(p.PID())
	long, okToo := markFromLimits(p.PID())
	if !ok || !okToo || short != p.mark || long != p.mark {
		t.Errorf("mark %x, read %x and %x", p.mark, short, long)
	}
	if k, ok := markOf(os.Getpid()); ok && m.marks.ours(k) {
		t.Error("we carry a mark ourselves")
	}
	if _, ok := markFromLimits(os.Getpid()); ok {
		t.Log("this test runs under a mark of somebody else")
	}
}
