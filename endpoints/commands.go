package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// schema is the JSON Schema of a command's arguments.
type schema struct {
	Type       string              `json:"type"`
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
	Additional bool                `json:"additionalProperties"`
}

type property struct {
	Type        string            `json:"type"`
	Items       *property         `json:"items,omitempty"`
	Description string            `json:"description,omitempty"`
	Enum        []json.RawMessage `json:"enum,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
}

// schemaTypes are the types of a schema by those of arguments.
var schemaTypes = map[string]string{
	"string": "string", "integer": "integer", "float": "number", "boolean": "boolean", "string_array": "array",
}

func schemaOf(args []registry.Arg) schema {
	out := schema{Type: "object", Properties: map[string]property{}, Required: []string{}}
	for _, a := range args {
		p := property{Type: schemaTypes[a.Type], Description: a.Description}
		choices := &p
		if a.Type == "string_array" {
			p.Items = &property{Type: "string"}
			choices = p.Items
		}
		for _, c := range a.Choices {
			choices.Enum = append(choices.Enum, schemaValue(choices.Type, c))
		}
		if a.Default != nil {
			p.Default = schemaValue(p.Type, *a.Default)
		}
		if a.Required {
			out.Required = append(out.Required, a.Name)
		}
		out.Properties[a.Name] = p
	}
	return out
}

// schemaValue is the text of a value as JSON, nil for text that is none of the
// type.
func schemaValue(typ, text string) json.RawMessage {
	if typ == "string" {
		return api.AppendText(nil, text)
	}
	if typ == "boolean" {
		text = strings.ToLower(text) // Python writes True
	}
	if !json.Valid([]byte(text)) {
		return nil
	}
	return json.RawMessage(text)
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
	defer startSoon(ev)()
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
	if err != nil {
		return commandFault(commandError(err), ev)
	}
	return ev.Raw("result", append(registry.AppendLine([]byte(`{"result":`), result), '}'))
}

// startSoon starts the stream of a command that stays silent for a moment, so
// that its caller knows it is accepted. cancel must be called before the
// handler returns.
func startSoon(ev *api.Events) (cancel func()) {
	over := make(chan struct{})
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
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
// arguments and refusals come before any event and are ordinary answers.
func commandFault(err error, ev *api.Events) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok || e.Status < 500 {
		return err
	}
	body := map[string]any{"error": e.Msg, "type": e.Type}
	for k, v := range e.Extra {
		body[k] = v
	}
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

// customRoutes are the rows of routes that template code adds. Those that a row
// of ours serves already are left out: ours come first.
func (s *Server) customRoutes(table []api.Endpoint) []api.Endpoint {
	var out []api.Endpoint
	names, places := map[string]bool{}, map[string]bool{}
	for _, ep := range table {
		names[ep.Name] = true
	}
	for _, r := range s.Commands.Routes() {
		path := routePattern(r.Pattern)
		place := r.Method + " " + placeOf(path)
		if places[place] || slices.ContainsFunc(table, func(ep api.Endpoint) bool { return serves(ep, r.Method, path) }) {
			continue
		}
		name := r.ID
		if names[name] {
			name = r.Method + " " + r.Pattern
		}
		places[place], names[name] = true, true
		out = append(out, s.customRoute(api.Row{
			Name: name, Method: r.Method, Path: path, Group: r.Group, Summary: r.Summary,
			Scopes: r.Scopes, Anonymous: r.Anonymous, Streaming: r.Streaming, Mutates: r.Method != http.MethodGet,
		}, r))
	}
	return out
}

// routePattern is a pattern in the form rows have and requests are matched by.
func routePattern(pattern string) string {
	parts := strings.Split(strings.Trim(pattern, "/"), "/")
	for i, p := range parts {
		if !strings.HasPrefix(p, "{") {
			parts[i] = url.PathEscape(p)
		}
	}
	return "/" + strings.Join(parts, "/")
}

// placeOf is a pattern without the names of its parameters.
func placeOf(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

// serves tells whether a row takes all requests that a pattern would.
func serves(ep api.Endpoint, method, path string) bool {
	if ep.Virtual || ep.Method != method {
		return false
	}
	ours, theirs := strings.Split(ep.Path, "/"), strings.Split(path, "/")
	if len(ours) != len(theirs) {
		return false
	}
	for i, p := range ours {
		if !strings.HasPrefix(p, "{") && p != theirs[i] {
			return false
		}
	}
	return true
}

func (s *Server) customRoute(row api.Row, r registry.Route) api.Endpoint {
	serve := func(ctx context.Context, c *api.Call, _ struct{}) (api.Body, error) {
		q := registry.Request{
			Method: c.R.Method, Path: "/" + strings.Trim(c.R.URL.Path, "/"), Query: map[string][]string{}, Headers: routeHeaders(c),
			Body: c.Object(), Params: map[string]string{}, Identity: c.Identity.ID, Scopes: append([]string{}, c.Identity.Scopes...),
			RequestID: c.RequestID(),
		}
		for k, v := range c.Query {
			q.Query[k] = []string{v}
		}
		for part := range strings.SplitSeq(row.Path, "/") {
			if strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}") {
				q.Params[part[1:len(part)-1]] = c.Param(part[1 : len(part)-1])
			}
		}
		if c.R.Method == http.MethodHead {
			q.Method = http.MethodGet
		}
		response, err := r.Serve(ctx, q)
		if err != nil {
			return nil, commandError(err)
		}
		return &routeAnswer{r: response, stopping: c.Stopping()}, nil
	}
	return api.Unary(row, serve)
}

// routeHeaders are the headers of a request as template code sees them. A
// token that let the caller in is not for it.
func routeHeaders(c *api.Call) map[string]string {
	out := map[string]string{}
	for name, values := range c.R.Header {
		if c.Identity.ByToken && (name == "Authorization" || name == "X-Access-Token") {
			continue
		}
		out[name] = strings.Join(values, ", ")
	}
	if c.R.Host != "" {
		out["Host"] = c.R.Host
	}
	return out
}

// routeAnswer is what template code answers, as it is.
type routeAnswer struct {
	r        *registry.Response
	stopping <-chan struct{}
}

// Status implements [api.Statuser].
func (a *routeAnswer) Status() int {
	if a.r.Status < 200 || a.r.Status > 599 {
		return http.StatusInternalServerError
	}
	return a.r.Status
}

// Header implements [api.Body].
func (a *routeAnswer) Header(h http.Header) {
	kind := "application/json; charset=utf-8"
	if a.r.Stream != nil {
		kind = "text/event-stream"
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
	}
	h.Set("Content-Type", kind)
	for name, value := range a.r.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length", "Transfer-Encoding", "Connection", "Date", "X-Request-Id": // ours to say
		default:
			h.Set(name, value)
		}
	}
	if a.r.Stream == nil && a.hasBody() {
		h.Set("Content-Length", strconv.Itoa(len(a.r.Body)))
	}
}

func (a *routeAnswer) hasBody() bool {
	return a.Status() != http.StatusNoContent && a.Status() != http.StatusNotModified
}

// pingEvery is the longest silence on a stream of events.
const pingEvery = 15 * time.Second

// Send implements [api.Body].
func (a *routeAnswer) Send(ctx context.Context, w io.Writer) error {
	if a.r.Stream == nil {
		if !a.hasBody() {
			return nil
		}
		_, err := w.Write(a.r.Body)
		return err
	}
	ctx, cancel := until(ctx, a.stopping)
	defer cancel()
	flush := func() error { return w.(interface{ Flush() error }).Flush() }
	err := flush()
	whole := true // what was sent ends an event
	for err == nil {
		var piece []byte
		wait, stop := context.WithTimeout(ctx, pingEvery)
		piece, err = a.r.Stream.Next(wait)
		stop()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			if err = nil; !whole {
				continue
			}
			piece = []byte(": ping\n\n")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(piece) > 0:
			whole = bytes.HasSuffix(piece, []byte("\n\n"))
		}
		if _, err = w.Write(piece); err == nil {
			err = flush()
		}
	}
	return err
}

// Close implements [io.Closer].
func (a *routeAnswer) Close() error {
	if a.r.Stream != nil {
		a.r.Stream.Close()
	}
	return nil
}
