package policy

import (
	"sync"
	"time"
)

// Limiter counts calls for rate_per_minute and max_concurrency, per identity
// and endpoint. It outlives a policy: the limits come with every question, so
// a reload takes effect at once and frees nobody of what was already spent.
// The zero Limiter is ready for use. It is safe for concurrent use and
// remembers only calls of the last minute and those still running.
type Limiter struct {
	mu      sync.Mutex
	buckets map[limiterKey]time.Time // when the bucket is full again
	sweepAt int                      // look for full buckets at that many
	running map[limiterKey]int64
}

type limiterKey struct{ identity, endpoint string }

// minSweep is the number of buckets below which nothing is tidied.
const minSweep = 1024

// Take spends one token of a bucket that holds perMinute tokens, starts full
// and gets perMinute new ones a minute. The refusal is [RateLimited] with
// whole seconds to wait, at least one, and spends nothing. A limit below 1
// refuses everything.
func (l *Limiter) Take(identity, endpoint string, perMinute int64) Decision {
	if perMinute < 1 {
		return rateLimited(endpoint, time.Minute)
	}
	key := limiterKey{identity, endpoint}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	// A bucket is kept as the time it is full again. What is missing is
	// measured in time too, so it keeps its share when the limit changes.
	token := time.Minute / time.Duration(perMinute)
	missing := max(0, l.buckets[key].Sub(now))
	if over := missing + token - token*time.Duration(perMinute); over > 0 {
		return rateLimited(endpoint, over)
	}
	if token == 0 {
		return Allow() // more per minute than there are nanoseconds
	}
	if l.buckets == nil {
		l.buckets = make(map[limiterKey]time.Time)
	}
	l.buckets[key] = now.Add(missing + token)
	l.sweep(now)
	return Allow()
}

// sweep forgets full buckets when the table has doubled since the last time.
func (l *Limiter) sweep(now time.Time) {
	if len(l.buckets) < max(l.sweepAt, minSweep) {
		return
	}
	for key, full := range l.buckets {
		if !full.After(now) {
			delete(l.buckets, key)
		}
	}
	l.sweepAt = 2 * len(l.buckets)
}

// rateLimited refuses for a time, which is above zero and is rounded up.
func rateLimited(endpoint string, wait time.Duration) Decision {
	return Decision{
		Code: RateLimited, Endpoint: endpoint, Text: "Rate limit exceeded",
		Retry: (wait + time.Second - 1).Truncate(time.Second),
	}
}

// Enter takes a slot out of limit. When allowed, leave gives it back; it
// may be called more than once and is never nil. The refusal is
// [ConcurrencyLimited]. A limit below 1 refuses everything.
func (l *Limiter) Enter(identity, endpoint string, limit int64) (leave func(), d Decision) {
	key := limiterKey{identity, endpoint}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[key] >= limit {
		return func() {}, concurrencyLimited(endpoint)
	}
	if l.running == nil {
		l.running = make(map[limiterKey]int64)
	}
	l.running[key]++
	return sync.OnceFunc(func() { l.leave(key) }), Allow()
}

func (l *Limiter) leave(key limiterKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[key]--; l.running[key] <= 0 {
		delete(l.running, key)
	}
}

// Free tells what [Limiter.Enter] would, and takes nothing.
func (l *Limiter) Free(identity, endpoint string, limit int64) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[limiterKey{identity, endpoint}] >= limit {
		return concurrencyLimited(endpoint)
	}
	return Allow()
}

func concurrencyLimited(endpoint string) Decision {
	return Decision{
		Code: ConcurrencyLimited, Endpoint: endpoint, Text: "Too many concurrent requests",
		Retry: time.Second,
	}
}
