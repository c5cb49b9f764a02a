package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"strconv"
)

// healthcheck asks a server whether it is healthy and prints nothing. It never
// goes through a proxy: the server is on this machine, and images often have
// proxies in their environment.
func (p *program) healthcheck(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("healthcheck", flag.ContinueOnError)
	host := fs.String("host", "127.0.0.1", "`address` of the server")
	port := fs.Int("port", 9000, "HTTP `port` of the server")
	timeout := fs.Float64("timeout", 2, "`seconds` to wait for the answer")
	if status, ok := p.parse(fs, "Exit 0 if the server answers GET /health with 200 in time, else 1.", args); !ok {
		return status
	}
	if !(*timeout > 0 && *timeout <= maxSeconds) { // also NaN
		return p.misused("healthcheck", errors.New("--timeout: expected a number of seconds above 0"))
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(*timeout))
	defer cancel()
	url := "http://" + net.JoinHostPort(*host, strconv.Itoa(*port)) + "/health"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return exitFailed
	}
	transport := &http.Transport{DisableKeepAlives: true} // its Proxy is nil
	res, err := transport.RoundTrip(req)
	if err != nil {
		return exitFailed
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return exitFailed
	}
	return exitOK
}
