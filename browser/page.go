package browser

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Page is a page in the hands of [Browser.Do]. It must not be used after.
type Page struct{ *tab }

// wake opens what a page showed before the browser was stopped.
func (t *tab) wake(ctx context.Context) error {
	t.mu.Lock()
	asleep := t.asleep
	t.asleep = ""
	t.mu.Unlock()
	if u, err := ParseURL(asleep); err == nil && t.e.proxy.rules().admit(u) == nil {
		_, err := (&Page{t}).Navigate(ctx, asleep, Load)
		return errOf(ctx, err) // a site that has gone is no failure of the call
	}
	return nil
}

// sleeps tells whether there is something for wake to open.
func (t *tab) sleeps() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.asleep != ""
}

// errOf is err if the time is over.
func errOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return nil
}

// again repeats what fails only because the page goes elsewhere meanwhile.
func again(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !moved(err) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rescue makes a page usable again after a call whose time was over: a script
// that does not end is ended, and when that is not enough, its process.
func (t *tab) rescue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rescueTime)
	defer cancel()
	// What is sent to a page that has crashed would be done later.
	if t.dead() || t.answers(ctx, 300*time.Millisecond) {
		return
	}
	t.post("Runtime.terminateExecution", nil)
	if t.answers(ctx, 1500*time.Millisecond) {
		return
	}
	t.post("Page.crash", nil)
	if t.await(ctx, func() (bool, time.Time) { return t.crashed, time.Time{} }) != nil {
		t.update(t.crash) // it does not even do that, and gets another in its place
	}
}

// dead tells whether the page's renderer has died.
func (t *tab) dead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.crashed
}

// answers tells whether the page runs a script within the time.
func (t *tab) answers(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := t.call(ctx, "Runtime.evaluate", object{"expression": "1"}, nil)
	_, refused := errors.AsType[*protocolError](err)
	return err == nil || refused || errors.Is(err, errCrashed)
}

// exception is a script's failure.
type exception struct {
	Text      string        `json:"text"`
	Exception *remoteObject `json:"exception"`
}

func (x *exception) message() string {
	if x.Exception != nil {
		if s := x.Exception.message(); s != "" {
			return s
		}
	}
	return x.Text
}

type evaluated struct {
	Result    remoteObject `json:"result"`
	Exception *exception   `json:"exceptionDetails"`
}

// into decodes the value of what was evaluated, unless result is nil; what the
// page threw is the error.
func (e *evaluated) into(result any) error {
	if e.Exception != nil {
		return failure("%s", e.Exception.message())
	}
	if result == nil || len(e.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(e.Result.Value, result)
}

// run evaluates an expression of ours in the page's own world.
func (t *tab) run(ctx context.Context, expression string, result any) error {
	var out evaluated
	err := t.call(ctx, "Runtime.evaluate", object{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &out)
	if err != nil {
		return err
	}
	return out.into(result)
}

// URL is the address of the page that is there.
func (p *Page) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// title is the page's title, "" when it does not answer.
func (t *tab) title(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var s string
	_ = t.run(ctx, "document.title", &s)
	return s
}
