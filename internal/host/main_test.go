package host

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestMain(m *testing.M) {
	proc.Stage()
	if os.Getenv("HOST_TEST_TELL") != "" {
		if err := tell(); err != nil {
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait; reaching it is a failure, never a measure.
const patience = 30 * time.Second

// newPython is a Python with a process manager of its own.
func newPython(t testing.TB) *Python {
	t.Helper()
	procs, err := proc.New(proc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := procs.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return NewPython(procs)
}
