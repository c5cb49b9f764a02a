// Package launch decides about commands: what was judged is what is started,
// whichever dialect it was asked in.
package launch

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Order is a command that somebody wants to run.
type Order struct {
	Argv []string          // at least one word
	Vars map[string]string // what the caller sets
	Base map[string]string // the environment they are set over; it is changed

	// Dir is where the program begins, for looking it up. DirErr is why it may
	// not; it is told in its turn.
	Dir    string
	DirErr error

	Rule  *policy.Rule   // its command rules count
	Guard *guardfs.Guard // judges arguments that stand for paths
	// ServerPath is the server's own PATH, whose programs bare names in allow
	// lists mean.
	ServerPath string
	// Secret names the variables that hold secrets of the server.
	Secret func(name string) bool
	// Become, if not nil, decides whom to run as and says so in the
	// environment.
	Become func(env map[string]string) error
}

// Command is an Order that may be run.
type Command struct {
	Argv []string
	File string   // what to execute; "" when there is nothing
	Env  []string // the whole environment of the child
	// Missing is why there is nothing to execute: of [proc.LookPath].
	Missing error
}

// Judge judges an order in the order of the contract; the first check that
// fails answers. Refusals are [*policy.Denied]; DirErr and what Become returns
// are passed on. That a program is missing is not judged: see Command.Missing.
func (o *Order) Judge() (Command, error) {
	restricted := o.Rule.Command.Restricts()
	path, ok := o.Vars["PATH"]
	if !ok {
		path = o.Base["PATH"]
	}
	prog := Find(o.Argv[0], path, o.Dir, restricted)
	if err := policy.ProgramDecision(o.Argv[0], prog.Asked, prog.Leads).Err(); err != nil {
		return Command{}, err
	}
	names := slices.Sorted(maps.Keys(o.Vars))
	for _, name := range names {
		if err := policy.EnvSyntax(name, o.Vars[name]).Err(); err != nil {
			return Command{}, err
		}
	}
	for _, name := range names {
		if err := policy.EnvReserved(name, restricted).Err(); err != nil {
			return Command{}, err
		}
	}
	if err := policy.ArgumentsDecision(o.Argv).Err(); err != nil {
		return Command{}, err
	}
	judged := o.Rule.Command.Decide(policy.CommandQuery{
		Argv: o.Argv, File: prog.clean(), Real: prog.real(),
		OnServerPath: o.onServerPath, ResolvePath: o.resolve,
	})
	if err := judged.Err(); err != nil {
		return Command{}, err
	}
	c := Command{Argv: judged.Argv, File: prog.File, Missing: prog.Err}
	if restricted {
		// The file that was judged, not a link that may lead elsewhere by now.
		c.File = prog.real()
	}
	if o.DirErr != nil {
		return c, o.DirErr
	}
	if o.Become != nil {
		if err := o.Become(o.Base); err != nil {
			return c, err
		}
	}
	rules := policy.NewEnvRules(nil, nil, nil, o.Secret)
	for _, name := range names {
		if err := rules.Permits(name).Err(); err != nil {
			return c, err
		}
		o.Base[name] = o.Vars[name]
	}
	c.Env = childenv.List(o.Base)
	return c, nil
}

// resolve judges an argument that stands for a path.
func (o *Order) resolve(arg string) (string, policy.Decision) {
	if !filepath.IsAbs(arg) {
		arg = o.Dir + "/" + arg
	}
	real, err := o.Guard.Check(arg, policy.Exec)
	return real, policy.DecisionOf(err)
}

// Program is the executable that a command names.
type Program struct {
	File  string // what to execute; "" when there is none
	Err   error  // why there is none
	Asked string // File, or else the path asked for; "" for a bare name
	Leads string // Asked with all links resolved; "" when there is nothing
}

// Find looks for what name means to a child with that PATH and directory.
// Where commands are restricted, a path is cleaned first: what the patterns
// see is then what is run, and not where a link with dots behind it leads.
func Find(name, path, dir string, restricted bool) Program {
	slashed := strings.Contains(name, "/")
	if slashed && !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	if slashed && restricted {
		name = filepath.Clean(name)
	}
	var p Program
	p.File, p.Err = proc.LookPath(name, path, dir)
	p.Asked = p.File
	if p.Err != nil && slashed {
		p.Asked = name // what cannot be run may lie where nothing is to be run
	}
	if real, err := filepath.EvalSymlinks(p.Asked); err == nil && p.Asked != "" {
		p.Leads = real
	}
	return p
}

// clean is the file to execute, lexically clean.
func (p Program) clean() string {
	if p.File == "" {
		return ""
	}
	return filepath.Clean(p.File)
}

// real is the file to execute with its links resolved.
func (p Program) real() string {
	if p.File == "" {
		return ""
	}
	return cmp.Or(p.Leads, p.File)
}

// onServerPath tells whether a directory of the server's own PATH holds the
// very file real under the bare name.
func (o *Order) onServerPath(name, real string) bool {
	want, err := os.Stat(real)
	if err != nil {
		return false
	}
	for _, dir := range filepath.SplitList(o.ServerPath) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if got, err := os.Stat(filepath.Join(dir, name)); err == nil && os.SameFile(want, got) {
			return true
		}
	}
	return false
}
