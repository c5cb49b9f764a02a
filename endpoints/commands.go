package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
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
			Name: "command_detail", As: "list_commands", Method: "GET", Path: "/commands/{name}", Group: "commands",
			Summary: "Describe one named command.", Scopes: []string{"commands:list"},
		}, s.commandDetail),
		api.Either(api.Row{
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
	Scopes      []string `json:"scopes" doc:"Scopes the command needs beside commands:run."`
	Source      string   `json:"source" doc:"python or manifest"`
	Schema      schema   `json:"schema" doc:"JSON Schema of the arguments."`
}

type argOut struct {
	Name        string   `json:"name"`
	Type        string   `json:"type" doc:"string, integer, float, boolean or string_array"`
	Required    bool     `json:"required"`
	Default     *string  `json:"default" doc:"As text; null for none."`
	Description string   `json:"description"`
	Choices     []string `json:"choices,omitempty" doc:"The values that are taken, as text."`
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

type commandIn struct {
	Name string `path:"name" doc:"The command's name."`
}

// commandDetail knows hidden commands too: who asks for one knows its name.
func (s *Server) commandDetail(_ context.Context, c *api.Call, in commandIn) (commandOut, error) {
	cmd, err := s.command(c, in.Name)
	if err != nil {
		return commandOut{}, err
	}
	return describe(cmd), nil
}

func describe(cmd *registry.Command) commandOut {
	out := commandOut{
		Name: cmd.Name, Description: cmd.Description, Args: []argOut{},
		Scopes: append([]string{}, cmd.Scopes...), Source: cmd.Source, Schema: schemaOf(cmd.Args),
	}
	for _, a := range cmd.Args {
		out.Args = append(out.Args, argOut{a.Name, a.Type, a.Required, a.Default, a.Description, a.Choices})
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

// command is one that the caller may run.
func (s *Server) command(c *api.Call, name string) (*registry.Command, error) {
	cmd := s.Commands.Lookup(name)
	if cmd == nil {
		return nil, s.unknownCommand(c, name)
	}
	if scope, lacks := missingScope(c.Identity, cmd); lacks {
		return nil, api.Errorf(http.StatusForbidden, "PolicyDenied", string(policy.MissingScope),
			"Command '%s' requires scope '%s'", name, scope).With("scope", scope)
	}
	return cmd, nil
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

type runIn struct {
	Name   string `path:"name" doc:"The command's name."`
	Stream bool   `query:"stream" doc:"Answer server-sent events: stdout and stderr as they come, then result or error."`
}

func (s *Server) runCommand(ctx context.Context, c *api.Call, in runIn, ev *api.Events) (api.Body, error) {
	cmd, err := s.command(c, in.Name)
	if err != nil {
		return nil, err
	}
	values, err := c.Values()
	if err != nil {
		return nil, err
	}
	call := registry.Call{
		Object:    c.Object(),
		Values:    func() map[string]any { return plainValues(values) },
		Env:       func() map[string]string { return s.Env.Child(c.Policy, false) },
		Dir:       s.Files.Base(c.Policy.BaseDir()),
		Timeout:   ruleTimeout(c.Rule),
		MaxOutput: ruleOutput(c.Rule),
	}
	if in.Stream {
		return nil, streamCommand(ctx, c, cmd, call, ev)
	}
	result, err := cmd.Run(ctx, call)
	if err != nil {
		return nil, commandError(err)
	}
	o := &api.Object{}
	o.Raw("result", result)
	return o, nil
}

// plainValues are decoded arguments with numbers as the registry knows them;
// below the first level nothing of an argument is used.
func plainValues(values map[string]any) map[string]any {
	for name, v := range values {
		if n, ok := v.(api.Number); ok {
			values[name] = json.Number(n)
		}
	}
	return values
}

func ruleTimeout(rule *policy.Rule) time.Duration {
	if f, ok := rule.Seconds("timeout_seconds"); ok {
		return max(time.Duration(min(f, maxTimeout)*float64(time.Second)), 1)
	}
	return 0
}

func ruleOutput(rule *policy.Rule) int64 {
	n, _ := rule.Int("max_output_bytes")
	return n
}

// streamCommand runs a command and sends what it prints, line by line, before
// its result. What is wrong before the first event is an ordinary answer.
func streamCommand(ctx context.Context, c *api.Call, cmd *registry.Command, call registry.Call, ev *api.Events) error {
	ctx, cancel := until(ctx, c.Stopping())
	defer cancel()
	settle := startSoon(ctx, ev)
	defer settle()
	var lines [2]proc.Lines
	call.Output = func(s proc.Stream, data []byte) error {
		if err := lines[s].Feed(data, lineEvents(ev, s)); err != nil {
			return err
		}
		return ev.Flush()
	}
	result, err := cmd.Run(ctx, call)
	for s := range lines {
		if err := lines[s].Flush(lineEvents(ev, proc.Stream(s))); err != nil {
			return err
		}
	}
	settle()
	if err != nil {
		return commandFault(commandError(err), ev)
	}
	return ev.Raw("result", append(registry.AppendLine([]byte(`{"result":`), result), '}'))
}

// startSoon starts the stream of a command that stays silent for a moment, so
// that its caller knows it is accepted. cancel must be called before the
// handler returns.
func startSoon(ctx context.Context, ev *api.Events) (cancel func()) {
	over := make(chan struct{})
	ctx, stop := context.WithTimeout(ctx, time.Second)
	go func() {
		defer close(over)
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			_ = ev.Start()
		}
	}()
	return func() { stop(); <-over }
}

func lineEvents(ev *api.Events, s proc.Stream) func(line []byte, partial bool) error {
	return func(line []byte, partial bool) error { return ev.Text(s.String(), line, partial) }
}

// commandFault is the last event of a stream whose command failed. Bad
// arguments and refusals are ordinary answers unless the stream has begun.
func commandFault(err error, ev *api.Events) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Status < 500 && !ev.Begun() {
		return err
	}
	body := map[string]any{"error": e.Msg, "type": e.Type}
	maps.Copy(body, e.Extra)
	if e.Code != "" {
		body["code"] = e.Code
	}
	return ev.Send("error", body)
}

// commandError turns a command's failure into the answer its caller reads.
func commandError(err error) error {
	f, ok := errors.AsType[*registry.Failure](err)
	if !ok {
		return err
	}
	e := &api.Error{Status: f.Status, Type: f.Type, Code: f.Code, Msg: f.Text, Extra: f.Extra, Err: f.Err}
	if e.Err == nil && f.Status >= 500 {
		e.Err = errors.New(f.Type) // the log tells what kind; the text may hold what is secret
	}
	return e
}
