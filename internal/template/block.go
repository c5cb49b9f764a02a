package template

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// policy checks the server block.
func (c *checker) policy() {
	v := c.root.Get("server")
	if v == nil || v.Kind == policy.Null {
		c.document, c.block = policy.Empty(), []byte("{}")
	} else {
		if v.Kind != policy.Object {
			c.fail(v, "server", "expected a mapping or null, got %s", v.What())
			return
		}
		c.clientRules(v)
		d, errs := v.Document()
		for _, e := range errs {
			c.failAt(e.Line, e.Column, inBlock(e.Where), "%s", e.Text)
		}
		if d == nil {
			return
		}
		for _, e := range d.CheckRows(c.tools.Rows) {
			c.failAt(e.Line, e.Column, inBlock(e.Where), "%s", e.Text)
		}
		c.document = d
		c.block, _ = v.JSON() // a document was read from it
	}
	if len(c.faults) == 0 {
		c.compile(v)
	}
}

// compile finds out what the policy means in the environment that is declared.
// What its tokens are read from is there at launch only, so anything does here.
func (c *checker) compile(v *policy.Value) {
	d := c.document
	if c.tools.Preset != "" {
		var err error
		if d, err = d.WithPreset(c.tools.Preset); err != nil {
			c.failAt(1, 1, ".", "--preset: %v", err)
			return
		}
	}
	groups, err := policy.ParseEnabledGroups(c.env["ABX_SERVER_ENABLED_GROUPS"])
	if err != nil {
		c.failEnv("ABX_SERVER_ENABLED_GROUPS", err)
		return
	}
	_, token := c.env["ABX_SERVER_TOKEN"]
	p, err := policy.Compile(d, c.tools.Rows, policy.Options{
		EnvGroups: groups, CodeGroups: c.tools.CodeGroups, ServerToken: token,
		Getenv:   func(name string) string { return "the value of " + name },
		ReadFile: func(name string) ([]byte, error) { return fmt.Appendf(nil, "%x", sha256.Sum256([]byte(name))), nil },
	})
	if err != nil {
		at, where, text := c.root, "server", err.Error()
		if v != nil {
			at = v
		}
		line, column := at.Line, at.Column
		if e, ok := errors.AsType[*policy.ConfigError](err); ok {
			where, text = inBlock(e.Where), e.Text
			if e.Line > 0 {
				line, column = e.Line, e.Column
			}
		}
		c.failAt(line, column, where, "%s", text)
	}
	c.compiled = p
}

// failEnv reports a declared variable with which the server does not start.
func (c *checker) failEnv(name string, err error) {
	at := c.root.Get("env")
	if v := at.Get(name); v != nil {
		at = v
	}
	c.fail(at, "env."+name, "the server does not start with it: %s", strings.TrimPrefix(err.Error(), name+": "))
}

func inBlock(where string) string { return "server" + strings.TrimPrefix(where, "policy") }

// clientRules is what the client refuses although the server takes it.
func (c *checker) clientRules(v *policy.Value) {
	const refused = "hardlinks"
	rule := func(rule *policy.Value, path string) {
		paths := rule.Get("paths")
		if paths == nil {
			return
		}
		for _, m := range paths.Members {
			if m.Key == refused {
				c.failAt(m.Line, m.Column, path+".paths."+refused, "the client refuses this key in templates; use a policy file")
			}
		}
	}
	if d := v.Get("defaults"); d != nil {
		rule(d, "server.defaults")
	}
	if e := v.Get("endpoints"); e != nil {
		for _, m := range e.Members {
			rule(m.Value, "server.endpoints."+m.Key)
		}
	}
}
