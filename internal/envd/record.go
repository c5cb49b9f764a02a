package envd

import (
	"sync/atomic"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

// What is remembered of ended processes, beside what the process table and the
// terminals keep of them.
const (
	keepEnded = 256
	keepFor   = 10 * time.Minute
)

// record is a process or terminal as this dialect knows it. Processes that
// were started elsewhere get one when they are looked at.
type record struct {
	config  *processConfig
	tag     *string
	owner   string
	entry   *proc.Entry  // a process, or nil
	session *pty.Session // a terminal, or nil

	signalled atomic.Bool // by this dialect
}

func (r *record) process() *proc.Process {
	if r.session != nil {
		return r.session.Process()
	}
	return r.entry.Process
}

func (r *record) ended() bool {
	_, ended := r.process().Status()
	return ended
}

func (r *record) info() *processInfo {
	return &processInfo{Config: r.config, PID: uint32(r.process().PID()), Tag: r.tag}
}

// remember adds a process that was started here. An older one of the same
// number or tag that has ended is forgotten.
func (s *Server) remember(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.records[:0]
	ended := 0
	for _, old := range s.records {
		if old.ended() {
			ended++
		}
	}
	for _, old := range s.records {
		if st, over := old.process().Status(); over {
			same := old.process().PID() == r.process().PID() || old.tag != nil && r.tag != nil && *old.tag == *r.tag && old.owner == r.owner
			if same || time.Since(st.Ended) > keepFor || ended > keepEnded {
				ended--
				continue
			}
		}
		kept = append(kept, old)
	}
	clear(s.records[len(kept):])
	s.records = append(kept, r)
}

// sees tells whether the caller may know of what owner has started.
func (c *call) sees(owner string) bool { return owner == c.Identity.ID || c.Identity.Holds("*") }

func (c *call) processes() proc.Viewer {
	return proc.Viewer{Owner: c.Identity.ID, All: c.Identity.Holds("*")}
}

func (c *call) terminals() pty.Viewer {
	return pty.Viewer{Owner: c.Identity.ID, All: c.Identity.Holds("*")}
}

// find is the process that a selector names: by tag the newest that lives, or
// else the newest. It is nil when there is none that the caller may know of.
func (c *call) find(sel *processSelector) (*record, error) {
	switch {
	case sel == nil || sel.PID == nil && sel.Tag == nil:
		return nil, connect.Errorf(connect.InvalidArgument, "no process is selected")
	case sel.PID != nil:
		return c.byPID(int(*sel.PID)), nil
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var found *record
	for _, r := range c.s.records {
		if r.tag == nil || *r.tag != *sel.Tag || !c.sees(r.owner) {
			continue
		}
		if !r.ended() || found == nil || found.ended() {
			found = r
		}
	}
	return found, nil
}

func (c *call) byPID(pid int) *record {
	c.s.mu.Lock()
	var known *record
	for _, r := range c.s.records {
		if r.process().PID() == pid {
			known = r
		}
	}
	c.s.mu.Unlock()
	if known != nil && !known.ended() {
		if !c.sees(known.owner) {
			return nil
		}
		return known
	}
	for _, session := range c.s.Terminals.List(c.terminals()) {
		if session.PID() == pid {
			return elsewhere(nil, session)
		}
	}
	if e, ok := c.s.Processes.Get(pid, c.processes()); ok && (known == nil || known.entry != e) {
		return elsewhere(e, nil)
	}
	if known != nil && !c.sees(known.owner) {
		return nil
	}
	return known
}

// elsewhere is the record of what another dialect has started.
func elsewhere(e *proc.Entry, session *pty.Session) *record {
	r := &record{entry: e, session: session, config: &processConfig{}}
	if session != nil {
		r.owner, r.config.Cmd = session.Owner(), session.Record().Shell
		return r
	}
	r.owner, r.config.Cmd = e.Owner, e.Command
	if e.Label != "" {
		r.tag = &e.Label
	}
	return r
}

// live lists what runs and the caller may know of, the oldest first.
func (c *call) live(terminals bool) []*record {
	c.s.mu.Lock()
	mine := map[*proc.Process]*record{}
	for _, r := range c.s.records {
		mine[r.process()] = r
	}
	c.s.mu.Unlock()
	var out []*record
	shown := map[*proc.Process]bool{}
	add := func(e *proc.Entry, session *pty.Session, p *proc.Process) {
		if shown[p] {
			return
		}
		shown[p] = true
		r := mine[p]
		if r == nil {
			r = elsewhere(e, session)
		}
		out = append(out, r)
	}
	sessions := c.s.Terminals.List(c.terminals())
	for _, session := range sessions {
		if terminals {
			add(nil, session, session.Process())
		}
		shown[session.Process()] = true
	}
	for _, e := range c.s.Processes.List(c.processes(), false) {
		add(e, nil, e.Process)
	}
	return out
}
