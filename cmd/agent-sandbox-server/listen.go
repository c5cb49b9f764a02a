package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// listen opens a TCP listener; port 0 is any free one. The error is a
// [*failure].
func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	network := "tcp"
	if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
		network = "tcp4" // 0.0.0.0 would mean every IPv6 address too
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, &failure{"listen", err}
	}
	return l, nil
}

// listenPTY opens the listener of terminals. A port somebody asked for must be
// had; the default one gives way to any free one, so that a second server is
// not left without terminals, and moved is true.
func listenPTY(ctx context.Context, c *config, httpPort int) (l net.Listener, moved bool, err error) {
	if c.ptyPort == httpPort && c.ptyPort != 0 {
		err = &failure{"listen", fmt.Errorf("the terminal port %d is the HTTP port too", c.ptyPort)}
	} else {
		l, err = listen(ctx, c.host, c.ptyPort)
	}
	if err == nil || c.ptyNamed || c.ptyPort != httpPort && !errors.Is(err, syscall.EADDRINUSE) {
		return l, false, err
	}
	l, err = listen(ctx, c.host, 0)
	return l, true, err
}

func portOf(l net.Listener) int {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}
