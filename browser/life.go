package browser

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

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

// use is the running engine, started if need be, until done is called. One that
// has died or hangs, which nobody knew yet, is replaced.
func (b *Browser) use(ctx context.Context, ask Ask) (e *engine, done func(), err error) {
	e, done, err = b.useOnce(ctx, ask)
	if errors.Is(err, errNotBegun) {
		e, done, err = b.useOnce(ctx, ask)
	}
	return e, done, err
}

func (b *Browser) useOnce(ctx context.Context, ask Ask) (e *engine, done func(), err error) {
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
		b.enforce(e, rules)
		if otherwise {
			e.conn.post("", "Browser.setDownloadBehavior", e.downloadBehavior())
		}
		if err := e.answers(ctx); err != nil {
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
				return nil, fmt.Errorf("%w: it has no place for its files: %w", ErrUnavailable, reason(err))
			}
		}
		e, err := start(ctx, b, rules, env, profile)
		if err == nil {
			b.mu.Lock()
			b.engine, b.profile, b.kept = e, profile, state{}
			b.mu.Unlock()
			b.enforce(e, rules) // they may have changed meanwhile
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

// reason is what was wrong with a file, without its name.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
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
	e := b.unwanted()
	if e == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	kept := e.save(ctx)
	if b.unwanted() != e { // it was called for meanwhile
		return
	}
	b.mu.Lock()
	b.engine, b.kept = nil, kept // at once, or its tabs would seem to be gone
	b.mu.Unlock()
	// It writes its files before it ends.
	if e.conn.call(ctx, "", "Browser.close", nil, nil) == nil {
		select {
		case <-e.proc.Exited():
		case <-ctx.Done():
		}
	}
	e.stop()
	b.log.Info("browser stopped, nobody used it")
}

// unwanted is the engine that nobody uses, if there is one.
func (b *Browser) unwanted() *engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users > 0 || b.closed {
		return nil
	}
	return b.engine
}
