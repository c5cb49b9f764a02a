package endpoints

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
	"github.com/agent-sandbox/agent-sandbox-server/pty"
)

func (s *Server) terminals() []api.Endpoint {
	row := func(name, method, path, summary string) api.Row {
		return api.Row{
			Name: name, Method: method, Path: path, Group: "terminal", Summary: summary,
			Scopes: []string{"terminal:use"}, Mutates: method != "GET",
		}
	}
	connected := func(name, method, path, summary string) api.Row {
		r := row(name, method, path, summary)
		r.As = "pty_connect"
		return r
	}
	create := row("pty_create_session", "POST", "/pty/sessions", "Open a terminal.")
	create.Limits, create.Params = []string{"max_sessions"}, []string{"shells", "env_deny"}
	connect := row("pty_connect", "WS", "/pty", "Attach to a terminal over WebSocket.")
	connect.Virtual = true
	return []api.Endpoint{
		api.Unary(create, s.openTerminal),
		api.Unary(row("pty_list_sessions", "GET", "/pty/sessions", "List live terminals."), s.listTerminals),
		api.Unary(row("pty_detail", "GET", "/pty/sessions/{id}", "Describe a terminal."), s.describeTerminal),
		api.Unary(row("pty_resize", "POST", "/pty/sessions/{id}/resize", "Change the size of a terminal."), s.resizeTerminal),
		api.Unary(row("pty_delete_session", "DELETE", "/pty/sessions/{id}", "Close a terminal and end its programs."), s.closeTerminal),
		api.Upgrade(connect, s.connectTerminal),
		api.Upgrade(connected("pty_connect_http", "GET", "/pty", "Attach to a terminal over WebSocket."), s.connectTerminal),
		api.Unary(connected("pty_output", "GET", "/pty/sessions/{id}/output", "Read what a terminal has shown."), s.readTerminal),
		api.Unary(connected("pty_input", "POST", "/pty/sessions/{id}/input", "Type into a terminal."), s.typeIntoTerminal),
		api.Unary(connected("pty_signal", "POST", "/pty/sessions/{id}/signal", "Signal what runs in a terminal."), s.signalTerminal),
	}
}

const (
	defaultShell   = "/bin/bash"
	defaultCols    = 80
	defaultRows    = 24
	mostSessions   = 1024
	maxIdleTimeout = 1e7 // seconds
)

type terminalIn struct {
	Shell          api.Field[any]    `json:"shell" doc:"One of the usual shells; /bin/bash by default."`
	Cols           api.Field[any]    `json:"cols" doc:"Columns, 1 to 1000; 80 by default."`
	Rows           api.Field[any]    `json:"rows" doc:"Rows, 1 to 1000; 24 by default."`
	Name           api.Field[string] `json:"name" doc:"A name of up to 64 letters, digits, dots, dashes and underscores."`
	AttachExisting api.Field[bool]   `json:"attach_existing" doc:"Return the live session of that name if there is one."`
	Scrollback     api.Field[any]    `json:"scrollback_bytes" doc:"Bytes of output kept, at most 16 MiB."`
	IdleTimeout    api.Field[any]    `json:"idle_timeout" doc:"Seconds without client, input and output after which the session ends."`
	Login          api.Field[bool]   `json:"login" doc:"Run the shell as a login shell."`
	execIn
}

type terminalOut struct {
	SessionID string `json:"session_id"`
	WSURL     string `json:"ws_url"`
	PID       int    `json:"pid"`
	Name      string `json:"name,omitempty"`
	Created   bool   `json:"created"`
}

