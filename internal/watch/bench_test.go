package watch

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// large makes a tree of 100 000 files.
func large(b *testing.B, dirs int) string {
	b.Helper()
	d := b.TempDir()
	for i := range dirs {
		sub := fmt.Sprintf("%s/dir%d/sub%d", d, i%100, i)
		must(b, os.MkdirAll(sub, 0o755))
		for j := range 100_000 / dirs {
			write(b, fmt.Sprintf("%s/file-%04d.txt", sub, j), "")
		}
	}
	return d
}

// BenchmarkArm measures how long ready takes, and what is kept for the tree.
func BenchmarkArm(b *testing.B) {
	for _, dirs := range []int{1000, 20_000} {
		b.Run(fmt.Sprintf("files=100000/dirs=%d", dirs), func(b *testing.B) {
			d := large(b, dirs)
			h := newHub(b)
			var before, after runtime.MemStats
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&before)
				b.StartTimer()
				l := listen(b, h, d, Options{Recursive: true})
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&after)
				l.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB/tree")
		})
	}
}

// BenchmarkTell measures a change from the system call to the reader, without
// the time it rests.
func BenchmarkTell(b *testing.B) {
	d := b.TempDir()
	l := listen(b, newHub(b), d, Options{Raw: true})
	for b.Loop() {
		must(b, os.Mkdir(d+"/d", 0o755))
		if _, err := l.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
		must(b, os.Remove(d+"/d"))
		if _, err := l.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
