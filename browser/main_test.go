package browser

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestMain(m *testing.M) {
	proc.Stage()
	goleak.VerifyTestMain(m)
}
