package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/template"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// contradiction is what is wrong with the options together.
func (o *checkOptions) contradiction() error {
	switch {
	case o.template != "" && o.source.file != "":
		return errors.New("--template has its policy inside and excludes --policy")
	case o.writePolicy != "" && o.template == "":
		return errors.New("--write-policy needs --template")
	}
	return nil
}

// templateReport is what --template --json prints. Revision and Endpoints are
// null when the template is not valid.
type templateReport struct {
	Valid     bool             `json:"valid"`
	Errors    []template.Fault `json:"errors"`
	Warnings  []string         `json:"warnings"`
	Revision  *string          `json:"revision"`
	Endpoints []ruleReport     `json:"endpoints"`
}

// checkTemplate tells what is wrong with a template, what will surprise, and
// what the policy in it means.
func (p *program) checkTemplate(o *checkOptions, rows []policy.Row) int {
	text, err := readBounded(o.template, maxDocument)
	if err != nil {
		return p.failed(&failure{"template", err})
	}
	found := template.Check(text, p.templateTools(o, rows))
	if len(found.Faults) > 0 {
		return p.templateFaults(o, found.Faults)
	}
	if o.writePolicy != "" {
		if err := writePolicy(o.writePolicy, found.Block); err != nil {
			return p.failed(&failure{"template", fmt.Errorf("--write-policy: %w", err)})
		}
	}
	if o.hasQuestion {
		return p.explain(o, found.Policy)
	}
	var warnings []string
	for _, w := range found.Warnings {
		warnings = append(warnings, fmt.Sprintf("%s: %s:%d: %s", w.Code, o.template, w.Line, w.Text))
	}
	warnings = append(warnings, found.Policy.Warnings()...)
	if o.asJSON {
		revision := found.Policy.Revision()
		p.printJSON(templateReport{true, []template.Fault{}, append([]string{}, warnings...), &revision, ruleReports(found.Policy)})
	} else {
		p.printTable(found.Policy, warnings)
	}
	if o.strict && len(warnings) > 0 {
		return exitUsage
	}
	return exitOK
}

func (p *program) templateFaults(o *checkOptions, faults []template.Fault) int {
	if o.asJSON {
		p.printJSON(templateReport{Errors: faults, Warnings: []string{}})
		return exitFailed
	}
	for _, f := range faults {
		_, _ = fmt.Fprintf(p.stderr, "template error: %s:%d:%d: %s: %s\n", o.template, f.Line, f.Column, oneLine(f.Path), oneLine(f.Message))
	}
	return exitFailed
}

// templateTools lends the check this program's own reading of command lines.
func (p *program) templateTools(o *checkOptions, rows []policy.Row) template.Tools {
	return template.Tools{
		Rows: rows, CodeGroups: o.source.codeGroups, Preset: o.source.preset,
		Serve: func(args []string, env map[string]string) (template.Listen, error) {
			var said bytes.Buffer
			q := &program{stdout: io.Discard, stderr: &said, ambient: p.ambient}
			for name, value := range env {
				q.env = append(q.env, name+"="+value)
			}
			c, _, ok := q.serveConfig(args)
			if !ok {
				return template.Listen{}, refusal(&said)
			}
			return template.Listen{Port: c.port, PTYPort: c.ptyPort, Policy: c.policy.file, Preset: c.policy.preset}, nil
		},
		Health: func(args []string) (int, error) {
			var said bytes.Buffer
			q := &program{stdout: io.Discard, stderr: &said}
			h, _, ok := q.healthOptions(args)
			if !ok {
				return 0, refusal(&said)
			}
			return h.port, nil
		},
	}
}

// refusal is what a command said instead of running, without the hint at its help.
func refusal(said *bytes.Buffer) error {
	text, _, _ := strings.Cut(strings.TrimSpace(said.String()), " (see agent-sandbox-server")
	return errors.New(strings.TrimPrefix(text, "usage error: "))
}

// writePolicy puts the block where the server looks for its policy. Whoever
// reads the file meanwhile sees the old text or the new.
func writePolicy(file string, block []byte) (err error) {
	var text bytes.Buffer
	if err := json.Indent(&text, block, "", "  "); err != nil {
		return err
	}
	text.WriteByte('\n')
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".server-policy-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
