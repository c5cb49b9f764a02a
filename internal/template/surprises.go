package template

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// ptyPort is where terminals are served when nobody says otherwise.
const ptyPort = 9001

// platformPorts belong to what runs around a sandbox.
var platformPorts = []int64{5000, 49983, 49999}

// surprises collects the warnings of a template without faults.
func (c *checker) surprises() {
	c.unknownKeys()
	c.servicePorts()
	c.listedPorts()
	c.platform()
	c.startup()
	for _, cmd := range []*command{c.start, c.ready} {
		if cmd != nil {
			c.shellWords(cmd)
			c.relativePaths(cmd)
		}
	}
	c.idleBlock()
	c.secrets()
	c.tokens()
	c.operationsOff()
	c.limits()
}

func (c *checker) unknownKeys() {
	for _, m := range c.root.Members {
		if slices.Contains(knownKeys, m.Key) || strings.HasPrefix(m.Key, "x-") {
			continue
		}
		if s := policy.Suggestion(m.Key, knownKeys); s != "" {
			c.warn("T1", m.Line, "the key '%s' means nothing%s", m.Key, s)
		}
	}
}

// servicePorts: T2 and T3.
func (c *checker) servicePorts() {
	var ours []int64
	for _, s := range c.services {
		if !s.ours() {
			continue
		}
		ours = append(ours, s.port)
		if s.version != Version {
			c.warn("T3", s.at.Get("version").Line, "service %s: the launcher probes version %d only; this one is not among its servers", s.id, Version)
		}
		if len(ours) == 2 {
			c.warn("T3", s.at.Line, "service %s is a second %s: the session has no single server", s.id, Protocol)
		}
	}
	if len(ours) == 0 {
		return
	}
	if c.start != nil {
		for _, l := range c.start.serves {
			if !slices.Contains(ours, int64(l.Port)) {
				c.warn("T2", c.start.at.Line, "the server listens on port %d, but the service says %d", l.Port, ours[0])
			}
		}
	}
	if c.ready != nil {
		for _, port := range c.ready.asks {
			if !slices.Contains(ours, int64(port)) {
				c.warn("T2", c.ready.at.Line, "the health check asks port %d, but the service says %d", port, ours[0])
			}
		}
	}
}

// listedPorts: T4.
func (c *checker) listedPorts() {
	line := c.root.Line
	var listed []int64
	if v := c.root.Get("ports"); v != nil {
		line = v.Line
		for _, item := range v.Items {
			n, _ := integer(item)
			listed = append(listed, n)
			if n < 1 || n > 65535 {
				c.warn("T4", item.Line, "%d is not a port from 1 to 65535", n)
			}
		}
	}
	taken := map[int64]string{}
	for _, s := range c.services {
		if other, ok := taken[s.port]; ok {
			c.warn("T4", s.at.Get("port").Line, "the services %s and %s have one port, %d", other, s.id, s.port)
		} else if !slices.Contains(listed, s.port) {
			c.warn("T4", line, "ports lacks %d of the service %s", s.port, s.id)
		}
		taken[s.port] = s.id
	}
	for _, port := range c.terminalPorts() {
		if !slices.Contains(listed, port) {
			c.warn("T4", line, "ports lacks %d, where terminals are", port)
		}
	}
}

// terminalPorts are where terminals will be served, while they are on.
func (c *checker) terminalPorts() []int64 {
	on := slices.ContainsFunc(c.compiled.Rules(), func(r *policy.Rule) bool { return r.Enabled && r.Row.Group == "terminal" })
	switch {
	case !on || !c.hosts():
		return nil
	case c.start == nil || len(c.start.serves) == 0:
		return []int64{ptyPort}
	}
	var out []int64
	for _, l := range c.start.serves {
		if l.PTYPort != 0 && !slices.Contains(out, int64(l.PTYPort)) {
			out = append(out, int64(l.PTYPort))
		}
	}
	return out
}

