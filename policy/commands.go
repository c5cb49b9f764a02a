package policy

import (
	"path"
	"slices"
	"strings"
)

// CommandRules are the compiled allow_commands and deny_commands. Make them
// with [NewCommandRules]; the zero CommandRules allow everything. They do not
// change and are safe for concurrent use.
type CommandRules struct {
	allow, deny []commandPattern
}

// CommandQuery asks whether a command may run. Argv has passed
// [ArgumentsDecision] and its program [ProgramDecision].
type CommandQuery struct {
	// Argv is the vector as the caller wrote it, at least one item.
	Argv []string
	// File is the program Argv[0] names, absolute and lexically clean, its
	// links not resolved: found on the child's PATH for a bare name, else
	// taken from the child's working directory. Empty when there is none.
	File string
	// Real is File with all links resolved: the file that will be run.
	Real string
	// OnServerPath tells whether an absolute directory of the server's own
	// PATH holds, under the bare name, the very file real. It is asked only
	// beside an allow list; nil means no.
	OnServerPath func(name, real string) bool
	// ResolvePath resolves an argument that stands for {path}, against the
	// child's working directory, and judges it by the endpoint's path rules.
	// nil refuses.
	ResolvePath func(arg string) (resolved string, d Decision)
}

// DecideResult is the answer to a [CommandQuery].
type DecideResult struct {
	Decision
	// Argv is what to run when allowed: the query's vector, with the resolved
	// path in place of every argument that stood for {path}.
	Argv []string
}

// NewCommandRules compiles the patterns of allow_commands and deny_commands.
// An empty allow list allows all that is not denied. The error names the first
// malformed pattern: blank, with an unfinished quote or a NUL, or with more
// than three `...`.
func NewCommandRules(allow, deny []string) (*CommandRules, error) {
	a, err := compileCommands(allow)
	if err != nil {
		return nil, err
	}
	d, err := compileCommands(deny)
	if err != nil {
		return nil, err
	}
	return &CommandRules{allow: a, deny: d}, nil
}

