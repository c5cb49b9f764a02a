// Package template checks template.yaml files: against what the published
// client's model and launcher refuse, against what stops this server, and for
// what launches but will surprise.
package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// maxDepth is how deep a template may be nested. The policy in it is held to
// the narrower bound of policies.
const maxDepth = 100

// Protocol is the protocol name of services that this server serves, and
// Version the one the published client speaks.
const (
	Protocol = "agent-sandbox-server"
	Version  = 2
)

// Fault is one mistake. Line and Column count from 1; Path is dotted, with
// "[i]" for the items of lists and "." for the whole file.
type Fault struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Warning is something that launches but will surprise.
type Warning struct {
	Code string // "T1" to "T14"
	Line int
	Text string
}

// Tools are what a check needs to know of the program it belongs to.
type Tools struct {
	// Rows are the endpoints a policy may speak of.
	Rows []policy.Row
	// CodeGroups are the switches made by named commands that were loaded.
	CodeGroups map[string]bool
	// Preset is put over the policy of the template, "" for none. The block
	// that is reported stays as it is.
	Preset string
	// Serve reads the arguments of a server in the environment env, as the
	// program itself would. The error's text is one line.
	Serve func(args []string, env map[string]string) (Listen, error)
	// Health reads the arguments of a health check: the port it asks.
	Health func(args []string) (port int, err error)
}

// Listen is what a server's command line says.
type Listen struct {
	Port, PTYPort  int // 0 is any
	Policy, Preset string
}

// Report is the outcome of a check.
type Report struct {
	Faults   []Fault // in the order of the file
	Warnings []Warning
	// Policy is what the server block means in the declared environment, or
	// what no block means; nil when there are faults.
	Policy *policy.Policy
	// Block is the server block as JSON, as written; "{}" when there is none.
	Block []byte
}

// Check reads a template.
func Check(data []byte, tools Tools) *Report {
	root, errs := policy.ReadYAML(data, maxDepth)
	c := &checker{tools: tools, root: root, env: map[string]string{}}
	for _, e := range errs {
		c.faults = append(c.faults, Fault{max(e.Line, 1), max(e.Column, 1), e.Where, e.Text})
	}
	switch {
	case root == nil:
	case root.Kind != policy.Object:
		c.fail(root, ".", "expected a mapping, got %s", root.What())
	default:
		c.fields()
		c.policy()
		c.commands()
	}
	// A value used twice by an alias may be reported twice at one place.
	slices.SortStableFunc(c.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	r := &Report{Faults: slices.Compact(c.faults)}
	if len(r.Faults) > 0 {
		return r
	}
	c.surprises()
	slices.SortStableFunc(c.warnings, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	r.Warnings, r.Policy, r.Block = slices.Compact(c.warnings), c.compiled, c.block
	return r
}

// checker is one check. What is found wrong is collected.
type checker struct {
	tools    Tools
	root     *policy.Value
	faults   []Fault
	warnings []Warning

	env      map[string]string
	services []service
	start    *command // nil without one or with one that is wrong
	ready    *command
	document *policy.Document
	compiled *policy.Policy
	block    []byte
}

// service is one entry of provides without faults.
type service struct {
	id, protocol  string
	version, port int64
	operations    []string
	at            *policy.Value
}

func (s *service) ours() bool { return s.protocol == Protocol }

func (c *checker) fail(at *policy.Value, path, format string, args ...any) {
	c.failAt(at.Line, at.Column, path, format, args...)
}

func (c *checker) failAt(line, column int, path, format string, args ...any) {
	text := strings.Join(strings.FieldsFunc(fmt.Sprintf(format, args...), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	c.faults = append(c.faults, Fault{max(line, 1), max(column, 1), path, text})
}

func (c *checker) warn(code string, line int, format string, args ...any) {
	text := strings.Join(strings.FieldsFunc(fmt.Sprintf(format, args...), func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	c.warnings = append(c.warnings, Warning{code, max(line, 1), text})
}