// platform: T5.
func (c *checker) platform() {
	say := func(port int64, line int, where string) {
		if slices.Contains(platformPorts, port) {
			c.warn("T5", line, "%s: %d is a port of the platform", where, port)
		}
	}
	if v := c.root.Get("ports"); v != nil {
		for _, item := range v.Items {
			n, _ := integer(item)
			say(n, item.Line, "ports")
		}
	}
	for _, s := range c.services {
		say(s.port, s.at.Get("port").Line, "service "+s.id)
	}
	for _, cmd := range []*command{c.start, c.ready} {
		if cmd == nil {
			continue
		}
		for _, w := range cmd.words {
			if m := lastPort.FindStringSubmatch(w.text); m != nil {
				port, _ := strconv.ParseInt(m[1], 10, 64)
				say(port, cmd.at.Line, cmd.key)
			}
		}
	}
}

// lastPort is a port in a command line: "5000", "--port=5000", "0.0.0.0:5000".
var lastPort = lazyregexp.New(`(?:^|[=:])([0-9]{4,5})$`)

// startup: T6 and T13.
func (c *checker) startup() {
	has := func(key string) bool { return c.root.Get(key) != nil }
	if !has("start_cmd") && !has("image") && !has("template_id") {
		c.warn("T6", c.root.Line, "without start_cmd the image's own CMD must start the server")
	}
	if !has("ready_cmd") {
		for _, s := range c.services {
			if !s.ours() {
				c.warn("T6", s.at.Line, "service %s: nothing waits for it, since its protocol is not probed and there is no ready_cmd", s.id)
			}
		}
	}
	digest := regexp.MustCompile(`^(.+@)?sha256:[0-9a-f]{64}$`)
	if v := c.root.Get("image"); v != nil && !digest.MatchString(v.Text) {
		c.warn("T13", v.Line, "image has no digest: the Python launch demands [NAME@]sha256:HEX")
	}
	if v := c.root.Get("application"); v != nil {
		c.warn("T13", v.Line, "the Python launch refuses templates with application")
	}
}

// builtins are the words that only a shell knows.
var builtins = []string{
	"cd", "exec", "export", "source", ".", "set", "unset", "ulimit", "umask", "eval", "trap", "wait", "alias", "read", "exit", ":",
	"if", "for", "while", "case", "!", "{",
}

// shellWords: T7.
func (c *checker) shellWords(cmd *command) {
	line := cmd.at.Line
	if cmd.shell {
		if last := cmd.words[len(cmd.words)-1]; last.op && last.text == "&" {
			c.warn("T7", line, "%s: with '&' at its end the started process ends at once", cmd.key)
		}
		return
	}
	words := cmd.runs[0].words
	if len(words) == 0 {
		return
	}
	switch first := words[0]; {
	case isAssignment(first):
		c.warn("T7", line, "%s: no shell runs it, so '%s' is taken for a program; use env, or sh -c", cmd.key, first.text)
	case slices.Contains(builtins, first.text):
		c.warn("T7", line, "%s: no shell runs it, and '%s' is no program; add '&& …' or use sh -c", cmd.key, first.text)
	}
	for _, w := range words {
		switch glob := strings.ContainsAny(w.bare, "*?") || strings.Contains(w.bare, "[") && strings.Contains(w.bare, "]") && len(w.bare) > 2; {
		case strings.ContainsAny(w.live, "$`"):
			c.warn("T7", line, "%s: no shell runs it, so '%s' is not expanded", cmd.key, w.text)
		case glob, strings.HasPrefix(w.bare, "~"):
			c.warn("T7", line, "%s: no shell runs it, so '%s' stays as it is", cmd.key, w.text)
		}
	}
}

