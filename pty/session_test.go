package pty

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

var everybody = Viewer{All: true}

func TestExitCodesAndSignals(t *testing.T) {
	m := newManager(t, Options{})
	for script, want := range map[string]struct {
		code   int
		signal string
	}{
		"exit 0":     {0, ""},
		"exit 7":     {7, ""},
		"kill -9 $$": {-9, "SIGKILL"},
		"kill -1 $$": {-1, "SIGHUP"},
	} {
		t.Run(script, func(t *testing.T) {
			s := create(t, m, shell("-c", script))
			if st := ended(t, s); st.Code != want.code {
				t.Errorf("code %d, want %d", st.Code, want.code)
			}
			r := s.Record()
			name := ""
			if r.Signal != nil {
				name = *r.Signal
			}
			if r.Alive || r.ExitCode == nil || *r.ExitCode != want.code || name != want.signal {
				t.Errorf("the record is %+v, signal %q", r, name)
			}
		})
	}
}

func TestProgramHasAControllingTerminal(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell("-c", "tty </dev/tty && ps -o pgid=,sid=,tpgid= -p $$; stty -a; echo $$ END"))
	text := shown(t, s, " END")
	if strings.Contains(text, "can't access") || !strings.Contains(text, "/dev/") {
		t.Errorf("no terminal: %q", text)
	}
	if !strings.Contains(text, " iutf8") {
		t.Errorf("the erase key cuts characters: %q", text)
	}
}

func TestShellHasJobControl(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	typeTo(t, s, "sleep 60\n")
	// ps shows the foreground job of the session.
	eventually(t, "the job is in the foreground", func() bool { return foreground(s) != s.PID() })
	typeTo(t, s, "\x03echo back$((1+1))\n")
	shown(t, s, "back2")
	if strings.Contains(shown(t, s, "$"), "job control") {
		t.Error("no job control")
	}
}

// foreground is the terminal's foreground process group.
func foreground(s *Session) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	var state string
	var ppid, pgrp, session, tty, tpgid int
	if _, err := fmt.Sscan(after, &state, &ppid, &pgrp, &session, &tty, &tpgid); err != nil {
		return 0
	}
	return tpgid
}

func TestSignalReachesTheForegroundJob(t *testing.T) {
	m := newManager(t, Options{})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		s := create(t, m, shell())
		typeTo(t, s, "sleep 60\n")
		eventually(t, "the job is in the foreground", func() bool { return foreground(s) != s.PID() })
		if err := s.Signal(sig); err != nil {
			t.Fatal(err)
		}
		typeTo(t, s, "echo rc=$?\n")
		shown(t, s, fmt.Sprintf("rc=%d", 128+int(sig)))
	}
}

