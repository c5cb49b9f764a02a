package childenv

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func TestChangeSetsAndUnsetsInOneStep(t *testing.T) {
	s := New([]string{"A=1", "B=2", "odd", "=x", "A=3"})
	removed, err := s.Change(map[string]string{"C": "4", "B": "5"}, []string{"A", "NEVER", "A"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A"}, removed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"B": "5", "C": "4"}, s.Now()); diff != "" {
		t.Error(diff)
	}
	if removed, _ = s.Change(nil, []string{"C", "A"}); !cmp.Equal(removed, []string{"C"}) {
		t.Errorf("removed %q", removed)
	}
	if len(s.overlay) != 2 {
		t.Errorf("names nobody has are kept: %v", s.overlay)
	}
	if s.AtStart("A") != "3" {
		t.Errorf("A was %q at start", s.AtStart("A"))
	}
}

func TestTheEnvironmentIsBounded(t *testing.T) {
	s := New([]string{"A=1"})
	if _, err := s.Change(map[string]string{"B": strings.Repeat("x", MaxBytes)}, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1"}, s.Now()); diff != "" {
		t.Errorf("a refused change was made: %s", diff)
	}
	// One that was too large from the start may shrink.
	s = New([]string{"BIG=" + strings.Repeat("x", 2*MaxBytes), "A=1"})
	if _, err := s.Change(nil, []string{"A"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Change(map[string]string{"B": "1234"}, nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// Setting variables must not race with programs being started: each sees the
// one state or the other.
func TestEveryReaderSeesOneState(t *testing.T) {
	s := New(nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if env := s.Now(); env["A"] != env["B"] {
					t.Errorf("half a change: %v", env)
					return
				}
			}
		})
	}
	for i := range 2000 {
		v := fmt.Sprint(i)
		if _, err := s.Change(map[string]string{"A": v, "B": v}, nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}

func TestCallersDoNotChooseWhatManagersAreAskedWith(t *testing.T) {
	doc := policy.Empty()
	p, err := policy.Compile(doc, nil, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := New([]string{"A=1", "ABX_SERVER_TOKEN=x", "PYTHONPATH=/mine", "ABX_OTHER=o", "ABX_PTY_PORT=1"})
	if _, err := s.Change(map[string]string{"A": "2", "PYTHONPATH": "/theirs", "B": "3"}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "PYTHONPATH": "/mine", "ABX_OTHER": "o"}, s.Start(p)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"A": "2", "B": "3", "PYTHONPATH": "/mine", "ABX_OTHER": "o"}, s.Child(p, true)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A=2", "ABX_OTHER=o", "B=3", "PYTHONPATH=/theirs"}, List(s.Child(p, false))); diff != "" {
		t.Error(diff)
	}
}
