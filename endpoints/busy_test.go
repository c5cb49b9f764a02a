package endpoints

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// A program that was uploaded and run at once failed with "text file busy"
// when other commands were being started meanwhile.
func TestAnUploadedProgramIsNeverBusy(t *testing.T) {
	r := newRig(t, rigOptions{})
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	content := b64(program)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.call("POST", "/shell", map[string]any{"command": "true"})
				}
			}
		})
	}
	for i := range 60 {
		name := fmt.Sprintf("%s/p%d", r.base, i)
		if status, out := r.call("POST", "/files/upload-stream", map[string]any{"path": name, "content_base64": content, "mode": "0755"}); status != 200 {
			t.Fatalf("upload: %d %v", status, out)
		}
		if status, out := r.call("POST", "/shell", map[string]any{"command": name}); status != 200 || out["exit_code"] != 0.0 {
			t.Errorf("run %d: %d %v", i, status, out)
		}
	}
	close(stop)
	others.Wait()
}
