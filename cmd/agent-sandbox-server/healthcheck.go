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
	o, status, ok := p.healthOptions(args)
	if !ok {
		return status
	}
	ctx, cancel := context.WithTimeout(ctx, seconds(o.timeout))
	defer cancel()
	url := "http://" + net.JoinHostPort(o.host, strconv.Itoa(o.port)) + "/health"
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

// healthOptions say whom healthcheck asks.
type healthOptions struct {
	host    string
	port    int
	timeout float64
}

// healthOptions reads the command line. Unless ok, the command is over and
// status is its exit status.
func (p *program) healthOptions(args []string) (o healthOptions, status int, ok bool) {
	fs := flag.NewFlagSet("healthcheck", flag.ContinueOnError)
	fs.StringVar(&o.host, "host", "127.0.0.1", "`address` of the server")
	fs.IntVar(&o.port, "port", 9000, "HTTP `port` of the server")
	fs.Float64Var(&o.timeout, "timeout", 2, "`seconds` to wait for the answer")
	if status, ok = p.parse(fs, "Exit 0 if the server answers GET /health with 200 in time, else 1.", args); !ok {
		return o, status, false
	}
	if !(o.timeout > 0 && o.timeout <= maxSeconds) { // also NaN
		return o, p.misused("healthcheck", errors.New("--timeout: expected a number of seconds above 0")), false
	}
	return o, exitOK, true
}
