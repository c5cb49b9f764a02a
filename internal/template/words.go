package template

import (
	"errors"
	"strings"
)

// word is one word of a command line.
type word struct {
	text string // without its quotes
	live string // the parts a shell would look into: those outside single quotes, backslashes left out
	bare string // the parts outside all quotes
	op   bool   // an operator of the shell
}

// errOpenQuote is returned for text no reader can split.
var errOpenQuote = errors.New("a quote is not closed")

const operators = "();<>|&"

// split reads a command line into words and operators. Runs of operator
// characters are one operator, and so is a line break.
func split(s string) ([]word, error) {
	var out []word
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\n':
			out = append(out, word{text: "\n", op: true})
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case strings.IndexByte(operators, c) >= 0:
			from := i
			for i < len(s) && strings.IndexByte(operators, s[i]) >= 0 {
				i++
			}
			out = append(out, word{text: s[from:i], op: true})
		default:
			w, next, err := readWord(s, i)
			if err != nil {
				return nil, err
			}
			out = append(out, w)
			i = next
		}
	}
	return out, nil
}

func readWord(s string, i int) (word, int, error) {
	var text, live, bare strings.Builder
	for i < len(s) && strings.IndexByte(operators+" \t\r\n", s[i]) < 0 {
		switch c := s[i]; c {
		case '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				return word{}, 0, errOpenQuote
			}
			text.WriteString(s[i+1 : i+1+n])
			i += n + 2
		case '"':
			for i++; ; i++ {
				if i >= len(s) {
					return word{}, 0, errOpenQuote
				}
				if s[i] == '"' {
					i++
					break
				}
				if s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\') {
					i++
					text.WriteByte(s[i])
					continue
				}
				text.WriteByte(s[i])
				live.WriteByte(s[i])
			}
		case '\\':
			if i+1 == len(s) {
				return word{}, 0, errors.New("a backslash at the end")
			}
			text.WriteByte(s[i+1])
			i += 2
		default:
			text.WriteByte(c)
			live.WriteByte(c)
			bare.WriteByte(c)
			i++
		}
	}
	return word{text: text.String(), live: live.String(), bare: bare.String()}, i, nil
}

// needsShell tells whether the client hands the line to "sh -c": it has an
// operator outside quotes, or a word of nothing else in them. What follows "#"
// does not count.
func needsShell(words []word) bool {
	for _, w := range words {
		if w.text == "\n" && w.op {
			continue // a line break is a blank to the client
		}
		if w.op || w.text != "" && strings.Trim(w.text, operators) == "" {
			return true
		}
		if strings.Contains(w.bare, "#") {
			return false
		}
	}
	return false
}

// run is one program of a command line.
type run struct {
	words   []word // without assignments, "exec" and redirections
	assigns bool   // NAME=value stands before it
	moved   bool   // behind a cd
	vague   bool   // holds what only a shell can tell
}

// runs splits the words of a shell's line at its operators.
func runs(words []word) []run {
	var out []run
	var cur []word
	moved := false
	end := func() {
		if len(cur) > 0 {
			r := newRun(cur)
			r.moved = moved
			moved = moved || len(r.words) > 0 && r.words[0].text == "cd"
			out = append(out, r)
		}
		cur = nil
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case !w.op:
			cur = append(cur, w)
		case strings.ContainsAny(w.text, "<>"):
			// A redirection: a descriptor may stand before it and a name behind.
			if n := len(cur); n > 0 && (cur[n-1].text == "1" || cur[n-1].text == "2" || cur[n-1].text == "0") {
				cur = cur[:n-1]
			}
			if i+1 < len(words) && !words[i+1].op {
				i++
			}
		default:
			end()
		}
	}
	end()
	return out
}

func newRun(words []word) run {
	var r run
	for len(words) > 0 && isAssignment(words[0]) {
		r.assigns, words = true, words[1:]
	}
	if len(words) > 1 && words[0].text == "exec" {
		words = words[1:]
	}
	r.words = words
	for _, w := range words {
		r.vague = r.vague || strings.ContainsAny(w.live, "$`") || strings.ContainsAny(w.bare, "*?{~#") || w.text == "!"
	}
	return r
}

// isAssignment tells whether a shell would set a variable.
func isAssignment(w word) bool {
	name, _, ok := strings.Cut(w.bare, "=")
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func texts(words []word) []string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		out = append(out, w.text)
	}
	return out
}
