package proc

import (
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestRun(t *testing.T) {
	m := newManager(t, Options{})
	r := run(t, m, sh("echo out; echo err >&2; exit 3"))
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.Code != 3 || r.Reason != ReasonExited {
		t.Fatalf("%+v %q %q", r.Status, r.Stdout, r.Stderr)
	}
}
