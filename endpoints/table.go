// Package endpoints is the table: every endpoint's row and its handler, one
// file per group. Adding an endpoint is one row and one function.
package endpoints

import (
	"slices"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/devtools"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

// Server is what the handlers stand on. The command makes it, fills it before
// [Server.Table] is called and closes its parts in reverse order.
type Server struct {
	Version string
	Files   *guardfs.FS
	Procs   *proc.Manager
	Watches *watch.Hub
	// Terminals are the terminal sessions.
	Terminals *pty.Manager
	// Browser is the one Chrome; nil is none.
	Browser *browser.Browser
	// Background are the processes that outlive the requests which started
	// them; Table makes it when it is nil.
	Background *proc.Table
	// Contexts are the interpreters that keep variables; Table makes them when
	// they are nil, and then nobody ends them.
	Contexts *devtools.Contexts
	// Git runs git; Table makes it when it is nil.
	Git     *devtools.Git
	Env     *childenv.Store
	Workdir string // the server's working directory at start

	// Commands are the named commands; nil is none.
	Commands *registry.Registry

	// PTYPort is where terminals are really served, 0 when nowhere. It is set
	// after Table, before the first request.
	PTYPort int

	// Ready reports the parts that /ready names; nil means there are none.
	Ready func() (commands, pty string)

	caps            api.Discovery
	shells, streams proc.Slots // commands that run now
}

// Listens says where another dialect is spoken. It is called after Table, before
// the first request.
func (s *Server) Listens(name string, l api.Listener) {
	if s.caps.Listeners == nil {
		s.caps.Listeners = map[string]api.Listener{}
	}
	s.caps.Listeners[name] = l
}

// features are the routes beyond the published contract, such as
// "GET /files/content".
func features(table []api.Endpoint) []string {
	list := []string{}
	for _, ep := range table {
		if ep.As != "" {
			list = append(list, ep.Method+" "+ep.Path)
		}
	}
	return list
}

// Table lists all endpoints, group by group in the order of the contract.
func (s *Server) Table() []api.Endpoint {
	s.caps = api.Discovery{Version: s.Version}
	table := slices.Concat(
		s.core(),
		s.commands(),
		s.files(),
		s.transfers(),
		s.watching(),
		s.searching(),
		s.archives(),
		s.content(),
		s.extracting(),
		s.process(),
		s.terminals(),
		s.system(),
		s.browsing(),
		s.code(),
		s.git(),
	)
	s.caps.Features = features(table)
	return append(table, s.customRoutes(table)...)
}
