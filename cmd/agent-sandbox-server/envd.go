package main

import (
	"context"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/endpoints"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/envd"
)

// envdOptions are what the environment says of the envd listener.
type envdOptions struct {
	user, workdir string
	maxMessage    int64
	replay        int
	drain         time.Duration
}

// The listener of the E2B SDKs keeps connections longer than their pools do.
const (
	envdHeaderTimeout  = 10 * time.Second
	envdIdleTimeout    = 640 * time.Second
	envdMaxConnections = 10_000
)

// openEnvd opens the envd listener over the same rooms.
func (s *server) openEnvd(ctx context.Context, rooms *endpoints.Server) (addr string, err error) {
	c := s.config
	srv, err := envd.New(envd.Options{
		Gate: s.gate, Processes: rooms.Background, Terminals: rooms.Terminals, Watches: rooms.Watches, Env: rooms.Env,
		User: c.envd.user, Workdir: c.envd.workdir, Tokens: s.plainTokens, Confined: c.confined,
		MaxMessage: c.envd.maxMessage, ReplayBytes: c.envd.replay, Drain: c.envd.drain,
	})
	if err != nil {
		return "", &failure{"configuration", err}
	}
	s.closeLater("envd", func(context.Context) error { srv.Close(); return nil })
	l, err := listen(ctx, c.host, c.envdPort)
	if err != nil {
		return "", err
	}
	s.doors = append(s.doors, door{"envd", l, srv.Handler(), &api.ServerOptions{
		HeaderTimeout: envdHeaderTimeout, IdleTimeout: envdIdleTimeout, MaxConnections: envdMaxConnections, HTTP2: true, Log: s.log,
	}})
	rooms.Listens("envd", api.Listener{Port: portOf(l), Version: envd.Version})
	return l.Addr().String(), nil
}

// plainTokens are the tokens that are known as they are, not as digests: only
// with those a signature can be checked.
func (s *server) plainTokens() []string {
	env := s.config.policy.env
	out := []string{env.get("ABX_SERVER_TOKEN")}
	if names := s.tokenEnv.Load(); names != nil {
		for _, name := range *names {
			out = append(out, env.get(name))
		}
	}
	return out
}
