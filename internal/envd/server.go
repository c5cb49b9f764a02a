// Package envd serves the protocol that the E2B SDKs speak inside a sandbox:
// Connect RPC for processes and files, and a few plain HTTP routes. It is a
// second door to the same rooms: every call is admitted by the same gate as
// one of the endpoints of the HTTP listener, with that endpoint's scopes,
// limits, path rules and audit line.
package envd

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/host"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

// Version is the version of the protocol that is spoken: what the SDKs make
// their features depend on.
const Version = "0.6.13"

// door is the name of this listener in audit lines.
const door = "envd"

// Options are what a [Server] stands on and how it behaves. They do not change.
type Options struct {
	Gate      *api.Gate
	Processes *proc.Table
	Terminals *pty.Manager
	Watches   *watch.Hub
	Env       *childenv.Store

	// User is whom calls work as that name nobody; "" is the server's own user.
	User string
	// Workdir is where empty paths lead; "" is the home of the user.
	Workdir string
	// Tokens are the tokens that are known in plain text, for signatures.
	Tokens func() []string
	// Confined says that somebody has named a base directory for files. Else
	// callers who may start any program may use all files.
	Confined bool

	MaxMessage  int64         // bytes of one message; 0 is 64 MiB
	ReplayBytes int           // output of a process that is kept while nobody reads it
	Drain       time.Duration // how long output is read after the end; 0 is to its end
}

// Server is the envd listener's handler and what it remembers: the variables,
// the token and the user that /init has set, the processes by tag, and the
// watchers. Its methods are safe together.
type Server struct {
	Options
	self         *launch.User // whom the server runs as
	ownIsDefault bool         // and whom calls without a name mean, unless /init says otherwise

	hostOnce sync.Once
	host     *host.Host

	mu       sync.Mutex
	init     initState
	records  []*record // in the order of their starts
	watchers map[string]*watcher
	closed   bool
}

// New makes a Server. The parts it stands on outlive it; Close ends it.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, watchers: map[string]*watcher{}}
	if s.MaxMessage <= 0 {
		s.MaxMessage = connect.DefaultMaxMessage
	}
	s.self = ownUser()
	s.init = initState{user: o.User, workdir: o.Workdir}
	s.ownIsDefault = true
	if o.User != "" {
		u, err := launch.LookupUser(o.User)
		if err != nil {
			return nil, fmt.Errorf("user %q: %w", o.User, err)
		}
		s.ownIsDefault = u.IDs.UID == s.self.IDs.UID
	}
	return s, nil
}

// Close ends the watchers. Calls that still run keep what they have.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.watchers
	s.watchers = map[string]*watcher{}
	s.mu.Unlock()
	for _, w := range all {
		w.end()
	}
}

// facts are the machine's, made when they are first asked for.
func (s *Server) facts() *host.Host {
	s.hostOnce.Do(func() { s.host = host.New() })
	return s.host
}

// Handler serves the listener.
func (s *Server) Handler() http.Handler {
	table := routes{}
	rpc := func(service, method, id string, make func(*connect.Options) http.Handler) {
		table["/"+service+"/"+method] = make(&connect.Options{Admit: s.admit(id), Explain: s.explain})
	}
	const process, filesystem = "process.Process", "filesystem.Filesystem"
	rpc(process, "List", "process_list", func(o *connect.Options) http.Handler { return connect.Unary(o, s.listProcesses) })
	rpc(process, "Start", "process_start", func(o *connect.Options) http.Handler { return connect.ServerStream(o, s.start) })
	rpc(process, "Connect", "process_output", func(o *connect.Options) http.Handler { return connect.ServerStream(o, s.connect) })
	rpc(process, "Update", "pty_resize", func(o *connect.Options) http.Handler { return connect.Unary(o, s.update) })
	rpc(process, "StreamInput", "process_stdin", func(o *connect.Options) http.Handler { return connect.ClientStream(o, s.streamInput) })
	rpc(process, "SendInput", "process_stdin", func(o *connect.Options) http.Handler { return connect.Unary(o, s.sendInput) })
	rpc(process, "SendSignal", "process_signal", func(o *connect.Options) http.Handler { return connect.Unary(o, s.sendSignal) })
	rpc(process, "CloseStdin", "process_stdin", func(o *connect.Options) http.Handler { return connect.Unary(o, s.closeStdin) })
	rpc(filesystem, "Stat", "files_stat", func(o *connect.Options) http.Handler { return connect.Unary(o, s.stat) })
	rpc(filesystem, "ListDir", "files_list", func(o *connect.Options) http.Handler { return connect.Unary(o, s.listDir) })
	rpc(filesystem, "MakeDir", "files_mkdir", func(o *connect.Options) http.Handler { return connect.Unary(o, s.makeDir) })
	rpc(filesystem, "Move", "files_move", func(o *connect.Options) http.Handler { return connect.Unary(o, s.move) })
	rpc(filesystem, "Remove", "files_delete", func(o *connect.Options) http.Handler { return connect.Unary(o, s.remove) })
	rpc(filesystem, "WatchDir", "files_watch", func(o *connect.Options) http.Handler { return connect.ServerStream(o, s.watchDir) })
	rpc(filesystem, "CreateWatcher", "files_watch", func(o *connect.Options) http.Handler { return connect.Unary(o, s.createWatcher) })
	rpc(filesystem, "GetWatcherEvents", "files_watch", func(o *connect.Options) http.Handler { return connect.Unary(o, s.watcherEvents) })
	rpc(filesystem, "RemoveWatcher", "files_watch", func(o *connect.Options) http.Handler { return connect.Unary(o, s.removeWatcher) })
	s.routes(table)
	return s.front(table)
}

// routes are the handlers by path. The library's own table would answer a path
// it finds untidy with a redirect, which callers refuse or follow without what
// they had sent.
type routes map[string]http.Handler

// ServeHTTP implements [http.Handler]. Slashes at both ends count as one.
func (t routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := t["/"+strings.Trim(r.URL.Path, "/")]
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

// front does what comes before any route: the request's id, the bounds of its
// head, origins, and panics.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.contain(r)
		r, e := api.Greet(w, r)
		if e != nil {
			writeFailure(w, e.Status, e.Msg)
			return
		}
		listed := s.Gate.AllowOrigin(w.Header(), r)
		if r.Method == http.MethodOptions {
			if listed {
				w.Header().Set("Access-Control-Allow-Methods", "GET, HEAD, POST")
				w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
				w.Header().Set("Access-Control-Expose-Headers", "*")
				w.Header().Set("Access-Control-Max-Age", "600")
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// contain keeps a panic of a handler from the server. The connection is torn:
// what was sent may be half an answer.
func (s *Server) contain(r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p != http.ErrAbortHandler { //nolint:errorlint // a sentinel, compared as net/http does
		s.Gate.Log.Error("panic", "door", door, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}
