package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// Error is a fault the caller can act on. Anything else that a handler
// returns is answered 500 "internal" and told only to the log.
type Error struct {
	Status int
	Type   string // the class name clients map to an exception
	Code   string // stable; may be empty where the contract has none
	Msg    string // for people
	// Extra are further members of the answer. Retry-After is set from
	// "retry_after".
	Extra map[string]any
	// NoEndpoint leaves the endpoint id out of the answer.
	NoEndpoint bool
	// Header are further headers of the answer.
	Header map[string]string
	Err    error // the cause, for the log
}

func (e *Error) Error() string { return e.Msg }
func (e *Error) Unwrap() error { return e.Err }

// With returns e with one more member in its answer.
func (e *Error) With(key string, v any) *Error {
	c := *e
	c.Extra = map[string]any{key: v}
	maps.Copy(c.Extra, e.Extra)
	return &c
}

// Errorf makes an [Error].
func Errorf(status int, typ, code, format string, args ...any) *Error {
	return &Error{Status: status, Type: typ, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Invalidf is the 400 for a bad field: type ValueError, no code.
func Invalidf(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "ValueError", Msg: fmt.Sprintf(format, args...), NoEndpoint: true}
}

// TooLarge is the 413 that names its limit in bytes.
func TooLarge(limit int64, format string, args ...any) *Error {
	return &Error{
		Status: http.StatusRequestEntityTooLarge, Type: "ValueError", Code: "payload_too_large",
		Msg: fmt.Sprintf(format, args...), Extra: map[string]any{"limit": limit}, NoEndpoint: true,
	}
}

// problem turns any error into the one the caller reads. It is total: what it
// does not know is a 500 that shows nothing.
func problem(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return denied(d)
	}
	if e := fileProblem(err); e != nil {
		e.Err = err
		return e
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Error{Status: http.StatusRequestTimeout, Type: "TimeoutError", Code: "request_timeout", Msg: "The request body stalled", Err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Status: http.StatusInternalServerError, Type: "TimeoutError", Code: "timeout", Msg: "Timed out", Err: err}
	}
	return &Error{Status: http.StatusInternalServerError, Type: "InternalError", Code: "internal", Msg: "internal error", NoEndpoint: true, Err: err}
}

// Public is what a caller may read of err.
func Public(err error) string { return problem(err).Msg }

// fileProblem maps failures of files; nil when err is none.
func fileProblem(err error) *Error {
	if big, ok := errors.AsType[*guardfs.TooLargeError](err); ok {
		return TooLarge(big.Limit, "The content is larger than the limit of %d bytes", big.Limit)
	}
	if off, ok := errors.AsType[*guardfs.OffsetError](err); ok {
		return Errorf(http.StatusConflict, "ValueError", "offset_mismatch", "The file has %d bytes", off.Size).With("size", off.Size)
	}
	if part, ok := errors.AsType[*guardfs.PartialError](err); ok {
		if e := fileProblem(part.Err); e != nil {
			return e.With("deleted_entries", part.Deleted)
		}
	}
	for _, m := range fileProblems {
		if errors.Is(err, m.is) {
			e := m.as
			e.Msg = fileText(err, m.as.Msg)
			return &e
		}
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return &Error{Status: http.StatusInternalServerError, Type: "OSError", Code: "io_error", Msg: fileText(err, "Input/output error")}
	}
	return nil
}

// fileText is "What happened: path", the path only where the error has one.
func fileText(err error, what string) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Path != "" {
		return what + ": " + strings.ToValidUTF8(p.Path, "\uFFFD")
	}
	return what
}

// fileProblems is the table of file failures; the first match counts.
var fileProblems = []struct {
	is error
	as Error
}{
	{guardfs.ErrChecksum, Error{Status: 422, Type: "ValueError", Code: "checksum_mismatch", Msg: "The content does not have the checksum given"}},
	{guardfs.ErrBadCursor, Error{Status: 400, Type: "ValueError", Msg: "Invalid 'after'", NoEndpoint: true}},
	{guardfs.ErrNotRegular, Error{Status: 409, Type: "OSError", Code: "not_a_regular_file", Msg: "Not a regular file"}},
	{guardfs.ErrIsDirectory, Error{Status: 409, Type: "IsADirectoryError", Code: "is_a_directory", Msg: "Is a directory"}},
	{guardfs.ErrNotDirectory, Error{Status: 409, Type: "NotADirectoryError", Code: "not_a_directory", Msg: "Not a directory"}},
	{guardfs.ErrInvalidMove, Error{Status: 400, Type: "ValueError", Code: "invalid_move", Msg: "A directory cannot be moved into itself"}},
	{guardfs.ErrAlreadyExists, Error{Status: 409, Type: "FileExistsError", Code: "already_exists", Msg: "Already exists"}},
	{guardfs.ErrNotEmpty, Error{Status: 409, Type: "OSError", Code: "not_empty", Msg: "Directory not empty"}},
	{fs.ErrNotExist, Error{Status: 404, Type: "FileNotFoundError", Msg: "File not found", NoEndpoint: true}},
	{syscall.ENOSPC, Error{Status: 507, Type: "OSError", Code: "no_space", Msg: "No space left"}},
	{syscall.EDQUOT, Error{Status: 507, Type: "OSError", Code: "no_space", Msg: "Quota exceeded"}},
	{syscall.EROFS, Error{Status: 403, Type: "PermissionError", Code: "read_only_filesystem", Msg: "Read-only file system"}},
	{fs.ErrPermission, Error{Status: 403, Type: "PermissionError", Code: "os_permission_denied", Msg: "Permission denied"}},
	{syscall.ENAMETOOLONG, Error{Status: 400, Type: "ValueError", Code: "invalid_path", Msg: "Name too long"}},
	{syscall.ENOTDIR, Error{Status: 409, Type: "NotADirectoryError", Code: "not_a_directory", Msg: "Not a directory"}},
	{syscall.EISDIR, Error{Status: 409, Type: "IsADirectoryError", Code: "is_a_directory", Msg: "Is a directory"}},
	{fs.ErrExist, Error{Status: 409, Type: "FileExistsError", Code: "already_exists", Msg: "Already exists"}},
}

