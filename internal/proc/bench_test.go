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
