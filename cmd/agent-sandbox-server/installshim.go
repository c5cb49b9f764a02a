package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// installShim puts the package agent_sandbox.server where Python programs find
// it, and takes the place of other servers' packages and scripts on PATH.
func (p *program) installShim(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("install-shim", flag.ContinueOnError)
	target := fs.String("target", "", "`directory` to write to instead of the interpreter's site-packages; nothing else is touched")
	python := fs.String("python", "", "`interpreter` to install for; ABX_COMMANDS_PYTHON")
	if status, ok := p.parse(fs, "Let Python programs that import agent_sandbox.server use this server.", args); !ok {
		return status
	}
	if *target != "" {
		return p.installInto(*target)
	}
	e := newEnviron(p.env)
	s := shimInstall{program: p, python: *python, path: e.get("PATH"), done: map[string]bool{}}
	if s.python == "" {
		s.python = e.get("ABX_COMMANDS_PYTHON")
	}
	if err := s.run(ctx); err != nil {
		return p.failed(&failure{"install", err})
	}
	return exitOK
}

func (p *program) installInto(dir string) int {
	done, err := registry.Install(dir, version)
	if err != nil {
		return p.failed(&failure{"install", err})
	}
	p.said(done)
	return exitOK
}

func (p *program) said(done registry.Installed) {
	what := "installed"
	if done.Replaced {
		what = "replaced"
	}
	p.print(what + " " + done.Dir + "\n")
}

// shimInstall is one installation for the programs on PATH.
type shimInstall struct {
	*program
	python string
	path   string
	procs  *proc.Manager
	self   string
	done   map[string]bool // site-packages that were written
}

func (s *shimInstall) run(ctx context.Context) (err error) {
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.procs, err = proc.New(proc.Options{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	defer func() { err = errors.Join(err, s.procs.Close(ctx)) }()
	if err := s.scripts(ctx); err != nil {
		return err
	}
	python, err := registry.FindPython(s.python, s.path, workingDirectory())
	if err != nil {
		if len(s.done) > 0 {
			return nil
		}
		return err
	}
	return s.packageOf(ctx, python)
}

// scripts replaces what else is called agent-sandbox-server on PATH, and the
// packages that those scripts start.
func (s *shimInstall) scripts(ctx context.Context) error {
	for _, dir := range filepath.SplitList(s.path) {
		file := filepath.Join(dir, "agent-sandbox-server")
		content, err := readBounded(file, maxTokenFile)
		text := string(content)
		if err != nil || !strings.HasPrefix(text, "#!") {
			continue // nothing, or a binary
		}
		python := s.interpreter(file, text)
		if python == "" && !strings.Contains(text, "agent_sandbox.server") {
			continue
		}
		// Without an interpreter, or one that has gone, there is only the script.
		if _, err := os.Stat(python); err == nil {
			if err := s.packageOf(ctx, python); err != nil {
				return err
			}
		}
		if err := s.replace(file); err != nil {
			return err
		}
	}
	return nil
}

// interpreter is the Python that runs a script, "" where the script does not
// say so. Installers name it in the first line, there by way of env, or, where
// its path has blanks or is long, in the second line of a script that is one of
// sh as well.
func (s *shimInstall) interpreter(file, text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if len(words) == 0 {
		return ""
	}
	if isPython(words[0]) {
		return words[0]
	}
	if filepath.Base(words[0]) == "env" {
		if i := slices.IndexFunc(words, isPython); i > 0 {
			python, _ := proc.LookPath(words[i], s.path, workingDirectory())
			return python
		}
		return ""
	}
	line, ok := strings.CutPrefix(rest, "'''exec' ")
	if !ok {
		return ""
	}
	line, _, _ = strings.Cut(line, "\n")
	if word, _, _ := strings.Cut(strings.TrimPrefix(line, `"`), `"`); filepath.IsAbs(word) {
		return word
	}
	real, err := filepath.EvalSymlinks(file) // it is beside the script
	if err != nil {
		return ""
	}
	return filepath.Join(filepath.Dir(real), "python3")
}

func isPython(word string) bool {
	return !strings.HasPrefix(word, "-") && strings.Contains(filepath.Base(word), "python")
}

// replace puts a link to this binary in the place of a script.
func (s *shimInstall) replace(file string) error {
	link := file + ".new"
	_ = os.Remove(link)
	if err := os.Symlink(s.self, link); err != nil {
		return err
	}
	if err := os.Rename(link, file); err != nil {
		_ = os.Remove(link)
		return err
	}
	s.print(fmt.Sprintf("replaced %s\n", file))
	return nil
}

// packageOf installs the package for an interpreter.
func (s *shimInstall) packageOf(ctx context.Context, python string) error {
	const ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
	result, err := s.procs.Run(ctx, proc.Spec{
		Path: python, Argv: []string{python, "-c", ask}, Env: childenv.List(childenv.New(s.env).Now()), Timeout: 30 * time.Second,
	}, 64<<10)
	dir := strings.TrimSpace(string(result.Stdout))
	switch {
	case err != nil:
		return err
	case result.Code != 0 || !filepath.IsAbs(dir):
		return fmt.Errorf("%s does not say where its packages are", python)
	case s.done[dir]:
		return nil
	}
	s.done[dir] = true
	done, err := registry.Install(dir, version)
	if err == nil {
		s.said(done)
	}
	return err
}