func (s *Server) openTerminal(_ context.Context, c *api.Call, in terminalIn) (terminalOut, error) {
	spec := pty.Spec{Owner: c.Identity.ID, MaxSessions: sessionLimit(c.Rule)}
	shell, err := in.shell()
	if err != nil {
		return terminalOut{}, err
	}
	if spec.Cols, err = size(in.Cols, "cols", defaultCols); err != nil {
		return terminalOut{}, err
	}
	if spec.Rows, err = size(in.Rows, "rows", defaultRows); err != nil {
		return terminalOut{}, err
	}
	if err := in.comforts(&spec); err != nil {
		return terminalOut{}, err
	}
	env, err := in.environment()
	if err != nil {
		return terminalOut{}, err
	}
	done, err := s.terminalProgram(c, &in, shell, env, &spec.Program)
	if err != nil {
		return terminalOut{}, err
	}
	defer done()
	session, made, err := s.Terminals.Create(spec) //nolint:contextcheck // a terminal outlives the call
	if err != nil {
		return terminalOut{}, terminalError(err, spec.Program.Path)
	}
	return terminalOut{
		SessionID: session.ID(), PID: session.PID(), Name: session.Record().Name, Created: made,
		WSURL: s.terminalURL(session),
	}, nil
}

// sessionLimit is how many terminals may live at once, by the rule of
// pty_create_session.
func sessionLimit(rule *policy.Rule) int {
	if n, ok := rule.Int("max_sessions"); ok {
		return int(min(n, mostSessions))
	}
	return pty.DefaultSessions
}

// terminalURL is where a session can be attached to, without credentials.
func (s *Server) terminalURL(session *pty.Session) string {
	return fmt.Sprintf("ws://localhost:%d/pty?session_id=%s", s.PTYPort, session.ID())
}

// shell is the listed shell that a request asks for.
func (in *terminalIn) shell() (string, error) {
	if in.Shell.State == api.Absent {
		return defaultShell, nil
	}
	name, ok := in.Shell.V.(string)
	if !ok || !pty.IsShell(name) {
		return "", api.Invalidf("Invalid 'shell': one of %s", strings.Join(pty.Shells(), ", "))
	}
	return name, nil
}

// size reads a number of columns or rows.
func size(f api.Field[any], name string, def int) (int, error) {
	if f.State == api.Absent && def > 0 {
		return def, nil
	}
	n, ok := api.LenientInt(f.V)
	if !ok || n < 1 || n > pty.MaxSize {
		return 0, api.Invalidf("Invalid '%s': a number from 1 to %d", name, pty.MaxSize)
	}
	return int(n), nil
}

// comforts reads what is beyond the published fields.
func (in *terminalIn) comforts(spec *pty.Spec) (err error) {
	if spec.Name, err = in.Name.Optional("name", ""); err != nil {
		return err
	}
	if spec.AttachExisting, err = in.AttachExisting.Optional("attach_existing", false); err != nil {
		return err
	}
	if in.Scrollback.Set() {
		n, ok := api.LenientInt(in.Scrollback.V)
		if !ok || n < 1 || n > pty.MaxScrollback {
			return api.Invalidf("Invalid 'scrollback_bytes': at most %d", pty.MaxScrollback)
		}
		spec.Scrollback = int(n)
	}
	if in.IdleTimeout.Set() {
		f, ok := api.Lenient(in.IdleTimeout.V)
		if !ok || f < 0 {
			return api.Invalidf("Invalid 'idle_timeout': seconds")
		}
		if spec.IdleTimeout = seconds(min(f, maxIdleTimeout)); f == 0 {
			spec.IdleTimeout = -1
		}
	}
	_, err = in.Login.Optional("login", false)
	return err
}

// silentlyDropped are variables that terminals never take from callers; the
// published server says nothing about it.
var silentlyDropped = []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES"}

