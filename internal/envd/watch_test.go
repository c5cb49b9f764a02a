package envd

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A rule with max_duration_seconds kept every watcher, removed or not, until
// that time was over.
func TestRemovedWatcherIsForgotten(t *testing.T) {
	r := newRig(t, `{"endpoints":{"files_watch":{"limits":{"max_duration_seconds":86400}}}}`)
	out, failed := r.rpc("filesystem.Filesystem/CreateWatcher", fmt.Sprintf(`{"path":%q}`, r.base))
	if failed != "" {
		t.Fatal(failed)
	}
	id := out["watcherId"].(string)
	gone := make(chan struct{})
	r.s.mu.Lock()
	runtime.AddCleanup(r.s.watchers[id], func(gone chan struct{}) { close(gone) }, gone)
	r.s.mu.Unlock()
	if _, failed := r.rpc("filesystem.Filesystem/RemoveWatcher", fmt.Sprintf(`{"watcherId":%q}`, id)); failed != "" {
		t.Fatal(failed)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Error("the watcher is still held")
}

func TestWatcherEndsWithItsTime(t *testing.T) {
	r := newRig(t, `{"endpoints":{"files_watch":{"limits":{"max_duration_seconds":0.000001}}}}`)
	for range 20 {
		out, failed := r.rpc("filesystem.Filesystem/CreateWatcher", fmt.Sprintf(`{"path":%q}`, r.base))
		if failed != "" {
			t.Fatal(failed)
		}
		body := fmt.Sprintf(`{"watcherId":%q}`, out["watcherId"])
		for deadline := time.Now().Add(10 * time.Second); failed != "not_found"; {
			if _, failed = r.rpc("filesystem.Filesystem/GetWatcherEvents", body); time.Now().After(deadline) {
				t.Fatal("the watcher lives on")
			}
		}
	}
}
