package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// defaultPTYPort is where terminals are served when no port was named.
const defaultPTYPort = 9001

// config is everything a server is told from outside: options over environment
// over defaults. It is read once.
type config struct {
	host     string
	port     int // 0 is any free one
	ptyPort  int // as port
	ptyNamed bool
	policy   policySource
	commands commandOptions
	given    map[string]bool // options that were on the command line

	envdPort int // 0 is off
	envd     envdOptions

	baseDir   string
	confined  bool // somebody has named the base directory
	maxUpload int64
	shutdown  time.Duration
	logFormat string // text or json

	origins, hosts                          api.Allowlist
	headerTimeout, bodyTimeout, idleTimeout time.Duration
	maxConnections                          int
	ptyIdle                                 time.Duration // 0 is never
}

// serveConfig reads the options of serve and the environment. Unless ok, the
// command is over and status is its exit status.
func (p *program) serveConfig(args []string) (c *config, status int, ok bool) {
	e := newEnviron(p.env)
	c = &config{
		host: "0.0.0.0", port: 9000, ptyPort: defaultPTYPort, logFormat: "text",
		policy: policySource{env: e, ambient: p.ambient},
	}
	var shutdown float64
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.StringVar(&c.host, "host", c.host, "`address` to listen on")
	fs.IntVar(&c.port, "port", c.port, "HTTP `port`; 0 takes a free one")
	fs.IntVar(&c.ptyPort, "pty-port", c.ptyPort, "`port` of the terminal WebSocket; ABX_PTY_PORT")
	fs.IntVar(&c.envdPort, "envd-port", 0, "`port` of the envd protocol, 0 is off; ABX_ENVD_PORT")
	fs.Var(&c.commands.items, "commands", "`file` or module of named commands; may be repeated")
	fs.StringVar(&c.policy.file, "policy", "", "policy `file`, JSON or YAML")
	fs.StringVar(&c.policy.preset, "preset", "", "`name` of a built-in policy, put over the one in force")
	fs.StringVar(&c.baseDir, "base-dir", "", "root `directory` of files; ABX_SERVER_BASE_DIR (default /home/user)")
	fs.StringVar(&c.commands.python, "python", "", "`interpreter` of Python commands; ABX_COMMANDS_PYTHON")
	fs.Float64Var(&shutdown, "shutdown-timeout", 5, "`seconds` open requests may take when the server stops; ABX_SHUTDOWN_TIMEOUT")
	fs.Var(choice{&c.logFormat, []string{"text", "json"}}, "log-format", "`format` of the log: text or json; ABX_LOG_FORMAT")
	fs.Var(&c.commands.attached, "attached", "be the server of the Python program that started this one, over descriptors 3 and 4 or `those given`")
	if status, ok = p.parse(fs, "Run the server until SIGINT or SIGTERM. SIGHUP reads the policy again.", args); !ok {
		return nil, status, false
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	c.given = given
	if !(shutdown >= 0 && shutdown <= maxSeconds) { // also NaN
		return nil, p.misused("serve", errors.New("--shutdown-timeout: expected a number of seconds, 0 or above")), false
	}

	c.fromEnvironment(e, given)
	if given["shutdown-timeout"] {
		c.shutdown = seconds(shutdown)
	}
	if err := c.check(e); err != nil {
		return nil, p.failed(err), false
	}
	return c, exitOK, true
}

func (c *config) fromEnvironment(e *environ, given map[string]bool) {
	if !given["pty-port"] {
		c.ptyPort, c.ptyNamed = e.ptyPort()
	} else {
		c.ptyNamed = true
	}
	c.confined = c.baseDir != "" || e.get("ABX_SERVER_BASE_DIR") != ""
	if c.baseDir == "" {
		c.baseDir = e.baseDir()
	}
	if format := e.oneOf("ABX_LOG_FORMAT", "text", "json"); !given["log-format"] {
		c.logFormat = format
	}
	c.maxUpload = e.maxUpload()
	c.shutdown = e.seconds("ABX_SHUTDOWN_TIMEOUT", 5, true)
	c.headerTimeout = e.seconds("ABX_HTTP_HEADER_TIMEOUT", 10, false)
	c.bodyTimeout = e.seconds("ABX_HTTP_BODY_TIMEOUT", 60, false)
	c.idleTimeout = e.seconds("ABX_HTTP_IDLE_TIMEOUT", 75, false)
	c.maxConnections = int(e.integer("ABX_HTTP_MAX_CONNECTIONS", 1024, 1, math.MaxInt32))
	c.ptyIdle = e.seconds("ABX_PTY_IDLE_TIMEOUT", 0, true)
	c.origins = e.names("ABX_SERVER_ALLOWED_ORIGINS", isOrigin, "an origin such as https://example.org")
	c.hosts = e.names("ABX_SERVER_ALLOWED_HOSTS", isHostName, "a host name such as example.org")

	if c.commands.python == "" {
		c.commands.python = e.get("ABX_COMMANDS_PYTHON")
	}
	c.commands.timeout = e.seconds("ABX_COMMANDS_TIMEOUT", 0, false)
	c.commands.threads = int(e.integer("ABX_COMMANDS_MAX_CONCURRENCY", 256, 1, math.MaxInt32))

	if port := e.integer("ABX_ENVD_PORT", 0, 0, maxPort); !given["envd-port"] {
		c.envdPort = int(port)
	}
	c.envd = envdOptions{
		user: e.get("ABX_ENVD_USER"), workdir: e.get("ABX_ENVD_WORKDIR"),
		maxMessage: e.integer("ABX_ENVD_MAX_MESSAGE_BYTES", 64<<20, 1, math.MaxUint32),
		replay:     int(e.integer("ABX_ENVD_REPLAY_BYTES", 1<<20, 0, 1<<30)),
		drain:      time.Duration(e.integer("ABX_ENVD_DRAIN_MS", 0, 0, math.MaxInt32)) * time.Millisecond,
	}
	if dir := c.envd.workdir; dir != "" && !filepath.IsAbs(dir) {
		e.bad("ABX_ENVD_WORKDIR", "an absolute path")
	}
}

// check refuses impossible values, each with one line that names it.
func (c *config) check(e *environ) error {
	if e.err != nil {
		return &failure{"configuration", e.err}
	}
	for _, o := range []struct {
		name string
		port int
	}{{"--port", c.port}, {"--pty-port", c.ptyPort}, {"--envd-port", c.envdPort}} {
		if o.port < 0 || o.port > maxPort {
			return &failure{"configuration", fmt.Errorf("%s: %d is not a port from 0 to %d", o.name, o.port, maxPort)}
		}
	}
	dir, err := filepath.Abs(c.baseDir)
	if err != nil {
		return &failure{"configuration", fmt.Errorf("--base-dir: %w", err)}
	}
	c.baseDir = dir
	return nil
}

const (
	maxPort    = 65535
	maxSeconds = 1e7 // more than a season is a mistake
)

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// environ reads variables; an empty one counts as unset. The first bad value
// is kept in err. Values of secret variables never get into it.
type environ struct {
	vars map[string]string
	err  error
}

func newEnviron(items []string) *environ {
	e := &environ{vars: map[string]string{}}
	for _, item := range items {
		if name, value, ok := strings.Cut(item, "="); ok {
			e.vars[name] = value
		}
	}
	return e
}

func (e *environ) get(name string) string { return e.vars[name] }

func (e *environ) bad(name, want string) {
	if e.err == nil {
		value := e.vars[name]
		if len(value) > 60 {
			value = value[:60] + "…"
		}
		e.err = fmt.Errorf("%s: expected %s, got %q", name, want, value)
	}
}

func (e *environ) seconds(name string, def float64, zero bool) time.Duration {
	text := e.get(name)
	if text == "" {
		return seconds(def)
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(f >= 0 && f <= maxSeconds) || f == 0 && !zero || f > 0 && seconds(f) == 0 {
		want := "a number of seconds above 0"
		if zero {
			want = "a number of seconds, 0 or above"
		}
		e.bad(name, want)
	}
	return seconds(f)
}

func (e *environ) integer(name string, def, low, high int64) int64 {
	text := e.get(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < low || n > high {
		e.bad(name, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	return n
}

// oneOf is one of the values; the first is the default.
func (e *environ) oneOf(name string, values ...string) string {
	text := e.get(name)
	if text == "" {
		return values[0]
	}
	if !slices.Contains(values, text) {
		e.bad(name, "one of "+strings.Join(values, ", "))
		return values[0]
	}
	return text
}

// names is a comma list whose items are "*" or fit.
func (e *environ) names(name string, fits func(string) bool, want string) []string {
	var out []string
	for item := range strings.SplitSeq(e.get(name), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if item != "*" && !fits(item) {
			e.bad(name, "a comma list of * or "+want)
		}
		out = append(out, item)
	}
	return out
}

func isOrigin(s string) bool {
	if s == "null" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == ""
}

func isHostName(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	return s != "" && !strings.ContainsAny(s, " */:?#@[]\\\"")
}

// ptyPort is ABX_PTY_PORT; what is no port counts as not named.
func (e *environ) ptyPort() (port int, named bool) {
	n, err := strconv.Atoi(strings.TrimSpace(e.get("ABX_PTY_PORT")))
	if err != nil || n < 0 || n > maxPort {
		return defaultPTYPort, false
	}
	return n, true
}

func (e *environ) baseDir() string {
	if dir := e.get("ABX_SERVER_BASE_DIR"); dir != "" {
		return dir
	}
	return "/home/user"
}

// maxUpload is ABX_MAX_UPLOAD_SIZE; what is no size counts as unset.
func (e *environ) maxUpload() int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(e.get("ABX_MAX_UPLOAD_SIZE")), 10, 64)
	if err != nil || n <= 0 {
		return 100 << 20
	}
	return n
}
