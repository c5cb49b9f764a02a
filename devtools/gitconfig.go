package devtools

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// setting is one entry of a git configuration. Section and name are lower
// case, the subsection is raw.
type setting struct {
	section, sub, name string
	hasSub             bool
	value              string
}

// configError names the line of a configuration that cannot be read.
type configError struct{ line int }

func (e *configError) Error() string { return fmt.Sprintf("bad config line %d", e.line) }

// parseConfig reads the text of a git configuration file. Includes are entries
// like any other: nothing else is read. A name without "=" means true.
func parseConfig(text []byte) ([]setting, error) {
	p := &configParser{text: bytes.TrimPrefix(text, []byte("\ufeff")), line: 1}
	var out []setting
	var at setting
	for {
		c, ok := p.next()
		switch {
		case !ok:
			return out, nil
		case c == '\n' || isSpace(c):
		case c == '#' || c == ';':
			p.skipLine()
		case c == '[':
			if at, ok = p.header(); !ok {
				return nil, &configError{p.line}
			}
		case isLetter(c):
			s := at
			p.at--
			if s.name, s.value, ok = p.entry(); !ok {
				return nil, &configError{p.line}
			}
			if s.section != "" { // git does not mind, and nothing can ask for it
				out = append(out, s)
			}
		default:
			return nil, &configError{p.line}
		}
	}
}

type configParser struct {
	text []byte
	at   int
	line int
}

// next is the next byte; a carriage return before a line feed is none.
func (p *configParser) next() (byte, bool) {
	if p.at >= len(p.text) {
		return 0, false
	}
	c := p.text[p.at]
	p.at++
	if c == '\r' && p.at < len(p.text) && p.text[p.at] == '\n' {
		c = '\n'
		p.at++
	}
	if c == '\n' {
		p.line++
	}
	return c, true
}

func (p *configParser) skipLine() {
	for c, ok := p.next(); ok && c != '\n'; c, ok = p.next() {
	}
}

// header reads what follows the "[" of [section], [section "sub"] or
// [section.sub], the last of which folds case.
func (p *configParser) header() (s setting, ok bool) {
	var name []byte
	for {
		c, ok := p.next()
		switch {
		case !ok || c == '\n':
			return s, false
		case c == ']':
			s.section, s.sub, s.hasSub = strings.Cut(strings.ToLower(string(name)), ".")
			return s, s.section != ""
		case isSpace(c):
			s.section, s.hasSub = strings.ToLower(string(name)), true
			s.sub, ok = p.subsection()
			return s, ok && s.section != ""
		case isLetter(c) || '0' <= c && c <= '9' || c == '-' || c == '.':
			name = append(name, c)
		default:
			return s, false
		}
	}
}

func (p *configParser) subsection() (string, bool) {
	c, ok := p.next()
	for ok && isSpace(c) {
		c, ok = p.next()
	}
	if !ok || c != '"' {
		return "", false
	}
	var sub []byte
	for {
		c, ok := p.next()
		if ok && c == '\\' {
			if c, ok = p.next(); ok && c != '\n' {
				sub = append(sub, c)
				continue
			}
		}
		switch {
		case !ok || c == '\n':
			return "", false
		case c == '"':
			c, ok = p.next()
			return string(sub), ok && c == ']'
		}
		sub = append(sub, c)
	}
}

func (p *configParser) entry() (name, value string, ok bool) {
	start := p.at
	for p.at < len(p.text) && (isLetter(p.text[p.at]) || '0' <= p.text[p.at] && p.text[p.at] <= '9' || p.text[p.at] == '-') {
		p.at++
	}
	name = strings.ToLower(string(p.text[start:p.at]))
	c, ok := p.next()
	for ok && (c == ' ' || c == '\t') {
		c, ok = p.next()
	}
	switch {
	case !ok || c == '\n':
		return name, "true", true
	case c != '=':
		return "", "", false
	}
	value, ok = p.value()
	return name, value, ok
}

// value reads up to the end of the line: quotes, escapes, comments, blanks at
// the ends dropped.
func (p *configParser) value() (string, bool) {
	var out []byte
	keep := 0 // length without the blanks at the end
	quoted := false
	for {
		c, ok := p.next()
		switch {
		case !ok || c == '\n':
			return string(out[:keep]), !quoted
		case !quoted && isSpace(c):
			if len(out) > 0 {
				out = append(out, c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			p.skipLine()
			return string(out[:keep]), true
		case c == '"':
			quoted = !quoted
			keep = len(out)
			continue
		case c == '\\':
			if c, ok = p.next(); !ok {
				return "", false
			}
			if c == '\n' {
				continue
			}
			i := strings.IndexByte(`tbn\"`, c)
			if i < 0 {
				return "", false
			}
			c = "\t\b\n\\\""[i]
		}
		out = append(out, c)
		keep = len(out)
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// writeConfig is the text of a configuration with these entries. Entries that
// no text can express are left out.
func writeConfig(settings []setting) []byte {
	var b bytes.Buffer
	for _, s := range settings {
		if strings.ContainsAny(s.sub, "\n\x00") || strings.ContainsRune(s.value, 0) {
			continue
		}
		b.WriteString("[" + s.section)
		if s.hasSub {
			b.WriteString(` "` + subEscapes.Replace(s.sub) + `"`)
		}
		b.WriteString("]\n\t" + s.name + ` = "` + valueEscapes.Replace(s.value) + "\"\n")
	}
	return b.Bytes()
}

var (
	subEscapes   = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`)
)

// lookup is the last value of a key without subsection.
func lookup(settings []setting, section, name string) (string, bool) {
	for _, s := range slices.Backward(settings) {
		if s.section == section && s.name == name && !s.hasSub {
			return s.value, true
		}
	}
	return "", false
}

// isTrue reads a boolean as git does; anything odd is false.
func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "yes", "on", "1":
		return true
	}
	return false
}
