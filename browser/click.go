package browser

import (
	"context"
	"maps"
	"time"
)

// settleTime is how long after a click a navigation may begin that it caused.
const settleTime = 50 * time.Millisecond

// Click waits until an element is visible, enabled, at rest and not covered,
// clicks in its middle and waits until the page that this opens, if any, is
// there.
func (p *Page) Click(ctx context.Context, what Target) error {
	s, err := p.ready(ctx, what, need{Enabled: true, Pointer: true})
	if err != nil {
		return err
	}
	if err := p.mouse(ctx, "mouseMoved", s, object{"button": "none"}); err != nil {
		return err
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		err := p.mouse(ctx, kind, s, object{"button": "left", "clickCount": 1})
		if err != nil && !moved(err) {
			return err
		}
	}
	return p.settle(ctx)
}

func (t *tab) mouse(ctx context.Context, kind string, at spot, more object) error {
	params := object{"type": kind, "x": at.X, "y": at.Y}
	maps.Copy(params, more)
	return t.call(ctx, "Input.dispatchMouseEvent", params, nil)
}

// settle waits for the end of a navigation that has begun, if one has. One that
// is refused or takes too long is no failure of what began it.
func (t *tab) settle(ctx context.Context) error {
	// What the page does at once is known when it has answered once more.
	err := t.call(ctx, "Runtime.evaluate", object{"expression": "1"}, nil)
	if err != nil && !moved(err) {
		return err
	}
	begins := time.Now().Add(settleTime)
	err = t.await(ctx, func() (bool, time.Time) { return t.pending || !time.Now().Before(begins), begins })
	if err != nil {
		return err
	}
	return t.await(ctx, func() (bool, time.Time) { return !t.pending || t.crashed, time.Time{} })
}
