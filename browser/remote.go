package browser

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"sync"
)

const (
	// maxBehind bounds what waits for a client of the protocol that reads too
	// slowly.
	maxBehind = 64 << 20
	// maxUnderWay is how many commands of one client may be under way.
	maxUnderWay = 4096
)

// Wire carries the messages of one client of the DevTools protocol. Read and
// Write are each called by one goroutine.
type Wire interface {
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, message []byte) error
}

// Version is what is told of Chrome.
type Version struct {
	Product   string `json:"product"`
	Protocol  string `json:"protocolVersion"`
	UserAgent string `json:"userAgent"`
	JS        string `json:"jsVersion"`
}

// Version asks Chrome who it is.
func (b *Browser) Version(ctx context.Context, ask Ask) (Version, error) {
	var v Version
	e, done, err := b.use(ctx, ask)
	if err != nil {
		return v, known(err)
	}
	defer done()
	return v, known(e.conn.call(ctx, "", "Browser.getVersion", nil, &v))
}

// ErrBehind ends a client that reads too slowly.
var ErrBehind = errors.New("the client does not read fast enough")

// Serve speaks the DevTools protocol with a client until it goes, Chrome ends
// or ctx does. The client has sessions of its own; what it may ask for is said
// by [permit].
func (b *Browser) Serve(ctx context.Context, ask Ask, wire Wire) error {
	e, done, err := b.use(ctx, ask)
	if err != nil {
		return known(err)
	}
	defer done()
	var root struct {
		Session string `json:"sessionId"`
	}
	if err := e.conn.call(ctx, "", "Target.attachToBrowserTarget", nil, &root); err != nil {
		return known(err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &remote{e: e, wire: wire, root: root.Session, stop: stop, sessions: map[string]bool{root.Session: true}}
	r.filled.L = &r.mu
	e.mu.Lock()
	e.remotes = append(slices.Clip(e.remotes), r)
	e.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { stop(r.speak(ctx)) })
	wg.Go(func() {
		select {
		case <-e.conn.lost:
			stop(errLost)
		case <-ctx.Done():
		}
		r.end()
	})
	err = r.listen(ctx)
	stop(err)
	wg.Wait()
	e.leave(r)
	return context.Cause(ctx)
}

// leave forgets a client and ends its sessions.
func (e *engine) leave(r *remote) {
	e.mu.Lock()
	e.remotes = slices.DeleteFunc(slices.Clone(e.remotes), func(o *remote) bool { return o == r }) // events go by the old list
	e.mu.Unlock()
	e.conn.post("", "Target.detachFromTarget", object{"sessionId": r.root})
}

// remote is a client of the protocol.
type remote struct {
	e    *engine
	wire Wire
	root string // the session that stands for the client's connection
	stop context.CancelCauseFunc

	mu       sync.Mutex
	filled   sync.Cond // something is in out, or ended
	out      [][]byte
	behind   int
	underWay int
	ended    bool
	sessions map[string]bool
}

// remoteMessage is a message from or to a client. What it has of ids is the
// client's own.
type remoteMessage struct {
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *protocolError  `json:"error,omitempty"`
	Session string          `json:"sessionId,omitempty"`
}

// listen takes the client's commands.
func (r *remote) listen(ctx context.Context) error {
	for {
		text, err := r.wire.Read(ctx)
		if err != nil {
			return err
		}
		var m remoteMessage
		if json.Unmarshal(text, &m) != nil || len(m.ID) == 0 || m.Method == "" {
			return errors.New("the client does not speak the protocol")
		}
		r.command(ctx, &m)
	}
}

func (r *remote) command(ctx context.Context, m *remoteMessage) {
	refusal := func(text string) {
		r.put(&remoteMessage{ID: m.ID, Session: m.Session, Error: &protocolError{Code: -32000, Message: text}})
	}
	verdict := permit(ctx, r.e, m.Method, m.Params)
	switch {
	case verdict.err != nil:
		refusal(verdict.err.Error())
		return
	case verdict.done:
		r.put(&remoteMessage{ID: m.ID, Session: m.Session, Result: json.RawMessage(`{}`)})
		return
	}
	session := m.Session
	if session == "" {
		session = r.root
	}
	r.mu.Lock()
	known := r.sessions[session] && r.underWay < maxUnderWay
	if known {
		r.underWay++
	}
	r.mu.Unlock()
	if !known {
		refusal("Session with given id not found, or too many commands are under way")
		return
	}
	_, err := r.e.conn.send(session, m.Method, verdict.params, func(p reply) {
		r.mu.Lock()
		r.underWay--
		r.mu.Unlock()
		answer := &remoteMessage{ID: m.ID, Session: m.Session, Result: p.result}
		if p.err != nil {
			answer.Result, answer.Error = nil, &protocolError{Code: -32000, Message: p.err.Error()}
			if own, ok := errors.AsType[*protocolError](p.err); ok {
				answer.Error = own
			}
		}
		r.put(answer)
	})
	if err != nil {
		r.stop(errLost)
	}
}

// event gives the client an event of one of its sessions; false when it is of
// nobody's it knows.
func (r *remote) event(m *message) bool {
	r.mu.Lock()
	mine := r.sessions[m.Session]
	if mine && (m.Method == "Target.attachedToTarget" || m.Method == "Target.detachedFromTarget") {
		var p struct {
			Session string `json:"sessionId"`
		}
		if json.Unmarshal(m.Params, &p) == nil {
			if m.Method == "Target.attachedToTarget" {
				r.sessions[p.Session] = true
			} else {
				delete(r.sessions, p.Session)
			}
		}
	}
	r.mu.Unlock()
	if !mine {
		return false
	}
	session := m.Session
	if session == r.root {
		session = ""
	}
	r.put(&remoteMessage{Method: m.Method, Params: m.Params, Session: session})
	return true
}

// put queues a message for the client. It never waits.
func (r *remote) put(m *remoteMessage) {
	text, err := json.Marshal(m)
	if err != nil {
		r.stop(err)
		return
	}
	// Chrome shows the headers of requests as they go out.
	secret := base64.StdEncoding.EncodeToString([]byte(proxyUser + ":" + r.e.proxy.secret))
	text = bytes.ReplaceAll(text, []byte(secret), []byte("*"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	if r.behind += len(text); r.behind > maxBehind {
		r.stop(ErrBehind)
		return
	}
	r.out = append(r.out, text)
	r.filled.Signal()
}

// end wakes speak for the last time.
func (r *remote) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.filled.Signal()
}

// speak writes what is queued.
func (r *remote) speak(ctx context.Context) error {
	for {
		r.mu.Lock()
		for len(r.out) == 0 && !r.ended {
			r.filled.Wait()
		}
		if r.ended {
			r.mu.Unlock()
			return context.Cause(ctx)
		}
		text := r.out[0]
		r.out = r.out[1:]
		r.behind -= len(text)
		r.mu.Unlock()
		if err := r.wire.Write(ctx, text); err != nil {
			return err
		}
	}
}
