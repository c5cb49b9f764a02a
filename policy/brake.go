package policy

import (
	"net/netip"
	"sync"
	"time"
)

// GuessBrake slows down those who guess tokens. It only ever delays an answer
// that is a refusal anyway; a right token is never kept waiting. The zero
// GuessBrake is ready for use. It is safe for concurrent use and its memory is
// bounded, however many addresses there are.
type GuessBrake struct {
	mu       sync.Mutex
	failures map[string]*failureRing
	rest     failureRing // of all addresses that found the table full
	swept    time.Time
}

const (
	freeGuesses  = 20 // failures a minute without a delay
	guessWindow  = time.Minute
	guessDelay   = time.Second
	maxGuessers  = 4096
	sweepGuesses = time.Second // least time between two looks through a full table
)

// A failureRing holds the times of the last failures.
type failureRing struct {
	at   [freeGuesses]time.Time
	next int
}

// Failed notes a failed authentication from addr, an IP address, and returns
// how long to hold back the answer: nothing up to 20 failures within a minute,
// then one second. Addresses of one IPv6 /64 network count as one.
func (b *GuessBrake) Failed(addr string) time.Duration {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ring(network(addr), now).note(now)
}

func (b *GuessBrake) ring(addr string, now time.Time) *failureRing {
	if r := b.failures[addr]; r != nil {
		return r
	}
	if len(b.failures) >= maxGuessers && now.Sub(b.swept) >= sweepGuesses {
		b.swept = now
		for a, r := range b.failures {
			if now.Sub(r.newest()) > guessWindow {
				delete(b.failures, a)
			}
		}
	}
	if len(b.failures) >= maxGuessers {
		return &b.rest
	}
	if b.failures == nil {
		b.failures = make(map[string]*failureRing)
	}
	r := &failureRing{}
	b.failures[addr] = r
	return r
}

// note adds a failure and returns its delay.
func (r *failureRing) note(now time.Time) time.Duration {
	oldest := r.at[r.next]
	r.at[r.next] = now
	r.next = (r.next + 1) % len(r.at)
	if oldest.IsZero() || now.Sub(oldest) > guessWindow {
		return 0
	}
	return guessDelay
}

func (r *failureRing) newest() time.Time { return r.at[(r.next+len(r.at)-1)%len(r.at)] }

// network is what counts as one place: an IPv4 address, an IPv6 /64.
func network(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return addr
	}
	return p.String()
}
