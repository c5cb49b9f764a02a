package endpoints

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

func TestServerWithoutDescriptorsHasNoInternalError(t *testing.T) {
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		err := fmt.Errorf("start git: %w", cause)
		for name, got := range map[string]error{"start": startError(err, "git"), "git": gitError(err), "packages": listingError("pip", err)} {
			if e, ok := errors.AsType[*api.Error](got); !ok || e.Status != 429 || e.Code != "process_limit" || e.Type != "ResourceError" {
				t.Errorf("%s: %v is answered as %+v", name, cause, got)
			}
		}
	}
}
