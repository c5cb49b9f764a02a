package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServerOptions bound one HTTP listener.
type ServerOptions struct {
	HeaderTimeout  time.Duration // for the head of a request to arrive
	IdleTimeout    time.Duration // for a kept connection without a request
	MaxConnections int
	HTTP2          bool // HTTP/2 without TLS too, for clients that begin with it
	Log            *slog.Logger
}

// maxHead is the most bytes of a request's head.
const maxHead = 1 << 20

// Serve serves h on l until ctx ends; it then stops accepting, lets requests
// run until the grace context given by stop ends, cuts what is left and
// returns nil. The contexts of requests that are cut have the grace context's
// cause, which tells them from those of clients that went. It owns l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o ServerOptions, stop func() (context.Context, context.CancelFunc)) error {
	pool := newPool(o.MaxConnections)
	requests, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	srv := &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: o.HeaderTimeout,
		IdleTimeout:       o.IdleTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ConnState:         pool.state,
	}
	if o.HTTP2 {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(&pooledListener{l, pool}) }()
	select {
	case err := <-failed:
		_ = cut // what is being answered has until the server stops
		return err
	case <-ctx.Done():
	}
	grace, cancel := stop()
	defer cancel()
	pool.close()
	shutDown(grace, srv, cut) //nolint:contextcheck // ctx is over, which is why this is called
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return nil
}

// shutDown lets requests run until grace ends, and cuts what is left.
func shutDown(grace context.Context, srv *http.Server, cut context.CancelCauseFunc) {
	if srv.Shutdown(grace) == nil {
		return
	}
	cut(context.Cause(grace)) // first: closing ends the contexts too
	_ = srv.Close()
}

// pool counts the connections of a listener. When it is full the connection
// that has been idle longest makes room; only when none is idle the newcomer
// waits. Clients that abandon their connections must not shut others out.
type pool struct {
	mu     sync.Mutex
	room   *sync.Cond
	max    int
	open   map[net.Conn]*seat
	closed bool
	// The idle seats, oldest first, as a ring through the sentinel.
	idle seat
}

type seat struct {
	conn       net.Conn
	fresh      bool // no request yet
	prev, next *seat
}

func (s *seat) unlink() {
	if s.next != nil {
		s.prev.next, s.next.prev = s.next, s.prev
		s.prev, s.next = nil, nil
	}
}

func newPool(most int) *pool {
	p := &pool{max: most, open: map[net.Conn]*seat{}}
	p.room = sync.NewCond(&p.mu)
	p.idle.prev, p.idle.next = &p.idle, &p.idle
	return p
}

// enter waits until c may be served; false when the listener is closing.
func (p *pool) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.open) >= p.max && !p.closed {
		oldest := p.idle.next
		if oldest == &p.idle {
			p.room.Wait()
			continue
		}
		oldest.unlink()
		delete(p.open, oldest.conn)
		_ = oldest.conn.Close()
	}
	if p.closed {
		return false
	}
	p.open[c] = &seat{conn: c, fresh: true}
	return true
}

func (p *pool) state(c net.Conn, s http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seat := p.open[c]
	if seat == nil {
		return
	}
	switch s {
	case http.StateIdle:
		seat.unlink()
		seat.prev, seat.next = p.idle.prev, &p.idle
		seat.prev.next, p.idle.prev = seat, seat
		p.room.Signal()
	case http.StateActive:
		seat.fresh = false
		seat.unlink()
	case http.StateClosed, http.StateHijacked:
		// A hijacked connection is its new owner's to count and bound.
		seat.unlink()
		delete(p.open, c)
		p.room.Signal()
	}
}

// close lets nobody in any more, and closes the connections without a request:
// the library would wait five seconds for one to come.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.room.Broadcast()
	for _, seat := range p.open {
		if seat.fresh {
			_ = seat.conn.Close()
		}
	}
}

type pooledListener struct {
	net.Listener
	pool *pool
}

func (l *pooledListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !l.pool.enter(c) {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}
