package browser

import (
	"cmp"
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

	ruling sync.Mutex // to put rules in force; before mu
	obeyed *Rules     // the newest of Obey
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
	// everything the browser does, unless [Browser.Obey] has said which does.
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

// Obey puts a new rule about addresses in force for the pages that are open, as
// of now and not only with the next call; what is under way that it denies is
// cut. From then on rules are changed by Obey alone: those of calls may be older.
func (b *Browser) Obey(rule *policy.Rule) {
	rules := b.Rules(rule)
	b.ruling.Lock()
	defer b.ruling.Unlock()
	b.obeyed = rules
	b.mu.Lock()
	e := b.engine
	b.mu.Unlock()
	if e != nil {
		e.proxy.setRules(rules)
	}
}

// enforce puts the rules of a call in force, or the newer ones of Obey.
func (b *Browser) enforce(e *engine, rules *Rules) {
	b.ruling.Lock()
	defer b.ruling.Unlock()
	e.proxy.setRules(cmp.Or(b.obeyed, rules))
}

// Judge decides about an address that a caller wants to open; see
// [Rules.Judge].
func (b *Browser) Judge(ctx context.Context, rule *policy.Rule, address string) error {
	return b.Rules(rule).Judge(ctx, b.names, address)
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
	case ask.Watch && !t.sleeps():
		return act(ctx, &Page{t})
	}
	t, release, err := e.take(ctx, t)
	if err != nil {
		return err
	}
	release = sync.OnceFunc(release)
	defer release()
	if err = t.wake(ctx); err == nil {
		if ask.Watch {
			release()
			return act(ctx, &Page{t})
		}
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
