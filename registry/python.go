package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

const (
	// backoffFirst and backoffMost are the pauses before a worker is started
	// anew; after healthy they begin again.
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 5 * time.Second
	healthy      = time.Minute
	// waitMost is how long a call waits for a worker.
	waitMost = 10 * time.Second
	// loadNotice is how often the log says that loading goes on.
	loadNotice = 10 * time.Second
	// exitPatience is how long code after start() may run.
	exitPatience = 3 * time.Second
)

// python keeps a worker running and hands calls to it.
type python struct {
	o      Options
	items  []string
	interp string

	nextID atomic.Uint64

	stopAsked chan struct{}
	askOnce   sync.Once
	quit      context.Context
	cancel    context.CancelFunc
	renew     chan struct{} // the current worker is tired
	wg        sync.WaitGroup

	mu      sync.Mutex
	current *worker
	changed chan struct{} // closed and replaced when current changes
	live    map[*worker]struct{}
}

// startPython starts a worker and waits until it has loaded all items.
func startPython(ctx context.Context, o Options, items []string) (*python, *hello, error) {
	p := &python{
		o: o, items: items, stopAsked: make(chan struct{}), renew: make(chan struct{}, 1),
		changed: make(chan struct{}), live: map[*worker]struct{}{},
	}
	p.o.pauseMost = cmp.Or(o.pauseMost, backoffMost)
	p.o.waitMost = cmp.Or(o.waitMost, waitMost)
	p.o.exitPatience = cmp.Or(o.exitPatience, exitPatience)
	p.quit, p.cancel = context.WithCancel(context.Background())
	w, said, err := p.first(ctx)
	if err != nil {
		p.cancel()
		return nil, nil, err
	}
	p.use(w)
	p.wg.Go(func() { p.supervise(w) })
	return p, said, nil
}

func (p *python) first(ctx context.Context) (*worker, *hello, error) {
	if p.o.Attached[0] != nil {
		return p.attach(ctx)
	}
	var err error
	if p.interp, err = FindPython(p.o.Python, p.o.Env.AtStart("PATH"), p.o.Workdir); err != nil {
		return nil, nil, &LoadError{Item: p.items[0], Text: err.Error(), Err: err}
	}
	return p.launch(ctx)
}

// attach takes the program that started us as the worker.
func (p *python) attach(ctx context.Context) (*worker, *hello, error) {
	w := connect(p.o.Attached[0], p.o.Attached[1])
	p.mu.Lock()
	p.enter(w) //nolint:contextcheck // ending takes its own time
	p.mu.Unlock()
	return p.greet(ctx, w)
}

// launch starts a worker process and waits until it is ready.
func (p *python) launch(ctx context.Context) (*worker, *hello, error) {
	w, err := p.startProcess(ctx)
	if err != nil {
		return nil, nil, &LoadError{Item: p.items[0], Text: "cannot start the Python worker: " + err.Error(), Err: err}
	}
	threads := p.o.Threads
	load := encodeMessage(struct {
		Op      string   `json:"op"`
		Version int      `json:"version"`
		Items   []string `json:"items"`
		Threads int      `json:"threads,omitzero"`
	}{"load", 1, p.items, threads})
	if err := w.send(ctx, load); err != nil && ctx.Err() != nil {
		w.stop(0)
		return nil, nil, err
	}
	return p.greet(ctx, w)
}

func (p *python) startProcess(ctx context.Context) (*worker, error) {
	// Each has files of its own, which nobody can have changed or cleaned away.
	dir, err := writeShim(p.o.Version)
	if err != nil {
		return nil, err
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), out.Close(), os.RemoveAll(dir))
	}
	w := connect(in, out)
	w.dir = dir
	// No change of a variable may fall between the environment that the worker
	// starts with and its being told.
	p.mu.Lock()
	defer p.mu.Unlock()
	w.process, err = p.o.Procs.Start(context.WithoutCancel(ctx), proc.Spec{
		Path: p.interp, Argv: []string{p.interp, filepath.Join(dir, entry)}, Env: childenv.List(p.o.environment()),
		Dir: p.o.Workdir, Files: []*os.File{theirIn, theirOut}, StdoutFile: p.o.Stdout, StderrFile: p.o.Stderr,
	})
	_ = theirIn.Close()
	_ = theirOut.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close(), os.RemoveAll(dir))
	}
	p.enter(w) //nolint:contextcheck // ending takes its own time
	return w, nil
}

