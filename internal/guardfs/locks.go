package guardfs

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// pathLocks let one writer at a time finish its work on a path, so that
// conditions and appends hold between calls of this server.
type pathLocks struct {
	mu   sync.Mutex
	held map[string]*pathLock
}

type pathLock struct {
	mu    sync.Mutex
	users int
}

// lock waits for the path and returns what gives it back. Holders keep it for
// one step on the disk, never while they wait for a client.
func (l *pathLocks) lock(path string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*pathLock{}
	}
	k := l.held[path]
	if k == nil {
		k = &pathLock{}
		l.held[path] = k
	}
	k.users++
	l.mu.Unlock()
	k.mu.Lock()
	return func() {
		k.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, path)
		}
	}
}

// lockAll locks several paths and returns what gives them back.
func (l *pathLocks) lockAll(paths []string) (unlock func()) {
	// In one order for everybody, or two callers could wait for each other.
	slices.Sort(paths)
	paths = slices.Compact(paths)
	unlocks := make([]func(), len(paths))
	for i, p := range paths {
		unlocks[i] = l.lock(p)
	}
	return func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
}

// letForksPass waits until every child that was forked while a file was open
// for writing has executed its program and so closed its copy. Before that,
// running the new file fails with ETXTBSY.
func letForksPass() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}

// currentUmask reads the umask without changing it, which would be seen by
// other threads.
func currentUmask() uint32 {
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if text, ok := strings.CutPrefix(line, "Umask:"); ok {
				if mask, err := strconv.ParseUint(strings.TrimSpace(text), 8, 32); err == nil {
					return uint32(mask) & 0o777
				}
			}
		}
	}
	return 0o022
}
