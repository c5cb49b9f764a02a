package browser

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const (
	defaultIdle = 10 * time.Minute
	rescueTime  = 4 * time.Second
	closeTime   = 2 * time.Second // for what is saved of a browser that is stopped
)

// Options set a [Browser] up. The zero Options are what the server uses.
type Options struct {
	// Idle is how long a browser that nobody uses stays; 10 minutes when 0.
	Idle time.Duration
	// Log is told of starts and ends; nil is nobody.
	Log *slog.Logger
	// Names resolves host names; the system's resolver when nil.
	Names Resolver
	// Dialer connects to what was resolved; the system's when nil.
	Dialer Dialer
}

// Browser is the one Chrome of the server: started by the first call that needs
// it, started again by the next call after it has died or was stopped. Its
// methods are safe together.
type Browser struct {
	procs     *proc.Manager
	idle      time.Duration
	log       *slog.Logger
	names     Resolver
	dialer    Dialer
	console   console
	requests  requests
	downloads downloads
	wg        sync.WaitGroup

	// bare is set when Chrome must do without its sandbox.
	bare atomic.Bool
	// change is the turn to start or stop the engine.
	change chan struct{}
	// closing is closed when the browser is; a start under way then ends.
	closing chan struct{}

	mu      sync.Mutex
	engine  *engine
	users   int
	timer   *time.Timer
	closed  bool
	profile string // the folder of Chrome's files, "" before the first start
	kept    state

	lastRule *policy.Rule
	rules    *Rules
}

