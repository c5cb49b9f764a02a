package endpoints

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/registry"
)

func (s *Server) commands() []api.Endpoint {
	if s.Commands == nil {
		s.Commands = &registry.Registry{}
	}
	return []api.Endpoint{
		api.Unary(api.Row{
			Name: "list_commands", Method: "GET", Path: "/commands", Group: "commands",
			Summary: "List the named commands.", Scopes: []string{"commands:list"},
		}, s.listCommands),
		api.Unary(api.Row{
			Name: "run_command", Method: "POST", Path: "/commands/{name}", Group: "commands",
			Summary: "Run a named command and answer its result.", Scopes: []string{"commands:run"},
			Limits: []string{"timeout_seconds", "max_output_bytes"},
		}, s.runCommand),
	}
}

type commandsOut struct {
	Commands []commandOut `json:"commands"`
}

type commandOut struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Args        []argOut `json:"args"`
}

type argOut struct {
	Name        string  `json:"name"`
	Type        string  `json:"type"`
	Required    bool    `json:"required"`
	Default     *string `json:"default"`
	Description string  `json:"description"`
}

func (s *Server) listCommands(_ context.Context, c *api.Call, _ struct{}) (commandsOut, error) {
	out := commandsOut{Commands: []commandOut{}}
	for _, cmd := range s.Commands.Commands() {
		if visible(c.Identity, cmd) {
			out.Commands = append(out.Commands, describe(cmd))
		}
	}
	return out, nil
}

func describe(cmd *registry.Command) commandOut {
	out := commandOut{Name: cmd.Name, Description: cmd.Description, Args: []argOut{}}
	for _, a := range cmd.Args {
		out.Args = append(out.Args, argOut{a.Name, a.Type, a.Required, a.Default, a.Description})
	}
	return out
}

// missingScope is the first scope of a command that its caller lacks.
func missingScope(who policy.Identity, cmd *registry.Command) (string, bool) {
	for _, scope := range cmd.Scopes {
		if !who.Holds(scope) {
			return scope, true
		}
	}
	return "", false
}

// visible tells whether a caller may know of a command.
func visible(who policy.Identity, cmd *registry.Command) bool {
	_, lacks := missingScope(who, cmd)
	return !cmd.Hidden && !lacks
}

type runIn struct {
	Name string `path:"name" doc:"The command's name."`
}

func (s *Server) runCommand(_ context.Context, c *api.Call, in runIn) (commandsOut, error) {
	if s.Commands.Lookup(in.Name) == nil {
		return commandsOut{}, s.unknownCommand(c, in.Name)
	}
	return commandsOut{}, nil
}

// unknownCommand lists what this caller could have meant, and nothing that is
// hidden from it.
func (s *Server) unknownCommand(c *api.Call, name string) error {
	var names []string
	for _, cmd := range s.Commands.Commands() {
		if visible(c.Identity, cmd) {
			names = append(names, cmd.Name)
		}
	}
	slices.Sort(names)
	available := "(none)"
	if len(names) > 0 {
		available = strings.Join(names, ", ")
	}
	e := api.Errorf(http.StatusNotFound, "ValueError", "", "Unknown command '%s'; available: %s", name, available)
	e.NoEndpoint = true
	return e
}
