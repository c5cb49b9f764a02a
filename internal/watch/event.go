package watch

import (
	"errors"
	"io/fs"
	"time"
)

// Kind is what happened to an entry.
type Kind uint8

// The kinds. [Overflow] is about the stream, not about an entry.
const (
	_        Kind = iota
	Created       // Old is set when a rename brought it
	Modified      // size or time of change changed, or another file took the name
	Deleted
	Renamed  // only with Options.Renames; Old is the name before
	Overflow // see Event.Reason; the differences follow as events
)

func (k Kind) String() string {
	switch k {
	case Created:
		return "created"
	case Modified:
		return "modified"
	case Deleted:
		return "deleted"
	case Renamed:
		return "renamed"
	case Overflow:
		return "overflow"
	}
	return "none"
}

// Op is what the kernel said, in the words of the envd protocol. An event of a
// raw stream has exactly one bit.
type Op uint8

// The bits. A rename is OpRename of the old name and OpCreate of the new.
const (
	OpCreate Op = 1 << iota
	OpWrite
	OpRemove
	OpRename
	OpChmod
)

func (o Op) String() string {
	switch o {
	case OpCreate:
		return "create"
	case OpWrite:
		return "write"
	case OpRemove:
		return "remove"
	case OpRename:
		return "rename"
	case OpChmod:
		return "chmod"
	}
	return "none"
}

// Reason says why the stream has a gap.
type Reason string

// The reasons.
const (
	// QueueLost: more happened than a queue holds. The tree was looked at
	// again; what lived only in between is not reported.
	QueueLost Reason = "queue"
	// WatchesOut: the kernel gave no more watches. Directories without one are
	// polled from now on.
	WatchesOut Reason = "watches"
)

// Event is one change.
type Event struct {
	Kind   Kind   // zero in a raw stream, but for Overflow
	Op     Op     // zero unless the stream is raw
	Path   string // relative to the root, the bytes of the file system; "." is the root, in raw streams only
	Old    string // the name before a rename, else empty
	Dir    bool   // a directory; links are entries of their own and never one
	Reason Reason // of an Overflow
	Time   time.Time
}

// Verdict is what a filter says of an entry. The zero Verdict hides it.
type Verdict uint8

// The bits of a Verdict.
const (
	Report Verdict = 1 << iota // its changes are reported
	Enter                      // if it is a directory, a recursive watch goes into it

	Hide Verdict = 0
	Pass         = Report | Enter
)

// Filter judges the entry name of the directory dir, a path relative to the
// root, "." for the root itself. typ holds the type bits only, and
// [fs.ModeIrregular] for an entry that was gone before it could be looked at
// (with [fs.ModeDir] if it was a directory; else it may have been a link). A
// filter must give the same answer to the same question, must not block, and
// is never called twice at once for one listener. It is asked when an entry
// appears; what it hid then stays hidden until the entry is replaced.
type Filter func(dir, name string, typ fs.FileMode) Verdict

// Options say what a listener wants to know. The zero value reports the
// entries of one directory.
type Options struct {
	// Recursive takes in the whole tree, however deep, but no links and no
	// file systems of the kernel's own below the root (proc, sysfs and such).
	Recursive bool
	// Renames makes Deleted and Created of one rename into one Renamed. What
	// was in a renamed directory is reported the same way, entry by entry.
	Renames bool
	// Raw asks for each kernel event with its Op, neither merged nor delayed.
	// What is found by looking is OpCreate, OpWrite or OpRemove.
	Raw bool
	// Interval is the time between two looks where inotify, or a watch for a
	// directory, is not to be had; it grows with the time that a look takes.
	// Zero means half a second. By looking, what lived only in between is
	// missed, and a rename is Deleted and Created without Old.
	Interval time.Duration
	// Queue bounds the events waiting for the reader. Zero means 8192.
	Queue int
	// Filter hides entries; nil passes all.
	Filter Filter
}

// Errors that end a stream.
var (
	// ErrGone: the root was removed, moved away, unmounted or can no longer
	// be found under its path. All its entries were reported as deleted.
	ErrGone = errors.New("watched directory is gone")
	// ErrClosed: the listener or its hub was closed.
	ErrClosed = errors.New("watch is closed")
)