func TestSignalReachesEveryGroupOfTheSession(t *testing.T) {
	m := newManager(t, Options{})
	dir := t.TempDir()
	s := create(t, m, shell())
	job, daemon := filepath.Join(dir, "job"), filepath.Join(dir, "daemon")
	typeTo(t, s, "sleep 60 & echo $! >"+job+"\n")
	typeTo(t, s, "setsid sh -c 'echo $$ >"+daemon+"; exec sleep 60' &\n")
	a, b := pidFrom(t, job), pidFrom(t, daemon)
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job ends", func() bool { return !living(a) })
	if !living(b) {
		t.Error("a daemon in a session of its own was hit")
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st := ended(t, s); st.Signal != syscall.SIGKILL {
		t.Errorf("ended by %v", st.Signal)
	}
	if living(b) {
		t.Error("SIGKILL left something")
	}
	if err := s.Signal(syscall.SIGTERM); !errors.Is(err, ErrEnded) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestResize(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell())
	if err := s.Resize(133, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(0, 37); err != nil {
		t.Fatal(err)
	}
	typeTo(t, s, "stty size\n")
	shown(t, s, "37 133")
	if r := s.Record(); r.Cols != 133 || r.Rows != 37 {
		t.Errorf("the record says %d × %d", r.Cols, r.Rows)
	}
	if err := s.Resize(-1, 5); !errors.Is(err, ErrInvalid) {
		t.Errorf("a negative size: %v", err)
	}
	typeTo(t, s, "exit\n")
	ended(t, s)
	if err := s.Resize(10, 10); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

func TestTitleIsInTheRecord(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell("-c", `printf '\033]0;first\007\033]2;the ti'; sleep 0.2; printf 'tle\033\\'; echo; echo END`))
	shown(t, s, "END")
	if got := s.Record().Title; got != "the title" {
		t.Errorf("%q", got)
	}
}

func TestSessionLimitHoldsInParallel(t *testing.T) {
	m := newManager(t, Options{})
	spec := shell()
	spec.MaxSessions = 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	var made []*Session
	for range 20 {
		wg.Go(func() {
			s, _, err := m.Create(spec)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made = append(made, s)
			} else if limit := (*LimitError)(nil); !errors.As(err, &limit) || limit.Limit != 3 || !errors.Is(err, ErrLimit) {
				t.Errorf("refused with %v", err)
			}
		})
	}
	wg.Wait()
	if len(made) != 3 || len(m.List(everybody)) != 3 {
		t.Fatalf("%d sessions, %d listed", len(made), len(m.List(everybody)))
	}
	typeTo(t, made[0], "exit\n")
	ended(t, made[0])
	create(t, m, spec)
	if err := m.Delete(made[1].ID(), everybody); err != nil {
		t.Fatal(err)
	}
	create(t, m, spec)
	bad := spec
	bad.Program.Path = "/no/such/shell"
	if err := m.Delete(made[2].ID(), everybody); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Create(bad); !errors.Is(err, proc.ErrNotFound) {
		t.Errorf("a missing shell: %v", err)
	}
	create(t, m, spec) // a failed start takes no place
}

func TestNames(t *testing.T) {
	m := newManager(t, Options{})
	named := shell()
	named.Name, named.Owner = "work", "alice"
	a := create(t, m, named)
	if _, _, err := m.Create(named); !errors.Is(err, ErrNameTaken) {
		t.Errorf("the name again: %v", err)
	}
	join := named
	join.AttachExisting = true
	if s, made, err := m.Create(join); s != a || made || err != nil {
		t.Errorf("joined %v, made %v, %v", s, made, err)
	}
	join.Owner = "bob"
	if s, made, err := m.Create(join); s == a || !made || err != nil {
		t.Errorf("another owner got %v, made %v, %v", s, made, err)
	}
	typeTo(t, a, "exit\n")
	ended(t, a)
	if s, made, err := m.Create(named); s == a || !made || err != nil {
		t.Errorf("after the end: %v, made %v, %v", s, made, err)
	}

	join.Name = "many"
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[*Session]int{}
	for range 20 {
		wg.Go(func() {
			s, _, err := m.Create(join)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			got[s]++
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Errorf("%d sessions of one name", len(got))
	}
}

func TestBadSpecs(t *testing.T) {
	m := newManager(t, Options{})
	for name, change := range map[string]func(*Spec){
		"name with a slash":   func(s *Spec) { s.Name = "a/b" },
		"long name":           func(s *Spec) { s.Name = strings.Repeat("x", 65) },
		"attach without name": func(s *Spec) { s.AttachExisting = true },
		"negative size":       func(s *Spec) { s.Cols = -1 },
		"huge size":           func(s *Spec) { s.Rows = 65536 },
		"negative scrollback": func(s *Spec) { s.Scrollback = -1 },
		"huge scrollback":     func(s *Spec) { s.Scrollback = MaxScrollback + 1 },
	} {
		spec := shell()
		change(&spec)
		if _, _, err := m.Create(spec); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(m.List(everybody)); n != 0 {
		t.Errorf("%d sessions were made", n)
	}
}

func TestSessionsBelongToTheirOwner(t *testing.T) {
	m := newManager(t, Options{})
	spec := shell()
	spec.Owner = "alice"
	s := create(t, m, spec)
	for _, who := range []Viewer{{Owner: "alice"}, {Owner: "bob", All: true}} {
		if got, err := m.Get(s.ID(), who); got != s || err != nil {
			t.Errorf("%+v gets %v, %v", who, got, err)
		}
		if n := len(m.List(who)); n != 1 {
			t.Errorf("%+v sees %d", who, n)
		}
	}
	bob := Viewer{Owner: "bob"}
	if _, err := m.Get(s.ID(), bob); !errors.Is(err, ErrUnknown) {
		t.Errorf("bob: %v", err)
	}
	if err := m.Delete(s.ID(), bob); !errors.Is(err, ErrUnknown) {
		t.Errorf("bob deletes: %v", err)
	}
	if len(m.List(bob)) != 0 {
		t.Error("bob sees it")
	}
	if !living(s.PID()) {
		t.Error("bob ended it")
	}
}

func TestEndedSessionIsKnownForItsTime(t *testing.T) {
	m := newManager(t, Options{Retain: 300 * time.Millisecond})
	s := create(t, m, shell("-c", "echo words; exit 3"))
	ended(t, s)
	got, err := m.Get(s.ID(), everybody)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Record(); r.Alive || *r.ExitCode != 3 {
		t.Errorf("%+v", r)
	}
	if len(m.List(everybody)) != 0 {
		t.Error("it is listed")
	}
	shown(t, got, "words")
	eventually(t, "it is forgotten", func() bool { _, err := m.Get(s.ID(), everybody); return errors.Is(err, ErrUnknown) })

	s = create(t, m, shell("-c", "exit 0"))
	ended(t, s)
	if err := m.Delete(s.ID(), everybody); err != nil {
		t.Errorf("an ended session cannot be deleted: %v", err)
	}
	if _, err := m.Get(s.ID(), everybody); !errors.Is(err, ErrUnknown) {
		t.Errorf("after that: %v", err)
	}
}

func TestEndedSessionsAreBounded(t *testing.T) {
	m := newManager(t, Options{})
	spec := shell("-c", "head -c 200000 /dev/zero")
	spec.Scrollback = MaxScrollback
	first := create(t, m, spec)
	ended(t, first)
	for range 400 {
		m.over(fakeEnded(m, 200_000), &naming{})
	}
	m.mu.Lock()
	n, known := len(m.ended), len(m.sessions)
	m.live += 400 // the fakes were never counted
	m.mu.Unlock()
	if n > keptSessions || known > keptSessions {
		t.Errorf("%d ended sessions are kept, %d known", n, known)
	}
	if _, err := m.Get(first.ID(), everybody); err == nil {
		t.Error("the oldest is still known")
	}
	for range 8 {
		m.over(fakeEnded(m, 12<<20), &naming{})
	}
	kept := 0
	m.mu.Lock()
	for _, s := range m.ended {
		kept += s.kept()
	}
	m.live += 8
	m.mu.Unlock()
	if kept > keptBytes {
		t.Errorf("%d bytes are kept", kept)
	}
}

// fakeEnded is a session that holds n bytes and is known to m.
func fakeEnded(m *Manager, n int) *Session {
	s := &Session{id: newID(), ended: true, ring: ring{start: 0, end: int64(n)}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s.id] = s
	return s
}

func TestIdleSessionIsClosed(t *testing.T) {
	m := newManager(t, Options{IdleTimeout: 200 * time.Millisecond})
	idle := create(t, m, shell())
	never := shell()
	never.IdleTimeout = -1
	stays := create(t, m, never)
	attached := create(t, m, shell())
	a := attached.Attach(-1)
	busy := create(t, m, shell("-c", "while :; do echo x; sleep 0.05; done"))
	ended(t, idle)
	if living(idle.PID()) {
		t.Error("its shell lives")
	}
	if _, err := m.Get(idle.ID(), everybody); err != nil {
		t.Errorf("an idle session is forgotten at once: %v", err)
	}
	for name, s := range map[string]*Session{"never": stays, "attached": attached, "busy": busy} {
		if _, over := s.Status(); over {
			t.Errorf("%s: closed", name)
		}
	}
	a.Close()
	ended(t, attached)
}

func TestInputThatNobodyReads(t *testing.T) {
	m := newManager(t, Options{})
	stuck := create(t, m, shell("-c", "stty -icanon -echo; echo go; exec sleep 60"))
	shown(t, stuck, "go")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	n, err := stuck.Input(ctx, make([]byte, 3*inputMax))
	if !errors.Is(err, context.DeadlineExceeded) || n < inputMax || n > inputMax+(64<<10) {
		t.Errorf("took %d bytes: %v", n, err)
	}
	// Another terminal is as quick as ever.
	free := create(t, m, shell())
	typeTo(t, free, "echo free$((1+1))\n")
	shown(t, free, "free2")
	// One that waits is told of the end.
	waits := make(chan error, 1)
	go func() {
		_, err := stuck.Input(context.Background(), make([]byte, inputMax))
		waits <- err
	}()
	if err := m.Delete(stuck.ID(), everybody); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; !errors.Is(err, ErrEnded) {
		t.Errorf("waiting input ends with %v", err)
	}
}

func TestBigPasteArrivesInOrder(t *testing.T) {
	m := newManager(t, Options{})
	out := filepath.Join(t.TempDir(), "out")
	s := create(t, m, shell("-c", "stty -icanon -echo -icrnl; echo go; head -c 600000 >"+out+"; echo END"))
	shown(t, s, "go")
	var want strings.Builder
	for i := 0; want.Len() < 600000; i++ {
		fmt.Fprintf(&want, "%07d é\n", i)
	}
	paste := want.String()[:600000]
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for rest := paste; rest != ""; {
		k := min(len(rest), 50_001)
		if _, err := s.Input(ctx, []byte(rest[:k])); err != nil {
			t.Fatal(err)
		}
		rest = rest[k:]
	}
	shown(t, s, "END")
	got, err := os.ReadFile(out)
	if err != nil || string(got) != paste {
		t.Errorf("%d bytes arrived, not as typed: %v", len(got), err)
	}
}

// TestBackgroundJobDoesNotHoldUpTheEnd: the terminal is read on for a second,
// no longer, and the job lives on.
func TestBackgroundJobDoesNotHoldUpTheEnd(t *testing.T) {
	m := newManager(t, Options{})
	file := filepath.Join(t.TempDir(), "job")
	s := create(t, m, shell("-c", "trap '' HUP; (sleep 0.3; echo late; exec sleep 60) & echo $! >"+file+"; echo early; exit 5"))
	if st := ended(t, s); st.Code != 5 {
		t.Errorf("code %d", st.Code)
	}
	if text := shown(t, s, "early"); !strings.Contains(text, "late") {
		t.Errorf("what came within the second is missing: %q", text)
	}
	job := pidFrom(t, file)
	if !living(job) {
		t.Error("the job was ended")
	}
	if err := m.Delete(s.ID(), everybody); err != nil {
		t.Fatal(err)
	}
	eventually(t, "delete ends what the session left behind", func() bool { return !living(job) })
}

// TestProgramThatLetsGoOfItsTerminal closes all its copies for a while.
func TestProgramThatLetsGoOfItsTerminal(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell("-c", "echo one; exec </dev/null >/dev/null 2>&1; sleep 0.3; echo two >/dev/tty; exit 4"))
	if st := ended(t, s); st.Code != 4 {
		t.Errorf("code %d", st.Code)
	}
	if text := shown(t, s, "one"); !strings.Contains(text, "two") {
		t.Errorf("%q", text)
	}
}

func TestOutputForClientsWithoutSocket(t *testing.T) {
	m := newManager(t, Options{})
	s := create(t, m, shell("-c", "printf abc; read x; printf def; exit 2"))
	ctx := context.Background()
	shown(t, s, "abc")
	o, err := s.Output(ctx, 1, 0)
	if err != nil || string(o.Data) != "bc" || o.Offset != 1 || o.Next != 3 || o.Ended {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = s.Output(ctx, 3, 50*time.Millisecond); err != nil || len(o.Data) != 0 || o.Next != 3 || o.Ended {
		t.Errorf("nothing new is %+v, %v", o, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Output(gone, 3, patience); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: %v", err)
	}
	cut := create(t, m, shell("-c", `stty -echo; printf 'a\342\202'; read x; printf '\254\303'`))
	if o, err := cut.Output(ctx, 0, patience); err != nil || o.Text() != "a" {
		t.Errorf("an unfinished character: %q, %v", o.Text(), err)
	}
	if o, err := cut.Output(ctx, 1, 50*time.Millisecond); err != nil || len(o.Data) != 0 || o.Next != 1 {
		t.Errorf("an unfinished character: %+v, %v", o, err)
	}
	typeTo(t, cut, "\n")
	ended(t, cut)
	if o, err := cut.Output(ctx, 1, 0); err != nil || o.Text() != "€\uFFFD" {
		t.Errorf("the rest: %q, %v", o.Text(), err)
	}

	typeTo(t, s, "\n")
	ended(t, s)
	if o, err = s.Output(ctx, 0, patience); err != nil || string(o.Data) != "abc\r\ndef" || !o.Ended || o.Status.Code != 2 {
		t.Errorf("all is %+v, %v", o, err)
	}
	if o, err = s.Output(ctx, 99, patience); err != nil || o.Offset != 8 || len(o.Data) != 0 || !o.Ended {
		t.Errorf("beyond the end is %+v, %v", o, err)
	}
}

func TestCloseEndsAllSessions(t *testing.T) {
	m := newManager(t, Options{})
	var pids []int
	for range 10 {
		s := create(t, m, shell())
		shown(t, s, "$")
		pids = append(pids, s.PID())
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	for _, pid := range pids {
		if living(pid) {
			t.Errorf("shell %d lives", pid)
		}
	}
	if _, _, err := m.Create(shell()); !errors.Is(err, ErrClosed) {
		t.Errorf("create after that: %v", err)
	}
}

// TestDescriptorsComeBack: a terminal that ended keeps nothing open.
func TestDescriptorsComeBack(t *testing.T) {
	m := newManager(t, Options{})
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	ended(t, create(t, m, shell("-c", "exit 0")))
	before := open()
	for i := range 20 {
		s := create(t, m, shell())
		if i%2 == 0 {
			typeTo(t, s, "exit\n")
			ended(t, s)
		} else if err := m.Delete(s.ID(), everybody); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "descriptors are closed", func() bool { return open() <= before })
}
