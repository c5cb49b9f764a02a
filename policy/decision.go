package policy

import (
	"errors"
	"time"
)

// Code is the stable name of an answer. The zero Code is [Undecided].
type Code string

// The codes a policy can produce. Their HTTP status is the business of
// package api.
const (
	Undecided Code = "" // never decided: refused
	Allowed   Code = "allowed"

	Unauthorized         Code = "unauthorized"
	AmbiguousCredentials Code = "ambiguous_credentials"
	OriginNotAllowed     Code = "origin_not_allowed"
	HostNotAllowed       Code = "host_not_allowed"
	EndpointDisabled     Code = "endpoint_disabled"
	UnknownEndpoint      Code = "unknown_endpoint"
	MissingScope         Code = "missing_scope"
	RateLimited          Code = "rate_limited"
	ConcurrencyLimited   Code = "concurrency_limited"

	InvalidPath         Code = "invalid_path"
	PathNotAllowed      Code = "path_not_allowed"
	PathDenied          Code = "path_denied"
	SymlinkDenied       Code = "symlink_denied"
	ReadOnlyPath        Code = "read_only"
	ExtensionNotAllowed Code = "extension_not_allowed"
	FileExists          Code = "file_exists"

	CommandNotAllowed  Code = "command_not_allowed"
	CommandInvalid     Code = "command_invalid"
	ProcessDenied      Code = "process_denied"
	ProcessInvalid     Code = "process_invalid"
	ShellNotAllowed    Code = "shell_not_allowed"
	SignalNotAllowed   Code = "signal_not_allowed"
	LanguageNotAllowed Code = "language_not_allowed"
	UserNotAllowed     Code = "user_not_allowed"

	EnvVarDenied     Code = "env_var_denied"
	EnvVarNotAllowed Code = "env_var_not_allowed"
	EnvInvalid       Code = "env_invalid"

	URLNotAllowed Code = "url_not_allowed"
	URLDenied     Code = "url_denied"
	URLInvalid    Code = "url_invalid"
)

// Decision is the answer to one question. The zero Decision refuses: what was
// never decided is not allowed.
type Decision struct {
	Code     Code
	Endpoint string        // the id the question was about, if any
	Rule     string        // which rule spoke, such as "policy:groups.file_ops"
	Scope    string        // the missing scope, for MissingScope
	Identity string        // who asked, for MissingScope
	Retry    time.Duration // when to come back, for RateLimited and ConcurrencyLimited
	Text     string        // for people; never holds secrets, may be empty
}

// Allow is the decision that permits.
func Allow() Decision { return Decision{Code: Allowed} }

// Refuse is a refusal with a code and a text for people.
func Refuse(code Code, text string) Decision { return Decision{Code: code, Text: text} }

// OK tells whether the decision permits.
func (d Decision) OK() bool { return d.Code == Allowed }

// Err is nil when the decision allows, else a [*Denied].
func (d Decision) Err() error {
	if d.OK() {
		return nil
	}
	return &Denied{d}
}

// Denied is a refusal travelling as an error.
type Denied struct{ Decision }

func (e *Denied) Error() string {
	if e.Text != "" {
		return e.Text
	}
	if e.Rule != "" {
		return string(e.Code) + " (" + e.Rule + ")"
	}
	return string(e.Code)
}

// Prefix returns the refusal with its text led by prefix, such as "source: ";
// code and rule stay.
func (e *Denied) Prefix(prefix string) *Denied {
	d := e.Decision
	d.Text = prefix + e.Error()
	return &Denied{d}
}

// IsDenied tells whether err is, or wraps, a refusal.
func IsDenied(err error) bool {
	_, ok := errors.AsType[*Denied](err)
	return ok
}

// DecisionOf is the decision that an error of a judged act carries: the one
// that permits for nil, and for an error that carries none a refusal too.
func DecisionOf(err error) Decision {
	if err == nil {
		return Allow()
	}
	if d, ok := errors.AsType[*Denied](err); ok {
		return d.Decision
	}
	return Refuse(PathNotAllowed, "")
}
