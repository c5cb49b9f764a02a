package browser

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// verdict is what becomes of a client's command: it is refused, it is answered
// as if it had been done, or it goes to Chrome with params.
type verdict struct {
	err    error
	done   bool
	params members
}

// members are the parameters of a command, each name once. What was judged is
// what is sent, not the text it came in, which may name one twice.
type members map[string]json.RawMessage

// domains are the parts of the protocol that clients may use: what is about
// pages. What is about the machine, the browser's own settings and other
// programs is not among them.
var domains = []string{
	"Accessibility", "Animation", "Audits", "Browser", "CSS", "CacheStorage", "Console", "DOM", "DOMDebugger", "DOMSnapshot", "DOMStorage",
	"Debugger", "Emulation", "EventBreakpoints", "Fetch", "HeadlessExperimental", "HeapProfiler", "IO", "IndexedDB", "Input", "Inspector",
	"LayerTree", "Log", "Media", "Memory", "Network", "Overlay", "Page", "Performance", "PerformanceTimeline", "Preload", "Profiler", "Runtime",
	"Schema", "Security", "ServiceWorker", "Storage", "Target", "WebAudio", "WebAuthn",
}

// browserMethods are those of the Browser domain that clients may use.
var browserMethods = []string{
	"getVersion", "getWindowForTarget", "getWindowBounds", "setWindowBounds", "setContentsSize", "grantPermissions", "setPermission", "resetPermissions",
}

// refused are methods that name files of the machine, speak the protocol past
// this filter, or ask for addresses that nobody judges.
var refused = []string{
	"DOM.getFileInfo", "DOM.setFileInputFiles", "Network.continueInterceptedRequest", "Network.loadNetworkResource",
	"Network.setRequestInterception", "Page.handleFileChooser", "Page.captureSnapshotToFile", "Page.addCompilationCache",
	"Page.setDocumentURL", "Target.exposeDevToolsProtocol", "Target.sendMessageToTarget", "Target.setRemoteLocations", "Target.openDevTools",
}

// ignored are methods that clients call as a matter of course and that must not
// be done: downloads stay as they are.
var ignored = []string{"Browser.setDownloadBehavior", "Page.setDownloadBehavior", "Browser.close"}

var errForbidden = errors.New("this method is not allowed here")

// permit decides about a client's command.
func permit(ctx context.Context, e *engine, method string, params json.RawMessage) verdict {
	domain, name, _ := strings.Cut(method, ".")
	switch {
	case slices.Contains(ignored, method):
		return verdict{done: true}
	case !slices.Contains(domains, domain), slices.Contains(refused, method),
		domain == "Browser" && !slices.Contains(browserMethods, name):
		return verdict{err: errForbidden}
	}
	p := members{}
	if len(params) > 0 && json.Unmarshal(params, &p) != nil {
		return verdict{err: errors.New("invalid parameters")}
	}
	for _, name := range []string{"proxyServer", "proxyBypassList", "originsWithUniversalNetworkAccess"} {
		if p[name] != nil {
			return verdict{err: errForbidden}
		}
	}
	if string(p["flatten"]) == "false" {
		return verdict{err: errors.New("only flat sessions are supported")}
	}
	var err error
	switch method {
	case "Page.navigate", "Target.createTarget":
		err = permitURL(p, func(url string) error {
			if url == "about:blank" || url == "" {
				return nil
			}
			return e.proxy.rules().Judge(ctx, e.proxy.names, url)
		})
	case "Fetch.continueRequest":
		err = permitURL(p, func(url string) error {
			u, err := ParseURL(url)
			if err != nil {
				return err
			}
			return e.proxy.rules().admit(u)
		})
	case "Input.dispatchDragEvent":
		err = permitDrag(p)
	}
	return verdict{err: err, params: p}
}

func permitURL(p members, judge func(url string) error) error {
	if p["url"] == nil {
		return nil
	}
	var url string
	if err := json.Unmarshal(p["url"], &url); err != nil {
		return errors.New("invalid url")
	}
	return judge(url)
}

// permitDrag refuses to drop files of the machine onto a page.
func permitDrag(p members) error {
	data := members{}
	if p["data"] == nil || json.Unmarshal(p["data"], &data) != nil {
		return nil // Chrome refuses it
	}
	var files []json.RawMessage
	if data["files"] != nil && (json.Unmarshal(data["files"], &files) != nil || len(files) > 0) {
		return errForbidden
	}
	delete(data, "files")
	var err error
	p["data"], err = json.Marshal(data)
	return err
}
