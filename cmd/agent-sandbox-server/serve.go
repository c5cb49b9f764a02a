package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/endpoints"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// closeLimit bounds the whole stop after the last request: programs get two
// seconds between SIGTERM and SIGKILL, the rest takes none.
const closeLimit = 10 * time.Second

// settleTime is when a start is over, and what it needed can be given back.
const settleTime = 300 * time.Millisecond

// abortLimit bounds the end after a second signal.
const abortLimit = time.Second

// logLimit is how long a stopping server waits for the reader of its log.
const logLimit = time.Second

// callsPart is the part that stands for the handlers that run.
const callsPart = "calls"

// serve runs the server until it is told to stop.
func (p *program) serve(ctx context.Context, args []string) int {
	// From here on no signal ends the process by itself.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	// Whoever read our output may be gone; the library would end us for that.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)

	c, status, ok := p.serveConfig(args)
	if !ok {
		return status
	}
	s, err := p.startUnless(ctx, signals, c)
	if errors.Is(err, errInterrupted) {
		return exitOK
	}
	if err != nil {
		return p.failed(err)
	}
	return s.run(ctx, signals)
}

// server is the running program: its parts, in the order they were started.
type server struct {
	config *config
	lines  *sink
	log    *slog.Logger
	gate   *api.Gate
	source policySource
	rows   []policy.Row

	commands *registry.Registry
	tokenEnv atomic.Pointer[[]string] // variables that tokens were read from

	pages    *browser.Browser
	policy   atomic.Pointer[policy.Policy]
	stopping chan struct{}
	calls    calls
	doors    []door
	pty      atomic.Value // string: what /ready says of terminals
	closers  []closer
	kill     func() // ends all programs without asking
}

// door is a listener and what it serves.
type door struct {
	name     string
	listener net.Listener
	handler  http.Handler
	options  *api.ServerOptions // nil are those of all doors
}

// closer ends one part.
type closer struct {
	name string
	end  func(context.Context) error
}

func (s *server) closeLater(name string, end func(context.Context) error) {
	s.closers = append(s.closers, closer{name, end})
}

// start makes all parts and listens. When it fails nothing is left of them.
func (p *program) start(ctx context.Context, c *config) (*server, error) {
	lines := newSink(p.stderr, c.logFormat)
	s := &server{
		config: c, lines: lines, log: slog.New(logHandler(lines, c.logFormat)),
		source: c.policy, stopping: make(chan struct{}), commands: &registry.Registry{},
	}
	s.pty.Store("off")
	concealed := concealEnv(func(name string) bool { return holdsSecret(name, nil) })
	if err := s.assemble(ctx, p.env); err != nil {
		s.close(ctx)
		return nil, err
	}
	// From here on there are children to hide from.
	if err := errors.Join(concealed, undump()); err != nil {
		s.log.Warn(notConcealed, "err", err)
	}
	s.lint()
	return s, nil
}

const notConcealed = "other processes may be able to read secrets of this one"

// assemble makes the parts from the ground up; each is closed after those that
// stand on it.
func (s *server) assemble(ctx context.Context, env []string) error {
	c := s.config
	workdir := workingDirectory()
	audit := api.NewAudit(s.lines, s.log)
	s.closeLater("audit", audit.Close)
	files := guardfs.New(func() string { return c.baseDir }, workdir)
	s.closeLater("files", func(context.Context) error { return files.Close() })
	s.closeLater(callsPart, s.calls.drain)
	procs, err := proc.New(proc.Options{})
	if err != nil {
		return &failure{"configuration", err}
	}
	s.closeLater("processes", procs.Close)
	s.kill = procs.Kill
	terminals := pty.New(procs, pty.Options{IdleTimeout: c.ptyIdle})
	s.closeLater("terminals", terminals.Close)
	contexts := devtools.NewContexts(procs, devtools.ContextOptions{})
	s.closeLater("contexts", contexts.Close)
	pages := browser.New(procs, browser.Options{Log: s.log})
	s.closeLater("browser", pages.Close)
	s.pages = pages
	watches := watch.New()
	s.closeLater("watches", func(context.Context) error { watches.Close(); return nil })

	vars := childenv.New(env)
	if err := s.loadCommands(ctx, procs, vars, workdir); err != nil {
		return err
	}
	rooms := &endpoints.Server{
		Version: version, Files: files, Procs: procs, Watches: watches, Terminals: terminals, Contexts: contexts, Browser: pages,
		Env: vars, Workdir: workdir, Commands: s.commands, Ready: s.ready,
	}
	table := rooms.Table()
	s.rows = api.Rows(table)
	s.gate = &api.Gate{
		Policy: s.policy.Load, Limiter: &policy.Limiter{}, Brake: &policy.GuessBrake{},
		Files: files, Audit: audit, Log: s.log, Origins: c.origins, Hosts: c.hosts,
		MaxUpload: func() int64 { return c.maxUpload }, BodyTimeout: c.bodyTimeout, Stopping: s.stopping,
	}
	if _, err := s.adopt(); err != nil {
		return err
	}
	s.source.reload = true
	return s.open(ctx, rooms, table)
}

