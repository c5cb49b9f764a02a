package registry

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ManifestError is a fault of a manifest, with its place.
type ManifestError struct {
	File   string
	Path   string // such as commands[0].args[1].type; "" for the document
	Reason string
}

func (e *ManifestError) Error() string {
	if e.Path == "" {
		return e.File + ": " + e.Reason
	}
	return e.File + ": " + e.Path + ": " + e.Reason
}

// manifest is a whole file.
type manifest struct {
	commands []*Command
	groups   map[string]bool
}

// isManifest tells whether an item of --commands names a manifest.
func isManifest(item string) bool {
	switch strings.ToLower(filepath.Ext(item)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// loadManifest reads a manifest file. The error is a [*ManifestError].
func (h *host) loadManifest(file string) (*manifest, error) {
	text, err := readManifest(file)
	if err != nil {
		return nil, &ManifestError{File: file, Reason: plainError(err)}
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, &ManifestError{File: file, Reason: err.Error()}
	}
	m, err := h.parseManifest(text, strings.EqualFold(filepath.Ext(file), ".json"), dir)
	if e, ok := err.(*ManifestError); ok { //nolint:errorlint // made here, never wrapped
		e.File = file
	}
	return m, err
}

func readManifest(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("not a regular file")
	case info.Size() > maxManifest:
		return nil, fmt.Errorf("more than %d bytes", maxManifest)
	}
	return os.ReadFile(file)
}

// plainError is the reason of an error without the path, which is said already.
func plainError(err error) string {
	if p, ok := err.(*os.PathError); ok { //nolint:errorlint // as it comes from the calls above
		return p.Err.Error()
	}
	return err.Error()
}

func (h *host) parseManifest(text []byte, isJSON bool, dir string) (*manifest, error) {
	root, err := readTree(text, isJSON)
	if err != nil {
		return nil, &ManifestError{Reason: err.Error()}
	}
	d := decoder{host: h, dir: dir}
	m, err := d.document(root)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// settings are what commands take from the defaults of their manifest.
type settings struct {
	timeout        time.Duration
	workdir        string
	env            []variable
	inheritEnv     bool
	maxOutput      int64
	maxConcurrency int // 0 is no bound
	scopes         []string
}

// variable is an entry of env.
type variable struct {
	name  string
	value node
	path  string
}

const (
	defaultTimeout   = 300 * time.Second
	defaultMaxOutput = 10 << 20
	maxSeconds       = 1e7
)

func (d *decoder) document(root *node) (*manifest, error) {
	m := &manifest{groups: map[string]bool{}}
	base := settings{timeout: defaultTimeout, inheritEnv: true, maxOutput: defaultMaxOutput}
	version, list := (*node)(nil), (*node)(nil)
	// The defaults count for all commands, wherever they stand.
	err := d.each(root, "", fields{
		"version":  func(n *node, _ string) error { version = n; return nil },
		"defaults": func(n *node, path string) error { return d.each(n, path, d.settingsFields(&base)) },
		"groups":   func(n *node, path string) error { return d.groups(n, path, m.groups) },
		"commands": func(n *node, _ string) error { list = n; return nil },
	})
	switch {
	case err != nil:
		return nil, err
	case version == nil:
		return nil, fault("version", "is required; this is version 1")
	case version.kind != intKind || version.text != "1":
		return nil, fault("version", "must be 1")
	case list == nil:
		return nil, fault("commands", "is required")
	}
	return m, d.list(list, "commands", func(n *node, path string) error {
		c, err := d.command(n, path, base)
		if err != nil {
			return err
		}
		for _, other := range m.commands {
			if other.Name == c.Name {
				return fault(path+".name", "%q is there twice", c.Name)
			}
		}
		m.commands = append(m.commands, c)
		return nil
	})
}

func (d *decoder) groups(n *node, path string, out map[string]bool) error {
	set := func(name string, on bool, path string) error {
		switch {
		case !isGroup(name):
			return fault(path, "unknown group %q", name)
		case name == "core" && !on:
			return fault(path, "the core group cannot be switched off")
		}
		out[name] = on
		return nil
	}
	if n.kind == mapKind {
		for i, name := range n.keys {
			on, err := d.boolean(n.items[i], keyPath(path, name))
			if err == nil {
				err = set(name, on, keyPath(path, name))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return d.list(n, path, func(n *node, path string) error {
		name, err := d.text(n, path)
		if err != nil {
			return err
		}
		return set(name, true, path)
	})
}

func (d *decoder) settingsFields(s *settings) fields {
	return fields{
		"timeout": func(n *node, path string) (err error) {
			s.timeout, err = d.seconds(n, path)
			return err
		},
		"workdir": func(n *node, path string) (err error) {
			s.workdir, err = d.workdir(n, path)
			return err
		},
		"env": func(n *node, path string) (err error) {
			s.env, err = d.variables(n, path, s.env)
			return err
		},
		"inherit_env": func(n *node, path string) (err error) {
			s.inheritEnv, err = d.boolean(n, path)
			return err
		},
		"max_output_bytes": func(n *node, path string) (err error) {
			s.maxOutput, err = d.size(n, path)
			return err
		},
		"max_concurrency": func(n *node, path string) (err error) {
			s.maxConcurrency, err = d.count(n, path, 1)
			return err
		},
		"scopes": func(n *node, path string) (err error) {
			s.scopes, err = d.texts(n, path)
			return err
		},
	}
}

func (d *decoder) command(n *node, path string, s settings) (*Command, error) {
	p := &program{host: d.host, dir: d.dir, stdin: stdinJSON, result: "text", success: []int{0}, settings: s}
	c := &Command{Source: "manifest"}
	var argv, shell, script, stdin *node
	all := fields{
		"name": func(n *node, path string) (err error) {
			c.Name, err = d.name(n, path)
			return err
		},
		"description": func(n *node, path string) (err error) {
			c.Description, err = d.text(n, path)
			return err
		},
		"hidden": func(n *node, path string) (err error) {
			c.Hidden, err = d.boolean(n, path)
			return err
		},
		"args":   func(n *node, path string) error { return d.params(n, path, p) },
		"argv":   func(n *node, _ string) error { argv = n; return nil },
		"shell":  func(n *node, _ string) error { shell = n; return nil },
		"script": func(n *node, _ string) error { script = n; return nil },
		"stdin":  func(n *node, _ string) error { stdin = n; return nil },
		"interpreter": func(n *node, path string) (err error) {
			p.interpreter, err = d.interpreter(n, path)
			return err
		},
		"result": func(n *node, path string) (err error) {
			p.result, err = d.oneOf(n, path, "text", "json", "lines", "full", "none")
			return err
		},
		"success_exit_codes": func(n *node, path string) (err error) {
			p.success, err = d.exitCodes(n, path)
			return err
		},
	}
	maps.Copy(all, d.settingsFields(&p.settings))
	if err := d.each(n, path, all); err != nil {
		return nil, err
	}
	if c.Name == "" {
		return nil, fault(path+".name", "is required")
	}
	if err := d.way(p, path, argv, shell, script); err != nil {
		return nil, err
	}
	if err := d.compile(p, path, stdin); err != nil {
		return nil, err
	}
	p.name, c.Scopes, c.run = c.Name, p.scopes, p.run
	for _, a := range p.params {
		c.Args = append(c.Args, a.Arg)
	}
	return c, nil
}

// way is how the command is run: exactly one.
func (d *decoder) way(p *program, path string, argv, shell, script *node) (err error) {
	ways := 0
	for _, n := range []*node{argv, shell, script} {
		if n != nil {
			ways++
		}
	}
	switch {
	case ways != 1:
		return fault(path, "needs exactly one of argv, shell and script")
	case script == nil && p.interpreter != nil:
		return fault(path+".interpreter", "goes only with script")
	case argv != nil:
		p.argv, err = d.argv(argv, path+".argv", p.params)
	case shell != nil:
		p.shell, err = d.program(shell, path+".shell")
	default:
		p.script, err = d.program(script, path+".script")
		if p.interpreter == nil {
			p.interpreter = []string{"/bin/sh"}
		}
	}
	return err
}

// compile resolves what names arguments.
func (d *decoder) compile(p *program, path string, stdin *node) error {
	for _, v := range p.settings.env {
		t, err := parseTemplate(v.value.text, p.params)
		if err == nil && t.spread() {
			err = fmt.Errorf("a list cannot be a variable")
		}
		if err != nil {
			return fault(v.path, "%s", err)
		}
		p.env = append(p.env, envEntry{v.name, t})
	}
	if stdin == nil {
		return nil
	}
	return d.stdin(stdin, path+".stdin", p)
}
