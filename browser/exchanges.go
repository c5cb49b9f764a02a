package browser

import (
	"context"
	"net"
	"sync"
)

// exchange is something that is under way through the proxy: a request, a
// tunnel, or a connection to a site.
type exchange struct {
	judge func(*Rules) error
	// narrowed, if not nil, tells whether what nobody can look into may carry
	// what newer rules deny.
	narrowed func(older, newer *Rules) bool
	cut      func()
}

// exchanges are all that are under way, so that new rules and the end of the
// proxy reach them. The zero exchanges have no rules, which must be set before
// they are used.
type exchanges struct {
	turn sync.Mutex // to change the rules

	mu     sync.Mutex
	rules  *Rules
	closed bool
	open   map[*exchange]struct{}
}

func (x *exchanges) inForce() *Rules {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.rules
}

// begin enters an exchange that the rules admit. Rules that change at the same
// time either admit it or cut it. The error is that of judge, or
// [net.ErrClosed].
func (x *exchanges) begin(e *exchange) (end func(), err error) {
	x.mu.Lock()
	rules := x.rules
	if x.closed {
		x.mu.Unlock()
		return nil, net.ErrClosed
	}
	if x.open == nil {
		x.open = map[*exchange]struct{}{}
	}
	x.open[e] = struct{}{}
	x.mu.Unlock()
	end = func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.open, e)
	}
	if err := e.judge(rules); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// obey puts new rules in force and cuts what they do not admit; false when they
// were in force already.
func (x *exchanges) obey(newer *Rules) bool {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.mu.Lock()
	older := x.rules
	x.rules = newer
	x.mu.Unlock()
	if older == newer {
		return false
	}
	for _, e := range x.list() {
		if e.judge(newer) != nil || e.narrowed != nil && e.narrowed(older, newer) {
			e.cut()
		}
	}
	return true
}

func (x *exchanges) list() []*exchange {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]*exchange, 0, len(x.open))
	for e := range x.open {
		out = append(out, e)
	}
	return out
}

// close cuts all and lets none begin.
func (x *exchanges) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	for _, e := range x.list() {
		e.cut()
	}
}

// cuttable is a context that ends when an exchange is cut.
func (x *exchanges) cuttable(ctx context.Context, judge func(*Rules) error) (context.Context, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	end, err := x.begin(&exchange{judge: judge, cut: cancel})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, func() { end(); cancel() }, nil
}

// upstream is a connection to a site that lasts while the rules admit the
// addresses of its name.
type upstream struct {
	net.Conn
	end func()
}

func (u *upstream) Close() error {
	u.end()
	return u.Conn.Close()
}