// enter lets a worker talk. It is called under p.mu.
func (p *python) enter(w *worker) {
	p.live[w] = struct{}{}
	w.asked = func() { p.askOnce.Do(func() { close(p.stopAsked) }) }
	w.tired = func() {
		select {
		case p.renew <- struct{}{}:
		default:
		}
	}
	w.ended = p.left
	w.end = func() { w.process.Stop(stopGrace, proc.ReasonShutdown, syscall.SIGTERM) }
	w.run()
}

func (p *python) left(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, w)
	if p.current == w {
		p.current = nil
		p.change()
	}
}

// greet waits until the worker has loaded all.
func (p *python) greet(ctx context.Context, w *worker) (*worker, *hello, error) {
	notice := time.NewTicker(loadNotice)
	defer notice.Stop()
	began := time.Now()
	for {
		select {
		case m := <-w.said:
			return p.heard(w, m)
		case <-w.gone:
			select { // both may have been ready
			case m := <-w.said:
				return p.heard(w, m)
			default:
			}
			w.wg.Wait()
			return nil, nil, &LoadError{Item: p.subject(), Text: w.epitaph("before it was ready")}
		case <-notice.C:
			p.o.Log.Info("still loading Python commands", "seconds", int(time.Since(began).Seconds()), "items", strings.Join(p.items, " "))
		case <-ctx.Done():
			w.stop(0)
			return nil, nil, ctx.Err()
		}
	}
}

// subject is what an error of the worker as a whole is about.
func (p *python) subject() string {
	if len(p.items) == 0 {
		return "attached program"
	}
	return p.items[0]
}

// epitaph says how a worker ended.
func (w *worker) epitaph(when string) string {
	if w.process == nil {
		return "the program ended " + when
	}
	st, _ := w.process.Status()
	if st.Signal != 0 {
		return fmt.Sprintf("the Python worker was ended by signal %d %s", int(st.Signal), when)
	}
	return fmt.Sprintf("the Python worker ended with exit status %d %s", st.Code, when)
}

func (p *python) heard(w *worker, m message) (*worker, *hello, error) {
	if m.op == "failed" {
		var f struct{ Item, Error, Type, Traceback string }
		err := json.Unmarshal(m.all, &f)
		w.stop(0)
		if err != nil {
			return nil, nil, &LoadError{Item: p.subject(), Text: err.Error(), Err: err}
		}
		return nil, nil, &LoadError{Item: f.Item, Text: f.Type + ": " + f.Error, Trace: f.Traceback}
	}
	said := &hello{}
	if err := json.Unmarshal(m.all, said); err != nil {
		w.stop(0)
		return nil, nil, &LoadError{Item: p.subject(), Text: "the Python worker said what makes no sense: " + err.Error(), Err: err}
	}
	said.clean()
	if err := said.check(); err != nil {
		w.stop(0)
		return nil, nil, &LoadError{Item: p.subject(), Text: err.Error(), Err: err}
	}
	w.routes = map[string]int{}
	for i, r := range said.Routes {
		if _, twice := w.routes[r.ID]; !twice {
			w.routes[r.ID] = i
		}
	}
	return w, said, nil
}

// clean gives routes of the same name their other name, and takes a policy
// that is null for none.
func (h *hello) clean() {
	seen := map[string]bool{}
	for i := range h.Routes {
		r := &h.Routes[i]
		if seen[r.ID] {
			r.ID = r.Method + " " + r.Pattern
		}
		seen[r.ID] = true
	}
	if h.Start != nil && string(h.Start.Policy) == "null" {
		h.Start.Policy = nil
	}
}

var routeSegment = lazyregexp.New(`^(\{[A-Za-z_][A-Za-z0-9_]*\}|[^{}*]+)$`)

