package endpoints

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/agent-sandbox/agent-sandbox-server/browser"
	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
)

// protocol are the endpoints for clients that speak the DevTools protocol
// themselves. Who may use them may run scripts and open addresses.
func (s *Server) protocol() []api.Endpoint {
	row := api.Row{
		Name: "browser_cdp", Method: "GET", Path: "/browser/cdp", Group: "browser",
		Summary: "Speak the DevTools protocol with the browser, over WebSocket.",
		Scopes:  []string{"browser:evaluate"}, Follows: "browser_evaluate", Exec: true, Mutates: true, Streaming: true,
	}
	version := api.Row{
		Name: "browser_cdp_version", As: "browser_cdp", Method: "GET", Path: "/browser/cdp/json/version", Group: "browser",
		Summary: "Tell where the DevTools protocol is spoken, as browsers do.", Scopes: row.Scopes,
	}
	return []api.Endpoint{api.Upgrade(row, s.speakProtocol), api.Unary(version, s.protocolVersion)}
}

type versionOut struct {
	Browser   string `json:"Browser"`
	Protocol  string `json:"Protocol-Version"`
	UserAgent string `json:"User-Agent"`
	V8        string `json:"V8-Version"`
	URL       string `json:"webSocketDebuggerUrl" doc:"With the host that the caller named."`
}

func (s *Server) protocolVersion(ctx context.Context, c *api.Call, _ struct{}) (versionOut, error) {
	if _, err := c.Also("browser_navigate"); err != nil {
		return versionOut{}, err
	}
	if s.Browser == nil {
		return versionOut{}, pageError(browser.ErrUnavailable)
	}
	v, err := s.Browser.Version(ctx, s.browserAsk(c, ""))
	if err != nil {
		return versionOut{}, pageError(err)
	}
	scheme := "ws"
	if c.R.TLS != nil || strings.EqualFold(c.R.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "wss"
	}
	return versionOut{v.Product, v.Protocol, v.UserAgent, v.JS, scheme + "://" + c.R.Host + "/browser/cdp"}, nil
}

// maxCommand bounds one command of a client.
const maxCommand = 16 << 20

func (s *Server) speakProtocol(ctx context.Context, c *api.Call, _ struct{}, w http.ResponseWriter) error {
	if !strings.EqualFold(c.R.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		return api.Errorf(http.StatusUpgradeRequired, "ValueError", "upgrade_required", "This is a WebSocket endpoint")
	}
	if _, err := c.Also("browser_navigate"); err != nil {
		return err
	}
	if s.Browser == nil {
		return pageError(browser.ErrUnavailable)
	}
	// A browser that does not start is told before the upgrade.
	if _, err := s.Browser.Version(ctx, s.browserAsk(c, "")); err != nil {
		return pageError(err)
	}
	ws, err := websocket.Accept(w, c.R, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the one origin check is at the door
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil // it has answered
	}
	ws.SetReadLimit(maxCommand)
	if err := s.serveProtocol(ctx, c, ws); err != nil {
		c.Log().Debug("a client of the DevTools protocol has gone", "err", err)
	}
	return nil
}

// serveProtocol speaks with a client until it goes, the browser ends or the
// server stops.
func (s *Server) serveProtocol(ctx context.Context, c *api.Call, ws *websocket.Conn) error {
	ctx, cancel := until(ctx, c.Stopping())
	defer cancel()
	err := s.Browser.Serve(ctx, s.browserAsk(c, ""), &protocolWire{ws})
	_ = ws.Close(websocket.StatusGoingAway, "")
	return err
}

// writeTime is how long a client may take for one message.
const writeTime = time.Minute

type protocolWire struct{ ws *websocket.Conn }

// Read implements [browser.Wire].
func (p *protocolWire) Read(ctx context.Context) ([]byte, error) {
	_, text, err := p.ws.Read(ctx)
	return text, err
}

// Write implements [browser.Wire].
func (p *protocolWire) Write(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return p.ws.Write(ctx, websocket.MessageText, text)
}
