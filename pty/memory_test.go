package pty

import (
	"context"
	"io"
	"runtime"
	"testing"
)

// memory is what the runtime has in use, after a collection.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestIdleSessionIsSmall: a thousand of them must fit a small machine.
func TestIdleSessionIsSmall(t *testing.T) {
	m := newManager(t, Options{})
	const n = 100
	before := memory()
	for range n {
		shown(t, create(t, m, shell()), "$")
	}
	if each := (memory() - before) / n; each > 64<<10 {
		t.Errorf("%d bytes for an idle session", each)
	}
}

// TestFloodKeepsMemoryFlat: neither the output nor a viewer that takes none of
// it may cost more than the ring.
func TestFloodKeepsMemoryFlat(t *testing.T) {
	m := newManager(t, Options{})
	srv := serve(t, m)
	const size = 100_000_000
	s := create(t, m, shell("-c", "stty -echo; read x; head -c 100000000 /dev/zero"))
	dial(t, srv, s, "") // never reads
	ws := dial(t, srv, s, "&since=0", RawProtocol)
	before := memory()
	typeTo(t, s, "\n")
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	defer cancel()
	worst, got := int64(0), int64(0)
	for next := int64(0); ; {
		_, r, err := ws.Reader(ctx)
		if err != nil {
			break
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			t.Fatal(err)
		}
		if got += n; got >= next {
			worst = max(worst, memory()-before)
			next += size / 20
		}
	}
	if got < size {
		t.Errorf("%d bytes of %d arrived", got, size)
	}
	if worst > 16<<20 {
		t.Errorf("memory grew by %d bytes", worst)
	}
}
