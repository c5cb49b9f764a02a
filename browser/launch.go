package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// maxSocketPath is the length of the name of a socket, with its final zero.
const maxSocketPath = 108

// start runs Chrome and waits until it answers and has reached the proxy. On
// an error nothing is left of it.
func start(ctx context.Context, b *Browser, rules *Rules, env map[string]string, profile string) (e *engine, err error) {
	path := find(env)
	if path == "" {
		return nil, fmt.Errorf("%w: none is installed", ErrUnavailable)
	}
	e = &engine{b: b, profile: profile, sessions: map[string]*tab{}}
	defer func() {
		if err != nil && e != nil {
			e.stop()
			e = nil
		}
	}()
	if e.proxy, err = newProxy(ctx, rules, b.names, b.dialer, b.log); err != nil {
		return e, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	output := proc.NewBuffers(noise, proc.KeepTail)
	if err := e.spawn(ctx, path, env, profile, output); err != nil {
		return e, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := e.greet(ctx); err != nil {
		e.proc.End("") // all it had to say is there then
		if noSandbox(output.Err.Bytes()) && !b.bare.Swap(true) {
			b.log.Warn("this machine has no sandbox for the browser; pages are held by the container alone")
			e.stop()
			return start(ctx, b, rules, env, profile)
		}
		return e, fmt.Errorf("%w: it did not start (%w): %s", ErrUnavailable, err, lastLine(output.Err.Bytes()))
	}
	return e, nil
}

// spawn starts the process with the two pipes as descriptors 3 and 4.
func (e *engine) spawn(ctx context.Context, path string, env map[string]string, profile string, output proc.Sink) error {
	// What is left of a Chrome that was killed would keep the next one from
	// using the profile.
	for _, name := range []string{"SingletonLock", "SingletonSocket", "SingletonCookie"} {
		_ = os.Remove(filepath.Join(profile, name))
	}
	toChrome, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer toChrome.Close()
	theirs, fromChrome, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return err
	}
	defer fromChrome.Close()
	// It leaves files behind when it is killed, and then they go with the rest.
	if len(profile)+len("/org.chromium.Chromium.XXXXXX/SingletonSocket") < maxSocketPath {
		env = maps.Clone(env)
		env["TMPDIR"] = profile
	}
	list := make([]string, 0, len(env))
	for name, v := range env {
		if !strings.EqualFold(name, "ABX_BROWSER_PATH") {
			list = append(list, name+"="+v)
		}
	}
	slices.Sort(list)
	e.proc, err = e.b.procs.Start(context.WithoutCancel(ctx), proc.Spec{
		Path: path, Argv: append([]string{path}, flags(e.proxy.addr(), profile, !e.b.bare.Load())...), Env: list, Dir: profile,
		Output: output, Files: []*os.File{toChrome, fromChrome},
	})
	if err != nil {
		_ = ours.Close()
		_ = theirs.Close()
		return err
	}
	e.conn = newConn(ours, theirs, e.event)
	e.wg.Go(func() { // whatever it was that ended, nothing of it stays
		<-e.conn.lost
		e.proc.End("")
	})
	return nil
}

// noSandbox tells from its last words whether Chrome did not start because the
// machine does not let it make a sandbox, as containers often do not.
func noSandbox(said []byte) bool {
	for _, words := range []string{"No usable sandbox", "Failed to move to new namespace", "sandbox helper binary"} {
		if bytes.Contains(said, []byte(words)) {
			return true
		}
	}
	return false
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")), "\n")
	line := lines[len(lines)-1]
	return line[:min(len(line), 200)]
}

// greet sets the browser up and waits for its first page.
func (e *engine) greet(ctx context.Context) error {
	if err := e.conn.call(ctx, "", "Browser.getVersion", nil, nil); err != nil {
		return err
	}
	if err := e.intercept(ctx); err != nil {
		return err
	}
	if err := e.conn.call(ctx, "", "Browser.setDownloadBehavior", e.downloadBehavior(), nil); err != nil {
		return err
	}
	if err := e.conn.call(ctx, "", "Target.setAutoAttach", object{
		"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true, "filter": []object{{"type": "page"}},
	}, nil); err != nil {
		return err
	}
	t, err := e.current(ctx)
	if err != nil {
		return err
	}
	return e.prime(ctx, t)
}

// prime sends the browser to the proxy once. The challenge is answered inside
// Chrome, which then knows the secret for every later request, also of those
// kinds that cannot answer a challenge.
func (e *engine) prime(ctx context.Context, t *tab) error {
	var nav struct {
		Error string `json:"errorText"`
	}
	if err := t.call(ctx, "Page.navigate", object{"url": "http://" + primeHost + "/"}, &nav); err != nil {
		return err
	}
	if nav.Error != "net::ERR_ABORTED" { // which is what "no content" looks like
		return errors.New("the proxy cannot be reached: " + nav.Error)
	}
	return nil
}

// intercept has Chrome ask about every request, of pages, frames and workers,
// and about every demand for credentials.
func (e *engine) intercept(ctx context.Context) error {
	return e.conn.call(ctx, "", "Fetch.enable", object{
		"handleAuthRequests": true, "patterns": []object{{"urlPattern": "*"}},
	}, nil)
}
