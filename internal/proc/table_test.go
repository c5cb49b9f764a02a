package proc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var everyone = Viewer{All: true}

func enter(t *testing.T, tab *Table, s Spec, owner, command string) *Entry {
	t.Helper()
	r, err := tab.Reserve(10_000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	e, err := r.Start(t.Context(), s, owner, command, "label")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestOutputOfAFinishedProcessIsStillThere: another start or a list must not
// lose it.
func TestOutputOfAFinishedProcessIsStillThere(t *testing.T) {
	tab := NewTable(newManager(t, Options{}))
	s := sh("echo keepme; exit 9")
	s.Output = NewLog(1 << 20)
	e := enter(t, tab, s, "a", "echo keepme")
	await(t, e.Process.Done(), "done")
	await(t, enter(t, tab, trueSpec, "a", "true").Process.Done(), "done")
	tab.List(everyone, false)
	got, ok := tab.Get(e.Process.PID(), everyone)
	if !ok || got != e || logText(got.Log) != "keepme\n" {
		t.Fatalf("%v %v", got, ok)
	}
	if st, ended := got.Process.Status(); !ended || st.Code != 9 {
		t.Errorf("%+v", st)
	}
	if e.Owner != "a" || e.Command != "echo keepme" || e.Label != "label" {
		t.Errorf("%+v", e)
	}
}

func TestProcessesBelongToTheirOwner(t *testing.T) {
	tab := NewTable(newManager(t, Options{}))
	a := enter(t, tab, sh("sleep 60"), "a", "one")
	b := enter(t, tab, sh("sleep 60"), "b", "two")
	for _, tc := range []struct {
		v    Viewer
		want []*Entry
	}{{Viewer{Owner: "a"}, []*Entry{a}}, {Viewer{Owner: "b"}, []*Entry{b}}, {everyone, []*Entry{a, b}}, {Viewer{}, nil}} {
		list := tab.List(tc.v, true)
		if fmt.Sprint(list) != fmt.Sprint(tc.want) {
			t.Errorf("%+v sees %d", tc.v, len(list))
		}
		_, byPID := tab.Get(a.Process.PID(), tc.v)
		_, byID := tab.ByID(a.ID, tc.v)
		if want := tc.v.All || tc.v.Owner == "a"; byPID != want || byID != want {
			t.Errorf("%+v: %v %v", tc.v, byPID, byID)
		}
	}
	if _, ok := tab.Get(1, everyone); ok {
		t.Error("a stranger is listed")
	}
	if _, ok := tab.Get(-5, everyone); ok {
		t.Error("a negative number is listed")
	}
}

func TestTheLimitHoldsForParallelStarts(t *testing.T) {
	m := newManager(t, Options{})
	tab := NewTable(m)
	const limit = 3
	var wg sync.WaitGroup
	var started, refused atomic.Int64
	for range 40 {
		wg.Go(func() {
			r, err := tab.Reserve(limit)
			if full, ok := errors.AsType[*LimitError](err); ok {
				refused.Add(1)
				if full.Limit != limit {
					t.Errorf("limit %d", full.Limit)
				}
				return
			}
			defer r.Release()
			if _, err := r.Start(t.Context(), sh("sleep 60"), "", "", ""); err != nil {
				t.Error(err)
			}
			started.Add(1)
		})
	}
	wg.Wait()
	if started.Load() != limit || refused.Load() != 37 || len(tab.List(everyone, false)) != limit {
		t.Errorf("%d started, %d refused", started.Load(), refused.Load())
	}
	// Each end and each start that failed gives a place back.
	first := tab.List(everyone, false)[0].Process
	first.End("")
	await(t, first.Exited(), "exited")
	r, err := tab.Reserve(limit)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Start(t.Context(), Spec{Path: "/nope"}, "", "", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	r.Release()
	r.Release()
	if r, err = tab.Reserve(limit); err != nil {
		t.Fatal(err)
	}
	r.Release()
	if n := len(tab.List(everyone, true)); n != limit {
		t.Errorf("%d entries", n)
	}
}

func TestEndedProcessesAreKeptForAWhile(t *testing.T) {
	tab := NewTable(newManager(t, Options{}))
	now := time.Now()
	var mu sync.Mutex
	tab.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	after := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }

	running := enter(t, tab, sh("sleep 60"), "", "")
	var all []*Entry
	for range keepEnded + 20 {
		all = append(all, enter(t, tab, trueSpec, "", ""))
	}
	for _, e := range all {
		await(t, e.Process.Done(), "done")
	}
	if n := len(tab.List(everyone, true)); n != keepEnded+21 {
		t.Errorf("%d kept at once", n)
	}
	after(keepFor + time.Second)
	list := tab.List(everyone, true)
	if len(list) != keepEnded+1 || list[0] != running {
		t.Errorf("%d kept later", len(list))
	}
	kept := map[string]bool{}
	for _, e := range list {
		kept[e.ID] = true
	}
	for _, e := range tab.ended {
		if !kept[e.ID] {
			t.Error("ended and listed differ")
		}
	}
	if want := int64(len(list)) * list[0].weight(); tab.bytes.Load() != want {
		t.Errorf("%d bytes accounted, want %d", tab.bytes.Load(), want)
	}
	if len(tab.List(everyone, false)) != 1 {
		t.Error("ended ones are listed as running")
	}
}

func TestKeptOutputIsBounded(t *testing.T) {
	m := newManager(t, Options{})
	tab := NewTable(m)
	s := sh("sleep 7147 & head -c 900000 /dev/zero") // the child holds the pipe
	s.Output = NewLog(1 << 20)
	e := enter(t, tab, s, "", "")
	await(t, e.Process.Exited(), "exited")
	if got := tab.bytes.Load(); got != 900000+e.weight() {
		t.Errorf("%d bytes counted", got)
	}
	tab.bytes.Add(keepBytes) // as if others had that much
	next := enter(t, tab, trueSpec, "", "")
	if _, ok := tab.ByID(e.ID, everyone); ok {
		t.Error("still there")
	}
	await(t, e.Process.Done(), "what was taken out is done, though the child lives")
	if e.Log.Bytes() != 0 || !e.Log.Read(0).Ended {
		t.Error("its output is still held")
	}
	await(t, next.Process.Done(), "done")
	if n := len(withArg("7147")); n != 1 {
		t.Errorf("the child: %d", n)
	}
	e.Process.End("")
}

// TestANumberMeansItsNewestBearer: the kernel gives a number again.
func TestANumberMeansItsNewestBearer(t *testing.T) {
	tab := NewTable(newManager(t, Options{}))
	old := enter(t, tab, trueSpec, "a", "old")
	await(t, old.Process.Done(), "done")
	tab.mu.Lock() // as if the next start had got the number of the first
	newer := &Entry{ID: "newer", Owner: "a", Process: old.Process, seq: 99}
	tab.byPID[old.Process.pid] = newer
	tab.mu.Unlock()
	if e, _ := tab.Get(old.Process.PID(), everyone); e != newer {
		t.Error("the number leads to the old process")
	}
	if e, _ := tab.ByID(old.ID, everyone); e != old {
		t.Error("the id does not lead to the old process")
	}
	tab.bytes.Add(keepBytes)
	tab.List(everyone, true) // takes the old one out
	tab.bytes.Add(-keepBytes)
	if e, _ := tab.Get(old.Process.PID(), everyone); e != newer {
		t.Error("taking out the old process lost the new one")
	}
}

func TestABackgroundProcessOutlivesItsRequest(t *testing.T) {
	tab := NewTable(newManager(t, Options{}))
	var e *Entry
	t.Run("request", func(t *testing.T) { e = enter(t, tab, sh("sleep 60"), "", "") }) // its context ends here
	if !alive(e.Process.PID()) {
		t.Fatal("it ended with the request")
	}
	if err := e.Process.Signal(unix.SIGTERM, true); err != nil {
		t.Fatal(err)
	}
	await(t, e.Process.Done(), "done")
}

func TestAdoptedProcessIsOneOfTheTable(t *testing.T) {
	m := newManager(t, Options{})
	tab := NewTable(m)
	adopt := func(p *Process) *Entry {
		r, err := tab.Reserve(2)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		return r.Adopt(p, "a", "elsewhere", "")
	}
	p := start(t, m, sh("exit 4"))
	await(t, p.Exited(), "exited")
	late := adopt(p) // it has ended before it came
	live := adopt(start(t, m, sh("sleep 60")))
	if list := tab.List(everyone, false); len(list) != 1 || list[0] != live {
		t.Errorf("running: %v", list)
	}
	if list := tab.List(everyone, true); len(list) != 2 || list[0] != late {
		t.Errorf("all: %v", list)
	}
	second := adopt(start(t, m, sh("sleep 60")))
	if _, err := tab.Reserve(2); err == nil {
		t.Error("an adopted process takes no place")
	}
	second.Process.End("")
	await(t, second.Process.Exited(), "exited")
	if r, err := tab.Reserve(2); err != nil {
		t.Errorf("its place was not given back: %v", err)
	} else {
		r.Release()
	}
}
