package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/endpoints"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// checkOptions are the options of check-config.
type checkOptions struct {
	source      policySource
	commands    list
	asJSON      bool
	strict      bool
	explain     string
	paths       list
	scopes, op  string
	baseDir     string
	hasQuestion bool
	template    string // "" when a policy is checked
	writePolicy string
}

// checkConfig resolves the policy as serve does and shows what it means.
func (p *program) checkConfig(ctx context.Context, args []string) int {
	e := newEnviron(p.env)
	o := checkOptions{source: policySource{env: e, ambient: p.ambient}, baseDir: e.baseDir()}
	fs := flag.NewFlagSet("check-config", flag.ContinueOnError)
	fs.StringVar(&o.source.file, "policy", "", "policy `file`, JSON or YAML")
	fs.StringVar(&o.source.preset, "preset", "", "`name` of a built-in policy, put over the one in force")
	fs.StringVar(&o.template, "template", "", "check this template.yaml `file` instead")
	fs.StringVar(&o.writePolicy, "write-policy", "", "with --template: write its server block to this `file`, as JSON, if nothing is wrong")
	fs.Var(&o.commands, "commands", "`file` or module of named commands; may be repeated")
	fs.BoolVar(&o.asJSON, "json", false, "print JSON")
	fs.BoolVar(&o.strict, "strict", false, "exit 2 when there are warnings")
	fs.StringVar(&o.explain, "explain", "", "tell whether a call of this `endpoint` would be allowed; exit 3 if not")
	fs.Var(&o.paths, "path", "with --explain: a `path` the call names; may be repeated")
	fs.StringVar(&o.scopes, "scopes", "*", "with --explain: the caller's scopes, a comma `list`")
	fs.Var(choice{&o.op, []string{"read", "write", "delete", "exec"}}, "op", "with --explain: `what` is done to the path: read, write, delete or exec")
	if status, ok := p.parse(fs, "Show what the policy allows, or what is wrong with it.", args); !ok {
		return status
	}
	fs.Visit(func(f *flag.Flag) { o.hasQuestion = o.hasQuestion || f.Name == "explain" })
	if err := o.contradiction(); err != nil {
		return p.misused("check-config", err)
	}
	commands, err := p.tryCommands(ctx, &o)
	if err != nil {
		return p.failed(err)
	}
	rows := api.Rows((&endpoints.Server{Version: version, Commands: commands}).Table())
	if o.template != "" {
		return p.checkTemplate(&o, rows)
	}
	loaded, err := o.source.load(rows)
	if err != nil {
		// Here every fault is the policy's: there is nothing else to configure.
		if f, ok := errors.AsType[*failure](err); ok {
			err = &failure{"policy", f.err}
		}
		return p.failed(err)
	}
	if o.hasQuestion {
		return p.explain(&o, loaded.Policy)
	}
	warnings := slices.Clone(loaded.Warnings())
	warnings = append(warnings, lintFile(o.source.file)...)
	slices.Sort(warnings)
	if o.asJSON {
		p.printJSON(report{loaded.Revision(), ruleReports(loaded.Policy), append([]string{}, warnings...)})
	} else {
		p.printTable(loaded.Policy, warnings)
	}
	if o.strict && len(warnings) > 0 {
		return exitUsage
	}
	return exitOK
}

// lintFile is lint L5: who can write the policy can lift it.
func lintFile(file string) []string {
	if file == "" {
		return nil
	}
	for _, name := range []string{file, filepath.Dir(file)} {
		if unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS) == nil {
			return []string{"L5: the policy file '" + file + "' or its directory is writable by the current user"}
		}
	}
	return nil
}

func (p *program) printTable(pol *policy.Policy, warnings []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "policy: preset=%s revision=%s\n", pol.Preset(), pol.Revision())
	for _, r := range pol.Rules() {
		state, scopes := "on ", "-"
		if !r.Enabled {
			state = "off"
		}
		if len(r.Scopes) > 0 {
			scopes = strings.Join(r.Scopes, ",")
		}
		fmt.Fprintf(&b, "  [%s] %s  scopes=%s\n", state, r.Row.Name, scopes)
	}
	for _, w := range warnings {
		fmt.Fprintf(&b, "warning: %s\n", oneLine(w))
	}
	p.print(b.String())
}

// report is what --json prints.
type report struct {
	Revision  string       `json:"revision"`
	Endpoints []ruleReport `json:"endpoints"`
	Warnings  []string     `json:"warnings"`
}

type ruleReport struct {
	Endpoint string         `json:"endpoint"`
	Group    string         `json:"group"`
	Enabled  bool           `json:"enabled"`
	Rule     *string        `json:"rule"`
	Scopes   []string       `json:"scopes"`
	Limits   map[string]any `json:"limits"`
	Paths    pathReport     `json:"paths"`
}

// pathReport shows the deny patterns, which discovery keeps from callers.
type pathReport struct {
	Allow    []string `json:"allow"`
	Deny     []string `json:"deny"`
	ReadOnly bool     `json:"read_only"`
}

func ruleReports(pol *policy.Policy) []ruleReport {
	out := []ruleReport{}
	for _, r := range pol.Rules() {
		line := ruleReport{
			Endpoint: r.Row.Name, Group: r.Row.Group, Enabled: r.Enabled,
			Scopes: append([]string{}, r.Scopes...), Limits: r.LimitsView(),
			Paths: pathReport{append([]string{}, r.Paths.Allow...), append([]string{}, r.Paths.Deny...), r.Paths.ReadOnly},
		}
		if line.Limits == nil {
			line.Limits = map[string]any{}
		}
		if !r.Enabled {
			line.Rule = &r.Origin
		}
		out = append(out, line)
	}
	return out
}

func (p *program) printJSON(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		p.failed(err) // only values made here get here
		return
	}
	p.print(b.String())
}

// explain prints what /capabilities/check would answer an identity with these
// scopes.
func (p *program) explain(o *checkOptions, pol *policy.Policy) int {
	files := guardfs.New(func() string { return o.baseDir }, workingDirectory())
	defer files.Close()
	who := policy.Identity{ID: "explain", ByToken: true}
	for s := range strings.SplitSeq(o.scopes, ",") {
		if s = strings.TrimSpace(s); s != "" {
			who.Scopes = append(who.Scopes, s)
		}
	}
	slices.Sort(who.Scopes)
	q := endpoints.Question{Endpoint: o.explain, Paths: o.paths}
	if op, ok := policy.ParseOp(o.op); ok {
		q.Op = &op
	}
	v := endpoints.Ask(pol, files, who, q)
	p.printJSON(v)
	if !v.Allowed {
		return exitRefused
	}
	return exitOK
}

// api prints the API document.
func (p *program) api(args []string) int {
	fs := flag.NewFlagSet("api", flag.ContinueOnError)
	if status, ok := p.parse(fs, "Print the OpenAPI document of all endpoints.", args); !ok {
		return status
	}
	text, err := api.OpenAPI((&endpoints.Server{Version: version}).Table(), version)
	if err != nil {
		return p.failed(err)
	}
	p.print(strings.TrimSuffix(string(text), "\n") + "\n")
	return exitOK
}
