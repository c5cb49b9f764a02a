package envd

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

// failures is the table from errors to codes; the first match counts.
var failures = []struct {
	is   error
	code connect.Code
}{
	{guardfs.ErrNotRegular, connect.InvalidArgument},
	{guardfs.ErrIsDirectory, connect.InvalidArgument},
	{guardfs.ErrNotDirectory, connect.NotFound},
	{guardfs.ErrAlreadyExists, connect.AlreadyExists},
	{guardfs.ErrNotEmpty, connect.FailedPrecondition},
	{guardfs.ErrInvalidMove, connect.FailedPrecondition},
	{syscall.ENOTDIR, connect.NotFound},
	{syscall.ENOTEMPTY, connect.FailedPrecondition},
	{fs.ErrNotExist, connect.NotFound},
	{fs.ErrPermission, connect.PermissionDenied},
	{syscall.EROFS, connect.PermissionDenied},
	{fs.ErrExist, connect.AlreadyExists},
	{syscall.EBUSY, connect.FailedPrecondition},
	{syscall.EXDEV, connect.FailedPrecondition},
	{syscall.ELOOP, connect.FailedPrecondition},
	{syscall.ENAMETOOLONG, connect.InvalidArgument},
	{syscall.EINVAL, connect.InvalidArgument},
	{syscall.ENOSPC, connect.ResourceExhausted},
	{syscall.EDQUOT, connect.ResourceExhausted},
	{syscall.EMFILE, connect.ResourceExhausted},
	{syscall.ENFILE, connect.ResourceExhausted},
	{proc.ErrEnded, connect.NotFound},
	{pty.ErrEnded, connect.NotFound},
	{pty.ErrUnknown, connect.NotFound},
	{pty.ErrInvalid, connect.InvalidArgument},
	{pty.ErrLagged, connect.ResourceExhausted},
	{proc.ErrLagged, connect.ResourceExhausted},
	{proc.ErrInputFull, connect.DeadlineExceeded},
	{proc.ErrInputClosed, connect.FailedPrecondition},
	{proc.ErrDir, connect.InvalidArgument},
	{proc.ErrUser, connect.PermissionDenied},
	{syscall.E2BIG, connect.InvalidArgument},
	{syscall.EAGAIN, connect.ResourceExhausted},
	{syscall.ENOMEM, connect.ResourceExhausted},
	{watch.ErrClosed, connect.Canceled},
	{context.Canceled, connect.Canceled},
	{context.DeadlineExceeded, connect.DeadlineExceeded},
}

// explain turns any error into the one the caller reads. What it does not know
// is internal, shows nothing, and is logged.
func (s *Server) explain(err error) *connect.Error {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return e
	}
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return denied(d)
	}
	if e, ok := errors.AsType[*proc.LimitError](err); ok {
		return &connect.Error{Code: connect.ResourceExhausted, Msg: processLimit + ": " + e.Error(), Err: err}
	}
	if e, ok := errors.AsType[*guardfs.TooLargeError](err); ok {
		return &connect.Error{Code: connect.ResourceExhausted, Msg: payloadTooLarge + ": the limit is " + strconv.FormatInt(e.Limit, 10) + " bytes", Err: err}
	}
	if errors.Is(err, pty.ErrLimit) {
		return &connect.Error{Code: connect.ResourceExhausted, Msg: sessionLimit + ": " + err.Error(), Err: err}
	}
	for _, f := range failures {
		if errors.Is(err, f.is) {
			return &connect.Error{Code: f.code, Msg: text(err), Err: err}
		}
	}
	if e, ok := errors.AsType[*api.Error](err); ok && e.Status < http.StatusInternalServerError {
		return &connect.Error{Code: connect.InvalidArgument, Msg: e.Msg, Err: err}
	}
	s.Gate.Log.Error("request failed", "door", door, "err", err)
	return &connect.Error{Code: connect.Internal, Msg: "internal error", Err: err}
}

// text is what callers may read of a failure.
func text(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return strings.ToValidUTF8(p.Err.Error()+": "+p.Path, "\uFFFD")
	}
	return strings.ToValidUTF8(err.Error(), "\uFFFD")
}

// denied is a refusal by policy; its text begins with the machine's word.
func denied(d *policy.Denied) *connect.Error {
	e := &connect.Error{Code: connect.PermissionDenied, Err: d}
	switch d.Code {
	case policy.Unauthorized:
		e.Code = connect.Unauthenticated
	case policy.InvalidPath, policy.CommandInvalid, policy.ProcessInvalid, policy.EnvInvalid, policy.AmbiguousCredentials:
		e.Code = connect.InvalidArgument
	case policy.FileExists:
		e.Code = connect.AlreadyExists
	case policy.RateLimited, policy.ConcurrencyLimited:
		e.Code = connect.ResourceExhausted
		e.Header = map[string]string{"Retry-After": strconv.Itoa(max(1, int(d.Retry.Seconds()+0.999)))}
	}
	e.Msg = string(d.Code) + ": "
	if d.Scope != "" {
		e.Msg += d.Scope + ": "
	}
	e.Msg += api.Public(d)
	return e
}

// asDestination is a failure to put something somewhere: where the way leads
// through something that is no directory, the name is the mistake.
func asDestination(err error) error {
	if errors.Is(err, guardfs.ErrNotDirectory) || errors.Is(err, syscall.ENOTDIR) {
		return &connect.Error{Code: connect.InvalidArgument, Msg: text(err), Err: err}
	}
	return err
}

// httpStatus is the status of a failure on a plain route.
func httpStatus(e *connect.Error) int {
	if _, large := errors.AsType[*guardfs.TooLargeError](e.Err); large {
		return http.StatusRequestEntityTooLarge
	}
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		return http.StatusInsufficientStorage
	}
	return e.Code.Status()
}
