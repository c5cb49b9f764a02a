package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// A commandPattern is one entry of a command list.
type commandPattern struct {
	program programPattern
	// programOnly: any arguments will do.
	programOnly bool
	// runs are the tokens between `...`; a pattern without has one run.
	runs [][]token
}

// A programPattern is what the first token says about the program.
type programPattern struct {
	any     bool // the pattern begins with `...`
	kind    tokenKind
	pattern Glob
	slashed bool // holds a slash: names a place, not just a name
}

type tokenKind uint8

const (
	literalToken tokenKind = iota
	globToken
	intToken
	wordToken
	pathToken
	programToken // the first token, matched by programPattern
)

type token struct {
	kind tokenKind
	text string
	glob Glob
}

const anyRun = "..."

func compileCommand(text string) (commandPattern, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return commandPattern{}, errors.New("pattern has a NUL byte")
	}
	if strings.Trim(text, " \t\r\n") == "" {
		return commandPattern{}, errors.New("pattern is blank")
	}
	words, err := SplitWords(text)
	if err != nil {
		return commandPattern{}, fmt.Errorf("pattern %q is malformed: %w", text, err)
	}
	if words[0] == "" {
		return commandPattern{}, fmt.Errorf("pattern %q has an empty program name", text)
	}
	p := commandPattern{program: compileProgram(words[0])}
	p.programOnly = len(words) == 1 && !p.program.any && !strings.HasPrefix(words[0], "{")
	p.runs = [][]token{nil}
	for i, w := range words {
		if w == anyRun {
			p.runs = append(p.runs, nil)
			continue
		}
		t := compileToken(w)
		if i == 0 {
			t = token{kind: programToken, text: w}
			if p.program.kind == pathToken {
				t.kind = pathToken
			}
		}
		last := len(p.runs) - 1
		p.runs[last] = append(p.runs[last], t)
	}
	if len(p.runs) > 4 {
		return commandPattern{}, fmt.Errorf("pattern %q has more than three %s", text, anyRun)
	}
	return p, nil
}

func compileProgram(word string) programPattern {
	p := programPattern{any: word == anyRun, kind: kindOf(word), slashed: strings.Contains(word, "/")}
	// Spell places as they are compared: /a//b as /a/b, bin/x as ./bin/x.
	switch rel := relative(word); {
	case strings.Contains(word, "["): // may hold slashes that are none
	case strings.HasPrefix(word, "/"):
		word = path.Clean(word)
	case rel != "" && !strings.HasPrefix(word, "*"):
		word = rel
	}
	p.pattern = CompileGlob(word)
	return p
}

func compileToken(word string) token {
	return token{kind: kindOf(word), text: word, glob: CompileGlob(word)}
}

func kindOf(word string) tokenKind {
	switch word {
	case "{int}":
		return intToken
	case "{word}":
		return wordToken
	case "{path}":
		return pathToken
	}
	if strings.ContainsAny(word, "*?[") {
		return globToken
	}
	return literalToken
}

// glob matches one name or path of a program.
func (p programPattern) glob(s string) bool {
	switch p.kind {
	case intToken:
		return isInt(s)
	case wordToken:
		return isWord(s)
	case pathToken:
		return false // never by text
	}
	return s != "" && p.pattern.Match(s)
}

// names tells whether any name of the program matches: a deny pattern does
// not care how the program was asked for.
func (p programPattern) names(argv0, file, real string) bool {
	if p.any || p.kind == pathToken {
		return true
	}
	for _, name := range []string{argv0, path.Clean(argv0), relative(argv0), file, real} {
		if name != "" && (p.glob(name) || p.glob(path.Base(name))) {
			return true
		}
	}
	return false
}

// match fits argv to the tokens, the program left aside, and returns the
// places of the arguments that stand for {path}. Runs between `...` are taken
// at the first place they fit, so the work is bounded by the product of the
// two lengths.
func (p commandPattern) match(argv []string) (paths []int, ok bool) {
	if p.programOnly {
		return nil, true
	}
	head, rest := p.runs[0], p.runs[1:]
	if !fits(head, argv) || len(rest) == 0 && len(argv) != len(head) {
		return nil, false
	}
	paths = appendPaths(nil, head, 0)
	if len(rest) == 0 {
		return paths, true
	}
	tail := rest[len(rest)-1]
	end := len(argv) - len(tail)
	at := len(head)
	if end < at || !fits(tail, argv[end:]) {
		return nil, false
	}
	for _, run := range rest[:len(rest)-1] {
		for !fits(run, argv[at:end]) {
			if at++; at > end {
				return nil, false
			}
		}
		paths = appendPaths(paths, run, at)
		at += len(run)
	}
	return appendPaths(paths, tail, end), true
}

// fits tells whether argv begins with what the run asks for.
func fits(run []token, argv []string) bool {
	if len(argv) < len(run) {
		return false
	}
	for i, t := range run {
		if !t.matches(argv[i]) {
			return false
		}
	}
	return true
}

func appendPaths(paths []int, run []token, at int) []int {
	for i, t := range run {
		if t.kind == pathToken {
			paths = append(paths, at+i)
		}
	}
	return paths
}

// matches tells whether one argument fits the token.
func (t token) matches(arg string) bool {
	switch t.kind {
	case programToken:
		return true // judged by programPattern
	case intToken:
		return isInt(arg)
	case wordToken:
		return isWord(arg)
	case pathToken:
		return arg != "" && arg[0] != '-'
	case globToken:
		return t.tame(arg) && t.glob.Match(arg)
	}
	return arg == t.text
}

// tame tells whether a glob may see arg at all: a wildcard never stands for a
// path, a way upwards or a flag that the pattern does not speak of.
func (t token) tame(arg string) bool {
	for _, s := range []string{"/", ".."} {
		if strings.Contains(arg, s) && !strings.Contains(t.text, s) {
			return false
		}
	}
	return !strings.HasPrefix(arg, "-") || strings.HasPrefix(t.text, "-")
}

// isInt: one to nine digits.
func isInt(s string) bool {
	return len(s) >= 1 && len(s) <= 9 && !slices.ContainsFunc([]byte(s), func(c byte) bool { return c < '0' || c > '9' })
}

// isWord: letters, digits and _ in first place, then also . @ : + = , and -.
func isWord(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter, '0' <= c && c <= '9', c == '_':
		case i > 0 && strings.IndexByte(".@:+=,-", c) >= 0:
		default:
			return false
		}
	}
	return true
}