// environment judges the caller's variables, but for the lists of the rule,
// which have their turn after the shell's.
func (in *terminalIn) environment() (map[string]string, error) {
	env, err := in.variables()
	if err != nil {
		return nil, err
	}
	for name, value := range env {
		if slices.Contains(silentlyDropped, name) {
			delete(env, name)
			continue
		}
		if err := policy.EnvSyntax(name, value).Err(); err != nil {
			return nil, err
		}
		if err := policy.EnvReserved(name, false).Err(); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// terminalProgram decides what runs: a listed shell that the rule allows, or
// any command for who may start processes.
func (s *Server) terminalProgram(c *api.Call, in *terminalIn, shell string, env map[string]string, to *proc.Spec) (done func(), err error) {
	deny, _ := c.Rule.Strings("env_deny")
	rules := policy.NewEnvRules(nil, nil, deny, c.Policy.SecretEnv)
	other := in.Command.State != api.Absent || in.Args.State != api.Absent
	allowed, set := c.Rule.Strings("shells")
	if set && !other && !slices.Contains(allowed, shell) {
		return nil, policy.Refuse(policy.ShellNotAllowed, "This shell is not allowed").Err()
	}
	for name := range env {
		if err := rules.Permits(name).Err(); err != nil {
			return nil, err
		}
	}
	if _, ok := env["TERM"]; !ok {
		env["TERM"] = pty.Term
	}
	if other || in.Cwd.Set() {
		return s.terminalCommand(c, in, shell, env, to)
	}
	if _, err := os.Stat(shell); err != nil {
		return nil, api.Errorf(400, "OSError", "command_not_found", "%s is not installed", shell)
	}
	child := s.Env.Child(c.Policy, false)
	maps.Copy(child, env)
	*to = proc.Spec{Path: shell, Argv: []string{shellName(in, shell)}, Env: childenv.List(child), Dir: s.home(c)}
	return func() {}, nil
}

// terminalCommand is a program or a directory of the caller's choice: both are
// judged as for a process.
func (s *Server) terminalCommand(c *api.Call, in *terminalIn, shell string, env map[string]string, to *proc.Spec) (done func(), err error) {
	rule, err := c.Also("process_start")
	if err != nil {
		return nil, err
	}
	in.Env = api.Field[map[string]any]{V: map[string]any{}, State: api.Good}
	for name, value := range env {
		in.Env.V[name] = value
	}
	isShell := in.Command.State == api.Absent && in.Args.State == api.Absent
	if isShell {
		in.Args = api.Field[[]string]{V: []string{shell}, State: api.Good}
	}
	l, err := s.prepare(c, rule, &in.execIn)
	if err != nil {
		return nil, err
	}
	limitTime(rule, &l.how, math.Inf(1))
	*to = l.spec(nil, nil)
	if isShell {
		to.Argv = []string{shellName(in, shell)}
	}
	if l.dir == nil {
		to.Dir = s.home(c)
	}
	return l.close, nil
}

// shellName is how a shell is told its name: a dash before it makes it a login
// shell.
func shellName(in *terminalIn, shell string) string {
	if in.Login.V {
		return "-" + filepath.Base(shell)
	}
	return shell
}

// home is where terminals begin: the base directory when it exists.
func (s *Server) home(c *api.Call) string {
	dir, real, err := c.Guard(c.Policy.Rule("process_start")).Quiet().Dir(".", policy.Exec)
	if err != nil {
		return s.Workdir
	}
	_ = dir.Close()
	return real
}

func terminalError(err error, program string) error {
	switch {
	case errors.Is(err, pty.ErrUnknown):
		return api.Errorf(404, "ValueError", "session_not_found", "Session not found")
	case errors.Is(err, pty.ErrNameTaken):
		return api.Errorf(409, "ConflictError", "session_exists", "A session of that name exists")
	case errors.Is(err, pty.ErrEnded):
		return api.Errorf(409, "ConflictError", "session_ended", "The session has ended")
	case errors.Is(err, pty.ErrInvalid):
		return api.Invalidf("Invalid 'name': letters, digits, dots, dashes and underscores, at most 64")
	}
	if l, ok := errors.AsType[*pty.LimitError](err); ok {
		return api.Errorf(429, "RuntimeError", "session_limit", "Too many terminals; the limit is %d", l.Limit).With("limit", l.Limit)
	}
	return startError(err, program)
}

// spectator is whose terminals a caller sees.
func spectator(c *api.Call) pty.Viewer {
	return pty.Viewer{Owner: c.Identity.ID, All: c.Identity.Holds("*")}
}

func (s *Server) terminal(c *api.Call, id string) (*pty.Session, error) {
	session, err := s.Terminals.Get(id, spectator(c))
	if err != nil {
		return nil, terminalError(err, "")
	}
	return session, nil
}

type terminalsOut struct {
	Sessions []pty.Record `json:"sessions"`
}

func (s *Server) listTerminals(_ context.Context, c *api.Call, _ struct{}) (terminalsOut, error) {
	out := terminalsOut{Sessions: []pty.Record{}}
	for _, session := range s.Terminals.List(spectator(c)) {
		out.Sessions = append(out.Sessions, session.Record())
	}
	return out, nil
}

type terminalID struct {
	ID string `path:"id"`
}

func (s *Server) describeTerminal(_ context.Context, c *api.Call, in terminalID) (pty.Record, error) {
	session, err := s.terminal(c, in.ID)
	if err != nil {
		return pty.Record{}, err
	}
	return session.Record(), nil
}

type resizeIn struct {
	ID   string         `path:"id"`
	Cols api.Field[any] `json:"cols" doc:"Columns, 1 to 1000."`
	Rows api.Field[any] `json:"rows" doc:"Rows, 1 to 1000."`
}

func (s *Server) resizeTerminal(_ context.Context, c *api.Call, in resizeIn) (pty.Record, error) {
	session, err := s.terminal(c, in.ID)
	if err != nil {
		return pty.Record{}, err
	}
	cols, err := size(in.Cols, "cols", 0)
	if err != nil {
		return pty.Record{}, err
	}
	rows, err := size(in.Rows, "rows", 0)
	if err != nil {
		return pty.Record{}, err
	}
	if err := session.Resize(cols, rows); err != nil {
		return pty.Record{}, terminalError(err, "")
	}
	return session.Record(), nil
}

type closedOut struct {
	Status    string `json:"status"`
	SessionID string `json:"session_id"`
}

func (s *Server) closeTerminal(_ context.Context, c *api.Call, in terminalID) (closedOut, error) {
	if err := s.Terminals.Delete(in.ID, spectator(c)); err != nil { //nolint:contextcheck // ending takes its own time
		return closedOut{}, terminalError(err, "")
	}
	return closedOut{"closed", in.ID}, nil
}

type connectIn struct {
	SessionID string `query:"session_id" doc:"The session to attach to."`
	Since     string `query:"since" doc:"Offset to start at; where others stopped by default."`
	ReadOnly  bool   `query:"readonly" doc:"Watch without typing."`
}

// Close codes of the socket.
const (
	unknownSession = 1008
	badOffset      = 1008
)

func (s *Server) connectTerminal(ctx context.Context, c *api.Call, in connectIn, w http.ResponseWriter) error {
	if !strings.EqualFold(c.R.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		return api.Errorf(http.StatusUpgradeRequired, "ValueError", "upgrade_required", "This is a WebSocket endpoint")
	}
	since, sinceErr := int64(-1), error(nil)
	if in.Since != "" {
		if since, sinceErr = strconv.ParseInt(in.Since, 10, 64); since < 0 {
			since = 0
		}
	}
	session, err := s.Terminals.Get(in.SessionID, spectator(c))
	conn, acceptErr := pty.Accept(w, c.R)
	if acceptErr != nil {
		return nil // it has answered
	}
	switch {
	case err != nil:
		err = conn.Close(unknownSession, "Unknown session")
	case sinceErr != nil:
		err = conn.Close(badOffset, "Invalid since")
	default:
		ctx, cancel := until(ctx, c.Stopping())
		defer cancel()
		err = pty.Serve(ctx, conn, session, pty.ServeOptions{Since: since, ReadOnly: in.ReadOnly})
	}
	// How a connection ended is the client's doing, and no failed request.
	if err != nil {
		c.Log().Debug("terminal connection ended", "err", err)
	}
	return nil
}

type readTerminalIn struct {
	ID       string `path:"id"`
	Since    string `query:"since" doc:"Offset to start at."`
	Wait     string `query:"wait" doc:"Seconds to wait for output, at most 30."`
	Encoding string `query:"encoding" doc:"base64 gives the exact bytes."`
}

type readTerminalOut struct {
	Offset   int64  `json:"offset" doc:"Of the first byte; later than asked for when output was lost."`
	Data     string `json:"data"`
	Base64   string `json:"data_base64,omitempty"`
	Next     int64  `json:"next"`
	Alive    bool   `json:"alive"`
	ExitCode *int   `json:"exit_code"`
}

func (s *Server) readTerminal(ctx context.Context, c *api.Call, in readTerminalIn) (readTerminalOut, error) {
	session, err := s.terminal(c, in.ID)
	if err != nil {
		return readTerminalOut{}, err
	}
	var since int64
	if in.Since != "" {
		var ok bool
		if since, ok = queryInt(in.Since); !ok {
			return readTerminalOut{}, api.Invalidf("Invalid 'since'")
		}
	}
	wait, err := querySeconds(in.Wait, "wait", 0)
	if err != nil {
		return readTerminalOut{}, err
	}
	binary, err := wantsBase64(in.Encoding)
	if err != nil {
		return readTerminalOut{}, err
	}
	ctx, cancel := until(ctx, c.Stopping())
	defer cancel()
	got, err := session.Output(ctx, max(since, 0), seconds(min(max(wait, 0), 30)))
	if err != nil && !errors.Is(err, context.Canceled) {
		return readTerminalOut{}, err
	}
	out := readTerminalOut{Offset: got.Offset, Data: got.Text(), Next: got.Next, Alive: !got.Ended}
	if binary {
		out.Base64 = base64.StdEncoding.EncodeToString(got.Data)
	}
	if got.Ended {
		out.ExitCode = &got.Status.Code
	}
	return out, nil
}

type typeIn struct {
	ID     string            `path:"id"`
	Data   api.Field[string] `json:"data" doc:"Text to type."`
	Base64 api.Field[string] `json:"data_base64" doc:"Bytes to type, base64."`
}

type typeOut struct {
	Written int `json:"written"`
}

// typeTimeout is how long input may wait for a program that does not read.
const typeTimeout = 10 * time.Second

func (s *Server) typeIntoTerminal(ctx context.Context, c *api.Call, in typeIn) (typeOut, error) {
	session, err := s.terminal(c, in.ID)
	if err != nil {
		return typeOut{}, err
	}
	data, err := textOrBytes("data", in.Data, in.Base64)
	if err != nil {
		return typeOut{}, err
	}
	if len(data) == 0 {
		return typeOut{}, missingField("data")
	}
	ctx, cancel := context.WithTimeout(ctx, typeTimeout)
	defer cancel()
	n, err := session.Input(ctx, data)
	if errors.Is(err, context.DeadlineExceeded) {
		return typeOut{}, api.Errorf(409, "ConflictError", "stdin_full", "The terminal takes no more input").With("written", n)
	}
	if err != nil {
		return typeOut{}, terminalError(err, "")
	}
	return typeOut{n}, nil
}

type signalTerminalIn struct {
	ID     string            `path:"id"`
	Signal api.Field[string] `json:"signal" doc:"SIGINT, SIGTERM, SIGKILL, SIGHUP or SIGQUIT."`
}

type signalTerminalOut struct {
	SessionID string `json:"session_id"`
	Signal    string `json:"signal"`
}

func (s *Server) signalTerminal(_ context.Context, c *api.Call, in signalTerminalIn) (signalTerminalOut, error) {
	session, err := s.terminal(c, in.ID)
	if err != nil {
		return signalTerminalOut{}, err
	}
	name, err := in.Signal.Optional("signal", "SIGINT")
	if err != nil {
		return signalTerminalOut{}, err
	}
	sig, ok := pty.ParseSignal(name)
	if !ok {
		return signalTerminalOut{}, api.Invalidf("Invalid 'signal'")
	}
	if err := session.Signal(sig); err != nil {
		return signalTerminalOut{}, terminalError(err, "")
	}
	return signalTerminalOut{in.ID, name}, nil
}
