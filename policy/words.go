package policy

import (
	"fmt"
	"path"
	"strings"
)

// Bounds of an argument vector, whatever the rules say.
const (
	MaxArguments     = 4096
	MaxArgumentBytes = 131071 // the kernel's limit for one argument, less its NUL
)

// SplitWords splits a command into arguments by the quoting rules of the POSIX
// shell, and by nothing else of it: no variables, globs, comments, operators.
// Words end at space, tab, carriage return and newline.
//
// The error is a [*Denied] with [CommandInvalid]: an unfinished quote, a
// trailing backslash, no word at all, or more than [MaxArguments] words.
func SplitWords(command string) ([]string, error) {
	var words []string
	for i := 0; ; {
		for i < len(command) && isBlank(command[i]) {
			i++
		}
		if i == len(command) {
			break
		}
		word, next, err := oneWord(command, i)
		if err != nil {
			return nil, err
		}
		if len(words) == MaxArguments {
			return nil, tooManyArguments().Err()
		}
		words = append(words, word)
		i = next
	}
	if len(words) == 0 {
		return nil, Refuse(CommandInvalid, "Command is blank").Err()
	}
	return words, nil
}

// oneWord reads the word that starts at i, which is no blank.
func oneWord(s string, i int) (word string, next int, err error) {
	var b strings.Builder
	for i < len(s) && !isBlank(s[i]) {
		switch s[i] {
		case '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				return "", 0, unfinished("single quote")
			}
			b.WriteString(s[i+1 : i+1+n])
			i += n + 2
		case '"':
			if i, err = quoted(&b, s, i+1); err != nil {
				return "", 0, err
			}
		case '\\':
			if i+1 == len(s) {
				return "", 0, unfinished("backslash")
			}
			b.WriteByte(s[i+1])
			i += 2
		default:
			b.WriteByte(s[i])
			i++
		}
	}
	return b.String(), i, nil
}

// quoted reads the rest of a double quoted part, which begins at i, and
// returns where the text goes on behind its closing quote. A backslash means
// something before a quote or another backslash only.
func quoted(b *strings.Builder, s string, i int) (next int, err error) {
	for i < len(s) {
		switch c := s[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			b.WriteByte(s[i+1])
			i += 2
		default:
			b.WriteByte(c)
			i++
		}
	}
	return 0, unfinished("double quote")
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func unfinished(what string) error {
	return Refuse(CommandInvalid, "Command has an unfinished "+what).Err()
}

func tooManyArguments() Decision {
	return Refuse(CommandInvalid, fmt.Sprintf("Command has more than %d arguments", MaxArguments))
}

// ArgumentsDecision judges the shape of an argument vector: not empty, no NUL,
// not too many arguments and none too long.
func ArgumentsDecision(argv []string) Decision {
	if len(argv) == 0 {
		return Refuse(CommandInvalid, "Command is blank")
	}
	if len(argv) > MaxArguments {
		return tooManyArguments()
	}
	for _, arg := range argv {
		if len(arg) > MaxArgumentBytes {
			return Refuse(CommandInvalid, fmt.Sprintf("Command has an argument of more than %d bytes", MaxArgumentBytes))
		}
		if strings.IndexByte(arg, 0) >= 0 {
			return Refuse(CommandInvalid, "Command has an argument with a NUL byte")
		}
	}
	return Allow()
}

// ProgramDecision judges the program of a command: argv0 as it was asked for,
// and file and real as in [CommandQuery], either empty when none was found.
// Nothing below /proc, /sys and /dev is ever run.
func ProgramDecision(argv0, file, real string) Decision {
	if argv0 == "" {
		return Refuse(ProcessInvalid, "Command has an empty program name")
	}
	for _, p := range []string{argv0, file, real} {
		if strings.HasPrefix(p, "/") && InSystemTree(path.Clean(p)) {
			return Refuse(ProcessDenied, "Programs below /proc, /sys and /dev are not run")
		}
	}
	return Allow()
}
