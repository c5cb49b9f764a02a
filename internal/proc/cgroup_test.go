package proc

import (
	"os"
	"testing"
)

// A command that is there was said to be missing, after another server had
// taken the cgroup of the next start for one that was left behind.
func TestRemovedCgroupIsNoMissingCommand(t *testing.T) {
	m := newManager(t, Options{})
	if m.cgroups == nil {
		t.Skip("cgroups are not writable here")
	}
	for range 3 {
		m.cgroups.mu.Lock()
		for _, g := range m.cgroups.free {
			if err := os.Remove(g.path); err != nil {
				t.Error(err)
			}
		}
		m.cgroups.mu.Unlock()
		if res, err := m.Run(t.Context(), Spec{Path: "/bin/true"}, 0); err != nil || res.Code != 0 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
}

func TestCgroupsInUseAreNotCleared(t *testing.T) {
	m := newManager(t, Options{})
	if m.cgroups == nil {
		t.Skip("cgroups are not writable here")
	}
	if !inUse(m.cgroups.root) {
		t.Error("the manager does not hold its cgroups")
	}
}
