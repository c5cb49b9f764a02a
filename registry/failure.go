package registry

import (
	"fmt"
	"strconv"
)

// Failure is a command that was not run, or that did not succeed, as its
// caller reads it.
type Failure struct {
	// Status tells the kind as HTTP counts: 400 for bad arguments, 403, 404, 429
	// and 503 for not now, 500 for a command that failed.
	Status int
	Type   string // a class name
	Code   string // stable; may be empty
	Text   string // for people
	Extra  map[string]any
	Err    error // the cause, for the log
}

func (f *Failure) Error() string { return f.Text }
func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) with(key string, v any) *Failure {
	if f.Extra == nil {
		f.Extra = map[string]any{}
	}
	f.Extra[key] = v
	return f
}

func failed(status int, typ, code, format string, args ...any) *Failure {
	return &Failure{Status: status, Type: typ, Code: code, Text: fmt.Sprintf(format, args...)}
}

// badArgument is the fault of one argument.
func badArgument(typ, name, format string, args ...any) *Failure {
	return failed(400, typ, "argument_invalid", format, args...).with("argument", name)
}

func timedOut(seconds float64) *Failure {
	text := strconv.FormatFloat(seconds, 'f', -1, 64)
	return failed(500, "TimeoutError", "command_timeout", "Command timed out after %ss", text).with("timeout", seconds)
}

func tooMuchOutput(limit int64) *Failure {
	return failed(500, "OutputLimitError", "output_limit", "The output is longer than %d bytes", limit).with("limit", limit)
}
