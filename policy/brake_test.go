package policy

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokenGuessingIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b GuessBrake
		for i := range 20 {
			if d := b.Failed("10.0.0.1"); d != 0 {
				t.Fatalf("failure %d waits %v", i, d)
			}
		}
		for range 50 {
			if d := b.Failed("10.0.0.1"); d <= 0 || d > time.Second {
				t.Fatalf("a guesser waits %v", d)
			}
		}
		if d := b.Failed("10.0.0.2"); d != 0 {
			t.Errorf("another address waits %v", d)
		}
		time.Sleep(time.Minute + time.Second)
		if d := b.Failed("10.0.0.1"); d != 0 {
			t.Errorf("a minute later: %v", d)
		}
	})
}

// Twenty a minute, spread evenly, never wait.
func TestSlowFailuresDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b GuessBrake
		for i := range 200 {
			if d := b.Failed("10.0.0.1"); d != 0 {
				t.Fatalf("failure %d waits %v", i, d)
			}
			time.Sleep(3001 * time.Millisecond)
		}
	})
}

func TestOneNetworkIsOneGuesser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b GuessBrake
		for i := range 20 {
			b.Failed(fmt.Sprintf("2001:db8::%x", i))
			b.Failed("::ffff:10.0.0.1")
		}
		if b.Failed("2001:db8::ffff") == 0 || b.Failed("10.0.0.1") == 0 {
			t.Error("another spelling of the address goes free")
		}
		if b.Failed("2001:db8:0:1::1") != 0 {
			t.Error("another network waits")
		}
	})
}

func TestManyGuessersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b GuessBrake
		for i := range 3 * maxGuessers {
			b.Failed(fmt.Sprint("name", i))
		}
		if n := len(b.failures); n > maxGuessers {
			t.Errorf("%d addresses are kept", n)
		}
		// Those without room share one count.
		if b.Failed("one more") == 0 {
			t.Error("a full table lets guessers go free")
		}
		time.Sleep(2 * time.Minute)
		if d := b.Failed("later"); d != 0 || len(b.failures) != 1 {
			t.Errorf("later: %v, %d kept", d, len(b.failures))
		}
	})
}

func TestBrakeUnderLoad(t *testing.T) {
	var b GuessBrake
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				b.Failed(fmt.Sprint("10.0.", g%2, ".", i%50))
			}
		})
	}
	wg.Wait()
	if len(b.failures) != 100 {
		t.Errorf("%d addresses", len(b.failures))
	}
}
