package proc

import (
	"bytes"
	"os/exec"
	"testing"
	"time"
)

// The two below are to be compared: a start with both outputs kept must stay
// within 1.5 times of the bare one.

func BenchmarkBareExec(b *testing.B) {
	for b.Loop() {
		var out, errs bytes.Buffer
		c := exec.Command("/bin/true")
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRun(b *testing.B, opts Options, spec Spec) {
	m := newManager(b, opts)
	spec.Grace.Silence = time.Second
	spec.Timeout = time.Minute
	b.ResetTimer()
	for b.Loop() {
		r, err := m.Run(b.Context(), spec, 10<<20)
		if err != nil || r.Code != 0 {
			b.Fatal(r, err)
		}
	}
}

var trueSpec = Spec{Path: "/bin/true", Env: testEnv}

func BenchmarkRun(b *testing.B)          { benchRun(b, Options{}, trueSpec) }
func BenchmarkRunNoCgroups(b *testing.B) { benchRun(b, Options{NoCgroups: true}, trueSpec) }

// benchFeed reads a stream of lines as a stream handler does.
func benchFeed(b *testing.B, script string) {
	m := newManager(b, Options{})
	const size = 200_000_000
	b.SetBytes(size)
	for b.Loop() {
		feed := NewFeed()
		s := bash(script + " | head -c 200000000")
		s.Output = feed
		p, err := m.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		var lines Lines
		total, count := 0, 0
		for {
			_, data, err := feed.Next(b.Context())
			if err != nil {
				break
			}
			total += len(data)
			_ = lines.Feed(data, func([]byte, bool) error { count++; return nil })
		}
		<-p.Done()
		if total != size || count == 0 {
			b.Fatal(total, count)
		}
	}
}

func BenchmarkFeedShortLines(b *testing.B) { benchFeed(b, "yes 0123456789012345678") }
func BenchmarkFeedLines(b *testing.B)      { benchFeed(b, "yes $(printf %0999d 1)") }

func BenchmarkLog(b *testing.B) {
	m := newManager(b, Options{})
	const size = 200_000_000
	b.SetBytes(size)
	for b.Loop() {
		s := bash("yes | head -c 200000000")
		s.Output = NewLog(1 << 20)
		p, err := m.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		<-p.Done()
	}
}

func BenchmarkRunParallel(b *testing.B) {
	m := newManager(b, Options{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := m.Run(b.Context(), trueSpec, 10<<20); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkEnd(b *testing.B) {
	m := newManager(b, Options{})
	for b.Loop() {
		p, err := m.Start(b.Context(), Spec{Path: "/bin/sleep", Argv: []string{"sleep", "60"}, Env: testEnv})
		if err != nil {
			b.Fatal(err)
		}
		p.End(ReasonTimeout)
		<-p.Done()
	}
}
