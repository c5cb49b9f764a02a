package pty

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// ErrEnded says that the session's program has ended.
var ErrEnded = errors.New("pty: the session has ended")

// Record is what may be told about a session, in the words of the wire.
type Record struct {
	ID           string  `json:"id"`
	PID          int     `json:"pid"`
	CreatedAt    float64 `json:"created_at"` // Unix seconds
	Cols         int     `json:"cols"`
	Rows         int     `json:"rows"`
	Alive        bool    `json:"alive"`
	Name         string  `json:"name"`
	Title        string  `json:"title"`
	Shell        string  `json:"shell"`
	Attached     int     `json:"attached"`
	LastActivity float64 `json:"last_activity"` // Unix seconds
	Offset       int64   `json:"offset"`        // bytes of output so far
	ExitCode     *int    `json:"exit_code"`     // null while alive
	Signal       *string `json:"signal"`        // null unless one ended it
}

// A Session is a program on a terminal of its own. All methods are safe for
// concurrent use; after the end they report what was.
type Session struct {
	id, name, owner, shell string
	created                time.Time
	idle                   time.Duration // 0 for never
	lagTime                time.Duration

	term   *terminal
	proc   *proc.Process
	forget *time.Timer // guarded by the manager
	in     *input
	room   chan struct{} // told when the reader may have room again
	gone   chan struct{} // closed when the program has ended
	done   chan struct{} // closed after the last output

	mu       sync.Mutex
	ring     ring
	attached map[*Attachment]struct{}
	waiting  map[chan struct{}]struct{} // Output calls, told of every change
	sent     int64                      // the highest offset any attachment took
	cols     int
	rows     int
	title    string
	active   time.Time
	drainBy  time.Time // when to stop reading; zero while the program lives
	closing  bool      // it is being ended by force
	ended    bool      // no more output will come

	idleTimer *time.Timer
}

// ID is the session's name on the wire.
func (s *Session) ID() string { return s.id }

// PID is the process id of the session's program. It says nothing about who
// has that number after the end.
func (s *Session) PID() int { return s.proc.PID() }

// Process is the session's program, for what a terminal has no word for. The
// session ends when it does.
func (s *Session) Process() *proc.Process { return s.proc }

// Owner is the identity the session was made for.
func (s *Session) Owner() string { return s.owner }

// Done is closed when the program has ended and all its output is in the ring.
func (s *Session) Done() <-chan struct{} { return s.done }

// Status is how the program ended; false until [Session.Done] is closed.
func (s *Session) Status() (proc.Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status()
}

// status is Status with s.mu held.
func (s *Session) status() (proc.Status, bool) {
	st, _ := s.proc.Status()
	return st, s.ended
}

// Record is the session's state now.
func (s *Session) Record() Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Record{
		ID: s.id, PID: s.proc.PID(), CreatedAt: seconds(s.created), Cols: s.cols, Rows: s.rows,
		Alive: !s.ended, Name: s.name, Title: s.title, Shell: s.shell, Attached: len(s.attached),
		LastActivity: seconds(s.active), Offset: s.ring.end,
	}
	if st, ended := s.status(); ended {
		r.ExitCode, r.Signal = &st.Code, signalName(st)
	}
	return r
}

// signalName is the name of the signal that ended a program, nil when none
// did.
func signalName(st proc.Status) *string {
	if st.Signal == 0 {
		return nil
	}
	name := unix.SignalName(st.Signal)
	return &name
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Resize sets the terminal's size; 0 keeps a value. Numbers outside 0…65535
// are refused with ErrInvalid, ended sessions with ErrEnded. What a client may
// ask for is 1 to [MaxSize].
func (s *Session) Resize(cols, rows int) error {
	if !fits(cols) || !fits(rows) {
		return fmt.Errorf("%w: %d columns, %d rows", ErrInvalid, cols, rows)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return ErrEnded
	}
	if cols == 0 {
		cols = s.cols
	}
	if rows == 0 {
		rows = s.rows
	}
	if err := s.term.resize(cols, rows); err != nil {
		return orEnded(err)
	}
	s.cols, s.rows = cols, rows
	s.touch()
	return nil
}

func fits(n int) bool { return n >= 0 && n <= 65535 }

// Input types p into the terminal and returns how much was taken: all of it,
// unless ctx ended while the session's queue was full, or the session did
// (ErrEnded).
func (s *Session) Input(ctx context.Context, p []byte) (n int, err error) {
	n, err = s.in.write(ctx, p)
	if n > 0 {
		s.mu.Lock()
		s.touch()
		s.mu.Unlock()
	}
	return n, err
}

// Signal sends SIGINT and SIGQUIT to the terminal's foreground group and other
// signals to every process of the session. SIGKILL ends the session and all it
// started, and Signal then returns when nothing of it is left.
func (s *Session) Signal(sig syscall.Signal) error {
	select {
	case <-s.gone:
		return ErrEnded
	default:
	}
	switch sig {
	case unix.SIGINT, unix.SIGQUIT:
		return orEnded(s.term.interrupt(sig))
	case unix.SIGKILL:
		s.proc.End("")
		return nil
	}
	return orEnded(s.proc.SignalSession(sig))
}

// orEnded is ErrEnded for what a call says when the end came just before it.
func orEnded(err error) error {
	if errors.Is(err, os.ErrClosed) || errors.Is(err, proc.ErrEnded) {
		return ErrEnded
	}
	return err
}

// Output is what the terminal has shown from an offset on, for clients that
// cannot hold an attachment. Data ends between characters while more may come.
type Output struct {
	Offset int64 // of Data's first byte: later than asked for when bytes were lost
	Data   []byte
	Next   int64       // the offset to ask for next
	Ended  bool        // the program has ended; with no Data, this was all
	Status proc.Status // valid when Ended
}

// Text is the data as text: each byte that is not UTF-8 becomes U+FFFD.
func (o Output) Text() string {
	if utf8.Valid(o.Data) {
		return string(o.Data)
	}
	return string([]rune(string(o.Data)))
}

// Output returns up to 64 KiB from offset since on, at once when there is any
// or the session has ended, else after at most wait or when ctx ends. It is
// no attachment: it neither takes the output nor slows the program.
func (s *Session) Output(ctx context.Context, since int64, wait time.Duration) (Output, error) {
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	s.waiting[wake] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, wake)
		s.touch()
		s.mu.Unlock()
	}()
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		o, ready := s.output(since)
		if ready {
			return o, nil
		}
		select {
		case <-wake:
		case <-late.C:
			o, _ = s.output(since)
			return o, nil
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}

func (s *Session) output(since int64) (o Output, ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.ring.clamp(since)
	o.Data = make([]byte, min(pieceMax, s.ring.end-from))
	o.Offset, _ = s.ring.read(from, o.Data)
	o.Status, o.Ended = s.status()
	if !o.Ended || from+int64(len(o.Data)) < s.ring.end {
		o.Data = cutTail(o.Data)
	}
	o.Next = o.Offset + int64(len(o.Data))
	return o, o.Ended || len(o.Data) > 0
}

func (s *Session) titleNow() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.title
}

// touch notes activity. Called with s.mu held.
func (s *Session) touch() { s.active = time.Now() }

// kept is how many bytes of output the session holds.
func (s *Session) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.ring.end - s.ring.start)
}
