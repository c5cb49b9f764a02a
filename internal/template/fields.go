package template

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// knownKeys are the top keys with a meaning, in the order of the guide.
var knownKeys = []string{
	"spec_version", "name", "provides", "version", "description", "author", "license", "tags", "env", "cpu_count", "memory_mb",
	"resources", "ports", "start_cmd", "ready_cmd", "image", "provider", "template_id", "server", "application",
}

// refusedKeys are those of older templates.
var refusedKeys = []string{
	"workflow_contract_version", "default_workflow", "workflows", "capabilities", "tested_on", "providers", "custom_commands",
	"system_packages", "python_packages", "node_packages", "copy_files",
}

var serviceKeys = []string{"protocol", "version", "port", "operations"}

var serviceID = lazyregexp.New(`^[a-z][a-z0-9_-]*$`)

const maxSafeInteger = 1<<53 - 1

// fields checks the top keys but for the policy and what commands say.
func (c *checker) fields() {
	for _, key := range []string{"spec_version", "name", "provides"} {
		if c.root.Get(key) == nil {
			c.fail(c.root, key, "required, but missing")
		}
	}
	for _, m := range c.root.Members {
		switch {
		case m.Odd != "":
			c.failAt(m.Line, m.Column, ".", "a key is %s, not a string; quote it", m.Odd)
		case slices.Contains(refusedKeys, m.Key):
			c.failAt(m.Line, m.Column, m.Key, "no longer part of templates; remove it")
		default:
			c.field(m.Key, m.Value)
		}
	}
	c.pairs()
}

func (c *checker) field(key string, v *policy.Value) {
	switch key {
	case "spec_version":
		if v.Kind != policy.Int || v.Int != 5 {
			c.fail(v, key, "expected the integer 5")
		}
	case "name", "version", "description", "author", "license":
		c.str(v, key)
	case "tags":
		c.each(v, key, "strings", c.str)
	case "env":
		c.environment(v)
	case "cpu_count", "memory_mb":
		c.number(v, key, true)
	case "resources":
		c.resources(v)
	case "ports":
		c.each(v, key, "integers", func(v *policy.Value, path string) { c.number(v, path, false) })
	case "start_cmd", "ready_cmd", "image", "provider", "template_id":
		if v.Kind != policy.String || strings.TrimSpace(v.Text) == "" {
			c.fail(v, key, "expected a string that is not blank, got %s%s", whatText(v), hint(v))
		}
	case "provides":
		c.provides(v)
	}
}

func whatText(v *policy.Value) string {
	if v.Kind == policy.String {
		return "a blank one"
	}
	return v.What()
}

// hint helps where YAML made something else of an unquoted word.
func hint(v *policy.Value) string {
	if v.Plain && v.Kind != policy.Null && v.Kind != policy.String {
		return "; quote it"
	}
	return ""
}

func (c *checker) str(v *policy.Value, path string) {
	if v.Kind != policy.String {
		c.fail(v, path, "expected a string, got %s%s", v.What(), hint(v))
	}
}

func (c *checker) each(v *policy.Value, path, of string, item func(*policy.Value, string)) {
	if v.Kind != policy.List {
		c.fail(v, path, "expected a list of %s, got %s", of, v.What())
		return
	}
	for i, it := range v.Items {
		item(it, fmt.Sprintf("%s[%d]", path, i))
	}
}

// numeric is the text that the client takes for an integer.
var numeric = lazyregexp.New(`^\s*[-+]?[0-9]+(_[0-9]+)*(\.0+)?\s*$`)

// integer is the value the client makes of v.
func integer(v *policy.Value) (int64, bool) {
	switch v.Kind {
	case policy.Int:
		return v.Int, true
	case policy.Bool:
		if v.Bool {
			return 1, true
		}
		return 0, true
	case policy.Float:
		return int64(v.Float), v.Float == math.Trunc(v.Float)
	case policy.String:
		if !numeric.MatchString(v.Text) {
			return 0, false
		}
		digits, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(v.Text), "_", ""), ".")
		n, err := strconv.ParseInt(digits, 10, 64)
		return n, err == nil
	}
	return 0, false
}