// workingDirectory is where relative names begin.
func workingDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return "/" // it was removed under us
	}
	return dir
}

// adopt reads the policy, puts it in force and hides what its tokens were read
// from.
func (s *server) adopt() (*policy.Policy, error) {
	loaded, err := s.source.load(s.rows)
	if err != nil {
		return nil, err
	}
	s.conceal(loaded.tokenEnv)
	s.policy.Store(loaded.Policy)
	return loaded.Policy, nil
}

// conceal hides the variables that tokens were read from.
func (s *server) conceal(tokenEnv []string) {
	s.tokenEnv.Store(&tokenEnv)
	if err := concealEnv(s.secret); err != nil {
		s.log.Warn(notConcealed, "err", err)
	}
	s.commands.SetEnv(nil, tokenEnv)
}

// secret tells whether a variable is hidden from template code too.
func (s *server) secret(name string) bool {
	var tokenEnv []string
	if names := s.tokenEnv.Load(); names != nil {
		tokenEnv = *names
	}
	return holdsSecret(name, tokenEnv)
}

// open listens and says where.
func (s *server) open(ctx context.Context, rooms *endpoints.Server, table []api.Endpoint) error {
	l, err := listen(ctx, s.config.host, s.config.port)
	if err != nil {
		return err
	}
	s.doors = append(s.doors, door{"http", l, api.Mount(table, s.gate), nil})
	said := []any{"http", l.Addr().String()}

	if terminal := ptyEndpoint(table); terminal != nil && s.terminals() {
		t, moved, err := listenPTY(ctx, s.config, portOf(l))
		if err != nil {
			_ = l.Close()
			return err
		}
		rooms.PTYPort = portOf(t)
		s.doors = append(s.doors, door{"pty", t, api.MountUpgrade(*terminal, s.gate, "/pty", "/"), nil})
		s.pty.Store("listening")
		said = append(said, "pty", t.Addr().String())
		if moved {
			s.log.Warn("the terminal port is taken, terminals are elsewhere", "wanted", s.config.ptyPort, "port", portOf(t))
		}
	}
	if s.config.envdPort != 0 {
		addr, err := s.openEnvd(ctx, rooms)
		if err != nil {
			for _, d := range s.doors {
				_ = d.listener.Close()
			}
			return err
		}
		said = append(said, "envd", addr)
	}
	s.log.Info("listening", append(said, "version", version, "pid", os.Getpid())...)
	return nil
}

// ptyEndpoint is the row that the terminal listener serves.
func ptyEndpoint(table []api.Endpoint) *api.Endpoint {
	for i := range table {
		if ep := &table[i]; ep.Virtual && ep.Group == "terminal" {
			return ep
		}
	}
	return nil
}

// terminals tells whether any endpoint of the group is on.
func (s *server) terminals() bool {
	return slices.ContainsFunc(s.policy.Load().Rules(), func(r *policy.Rule) bool {
		return r.Enabled && r.Row.Group == "terminal"
	})
}

// lint prints what is odd about the policy in force. In text the lines have a
// fixed form, which people and tools look for.
func (s *server) lint() {
	for _, w := range s.policy.Load().Warnings() {
		if s.config.logFormat == "json" {
			s.log.Warn("policy lint", "text", w)
			continue
		}
		_, _ = fmt.Fprintf(s.lines, "policy lint: %s\n", oneLine(w))
	}
}