func compileCommands(patterns []string) ([]commandPattern, error) {
	var out []commandPattern
	for _, text := range patterns {
		p, err := compileCommand(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// Restricts tells whether there is an allow list. Then loader variables
// ([IsLoaderName]) must not reach the child from a caller.
func (c *CommandRules) Restricts() bool { return len(c.allow) > 0 }

// maxExpanded bounds the vector with its grouped flags split up: a short
// request must not become a vector of a hundred million items.
const maxExpanded = 4 * MaxArguments

// Decide judges a command: deny patterns first, then the allow list.
//
// Patterns see the vector as written and with grouped short flags split
// (-lR is -l -R); either may match. A pattern for a bare name admits a program
// only if OnServerPath knows it, so a file of the same name somewhere else is
// another program. Run exactly the query's Real, with the answer's Argv.
func (c *CommandRules) Decide(q CommandQuery) DecideResult {
	if len(q.Argv) == 0 {
		return DecideResult{Decision: ArgumentsDecision(q.Argv)}
	}
	if len(c.allow) == 0 && len(c.deny) == 0 {
		return DecideResult{Decision: Allow(), Argv: q.Argv}
	}
	split, ok := splitFlags(q.Argv)
	if !ok {
		return DecideResult{Decision: Refuse(CommandInvalid, "Command has too many grouped flags")}
	}
	m := matcher{CommandQuery: q, split: split}
	if slices.ContainsFunc(c.deny, m.denied) {
		return DecideResult{Decision: Refuse(CommandNotAllowed, "Command is denied by policy")}
	}
	if len(c.allow) == 0 {
		return DecideResult{Decision: Allow(), Argv: q.Argv}
	}
	refusal := Refuse(CommandNotAllowed, "Command is not in the list of allowed commands")
	found := false
	for _, p := range c.allow {
		got := m.allowed(p)
		if got.OK() {
			return got
		}
		// A path that was refused says more than "no pattern matched", but
		// another pattern may still allow the command.
		if !found && got.Code != Undecided {
			refusal, found = got.Decision, true
		}
	}
	return DecideResult{Decision: refusal}
}

// splitFlags splits grouped short flags. It returns nil, true when there are
// none, and false when the result would be too long.
func splitFlags(argv []string) (split []string, ok bool) {
	extra := 0
	for _, arg := range argv[1:] {
		if isFlagGroup(arg) {
			extra += len(arg) - 2
		}
	}
	if extra == 0 {
		return nil, true
	}
	if len(argv)+extra > maxExpanded {
		return nil, false
	}
	split = make([]string, 0, len(argv)+extra)
	split = append(split, argv[0])
	for _, arg := range argv[1:] {
		if !isFlagGroup(arg) {
			split = append(split, arg)
			continue
		}
		for i := 1; i < len(arg); i++ {
			split = append(split, "-"+arg[i:i+1])
		}
	}
	return split, true
}

// isFlagGroup tells whether arg is a minus and two or more letters.
func isFlagGroup(arg string) bool {
	if len(arg) < 3 || arg[0] != '-' {
		return false
	}
	for i := 1; i < len(arg); i++ {
		if c := arg[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

// A matcher holds one query while patterns are tried on it.
type matcher struct {
	CommandQuery
	split []string // nil when there are no grouped flags
}

// denied tells whether a deny pattern matches. It is generous: the program by
// any of its names, {path} by its look.
func (m *matcher) denied(p commandPattern) bool {
	if !p.program.names(m.Argv[0], m.File, m.Real) {
		return false
	}
	if _, ok := p.match(m.Argv); ok {
		return true
	}
	if m.split == nil {
		return false
	}
	_, ok := p.match(m.split)
	return ok
}

// allowed tries an allow pattern. A result without a code means no match.
func (m *matcher) allowed(p commandPattern) DecideResult {
	if !m.admits(p.program) {
		return DecideResult{}
	}
	paths, ok := p.match(m.Argv)
	if !ok && m.split != nil {
		paths, ok = p.match(m.split)
	}
	if !ok {
		return DecideResult{}
	}
	if len(paths) == 0 {
		return DecideResult{Decision: Allow(), Argv: m.Argv}
	}
	if m.split != nil {
		return DecideResult{} // {path} does not go together with grouped flags
	}
	return m.resolve(paths)
}

// resolve replaces the arguments at the given places by the paths they lead to.
func (m *matcher) resolve(paths []int) DecideResult {
	argv := slices.Clone(m.Argv)
	for _, i := range paths {
		if m.ResolvePath == nil {
			return DecideResult{}
		}
		resolved, d := m.ResolvePath(argv[i])
		if !d.OK() {
			return DecideResult{Decision: d}
		}
		// A program that stands for {path} is judged where it lies, so it
		// must be the file that is going to run.
		if i == 0 && resolved != m.Real {
			return DecideResult{}
		}
		argv[i] = resolved
	}
	return DecideResult{Decision: Allow(), Argv: argv}
}

// admits tells whether an allow pattern's program is the one asked for.
func (m *matcher) admits(p programPattern) bool {
	argv0 := m.Argv[0]
	if p.any {
		return true
	}
	if !strings.Contains(argv0, "/") {
		// An absolute pattern does not admit a bare name.
		return !p.slashed && p.glob(argv0) && m.isServers(argv0)
	}
	if p.slashed {
		return p.glob(m.absolute()) || p.glob(relative(argv0))
	}
	if p.kind == pathToken {
		return true // judged by the path rules
	}
	name := path.Base(path.Clean(argv0))
	return p.glob(name) && m.Real != "" && m.isServers(name)
}

// isServers tells whether the program is what the server's PATH gives for
// name. A program that was not found may pass: nothing will run.
func (m *matcher) isServers(name string) bool {
	if m.Real == "" {
		return true
	}
	return m.OnServerPath != nil && m.OnServerPath(name, m.Real)
}

// absolute is the program's path with dots and doubled slashes gone.
func (m *matcher) absolute() string {
	if argv0 := m.Argv[0]; strings.HasPrefix(argv0, "/") {
		return path.Clean(argv0)
	}
	return m.File
}

// relative is a relative path with a slash in its clean form ./a/b; empty for
// one that is absolute, bare, or leads upwards.
func relative(p string) string {
	if strings.HasPrefix(p, "/") || !strings.Contains(p, "/") {
		return ""
	}
	clean := path.Clean(p)
	if clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		return ""
	}
	return "./" + clean
}