func (c *checker) number(v *policy.Value, path string, null bool) {
	if v.Kind == policy.Null && null {
		return
	}
	if _, ok := integer(v); !ok {
		c.fail(v, path, "expected an integer, got %s", v.What())
	}
}

func (c *checker) environment(v *policy.Value) {
	if v.Kind != policy.Object {
		c.fail(v, "env", "expected a mapping of names to strings, got %s", v.What())
		return
	}
	for _, m := range v.Members {
		if m.Odd != "" {
			c.failAt(m.Line, m.Column, "env", "a name is %s, not a string; quote it", m.Odd)
			continue
		}
		c.str(m.Value, "env."+m.Key)
		c.env[m.Key] = m.Value.Text
	}
}

// resources stand for cpu_count and memory_mb where those are absent.
func (c *checker) resources(v *policy.Value) {
	if c.root.Get("application") != nil {
		return
	}
	for short, key := range map[string]string{"cpu": "cpu_count", "memory": "memory_mb"} {
		if n := v.Get(short); n != nil && c.root.Get(key) == nil {
			c.number(n, "resources."+short, true)
		}
	}
}

// pairs checks the keys that only make sense together or alone.
func (c *checker) pairs() {
	image, provider, id := c.root.Get("image"), c.root.Get("provider"), c.root.Get("template_id")
	switch {
	case provider != nil && id == nil:
		c.fail(provider, "provider", "needs template_id beside it")
	case provider == nil && id != nil:
		c.fail(id, "template_id", "needs provider beside it")
	}
	if image != nil && id != nil {
		c.fail(id, "template_id", "excludes image")
	}
}

func (c *checker) provides(v *policy.Value) {
	if v.Kind != policy.Object {
		c.fail(v, "provides", "expected a mapping of services, got %s", v.What())
		return
	}
	for _, m := range v.Members {
		switch {
		case m.Odd != "":
			c.failAt(m.Line, m.Column, "provides", "a service id is %s, not a string; quote it", m.Odd)
		case !serviceID.MatchString(m.Key):
			c.failAt(m.Line, m.Column, "provides."+m.Key, "expected an id of small letters, digits, '_' and '-' that begins with a letter")
		default:
			c.service(m.Key, m.Value)
		}
	}
}

func (c *checker) service(id string, v *policy.Value) {
	path, before := "provides."+id, len(c.faults)
	if v.Kind != policy.Object {
		c.fail(v, path, "expected a mapping with %s, got %s", strings.Join(serviceKeys, ", "), v.What())
		return
	}
	for _, key := range serviceKeys {
		if v.Get(key) == nil {
			c.fail(v, path, "the key %s is missing", key)
		}
	}
	s := service{id: id, at: v}
	for _, m := range v.Members {
		at := path + "." + m.Key
		switch m.Key {
		case "protocol":
			s.protocol = m.Value.Text
			if m.Value.Kind != policy.String || s.protocol == "" {
				c.fail(m.Value, at, "expected a string that is not empty%s", hint(m.Value))
			}
		case "version":
			s.version = c.bounded(m.Value, at, maxSafeInteger)
		case "port":
			s.port = c.bounded(m.Value, at, 65535)
		case "operations":
			s.operations = c.operations(m.Value, at)
		default:
			if m.Odd != "" {
				at = path
			}
			c.failAt(m.Line, m.Column, at, "unknown key%s; a service has exactly %s",
				policy.Suggestion(m.Key, serviceKeys), strings.Join(serviceKeys, ", "))
		}
	}
	if len(c.faults) == before {
		c.services = append(c.services, s)
	}
}

func (c *checker) bounded(v *policy.Value, path string, most int64) int64 {
	if v.Kind != policy.Int || v.Int < 1 || v.Int > most {
		c.fail(v, path, "expected an integer from 1 to %d", most)
	}
	return v.Int
}

func (c *checker) operations(v *policy.Value, path string) (names []string) {
	c.each(v, path, "strings", func(v *policy.Value, path string) {
		switch {
		case v.Kind != policy.String:
			c.str(v, path)
		case v.Text == "":
			c.fail(v, path, "expected a string that is not empty")
		case slices.Contains(names, v.Text):
			c.fail(v, path, "'%s' is given twice", v.Text)
		}
		names = append(names, v.Text)
	})
	return names
}