// relativePaths: T8.
func (c *checker) relativePaths(cmd *command) {
	const text = "%s: '%s' is looked for in the platform's working directory; use an absolute path or cd"
	relative := func(name string) bool {
		return name != "" && !strings.HasPrefix(name, "/") && !strings.ContainsAny(name[:1], "$~")
	}
	for _, r := range cmd.runs {
		if r.moved {
			continue
		}
		argv := texts(r.words)
		if script := pythonScript(argv); relative(script) {
			c.warn("T8", cmd.at.Line, text, cmd.key, script)
		}
		if _, ours := serverArgs(argv); !ours {
			continue
		}
		for i, a := range argv {
			name, ok := strings.CutPrefix(a, "--commands=")
			if !ok && a == "--commands" && i+1 < len(argv) {
				name, ok = argv[i+1], true
			}
			if ok && relative(name) && isFile(name) {
				c.warn("T8", cmd.at.Line, text, cmd.key, name)
			}
		}
	}
}

// isFile tells a file of commands from the name of a module.
func isFile(name string) bool {
	return strings.Contains(name, "/") || slices.Contains([]string{".py", ".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// idleBlock: T9.
func (c *checker) idleBlock() {
	if v := c.root.Get("server"); v == nil || v.Kind == policy.Null {
		return
	}
	const text = "the server block is not in force: %s names the policy"
	for _, m := range c.members("env") {
		if m.Key == "ABX_SERVER_POLICY" || m.Key == "ABX_SERVER_POLICY_FILE" {
			c.warn("T9", m.Line, text, m.Key)
		}
	}
	if c.start == nil {
		return
	}
	for _, l := range c.start.serves {
		if l.Policy != "" {
			c.warn("T9", c.start.at.Line, text, "--policy")
		}
		if l.Preset != "" {
			c.warn("T9", c.start.at.Line, "the preset of the server block is not in force: --preset names another")
		}
	}
}

func (c *checker) members(key string) []policy.Member {
	if v := c.root.Get(key); v != nil {
		return v.Members
	}
	return nil
}

// secrets: T10.
func (c *checker) secrets() {
	for _, m := range c.members("env") {
		name := strings.ToUpper(m.Key)
		secret := slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSWORD", "KEY"}, func(s string) bool { return strings.Contains(name, s) })
		if secret && m.Value.Text != "" {
			c.warn("T10", m.Line, "env.%s looks like a secret: leave it empty and it is asked for at launch", m.Key)
		}
	}
}

// tokens: T11.
func (c *checker) tokens() {
	server := c.root.Get("server")
	if server == nil || server.Get("auth") == nil {
		return
	}
	auth := server.Get("auth")
	tokens := auth.Get("tokens")
	if tokens == nil || len(tokens.Items) == 0 {
		return
	}
	sendable := false
	for _, t := range tokens.Items {
		v := t.Get("token_env")
		if v == nil { // a sum, which may be that of the launch's token
			sendable = true
			continue
		}
		sendable = sendable || v.Text == "ABX_SERVER_TOKEN"
		if _, ok := c.env[v.Text]; !ok {
			c.warn("T11", v.Line, "env does not declare %s, without which the server does not start", v.Text)
		}
	}
	anonymous := auth.Get("allow_anonymous")
	if !sendable && (anonymous == nil || !anonymous.Bool) {
		c.warn("T11", tokens.Line, "the launcher sends ABX_SERVER_TOKEN, which is none of these tokens: its discovery gets 401")
	}
}

// operationsOff: T12.
func (c *checker) operationsOff() {
	for _, s := range c.services {
		if !s.ours() {
			continue
		}
		for _, pair := range [][2]string{{"commands.list", "list_commands"}, {"commands.run", "run_command"}} {
			if r := c.compiled.Rule(pair[1]); slices.Contains(s.operations, pair[0]) && r != nil && !r.Enabled {
				c.warn("T12", s.at.Get("operations").Line, "service %s offers %s, which the policy switches off", s.id, pair[0])
			}
		}
	}
}

// limits: T14.
func (c *checker) limits() {
	for _, key := range []string{"cpu_count", "memory_mb"} {
		if v := c.root.Get(key); v != nil && v.Kind != policy.Null {
			if n, _ := integer(v); n < 1 {
				c.warn("T14", v.Line, "%s is below 1", key)
			}
		}
	}
}
