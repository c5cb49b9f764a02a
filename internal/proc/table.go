package proc

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// What a [Table] keeps of ended processes.
const (
	keepEnded   = 256
	keepFor     = 10 * time.Minute
	keepBytes   = 256 << 20
	entryWeight = 2 << 10 // what an entry costs beside its texts and output, generously
)

// LimitError says that as many are running as may run at once.
type LimitError struct{ Limit int }

func (e *LimitError) Error() string {
	return fmt.Sprintf("%d processes are running already", e.Limit)
}

// Slots counts what runs at once. The zero Slots is ready for use, by many.
type Slots struct{ used atomic.Int64 }

// Take counts one in, or returns a [*LimitError] when limit are in already.
// release counts it out; further calls do nothing.
func (s *Slots) Take(limit int) (release func(), err error) {
	for {
		n := s.used.Load()
		if n >= int64(limit) {
			return nil, &LimitError{limit}
		}
		if s.used.CompareAndSwap(n, n+1) {
			return sync.OnceFunc(func() { s.used.Add(-1) }), nil
		}
	}
}

// Viewer is who asks a [Table]: one identity sees its own processes, with All
// everyone's.
type Viewer struct {
	Owner string
	All   bool
}

func (v Viewer) sees(e *Entry) bool { return v.All || v.Owner == e.Owner }

// Entry is a background process. Its fields do not change.
type Entry struct {
	// ID is unique for ever; process ids are not.
	ID string
	// Owner, Command and Label are as they were given.
	Owner, Command, Label string
	// Process is the process itself.
	Process *Process
	// Log has its output; nil when it is not captured.
	Log *Log

	seq     int64
	listed  bool // under Table.mu
	exited  bool // under Table.mu
	endedAt time.Time
	release func()
}

// Table holds background processes: those that run, and of those that have
// ended the newest 256 and all of the last ten minutes, as long as what is
// kept does not exceed 256 MiB; then the oldest go first. All methods are safe
// together.
type Table struct {
	m     *Manager
	slots Slots
	bytes atomic.Int64 // kept by all entries
	now   func() time.Time

	mu    sync.Mutex
	seq   int64
	byID  map[string]*Entry
	byPID map[int]*Entry // the newest bearer of a number
	ended []*Entry       // oldest first
}

// NewTable makes a table of processes that m starts.
func NewTable(m *Manager) *Table {
	return &Table{m: m, now: time.Now, byID: map[string]*Entry{}, byPID: map[int]*Entry{}}
}

// Reservation is a place for one running process.
type Reservation struct {
	t       *Table
	release func()
}

// Reserve takes a place among limit processes that may run at once, or returns
// a [*LimitError]. The caller calls Start or Release.
func (t *Table) Reserve(limit int) (*Reservation, error) {
	release, err := t.slots.Take(limit)
	if err != nil {
		return nil, err
	}
	return &Reservation{t, release}, nil
}

// Release gives the place back if no process was started. It may be deferred.
func (r *Reservation) Release() {
	if r.release != nil {
		r.release()
	}
}

// Start starts a process in the reserved place and enters it. If spec.Output
// is a [*Log] it can be read from the entry. The process does not depend on
// the context of the request; ctx bounds only the start. After a start that
// failed only Release is of use.
func (r *Reservation) Start(ctx context.Context, spec Spec, owner, command, label string) (*Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t := r.t
	e := &Entry{ID: rand.Text(), Owner: owner, Command: command, Label: label, release: r.release}
	if log, ok := spec.Output.(*Log); ok {
		log.countIn(&t.bytes)
		e.Log = log
	}
	p, err := t.m.start(context.WithoutCancel(ctx), spec, func() { t.exited(e) })
	if err != nil {
		if e.Log != nil {
			e.Log.discard()
		}
		return nil, err
	}
	r.release = nil // its end gives the place back
	e.Process = p
	t.enter(e)
	return e, nil
}

// Adopt enters a process that was started elsewhere, such as the program of a
// terminal, in the reserved place. It is called once for a process, which was
// not started by Start.
func (r *Reservation) Adopt(p *Process, owner, command, label string) *Entry {
	t := r.t
	e := &Entry{ID: rand.Text(), Owner: owner, Command: command, Label: label, Process: p, release: r.release}
	r.release = nil
	t.enter(e)
	p.whenExited(func() { t.exited(e) })
	return e
}

func (t *Table) enter(e *Entry) {
	t.mu.Lock()
	t.seq++
	e.seq = t.seq
	e.listed = true
	t.byID[e.ID] = e
	t.byPID[e.Process.pid] = e
	t.bytes.Add(e.weight())
	if e.exited {
		t.ended = append(t.ended, e)
	}
	gone := t.prune()
	t.mu.Unlock()
	t.forget(gone)
}

// weight is what the entry costs beside its output.
func (e *Entry) weight() int64 { return int64(entryWeight + len(e.Command) + len(e.Label)) }

// exited is called under the process's lock when it has ended.
func (t *Table) exited(e *Entry) {
	e.release()
	t.mu.Lock()
	e.exited = true
	e.endedAt = t.now()
	if e.listed {
		t.ended = append(t.ended, e)
	}
	gone := t.prune()
	t.mu.Unlock()
	if len(gone) > 0 {
		t.m.spawn(func() { t.forget(gone) }) // not here: it takes other processes' locks
	}
}

// prune takes out what need not be kept. It is called under t.mu.
func (t *Table) prune() []*Entry {
	n := 0
	for ; n < len(t.ended); n++ {
		e := t.ended[n]
		old := len(t.ended)-n > keepEnded && t.now().Sub(e.endedAt) > keepFor
		if !old && t.bytes.Load() <= keepBytes {
			break
		}
		delete(t.byID, e.ID)
		if t.byPID[e.Process.pid] == e {
			delete(t.byPID, e.Process.pid)
		}
		t.bytes.Add(-e.weight())
		if e.Log != nil {
			e.Log.discard()
		}
	}
	gone := t.ended[:n:n]
	t.ended = t.ended[n:]
	return gone
}

// forget drops what may still come from processes that were taken out.
func (t *Table) forget(gone []*Entry) {
	for _, e := range gone {
		e.Process.Forget()
	}
}

// Get finds the newest process with that id, running or not, if v may see it.
func (t *Table) Get(pid int, v Viewer) (*Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byPID[pid]
	if !ok || !v.sees(e) {
		return nil, false
	}
	return e, true
}

// ByID finds a process by Entry.ID, if v may see it.
func (t *Table) ByID(id string, v Viewer) (*Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byID[id]
	if !ok || !v.sees(e) {
		return nil, false
	}
	return e, true
}

// List returns what v may see, in the order of starts: the running processes,
// and those that have ended too if ended is set.
func (t *Table) List(v Viewer, ended bool) []*Entry {
	t.mu.Lock()
	gone := t.prune()
	out := make([]*Entry, 0, len(t.byID)-len(t.ended))
	for _, e := range t.byID {
		if v.sees(e) && (ended || !e.exited) {
			out = append(out, e)
		}
	}
	t.mu.Unlock()
	t.forget(gone)
	slices.SortFunc(out, func(a, b *Entry) int { return int(a.seq - b.seq) })
	return out
}
