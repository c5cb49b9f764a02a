package policy

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		take := func() Decision { return l.Take("a", "ports", 3) }
		for i := range 3 {
			if d := take(); !d.OK() {
				t.Fatalf("call %d: %q", i, d.Code)
			}
		}
		for range 2 { // a refused call spends nothing
			d := take()
			if d.Code != RateLimited || d.Endpoint != "ports" || d.Retry != 20*time.Second {
				t.Fatalf("%+v", d)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if d := take(); d.Retry != 20*time.Second {
			t.Errorf("19.5 s left: %v", d.Retry)
		}
		time.Sleep(19*time.Second + 499*time.Millisecond)
		if d := take(); d.Code != RateLimited || d.Retry != time.Second {
			t.Errorf("a millisecond left: %q %v", d.Code, d.Retry)
		}
		time.Sleep(time.Millisecond)
		if d := take(); !d.OK() {
			t.Errorf("after the wait: %q", d.Code)
		}
		if d := take(); d.OK() {
			t.Error("one token came back, two were spent")
		}
		time.Sleep(time.Hour) // no more than the capacity comes back
		for i := range 4 {
			if d := take(); d.OK() != (i < 3) {
				t.Errorf("call %d after an hour: %q", i, d.Code)
			}
		}
	})
}

// However the rate divides the minute, exactly that many calls pass at once,
// and over a long time no more than the rate.
func TestRateLimitIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int64{1, 7, 59, 60, 61, 1000, 7919} {
			var l Limiter
			passed := int64(0)
			for l.Take("a", "x", n).OK() {
				passed++
			}
			if passed != n {
				t.Errorf("%d per minute: %d at once", n, passed)
			}
			for range 1200 {
				time.Sleep(100 * time.Millisecond)
				for l.Take("a", "x", n).OK() {
					passed++
				}
			}
			if passed > 3*n+1 || passed < 3*n-1 {
				t.Errorf("%d per minute: %d in two minutes", n, passed)
			}
		}
	})
}

func TestOddRates(t *testing.T) {
	var l Limiter
	for _, n := range []int64{0, -1, math.MinInt64} {
		if d := l.Take("a", "x", n); d.Code != RateLimited || d.Retry < time.Second {
			t.Errorf("%d per minute: %+v", n, d)
		}
	}
	for range 100 {
		if d := l.Take("a", "x", math.MaxInt64); !d.OK() {
			t.Fatalf("no limit to speak of: %q", d.Code)
		}
	}
}

func TestRateLimitIsPerIdentityAndEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for _, key := range [][2]string{{"a", "x"}, {"b", "x"}, {"a", "y"}, {"", "ax"}} {
			if d := l.Take(key[0], key[1], 1); !d.OK() {
				t.Errorf("%v: %q", key, d.Code)
			}
			if d := l.Take(key[0], key[1], 1); d.OK() {
				t.Errorf("%v twice", key)
			}
		}
	})
}

func TestChangedRateTakesEffectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for range 3 {
			l.Take("a", "x", 3)
		}
		if d := l.Take("a", "x", 60); d.Code != RateLimited || d.Retry != time.Second {
			t.Errorf("an empty bucket became larger: %+v", d)
		}
		time.Sleep(30 * time.Second)
		passed := 0
		for l.Take("a", "x", 60).OK() {
			passed++
		}
		if passed != 30 {
			t.Errorf("%d calls after half a minute", passed)
		}
		if d := l.Take("a", "x", 1); d.Retry != time.Minute {
			t.Errorf("the bucket became smaller: %+v", d)
		}
	})
}

func TestIdleBucketsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for round := range 20 {
			for i := range minSweep / 2 {
				l.Take(fmt.Sprint(round, " ", i), "x", 60)
			}
			time.Sleep(2 * time.Second)
		}
		if n := len(l.buckets); n > minSweep {
			t.Errorf("%d buckets are kept", n)
		}
	})
}

func TestConcurrencyLimit(t *testing.T) {
	var l Limiter
	if d := l.Free("a", "x", 1); !d.OK() {
		t.Errorf("nothing runs: %q", d.Code)
	}
	leave, d := l.Enter("a", "x", 1)
	if !d.OK() {
		t.Fatalf("first: %q", d.Code)
	}
	refused, d := l.Enter("a", "x", 1)
	if d.Code != ConcurrencyLimited || d.Endpoint != "x" || d.Retry != time.Second {
		t.Errorf("second: %+v", d)
	}
	refused() // gives nothing back
	if d := l.Free("a", "x", 1); d.Code != ConcurrencyLimited {
		t.Errorf("a look: %q", d.Code)
	}
	for _, key := range [][2]string{{"b", "x"}, {"a", "y"}} {
		other, d := l.Enter(key[0], key[1], 1)
		if !d.OK() {
			t.Errorf("%v: %q", key, d.Code)
		}
		other()
	}
	second, d := l.Enter("a", "x", 2) // the limit was raised
	if !d.OK() {
		t.Errorf("raised: %q", d.Code)
	}
	leave()
	leave() // once is enough
	if d := l.Free("a", "x", 1); d.OK() {
		t.Error("leaving twice freed another call's slot")
	}
	second()
	if d := l.Free("a", "x", 1); !d.OK() || len(l.running) != 0 {
		t.Errorf("all left: %q, %d remembered", d.Code, len(l.running))
	}
	for _, limit := range []int64{0, -1} {
		if _, d := l.Enter("a", "x", limit); d.OK() || l.Free("a", "x", limit).OK() {
			t.Errorf("limit %d lets a call in", limit)
		}
	}
}

// Many at once never run more than the limit, and none is lost.
func TestLimiterUnderLoad(t *testing.T) {
	const limit, callers, rounds = 3, 16, 300
	var l Limiter
	var running, taken, served atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				if l.Take("a", "rate", 100).OK() {
					taken.Add(1)
				}
				l.Free("a", "x", limit)
				leave, d := l.Enter("a", "x", limit)
				if d.OK() {
					served.Add(1)
					if n := running.Add(1); n > limit {
						t.Errorf("%d at once", n)
					}
					running.Add(-1)
				}
				leave()
			}
		})
	}
	wg.Wait()
	if served.Load() == 0 || len(l.running) != 0 {
		t.Errorf("%d served, %d still counted", served.Load(), len(l.running))
	}
	if n := taken.Load(); n < 100 {
		t.Errorf("%d tokens out of 100", n)
	}
}
