package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrUnavailable says that there is no browser, or that it does not start.
var ErrUnavailable = errors.New("no browser is available")

// What a call can name that is not there.
var (
	ErrNoTab     = errors.New("no such tab")
	ErrNoRef     = errors.New("no element with that ref; take a new snapshot")
	ErrNoElement = errors.New("no element matches the selector")
	ErrTabs      = errors.New("too many tabs are open")
)

// Kind is the class of a failure inside the browser.
type Kind string

// The kinds of failures.
const (
	Timeout Kind = "TimeoutError"      // the time was over
	Failure Kind = "Error"             // of the network, of a script, of a selector
	Closed  Kind = "TargetClosedError" // the page or the browser has gone
)

// Error is a failure inside the browser, for the caller to read.
type Error struct {
	Kind Kind
	Text string
}

func (e *Error) Error() string { return e.Text }

func failure(format string, args ...any) error {
	return &Error{Failure, fmt.Sprintf(format, args...)}
}

// known turns what a conversation with Chrome failed with into an [*Error].
func known(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok || errors.Is(err, ErrUnavailable) {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Timeout, "The time for the browser is over"}
	case errors.Is(err, errLost):
		return &Error{Closed, "The browser has gone"}
	case errors.Is(err, errCrashed):
		return &Error{Closed, "The page has crashed or was closed"}
	case errors.Is(err, errTooLarge):
		return failure("The result is too large")
	}
	if p, ok := errors.AsType[*protocolError](err); ok {
		if strings.Contains(p.Message, "Session with given id not found") || strings.Contains(p.Message, "Target closed") {
			return &Error{Closed, "The page has gone"}
		}
		return failure("%s", p.Message)
	}
	return err
}

// moved tells whether a command failed because the page went elsewhere while
// it ran.
func moved(err error) bool {
	p, ok := errors.AsType[*protocolError](err)
	if !ok {
		return false
	}
	for _, s := range []string{
		"Execution context was destroyed", "Cannot find context", "Inspected target navigated or closed",
		"Cannot find execution context", "uniqueContextId not found", "Promise was collected", "No frame for given id found",
		"Argument should belong to the same JavaScript world", "Not attached to an active page", "Could not find object with given id",
	} {
		if strings.Contains(p.Message, s) {
			return true
		}
	}
	return false
}
