package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// forkMu makes "set the mark, fork, take the mark away" one step: the mark is
// a property of this whole process while a child inherits it. The reaper takes
// it too, to let a start finish its entry in the table of children.
var forkMu sync.Mutex

// A mark is the value of the soft RLIMIT_LOCKS of everything that one start
// brought into the world: 31 random bits of the manager, one bit "detached",
// 31 bits that count. The kernel stores the limit and does nothing with it.
type mark uint64

const markDetached mark = 1 << 31

func (k mark) detached() bool { return k&markDetached != 0 }

// marker gives out the marks of one manager.
type marker struct {
	on    bool
	base  unix.Rlimit // our own limit, restored after each fork
	nonce mark
	seq   uint32 // under forkMu
}

// newMarker finds out whether marks can be set and read here.
func newMarker() marker {
	var m marker
	var b [8]byte
	_, _ = rand.Read(b[:])
	m.nonce = mark(binary.LittleEndian.Uint64(b[:])>>34|1) << 32
	forkMu.Lock()
	defer forkMu.Unlock()
	if unix.Prlimit(0, unix.RLIMIT_LOCKS, nil, &m.base) != nil || m.base.Max != math.MaxUint64 {
		return m
	}
	probe := m.next(false)
	if !m.set(probe) {
		return m
	}
	got, ok := markOf(os.Getpid())
	m.on = m.clear() && ok && got == probe
	return m
}

// next is called under forkMu.
func (m *marker) next(detached bool) mark {
	m.seq = (m.seq + 1) &^ (1 << 31)
	k := m.nonce | mark(m.seq)
	if detached {
		k |= markDetached
	}
	return k
}

// set and clear are called under forkMu.
func (m *marker) set(k mark) bool {
	lim := unix.Rlimit{Cur: uint64(k), Max: m.base.Max}
	return unix.Prlimit(0, unix.RLIMIT_LOCKS, &lim, nil) == nil
}

func (m *marker) clear() bool {
	return unix.Prlimit(0, unix.RLIMIT_LOCKS, &m.base, nil) == nil
}

// ours says that k was given out by this manager.
func (m *marker) ours(k mark) bool { return m.on && k>>32 == m.nonce>>32 }

// markOf reads the mark of a process, also of a zombie. The number may belong
// to another process a moment later: callers hold a pidfd across the question.
func markOf(pid int) (mark, bool) {
	var lim unix.Rlimit
	switch unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &lim) {
	case nil:
		return mark(lim.Cur), true
	case unix.EPERM: // another user, and we may not ask the short way
		return markFromLimits(pid)
	}
	return 0, false
}

func markFromLimits(pid int) (mark, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return 0, false
	}
	_, rest, found := bytes.Cut(text, []byte("Max file locks"))
	if !found {
		return 0, false
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(fields[0]), 10, 64)
	return mark(n), err == nil // "unlimited" is no mark
}