// statuses of policy codes; a code that is not here is a 403 PolicyDenied.
var deniedAs = map[policy.Code]Error{
	policy.Unauthorized:         {Status: 401, Type: "AuthError", Msg: "unauthorized", NoEndpoint: true},
	policy.AmbiguousCredentials: {Status: 400, Type: "ValueError", Msg: "Several different access tokens were sent", NoEndpoint: true},
	policy.EndpointDisabled:     {Status: 404, Type: "ValueError"},
	policy.RateLimited:          {Status: 429, Type: "RateLimited", Msg: "Rate limit exceeded"},
	policy.ConcurrencyLimited:   {Status: 429, Type: "RateLimited", Msg: "Too many concurrent requests"},
	policy.InvalidPath:          {Status: 400, Type: "ValueError", Msg: "Invalid path"},
	policy.CommandInvalid:       {Status: 400, Type: "ValueError", Msg: "Invalid command"},
	policy.ProcessInvalid:       {Status: 400, Type: "ValueError", Msg: "Invalid executable"},
	policy.EnvInvalid:           {Status: 400, Type: "ValueError", Msg: "Invalid environment variable"},
	policy.URLInvalid:           {Status: 400, Type: "ValueError", Msg: "Invalid URL"},
	policy.FileExists:           {Status: 409, Type: "FileExistsError", Msg: "File already exists"},
	policy.PathNotAllowed:       {Status: 403, Type: "PolicyDenied", Msg: "Path is outside the allowed directories"},
	policy.PathDenied:           {Status: 403, Type: "PolicyDenied", Msg: "Path is denied by policy"},
	policy.SymlinkDenied:        {Status: 403, Type: "PolicyDenied", Msg: "Path goes through a symbolic link"},
	policy.ReadOnlyPath:         {Status: 403, Type: "PolicyDenied", Msg: "Path is read-only"},
	policy.OriginNotAllowed:     {Status: 403, Type: "PolicyDenied", Msg: "Requests from this origin are not allowed"},
	policy.HostNotAllowed:       {Status: 403, Type: "PolicyDenied", Msg: "Requests with this Host are not allowed"},
}

// denied turns a refusal of the policy into its answer.
func denied(d *policy.Denied) *Error {
	e, known := deniedAs[d.Code]
	if !known {
		e = Error{Status: http.StatusForbidden, Type: "PolicyDenied", Msg: "Denied by policy"}
	}
	e.Code, e.Err = string(d.Code), d
	if d.Text != "" {
		e.Msg = d.Text
	}
	e.Extra = map[string]any{}
	if d.Endpoint != "" && !e.NoEndpoint {
		e.Extra["endpoint"] = d.Endpoint
	}
	switch d.Code {
	case policy.EndpointDisabled:
		e.Extra["rule"] = d.Rule
		if d.Text == "" {
			e.Msg = fmt.Sprintf("Endpoint '%s' is disabled by rule %s", d.Endpoint, d.Rule)
		}
	case policy.MissingScope:
		e.Extra["scope"] = d.Scope
		if d.Identity != "" {
			e.Extra["identity"] = d.Identity
		}
		if d.Text == "" {
			e.Msg = fmt.Sprintf("Identity '%s' lacks scope '%s' required by endpoint '%s'", d.Identity, d.Scope, d.Endpoint)
		}
	case policy.RateLimited, policy.ConcurrencyLimited:
		e.Extra["retry_after"] = max(1, int64(math.Ceil(d.Retry.Seconds())))
	case policy.Undecided:
		e.Code = "denied"
	}
	return &e
}

// body is the JSON object of an error answer.
func (e *Error) body(endpoint string) map[string]any {
	out := map[string]any{"error": e.Msg, "type": e.Type}
	if e.Code != "" {
		out["code"] = e.Code
		if !e.NoEndpoint && endpoint != "" {
			out["endpoint"] = endpoint
		}
	}
	maps.Copy(out, e.Extra)
	return out
}

// drain bounds how much of an unread body is thrown away after an early
// answer, so that the answer reaches a peer that is still sending.
const (
	drainBytes = 64 << 20
	drainTime  = 5 * time.Second
)

// writeError answers err on w. It is the only place where a failed request
// gets its status.
func writeError(w *answer, r *http.Request, endpoint string, err error) {
	e := problem(err)
	w.code = e.Code
	if w.begun() {
		// The status has gone out; a torn connection is the only honest sign.
		panic(http.ErrAbortHandler)
	}
	if after, ok := e.Extra["retry_after"].(int64); ok {
		w.Header().Set("Retry-After", strconv.FormatInt(after, 10))
	}
	for name, v := range e.Header {
		w.Header().Set(name, v)
	}
	text, encErr := encode(e.body(endpoint))
	if encErr != nil {
		text = []byte(`{"error":"internal error","type":"InternalError","code":"internal"}`)
	}
	w.json(e.Status, text, r)
}

// Describe is what a caller would be told of err, for answers that list
// failures. It is not to be changed.
func Describe(err error) *Error { return problem(err) }

// CodeOf is the stable code of what a caller would be told of err, for answers
// that list failures. A missing file is "not_found".
func CodeOf(err error) string {
	e := problem(err)
	if e.Code == "" && e.Status == http.StatusNotFound {
		return "not_found"
	}
	return e.Code
}
