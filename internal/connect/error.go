package connect

import (
	"fmt"
	"net/http"
)

// Code is the kind of a failed call. Its numbers are gRPC's.
type Code int

// The codes.
const (
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

var codes = map[Code]struct {
	name   string
	status int
}{
	Canceled:           {"canceled", 499},
	Unknown:            {"unknown", http.StatusInternalServerError},
	InvalidArgument:    {"invalid_argument", http.StatusBadRequest},
	DeadlineExceeded:   {"deadline_exceeded", http.StatusGatewayTimeout},
	NotFound:           {"not_found", http.StatusNotFound},
	AlreadyExists:      {"already_exists", http.StatusConflict},
	PermissionDenied:   {"permission_denied", http.StatusForbidden},
	ResourceExhausted:  {"resource_exhausted", http.StatusTooManyRequests},
	FailedPrecondition: {"failed_precondition", http.StatusBadRequest},
	Aborted:            {"aborted", http.StatusConflict},
	OutOfRange:         {"out_of_range", http.StatusBadRequest},
	Unimplemented:      {"unimplemented", http.StatusNotImplemented},
	Internal:           {"internal", http.StatusInternalServerError},
	Unavailable:        {"unavailable", http.StatusServiceUnavailable},
	DataLoss:           {"data_loss", http.StatusInternalServerError},
	Unauthenticated:    {"unauthenticated", http.StatusUnauthorized},
}

// String is the code's name on the wire.
func (c Code) String() string { return codes[c].name }

// Status is the HTTP status of a unary answer with that code.
func (c Code) Status() int {
	if s := codes[c].status; s != 0 {
		return s
	}
	return http.StatusOK
}

// Error is a failure as the caller is told of it.
type Error struct {
	Code Code
	Msg  string
	// Header are headers of the answer, where there still are some to send.
	Header map[string]string
	// Err is the cause, which callers are not told.
	Err error
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Msg }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an [Error].
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// json is the error as an object.
func (e *Error) json() []byte {
	b := append([]byte(`{"code":"`), e.Code.String()...)
	b = append(b, `","message":`...)
	return append(appendString(b, e.Msg), '}')
}
