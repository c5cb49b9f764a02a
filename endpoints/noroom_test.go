package endpoints

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// What runs out first, and at which step of a start, must not decide what the
// caller is told: it was "internal error" for a pipe and "Input/output error:
// /dev/ptmx" for a terminal.
func TestAStartWithoutDescriptorsIsToldToComeBack(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC} {
		for step, err := range map[string]error{
			"a pipe":      startError(&proc.StartError{Path: "/bin/true", Err: os.NewSyscallError("pipe2", errno)}, "true"),
			"a fork":      startError(&proc.StartError{Path: "/bin/true", Err: errno}, "true"),
			"a terminal":  terminalError(fmt.Errorf("open a terminal: %w", &os.PathError{Op: "open", Path: "/dev/ptmx", Err: errno}), ""),
			"a directory": cwdError(&os.PathError{Op: "open", Path: "/home", Err: errno}),
		} {
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Status != 429 || e.Type != "ResourceError" || e.Code != "process_limit" {
				t.Errorf("%s, %v: %v", step, errno, err)
			}
		}
	}
}
