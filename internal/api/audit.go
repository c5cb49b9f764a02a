package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// auditQueue is how many lines may wait for the writer before lines are
// dropped and counted.
const auditQueue = 4096

// Audit writes one JSON line for each call whose rule asks for it. Writing
// never blocks a call: lines that find the queue full are counted, and the
// count is written when there is room again.
type Audit struct {
	mu      sync.RWMutex
	closed  bool
	queue   chan []byte
	dropped atomic.Int64
	done    chan struct{}
	log     *slog.Logger
}

// NewAudit starts the writer. Close ends it.
func NewAudit(w io.Writer, log *slog.Logger) *Audit {
	a := &Audit{queue: make(chan []byte, auditQueue), done: make(chan struct{}), log: log}
	go func() {
		defer close(a.done)
		for line := range a.queue {
			_, _ = w.Write(line)
			if n := a.dropped.Swap(0); n > 0 {
				log.Warn("audit lines dropped", "count", n)
			}
		}
	}()
	return a
}

// Close writes what is queued and ends the writer, or gives up with ctx. Lines
// put after it are dropped.
func (a *Audit) Close(ctx context.Context) error {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.queue)
	}
	a.mu.Unlock()
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AuditLine is one line; Door, Remote and the fields below it are ours, the
// others are the published format.
type AuditLine struct {
	TS       float64 `json:"ts"`
	Identity *string `json:"identity"`
	Endpoint string  `json:"endpoint"`
	Method   string  `json:"method"`
	Decision string  `json:"decision"`
	Status   int     `json:"status"`
	Code     *string `json:"code"`
	Paths    []Name  `json:"paths"`

	RequestID  string  `json:"request_id,omitempty"`
	Remote     string  `json:"remote,omitempty"`
	DurationMS float64 `json:"duration_ms"`
	Op         string  `json:"op,omitempty"`
	DeniedPath *Name   `json:"path_denied_raw,omitempty"`
	Limit      any     `json:"limit,omitempty"`
	Door       string  `json:"door,omitempty"`
}

// Put writes a line if the mode asks for it. Decision and a missing code are
// filled in from the status.
func (a *Audit) Put(mode policy.AuditMode, l AuditLine) {
	code := ""
	if l.Code != nil {
		code = *l.Code
	}
	if code == "" && l.Status >= http.StatusBadRequest {
		code = "error"
		if l.Status == http.StatusBadRequest {
			code = "bad_body"
		}
		l.Code = &code
	}
	l.Decision = "allow"
	switch l.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		l.Decision = "deny"
	}
	if code != "" && code != "error" && code != "bad_body" {
		l.Decision = "deny"
	}
	if mode == policy.AuditOff || mode != policy.AuditAll && l.Decision != "deny" {
		return
	}
	l.TS = float64(time.Now().UnixMilli()) / 1000
	if l.Paths == nil {
		l.Paths = []Name{}
	}
	text, err := json.Marshal(l)
	if err != nil {
		a.log.Error("audit line", "err", err)
		return
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.closed {
		return
	}
	select {
	case a.queue <- append(text, '\n'):
	default:
		a.dropped.Add(1)
	}
}

// write puts the line of a finished call.
func (a *Audit) write(c *Call, status int, code string, took time.Duration) {
	mode := c.audit
	if mode == "" { // refused before its rule was looked at
		mode = policy.AuditDeny
		if rule := c.Policy.Rule(c.Endpoint.ID()); rule != nil {
			mode = rule.Audit
		}
	}
	l := AuditLine{
		Endpoint: c.Endpoint.ID(), Method: c.R.Method, Status: status,
		RequestID: requestID(c.R.Context()), Remote: c.R.RemoteAddr,
		DurationMS: math.Round(took.Seconds()*1e6) / 1e3,
	}
	if c.known {
		l.Identity = &c.Identity.ID
	}
	switch {
	case code != "":
		l.Code = &code
	case c.inside != "":
		l.Code = &c.inside
	}
	for _, p := range c.paths {
		l.Paths = append(l.Paths, Name(p))
	}
	if c.denied != "" {
		n := Name(c.denied)
		l.DeniedPath = &n
	}
	if c.Endpoint.Paths {
		l.Op = c.Endpoint.Op.String()
	}
	if l.Door = c.door; l.Door == "" && c.Endpoint.Virtual {
		l.Door = "pty"
	}
	a.Put(mode, l)
}