// New makes a browser whose Chrome is started by procs, which must be closed
// after it. Nothing runs before the first call.
func New(procs *proc.Manager, o Options) *Browser {
	b := &Browser{procs: procs, idle: o.Idle, log: o.Log, names: o.Names, dialer: o.Dialer, change: make(chan struct{}, 1), closing: make(chan struct{})}
	b.bare.Store(os.Geteuid() == 0) // root has no sandbox
	if b.idle == 0 {
		b.idle = defaultIdle
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.names == nil {
		b.names = net.DefaultResolver
	}
	if b.dialer == nil {
		b.dialer = &net.Dialer{}
	}
	return b
}

// Ask is on whose behalf the browser acts.
type Ask struct {
	// Rule is the policy rule about addresses. It holds from now on for
	// everything the browser does.
	Rule *policy.Rule
	// Env is the environment a browser is looked for and started in.
	Env func() map[string]string
	// Keep says what becomes of downloads, from now on.
	Keep Keep
	// Tab is the page to act on; "" is the active one.
	Tab string
	// Watch says that the page is only looked at, so that others may act on it
	// meanwhile.
	Watch bool
}

// Rules are the rules about addresses that rule makes.
func (b *Browser) Rules(rule *policy.Rule) *Rules {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lastRule != rule {
		b.lastRule, b.rules = rule, NewRules(rule)
	}
	return b.rules
}

// Judge decides about an address that a caller wants to open; see
// [Rules.Judge].
func (b *Browser) Judge(ctx context.Context, rule *policy.Rule, address string) error {
	return b.Rules(rule).Judge(ctx, b.names, address)
}

// Close ends Chrome and forgets everything it knew. Calls under way fail; later
// ones too.
func (b *Browser) Close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	b.stopTimer()
	b.mu.Unlock()
	select {
	case b.change <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.discard()
	<-b.change
	b.wg.Wait()
	return nil
}

// Reset ends Chrome and forgets everything it knew. The next call starts
// afresh.
func (b *Browser) Reset(ctx context.Context) error {
	select {
	case b.change <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-b.change }()
	b.discard()
	return nil
}

// discard stops the engine and removes its files. The turn is held.
func (b *Browser) discard() {
	b.mu.Lock()
	e, profile := b.engine, b.profile
	b.engine, b.profile, b.kept = nil, "", state{}
	b.mu.Unlock()
	if e != nil {
		e.stop()
		b.log.Info("browser ended")
	}
	if profile != "" {
		_ = os.RemoveAll(profile)
	}
}

// errClosed is the answer of a browser that was closed.
var errClosed = errors.Join(ErrUnavailable, errors.New("the server is stopping"))

// use is the running engine, started if need be, until done is called.
func (b *Browser) use(ctx context.Context, ask Ask) (e *engine, done func(), err error) {
	rules := b.Rules(ask.Rule)
	otherwise := b.downloads.set(ask.Keep)
	b.mu.Lock()
	b.users++
	b.stopTimer()
	b.mu.Unlock()
	leave := sync.OnceFunc(b.unused)
	defer func() {
		if err != nil {
			leave()
		}
	}()
	select {
	case b.change <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	e = b.running()
	if e != nil {
		<-b.change
		e.proxy.setRules(rules)
		if otherwise {
			e.conn.post("", "Browser.setDownloadBehavior", e.downloadBehavior())
		}
		// One that has just died is not always known to have.
		if err := e.conn.call(ctx, "", "Browser.getVersion", nil, nil); errors.Is(err, errLost) {
			return nil, nil, errNotBegun
		} else if err != nil {
			return nil, nil, err
		}
		return e, leave, nil
	}
	// A start is worth finishing when the caller has gone: the next one waits
	// for it otherwise.
	type outcome struct {
		e   *engine
		err error
	}
	started := make(chan outcome, 1)
	if !b.enter() {
		<-b.change
		return nil, nil, errClosed
	}
	b.users++
	b.mu.Unlock()
	go func() {
		defer b.wg.Done()
		defer b.unused()
		defer func() { <-b.change }()
		e, err := b.start(context.WithoutCancel(ctx), rules, ask.Env())
		started <- outcome{e, err}
	}()
	select {
	case o := <-started:
		return o.e, leave, o.err
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// enter counts a goroutine of the browser in and leaves it locked, unless the
// browser is closed.
func (b *Browser) enter() bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.wg.Add(1)
	return true
}

// running is the engine that lives; what is left of a dead one is put away.
func (b *Browser) running() *engine {
	b.mu.Lock()
	e := b.engine
	if e == nil || e.alive() {
		b.mu.Unlock()
		return e
	}
	b.engine = nil
	b.mu.Unlock()
	e.stop()
	b.log.Warn("the browser had died")
	return nil
}

// start starts an engine with what was kept of the one before. The turn is
// held.
func (b *Browser) start(ctx context.Context, rules *Rules, env map[string]string) (*engine, error) {
	b.mu.Lock()
	closed, profile, kept := b.closed, b.profile, b.kept
	b.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-b.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(); <-watched }()
	again := profile != ""
	for {
		if profile == "" {
			var err error
			if profile, err = os.MkdirTemp("", "abx-browser-"); err != nil {
				return nil, err
			}
		}
		e, err := start(ctx, b, rules, env, profile)
		if err == nil {
			b.mu.Lock()
			b.engine, b.profile, b.kept = e, profile, state{}
			b.mu.Unlock()
			e.restore(ctx, kept)
			b.log.Info("browser started", "pid", e.proc.PID())
			return e, nil
		}
		_ = os.RemoveAll(profile)
		b.mu.Lock()
		b.profile = ""
		b.mu.Unlock()
		if !again || ctx.Err() != nil {
			return nil, err
		}
		// It may be the old files that it does not start with.
		again, profile = false, ""
	}
}

// unused counts a user out; the last one starts the clock.
func (b *Browser) unused() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	if b.users == 0 && b.engine != nil && !b.closed {
		b.stopTimer()
		b.timer = time.AfterFunc(b.idle, b.rest)
	}
}

func (b *Browser) stopTimer() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// rest stops a browser that nobody has used for a while and keeps its state.
func (b *Browser) rest() {
	if !b.enter() {
		return
	}
	b.mu.Unlock()
	defer b.wg.Done()
	b.change <- struct{}{}
	defer func() { <-b.change }()
	b.mu.Lock()
	e := b.engine
	if b.users > 0 || b.closed || e == nil {
		b.mu.Unlock()
		return
	}
	b.engine = nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	kept := e.save(ctx)
	// It writes its files before it ends.
	if e.conn.call(ctx, "", "Browser.close", nil, nil) == nil {
		select {
		case <-e.proc.Exited():
		case <-ctx.Done():
		}
	}
	e.stop()
	b.mu.Lock()
	b.kept = kept
	b.mu.Unlock()
	b.log.Info("browser stopped, nobody used it")
}

// Do lets act use a page, alone unless it only watches, for at most limit; the start of a browser is
// not counted. Whatever the page does, it can be used again afterwards. Errors
// are [ErrUnavailable] and the others of this package, *[Error] or those of act.
func (b *Browser) Do(ctx context.Context, ask Ask, limit time.Duration, act func(context.Context, *Page) error) error {
	err := b.do(ctx, ask, limit, act)
	if errors.Is(err, errNotBegun) { // it had died, which nobody knew yet
		err = b.do(ctx, ask, limit, act)
	}
	return known(err)
}

// errNotBegun says that the browser was lost before anything was done with it.
var errNotBegun = fmt.Errorf("%w before the call", errLost)

func (b *Browser) do(ctx context.Context, ask Ask, limit time.Duration, act func(context.Context, *Page) error) error {
	e, done, err := b.use(ctx, ask)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t, err := e.tab(ctx, ask.Tab)
	switch {
	case errors.Is(err, errLost):
		return errNotBegun
	case err != nil:
		return err
	case ask.Watch:
		return act(ctx, &Page{t})
	}
	t, release, err := e.take(ctx, t)
	if err != nil {
		return err
	}
	defer release()
	if err = t.wake(ctx); err == nil {
		err = act(ctx, &Page{t})
	}
	if ctx.Err() != nil {
		t.rescue(ctx)
	}
	return err
}

// take takes the turn to act on a page, or on the one that stands for it after
// it has crashed.
func (e *engine) take(ctx context.Context, t *tab) (*tab, func(), error) {
	release, err := t.hold(ctx)
	if err != nil || !t.dead() {
		return t, release, err
	}
	made, err := e.replace(ctx, t)
	release()
	if err != nil {
		return nil, nil, err
	}
	release, err = made.hold(ctx)
	return made, release, err
}

// Console takes what pages have logged, oldest first, of one tab or of all, and
// how many entries were lost. It never waits.
func (b *Browser) Console(tab string) ([]Entry, int64) { return b.console.read(tab) }

// Requests takes the finished requests, as Console takes entries.
func (b *Browser) Requests(tab string) ([]Request, int64) { return b.requests.take(tab) }
