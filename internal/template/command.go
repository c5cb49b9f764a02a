package template

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// command is start_cmd or ready_cmd.
type command struct {
	key   string
	at    *policy.Value
	shell bool // the client hands it to a shell
	words []word
	runs  []run

	serves []Listen // the servers it starts, as far as that can be told
	asks   []int    // the ports its health checks ask
}

// commands checks what can be told of the two commands.
func (c *checker) commands() {
	c.start = c.command("start_cmd")
	c.ready = c.command("ready_cmd")
	if c.root.Get("start_cmd") == nil && c.hosts() { // the image's own command starts the server
		c.inEnvironment(c.root, "env", nil)
	}
	const inline = "ABX_SERVER_POLICY"
	if text := c.env[inline]; text != "" && c.hosts() {
		c.inlinePolicy(inline, text)
	}
}

// hosts tells whether the template means to run this server.
func (c *checker) hosts() bool {
	return c.start != nil && len(c.start.serves) > 0 || slices.ContainsFunc(c.services, func(s service) bool { return s.ours() })
}

func (c *checker) inlinePolicy(name, text string) {
	d, err := policy.Parse([]byte(text), policy.JSON)
	if err == nil {
		if errs := d.CheckRows(c.tools.Rows); len(errs) > 0 {
			err = errs[0]
		}
	}
	if err != nil {
		c.failEnv(name, err)
	}
}

func (c *checker) command(key string) *command {
	v := c.root.Get(key)
	if v == nil || v.Kind != policy.String || strings.TrimSpace(v.Text) == "" {
		return nil
	}
	words, err := split(v.Text)
	if err != nil {
		c.fail(v, key, "%v", err)
		return nil
	}
	cmd := &command{key: key, at: v, words: words, shell: needsShell(words)}
	if cmd.shell {
		cmd.runs = runs(words)
	} else {
		whole := run{words: slices.DeleteFunc(slices.Clone(words), func(w word) bool { return w.op })}
		cmd.runs = []run{whole}
	}
	for _, r := range cmd.runs {
		c.inspect(cmd, r)
	}
	return cmd
}

// inspect reads the arguments of a server or a health check with the server's
// own parser.
func (c *checker) inspect(cmd *command, r run) {
	args, ok := serverArgs(texts(r.words))
	if !ok || r.vague && cmd.shell {
		return
	}
	sub := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		sub, args = args[0], args[1:]
	}
	switch sub {
	case "serve":
		if slices.ContainsFunc(args, func(a string) bool { return a == "-h" || a == "--help" || a == "--version" }) {
			return
		}
		c.serve(cmd, args)
	case "healthcheck":
		port, err := c.tools.Health(args)
		if err != nil {
			c.fail(cmd.at, cmd.key, "%v", err)
			return
		}
		cmd.asks = append(cmd.asks, port)
	case "check-config", "version", "api", "install-shim":
	default:
		c.fail(cmd.at, cmd.key, "unknown command '%s' of %s", sub, Protocol)
	}
}

func (c *checker) serve(cmd *command, args []string) {
	l, err := c.tools.Serve(args, nil)
	if err == nil && l.Preset != "" {
		_, err = policy.PresetDocument(l.Preset)
		if e, ok := errors.AsType[*policy.DocumentError](err); ok {
			err = errors.New("--preset: " + e.Text)
		}
	}
	if err != nil {
		c.fail(cmd.at, cmd.key, "%v", err)
		return
	}
	if inEnv, ok := c.inEnvironment(cmd.at, cmd.key, args); ok {
		cmd.serves = append(cmd.serves, inEnv)
	}
}

// inEnvironment reads the arguments again, with the declared variables, and
// blames those or the command at that place.
func (c *checker) inEnvironment(at *policy.Value, key string, args []string) (Listen, bool) {
	env := maps.Clone(c.env)
	maps.DeleteFunc(env, func(_, value string) bool { return value == "" }) // the launcher fills them in
	l, err := c.tools.Serve(args, env)
	if err == nil {
		return l, true
	}
	text := strings.TrimPrefix(err.Error(), "configuration error: ")
	if name, _, _ := strings.Cut(text, ":"); c.env[name] != "" {
		c.failEnv(name, errors.New(text))
	} else {
		c.fail(at, key, "%v", err)
	}
	return l, false
}

// serverArgs are the arguments for the server, if argv starts it: by its name
// or as the Python module that stands for it.
func serverArgs(argv []string) ([]string, bool) {
	if len(argv) == 0 {
		return nil, false
	}
	if path.Base(argv[0]) == Protocol {
		return argv[1:], true
	}
	if isPython(argv[0]) {
		for i := 1; i+1 < len(argv) && strings.HasPrefix(argv[i], "-"); i++ {
			if argv[i] == "-m" {
				return argv[i+2:], argv[i+1] == "agent_sandbox.server"
			}
		}
	}
	return nil, false
}

func isPython(program string) bool {
	version, ok := strings.CutPrefix(path.Base(program), "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}

// pythonScript is the file that argv has Python run, "" for none.
func pythonScript(argv []string) string {
	if len(argv) == 0 || !isPython(argv[0]) {
		return ""
	}
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "-m" || a == "-c" || a == "-":
			return ""
		case a == "-W" || a == "-X":
			i++
		case !strings.HasPrefix(a, "-"):
			return a
		}
	}
	return ""
}
