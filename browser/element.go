package browser

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"time"
)

//go:embed js/elements.js
var elementsJS string

// Target names an element: by a selector, or by the ref of a snapshot.
type Target struct{ Selector, Ref string }

func (t Target) String() string {
	if t.Ref != "" {
		return t.Ref
	}
	return t.Selector
}

// need is what an element must be to be acted on.
type need struct {
	Enabled  bool `json:"enabled,omitempty"`
	Editable bool `json:"editable,omitempty"`
	Pointer  bool `json:"pointer,omitempty"`
	Keep     bool `json:"keep,omitempty"`
}

type rect struct{ X, Y, Width, Height float64 }

// spot is an element that can be acted on.
type spot struct {
	X, Y    float64 // where to point at
	Box     rect    // in the viewport
	Scroll  struct{ X, Y float64 }
	Missing string
}

// library is the execution context with our scripts, made anew for each
// document.
func (t *tab) library(ctx context.Context) (int, error) {
	t.mu.Lock()
	world, loader := t.world, t.loader
	t.mu.Unlock()
	if world != 0 {
		return world, nil
	}
	var made struct {
		ID int `json:"executionContextId"`
	}
	if err := t.call(ctx, "Page.createIsolatedWorld", object{"frameId": t.id, "worldName": "abx"}, &made); err != nil {
		return 0, err
	}
	err := t.call(ctx, "Runtime.evaluate", object{"expression": elementsJS, "contextId": made.ID}, nil)
	if err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loader == loader {
		t.world = made.ID
	}
	return made.ID, nil
}

// ask calls a function of the library with arguments, each {"value": …} or
// {"objectId": …}, and decodes what it returns. It asks again in the next
// document when the page goes elsewhere meanwhile.
func (t *tab) ask(ctx context.Context, function string, result any, args func(world int) ([]object, error)) error {
	return again(ctx, func() error {
		err := t.askOnce(ctx, function, result, args)
		if err != nil && moved(err) {
			t.update(func() { t.world = 0 })
		}
		return err
	})
}

func (t *tab) askOnce(ctx context.Context, function string, result any, args func(int) ([]object, error)) error {
	world, err := t.library(ctx)
	if err != nil {
		return err
	}
	list, err := args(world)
	if err != nil {
		return err
	}
	var out evaluated
	err = t.call(ctx, "Runtime.callFunctionOn", object{
		"functionDeclaration": "(...args) => abx." + function + "(...args)", "executionContextId": world,
		"arguments": list, "awaitPromise": true, "returnByValue": true,
	}, &out)
	if err != nil {
		return err
	}
	return out.into(result)
}

func values(vs ...any) func(int) ([]object, error) {
	list := make([]object, len(vs))
	for i, v := range vs {
		list[i] = object{"value": v}
	}
	return func(int) ([]object, error) { return list, nil }
}

// argument is how a function of the library is told of an element.
func (t *tab) argument(ctx context.Context, what Target, world int) (object, error) {
	if what.Ref == "" {
		return object{"value": what.Selector}, nil
	}
	node, err := t.node(what.Ref)
	if err != nil {
		return nil, err
	}
	var resolved struct {
		Object remoteObject `json:"object"`
	}
	err = t.call(ctx, "DOM.resolveNode", object{"backendNodeId": node, "executionContextId": world}, &resolved)
	if _, refused := errors.AsType[*protocolError](err); refused && !moved(err) {
		return nil, ErrNoRef // the element has gone
	}
	if err != nil {
		return nil, err
	}
	return object{"objectId": resolved.Object.ID}, nil
}

// ready waits until an element can be acted on.
func (t *tab) ready(ctx context.Context, what Target, n need) (spot, error) {
	var s spot
	err := t.ask(ctx, "ready", &s, func(world int) ([]object, error) {
		el, err := t.argument(ctx, what, world)
		if err != nil {
			return nil, err
		}
		left := time.Minute
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
			left -= min(left/4, 100*time.Millisecond) // for the page to say what is missing
		}
		return []object{el, {"value": n}, {"value": left.Milliseconds()}}, nil
	})
	switch {
	case err != nil:
		return s, err
	case s.Missing == "attached" && what.Ref != "":
		return s, ErrNoRef
	case s.Missing != "":
		return s, &Error{Timeout, "The element is not " + s.Missing + " in time: " + what.String()}
	}
	return s, nil
}

// there tells whether an element matches now.
func (t *tab) there(ctx context.Context, what Target) (bool, error) {
	if what.Ref != "" {
		_, err := t.node(what.Ref)
		return err == nil, err
	}
	var state string
	err := t.ask(ctx, "state", &state, values(what.Selector))
	return state != "detached", err
}

// node is the element that a ref stands for.
func (t *tab) node(ref string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(ref, "e"))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || !strings.HasPrefix(ref, "e") || n < 1 || n > len(t.refs.nodes) {
		return 0, ErrNoRef
	}
	return t.refs.nodes[n-1], nil
}