func (s *server) ready() (commands, pty string) {
	pty, _ = s.pty.Load().(string)
	if !s.commands.Ready() {
		return "degraded", pty
	}
	return "ready", pty
}

// run serves until a signal, the end of ctx or the failure of a listener, and
// then stops in order. A second signal ends it at once.
func (s *server) run(ctx context.Context, signals <-chan os.Signal) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(s.doors))
	doors := s.serveDoors(ctx, failed)
	settled := time.NewTimer(settleTime)
	defer settled.Stop()

	status := exitOK
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			waiting = false
		case <-settled.C:
			trim()
		case <-s.commands.Ended():
			s.log.Info("stopping", "because", "the program with the commands has ended or wants it")
			waiting = false
		case err := <-failed:
			s.log.Error("a listener failed", "err", err)
			status, waiting = exitFailed, false
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				s.reload()
				continue
			}
			s.log.Info("stopping", "signal", sig.String())
			waiting = false
		}
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		close(s.stopping) // streams end first: they would outlast the grace
		cancel()
		doors.Wait()
		s.close(ctx)
	}()
	for {
		select {
		case <-stopped:
			return status
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				s.abort()
				return exitFailed
			}
		}
	}
}

// abort leaves no program behind, as far as that takes no time.
func (s *server) abort() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.kill()
	}()
	select {
	case <-done:
	case <-time.After(abortLimit):
	}
}

// serveDoors serves every door until ctx ends and open requests had their
// time, which is one span for all doors.
func (s *server) serveDoors(ctx context.Context, failed chan<- error) *sync.WaitGroup {
	end := sync.OnceValue(func() time.Time { return time.Now().Add(s.config.shutdown) })
	grace := func() (context.Context, context.CancelFunc) {
		return context.WithDeadlineCause(context.WithoutCancel(ctx), end(), proc.ErrStopping)
	}
	options := api.ServerOptions{
		HeaderTimeout: s.config.headerTimeout, IdleTimeout: s.config.idleTimeout,
		MaxConnections: s.config.maxConnections, Log: s.log,
	}
	var wg sync.WaitGroup
	for _, d := range s.doors {
		options := options
		if d.options != nil {
			options = *d.options
		}
		wg.Go(func() {
			if err := api.Serve(ctx, d.listener, s.calls.counted(d.handler), options, grace); err != nil {
				if d.name == "pty" {
					s.pty.Store("failed")
				}
				failed <- fmt.Errorf("%s: %w", d.name, err)
			}
		})
	}
	return &wg
}

// reload reads the policy again and puts it in force, or keeps the old one.
// Listeners stay as they are; running requests keep the rules they began with,
// open pages do not.
func (s *server) reload() {
	p, err := s.adopt()
	if err != nil {
		s.log.Error("the policy could not be read again, the old one stays", "err", err)
		return
	}
	s.pages.Obey(p.Rule("browser_navigate"))
	s.log.Info("policy read again", "preset", p.Preset(), "revision", p.Revision())
	s.lint()
}

// close ends the parts in reverse order, and the log last. When handlers do
// not end, what they stand on stays open: the process is over in a moment. The
// end of ctx hurries nothing, it may be why we stop.
func (s *server) close(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	limited, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	for _, c := range slices.Backward(s.closers) {
		if err := c.end(limited); err != nil {
			s.log.Error("not everything ended in time", "part", c.name, "err", err)
			if c.name == callsPart {
				break
			}
		}
	}
	limited, cancel = context.WithTimeout(ctx, logLimit)
	defer cancel()
	_ = s.lines.Close(limited) // who does not read it by then does not want it
}

// calls counts the handlers that run. A server that stopped serving cuts its
// connections but does not wait for their handlers; what they use must not be
// closed under them.
type calls struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // made by drain; closed when running is 0
}

// counted is h until drain was called; later requests are cut.
func (c *calls) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.enter() {
			panic(http.ErrAbortHandler)
		}
		defer c.leave()
		h.ServeHTTP(w, r)
	})
}

func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		return false
	}
	c.running++
	return true
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
	}
}

// drain lets no more calls in and waits for those that run, or gives up with
// ctx. It is called once.
func (c *calls) drain(ctx context.Context) error {
	c.mu.Lock()
	c.idle = make(chan struct{})
	if c.running == 0 {
		close(c.idle)
	}
	c.mu.Unlock()
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
