// Agent-sandbox-server serves files, processes and terminals of the machine it
// runs on over HTTP, behind one policy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// version is set by the build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// The exit statuses, as callers know them.
const (
	exitOK      = 0
	exitFailed  = 1 // configuration, commands, listening or health
	exitUsage   = 2 // the command line, or warnings under --strict
	exitRefused = 3 // --explain answered "not allowed"
)

// ambientPolicy is read when nothing else names a policy.
const ambientPolicy = "/etc/agent-sandbox/server-policy.json"

func main() {
	proc.Stage() // this may be the short stage of a start, which does not come back
	os.Exit(run(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program and returns its exit status. When ctx ends a server
// stops as if it had been sent SIGTERM. stdin is not read: programs the server
// starts get an empty one.
func run(ctx context.Context, args, env []string, _ io.Reader, stdout, stderr io.Writer) int {
	p := &program{env: env, stdout: stdout, stderr: stderr, ambient: ambientPolicy}
	command := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	} else if len(args) > 0 {
		switch args[0] {
		case "-h", "-help", "--help":
			p.print(usage)
			return exitOK
		case "-version", "--version":
			command, args = "version", args[1:]
		}
	}
	switch command {
	case "serve":
		return p.serve(ctx, args)
	case "healthcheck":
		return p.healthcheck(ctx, args)
	case "check-config":
		return p.checkConfig(ctx, args)
	case "version":
		return p.version(args)
	case "api":
		return p.api(args)
	case "install-shim":
		return p.installShim(ctx, args)
	}
	return p.misused("", fmt.Errorf("unknown command %q", command))
}

const usage = `Usage: agent-sandbox-server [COMMAND] [OPTIONS]

Serves files, processes and terminals of this machine over HTTP, behind one policy.

Commands:
  serve          run the server; what happens without a command too
  healthcheck    exit 0 if a server is healthy, 1 if not
  check-config   show what a policy allows, or what is wrong with it
  install-shim   let Python programs use this server
  api            print the OpenAPI document of all endpoints
  version        print the version

"agent-sandbox-server COMMAND -h" shows the options of a command.
`

// program is one run of the command line.
type program struct {
	env            []string
	stdout, stderr io.Writer
	ambient        string // path of the policy that is read when nothing names one
}

func (p *program) print(text string) { _, _ = io.WriteString(p.stdout, text) }

// misused reports a mistake on the command line.
func (p *program) misused(command string, err error) int {
	help := strings.Join(strings.Fields("agent-sandbox-server "+command+" -h"), " ")
	_, _ = fmt.Fprintf(p.stderr, "usage error: %s (see %s)\n", oneLine(err.Error()), help)
	return exitUsage
}

// failed reports what stopped a command, in one line. Below it stands the
// traceback of Python code, if that was it.
func (p *program) failed(err error) int {
	_, _ = fmt.Fprintln(p.stderr, oneLine(err.Error()))
	if e, ok := errors.AsType[*registry.LoadError](err); ok && e.Trace != "" {
		_, _ = io.WriteString(p.stderr, e.Trace)
	}
	return exitFailed
}

// failure is an error with the word that leads its line on stderr: policy,
// configuration, commands or listen.
type failure struct {
	kind string
	err  error
}

func (f *failure) Error() string { return f.kind + " error: " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

// parse reads the options of a command, which takes no other arguments. Unless
// ok, the command is over and status is its exit status.
func (p *program) parse(fs *flag.FlagSet, summary string, args []string) (status int, ok bool) {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	switch {
	case err == nil && fs.NArg() == 0:
		return exitOK, true
	case err == nil:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case err == flag.ErrHelp: //nolint:errorlint // returned as it is, by contract
		p.print(help(fs, summary))
		return exitOK, false
	}
	return p.misused(fs.Name(), doubleDash(err)), false
}

// doubleDash spells options in an error of package flag as users write them.
func doubleDash(err error) error {
	r := strings.NewReplacer("not defined: -", "not defined: --", "for flag -", "for flag --", "an argument: -", "an argument: --",
		"for -", "for --")
	return fmt.Errorf("%s", r.Replace(err.Error()))
}

func help(fs *flag.FlagSet, summary string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: agent-sandbox-server %s [OPTIONS]\n\n%s\n", fs.Name(), summary)
	first := true
	fs.VisitAll(func(f *flag.Flag) {
		if first {
			b.WriteString("\nOptions:\n")
			first = false
		}
		value, text := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  --%s", f.Name)
		if value != "" {
			b.WriteString(" " + strings.ToUpper(value))
		}
		b.WriteString("\n        " + text)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(&b, " (default %s)", f.DefValue)
		}
		b.WriteString("\n")
	})
	return b.String()
}

// choice is an option with a closed list of values.
type choice struct {
	value *string
	among []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c choice) Set(s string) error {
	if !slices.Contains(c.among, s) {
		return fmt.Errorf("expected one of %s", strings.Join(c.among, ", "))
	}
	*c.value = s
	return nil
}

// list is an option that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func (p *program) version(args []string) int {
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	if status, ok := p.parse(fs, "Print the version.", args); !ok {
		return status
	}
	p.print(version + "\n")
	return exitOK
}
