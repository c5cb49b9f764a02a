package host

import (
	"path/filepath"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// npmPrefix is the folder below which npm installs globally, found as npm
// does: the environment, the user's settings, those of the installation,
// those built in, and last the folder above node's own.
func npmPrefix(at Where) string {
	for _, name := range []string{"NPM_CONFIG_PREFIX", "npm_config_prefix"} {
		if v := at.variable(name); filepath.IsAbs(v) {
			return v
		}
	}
	var settings []string
	if home := at.variable("HOME"); home != "" {
		settings = append(settings, home+"/.npmrc")
	}
	node := ""
	if file := at.program("node"); file != "" {
		node = filepath.Dir(filepath.Dir(file))
		settings = append(settings, node+"/etc/npmrc")
	}
	if npm := at.program("npm"); npm != "" { // …/npm/bin/npm-cli.js
		settings = append(settings, filepath.Dir(filepath.Dir(npm))+"/npmrc")
	}
	for _, file := range settings {
		text, err := readHead(file, 64<<10)
		if v := npmSetting(text, "prefix"); err == nil && v != "" {
			if home := at.variable("HOME"); home != "" {
				v = strings.NewReplacer("${HOME}", home).Replace(v)
				if rest, ok := strings.CutPrefix(v, "~/"); ok {
					v = filepath.Join(home, rest)
				}
			}
			if filepath.IsAbs(v) {
				return v
			}
		}
	}
	if node == "" {
		return "/usr/local"
	}
	return node
}

// npmSetting finds a setting before the first section of an npmrc; the last
// one counts.
func npmSetting(text []byte, key string) (value string) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break
		}
		if k, v, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == key {
			value = strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	return value
}

// variable is a variable of the environment.
func (w Where) variable(name string) string {
	for _, item := range w.Env {
		if v, ok := strings.CutPrefix(item, name+"="); ok {
			return v
		}
	}
	return ""
}

// program is the file of a program on the search path, without links; "" when
// there is none.
func (w Where) program(name string) string {
	file, err := proc.LookPath(name, w.Path, w.Dir)
	if err != nil {
		return ""
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return ""
	}
	return file
}

// Has tells whether a program is on the search path.
func (w Where) Has(name string) bool {
	_, err := proc.LookPath(name, w.Path, w.Dir)
	return err == nil
}
