package envd

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

// routes adds the plain HTTP routes.
func (s *Server) routes(table routes) {
	plain := func(path string, methods map[string]http.HandlerFunc) {
		table[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h := methods[r.Method]; h != nil {
				h(w, r)
				return
			}
			var allow []string
			for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
				if methods[m] != nil {
					allow = append(allow, m)
				}
			}
			w.Header().Set("Allow", strings.Join(allow, ", "))
			writeFailure(w, http.StatusMethodNotAllowed, "method not allowed")
		})
	}
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h, http.MethodHead: h}
	}
	plain("/health", get(serveHealth))
	plain("/metrics", get(s.admitted("system_metrics", s.serveMetrics)))
	plain("/envs", get(s.admitted("env_get", s.serveVars)))
	plain("/init", map[string]http.HandlerFunc{http.MethodPost: s.serveInit})
	plain("/files", map[string]http.HandlerFunc{http.MethodGet: s.download, http.MethodHead: s.download, http.MethodPost: s.upload})
	plain("/files/compose", map[string]http.HandlerFunc{http.MethodPost: s.compose})
}

// writeFailure answers a failure of a plain route.
func writeFailure(w http.ResponseWriter, status int, msg string) {
	body, _ := json.Marshal(map[string]any{"code": status, "message": msg}) // always can be
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Del("Content-Encoding")
	h.Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// fail answers an error and returns the status.
func (s *Server) fail(w http.ResponseWriter, err error) int {
	var status int
	var msg string
	if e, ok := errors.AsType[*api.Error](err); ok {
		status, msg = e.Status, e.Msg
	} else {
		e := s.explain(err)
		for name, v := range e.Header {
			w.Header().Set(name, v)
		}
		status, msg = httpStatus(e), e.Msg
	}
	writeFailure(w, status, msg)
	return status
}

// Words for what a limit refuses, where no rule of the policy is the cause.
const (
	payloadTooLarge = "payload_too_large"
	processLimit    = "process_limit"
	sessionLimit    = "session_limit"
)

// codeOf is the machine's word for a refusal, for audit: the one that the HTTP
// listener has for it.
func codeOf(err error) string {
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return string(d.Code)
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*guardfs.TooLargeError](err); ok || errors.Is(err, connect.ErrTooLarge) {
		return payloadTooLarge
	}
	if _, ok := errors.AsType[*proc.LimitError](err); ok {
		return processLimit
	}
	if errors.Is(err, pty.ErrLimit) {
		return sessionLimit
	}
	if e, ok := errors.AsType[*connect.Error](err); ok && e.Code == connect.Unauthenticated {
		return string(policy.Unauthorized)
	}
	return ""
}

// admitted is a route that answers a JSON object to who may call an endpoint.
func (s *Server) admitted(id string, answer func(*api.Call) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := s.Gate.Arrive(r, door, id, s.identify(r))
		status := http.StatusOK
		defer func() { c.Leave(status, codeOf(err)) }()
		if err == nil {
			err = c.Enter(id)
		}
		if err != nil {
			status = s.fail(w, err)
			return
		}
		writeJSON(w, answer(c))
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the peer may have gone
}

func serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

type metrics struct {
	TS       int64   `json:"ts"`
	CPUs     int     `json:"cpu_count"`
	CPUUsed  float64 `json:"cpu_used_pct"`
	Total    uint64  `json:"mem_total"`
	Used     uint64  `json:"mem_used"`
	Cache    uint64  `json:"mem_cache"`
	TotalMiB uint64  `json:"mem_total_mib"`
	UsedMiB  uint64  `json:"mem_used_mib"`
	DiskUsed uint64  `json:"disk_used"`
	Disk     uint64  `json:"disk_total"`
}

func (s *Server) serveMetrics(*api.Call) any {
	h := s.facts()
	mem, disk := h.Memory(), h.Disk()
	return metrics{
		TS: time.Now().Unix(), CPUs: h.CPU().Count, CPUUsed: math.Round(h.CPUPercent()*100) / 100,
		Total: mem.Total, Used: mem.Used, Cache: mem.Cache, TotalMiB: mem.Total >> 20, UsedMiB: mem.Used >> 20,
		DiskUsed: disk.Used, Disk: disk.Total,
	}
}

// serveVars shows the variables of /init, as far as GET /env would.
func (s *Server) serveVars(c *api.Call) any {
	allow, _ := c.Rule.Strings("allow_vars")
	deny, _ := c.Rule.Strings("deny_vars")
	rules := policy.NewEnvRules(allow, deny, nil, c.Policy.SecretEnv)
	out := map[string]string{sandboxVariable: sandboxValue}
	for name, value := range s.settings().vars {
		if rules.Shows(name, value) {
			out[name] = value
		}
	}
	return out
}