// check refuses routes that the server cannot serve.
func (h *hello) check() error {
	for _, r := range h.Routes {
		bad := func(why string) error { return fmt.Errorf("route %s %s: %s", r.Method, r.Pattern, why) }
		switch r.Method {
		case "GET", "POST", "PUT", "DELETE":
		default:
			return bad("the method must be GET, POST, PUT or DELETE")
		}
		if !isGroup(r.Group) {
			return bad("unknown group")
		}
		params := map[string]bool{}
		for part := range strings.SplitSeq(strings.Trim(r.Pattern, "/"), "/") {
			if !routeSegment.MatchString(part) || params[part] && part[0] == '{' {
				return bad("each segment must be text or a {parameter} of its own")
			}
			params[part] = true
		}
	}
	return nil
}

// supervise keeps a worker running until close.
func (p *python) supervise(w *worker) {
	pause := min(backoffFirst, p.o.pauseMost)
	for {
		began := time.Now()
		tired := false
		select {
		case <-p.quit.Done():
			return
		case <-w.gone:
			if p.quit.Err() != nil {
				return
			}
			if w.process == nil { // there will be no other
				p.askOnce.Do(func() { close(p.stopAsked) })
				return
			}
			w.wg.Wait()
			p.o.Log.Error("the Python worker has ended, a new one is started", "how", w.epitaph("on its own"))
		case <-p.renew:
			if w.process == nil {
				p.o.Log.Warn("many commands are stuck in their threads", "threads", abandonedMost)
				continue
			}
			tired = true
			p.o.Log.Warn("many commands are stuck in their threads, a new Python worker is started", "threads", abandonedMost)
		}
		if time.Since(began) > healthy {
			pause = min(backoffFirst, p.o.pauseMost)
		}
		next := p.again(tired, &pause)
		if next == nil {
			return
		}
		if tired {
			old := w
			p.wg.Go(func() { p.retire(old) })
		}
		w = next
	}
}

// again starts workers until one is ready. nil is the end.
func (p *python) again(tired bool, pause *time.Duration) *worker {
	for {
		if !tired {
			if !p.sleep(*pause) {
				return nil
			}
			*pause = min(*pause*2, p.o.pauseMost)
		}
		tired = false
		w, _, err := p.launch(p.quit)
		if err == nil {
			p.use(w)
			select { // what the old one asked for is done
			case <-p.renew:
			default:
			}
			return w
		}
		if p.quit.Err() != nil {
			return nil
		}
		p.o.Log.Error("the Python commands could not be loaded again", "err", err)
	}
}

func (p *python) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.quit.Done():
		return false
	}
}

// retire ends a worker when its calls are done.
func (p *python) retire(w *worker) {
	w.retire()
	select {
	case <-w.idle:
		w.stop(p.o.exitPatience)
	case <-w.gone:
		w.wg.Wait()
	case <-p.quit.Done():
	}
}

func (p *python) use(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.gone:
		return // it has ended meanwhile
	default:
	}
	p.current = w
	p.change()
}

// change wakes who waits for a worker. It is called under p.mu.
func (p *python) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *python) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current != nil
}

func (p *python) setEnv(set map[string]string, unset []string) {
	set = maps.Clone(set)
	maps.DeleteFunc(set, func(name, _ string) bool { return p.o.Secret != nil && p.o.Secret(name) })
	line := encodeMessage(struct {
		Op    string            `json:"op"`
		Set   map[string]string `json:"set,omitempty"`
		Unset []string          `json:"unset,omitempty"`
	}{"env", set, unset})
	p.mu.Lock()
	workers := make([]*worker, 0, len(p.live))
	for w := range p.live {
		workers = append(workers, w)
	}
	p.mu.Unlock()
	for _, w := range workers {
		w.tell(line)
	}
}

func (p *python) close(ctx context.Context) error {
	p.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.wg.Wait() // no new worker is made from here on
		p.mu.Lock()
		workers := make([]*worker, 0, len(p.live))
		for w := range p.live {
			workers = append(workers, w)
		}
		p.mu.Unlock()
		var wg sync.WaitGroup
		for _, w := range workers {
			wg.Go(func() { w.stop(p.o.exitPatience) })
		}
		wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attachedFile makes a descriptor we were started with usable with deadlines.
func attachedFile(fd int, name string) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Attached opens the two pipes to the program that started the server: the
// descriptor to read from and the one to write to.
func Attached(read, write int) (pipes [2]*os.File, err error) {
	if pipes[0], err = attachedFile(read, "|from program"); err != nil {
		return pipes, err
	}
	pipes[1], err = attachedFile(write, "|to program")
	return pipes, err
}
