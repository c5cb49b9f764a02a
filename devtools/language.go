// Package devtools runs code snippets, alone and in contexts that keep their
// variables, and runs git on repositories that nobody needs to trust.
package devtools

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Language is one that snippets can be written in.
type Language struct {
	// Name is the canonical name, lower case.
	Name    string
	aliases []string
	runners []runner
}

// runner is one program that runs a language.
type runner struct {
	program string
	// inline is the option before the code, for code that fits into an
	// argument; "" where the program cannot be given code that way.
	inline string
	// boot is code in the language that runs the code read from descriptor 3,
	// as if it had been given inline.
	boot string
	// file is the name of a file for programs that insist on one, and before
	// are the arguments in front of it.
	file   string
	before []string
}

// scriptFD is where a program finds code that is not in its arguments.
const scriptFD = 3

// languages are all there are. Python, node and bash are the contract; their
// code sees the same arguments however long it is.
var languages = []Language{
	{Name: "python", aliases: []string{"py"}, runners: []runner{{
		program: "python3", inline: "-c",
		boot: `exec(compile(open(3,encoding='utf-8').read(),'<string>','exec'))`,
	}}},
	{Name: "node", aliases: []string{"javascript", "js"}, runners: []runner{{
		program: "node", inline: "-e",
		boot: `((f,v)=>{const c=f.readFileSync(3,'utf8');f.closeSync(3);` +
			`return v.runInThisContext(c,{filename:'[eval]',importModuleDynamically:v.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER})` +
			`})(require('fs'),require('vm'))`,
	}}},
	{Name: "bash", aliases: []string{"sh"}, runners: []runner{{
		// On one line, so that the lines of the code keep their numbers.
		program: "bash", inline: "-c", boot: `eval "exec 3<&-; $(</proc/self/fd/3)"`,
	}}},
	{Name: "typescript", aliases: []string{"ts"}, runners: []runner{
		{program: "tsx", file: "snippet.ts"},
		{program: "deno", before: []string{"run", "--quiet", "--allow-all"}, file: "snippet.ts"},
		{program: "bun", before: []string{"run"}, file: "snippet.ts"},
		{program: "ts-node", file: "snippet.ts"},
	}},
	{Name: "ruby", aliases: []string{"rb"}, runners: []runner{{program: "ruby"}}},
	{Name: "perl", aliases: []string{"pl"}, runners: []runner{{program: "perl"}}},
	{Name: "go", aliases: []string{"golang"}, runners: []runner{{program: "go", before: []string{"run"}, file: "main.go"}}},
	{Name: "r", runners: []runner{{program: "Rscript"}}},
}

// FindLanguage finds a language by its name or an alias, whatever the case.
func FindLanguage(name string) (*Language, bool) {
	name = strings.ToLower(name)
	for i := range languages {
		if l := &languages[i]; l.Name == name || slices.Contains(l.aliases, name) {
			return l, true
		}
	}
	return nil, false
}

// Programs are the interpreters that can run the language, the best first.
func (l *Language) Programs() []string {
	names := make([]string, len(l.runners))
	for i, r := range l.runners {
		names[i] = r.program
	}
	return names
}

// Snippet is how a piece of code is run. The caller closes it when the program
// has ended.
type Snippet struct {
	// Argv is the argument vector of the interpreter.
	Argv []string
	// Files are handed to the interpreter as descriptors 3, 4, …
	Files []*os.File
	dir   string
}

// inlineBytes is the longest code that is given as an argument. The kernel
// takes twice that, and the environment needs room too.
const inlineBytes = 64 << 10

// Snippet prepares code to be run by one of [Language.Programs]. Long code goes
// to a file in memory, so that nothing is left behind whatever happens; only
// where a program insists on a name is there a private directory.
func (l *Language) Snippet(program, code string) (*Snippet, error) {
	return l.snippet(program, code, len(code) <= inlineBytes)
}

func (l *Language) snippet(program, code string, short bool) (*Snippet, error) {
	i := slices.IndexFunc(l.runners, func(r runner) bool { return r.program == program })
	if i < 0 {
		return nil, fmt.Errorf("%s does not run %s", program, l.Name)
	}
	r := l.runners[i]
	switch {
	case r.file != "":
		return r.inDirectory(code)
	case r.inline != "" && short:
		return &Snippet{Argv: []string{program, r.inline, code}}, nil
	}
	script, err := memoryFile("snippet", []byte(code))
	if err != nil {
		return nil, err
	}
	s := &Snippet{Argv: []string{program, fmt.Sprintf("/proc/self/fd/%d", scriptFD)}, Files: []*os.File{script}}
	if r.boot != "" {
		s.Argv = []string{program, r.inline, r.boot}
	}
	return s, nil
}

func (r runner) inDirectory(code string) (*Snippet, error) {
	dir, err := os.MkdirTemp("", ".abx-snippet-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the code: %w", err)
	}
	s := &Snippet{dir: dir, Argv: append(append([]string{r.program}, r.before...), filepath.Join(dir, r.file))}
	if err := os.WriteFile(filepath.Join(dir, r.file), []byte(code), 0o600); err != nil {
		s.Close()
		return nil, fmt.Errorf("write the code: %w", err)
	}
	return s, nil
}

// Close frees what the snippet holds.
func (s *Snippet) Close() {
	for _, f := range s.Files {
		_ = f.Close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// memoryFile is an anonymous file with that content, positioned at its start.
func memoryFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(content); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("fill a file in memory: %w", err)
	}
	return f, nil
}
