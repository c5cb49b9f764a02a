package policy

import "fmt"

// DocumentError says what is wrong in a policy document by itself: its
// syntax, its schema, a value out of bounds. It never quotes a token.
type DocumentError struct {
	Where string // dotted place, such as "policy.endpoints.shell.limits.max_bytes"
	Text  string
	// Line and Column of the value in a YAML source, counted from 1; 0 when
	// unknown (JSON, presets).
	Line, Column int
}

func (e *DocumentError) Error() string { return e.Where + ": " + e.Text }

// ConfigError says that a sound document does not fit this server: it names
// an endpoint or group that is not there, sets a knob its endpoint does not
// have, or needs a variable or file that is missing. The same type reports a
// bad ABX_SERVER_ENABLED_GROUPS.
type ConfigError struct {
	Where        string
	Text         string
	Line, Column int
}

func (e *ConfigError) Error() string { return e.Where + ": " + e.Text }

func configErrorf(at *node, where, format string, args ...any) *ConfigError {
	e := &ConfigError{Where: where, Text: fmt.Sprintf(format, args...)}
	if at != nil {
		e.Line, e.Column = at.line, at.col
	}
	return e
}
