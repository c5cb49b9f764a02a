package browser

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestAnOutlineOfLongTextsHoldsUpNobody takes that of an element whose name is a
// million bytes long and has to be compared with thousands of texts inside.
func TestAnOutlineOfLongTextsHoldsUpNobody(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/", `<title>long</title><script>
		const b = document.createElement("button");
		b.setAttribute("aria-label", "x y ".repeat(250000));
		for (let i = 0; i < 5000; i++) b.append(document.createElement("span")), b.lastChild.append("text " + i);
		onload = () => document.body.append(b);
	</script><body><a href="/other">a link</a>`)
	r.mustOpen("http://page.test/")
	var got Snapshot
	begun := time.Now()
	err := r.b.Do(t.Context(), r.ask(""), 20*time.Second, func(ctx context.Context, p *Page) (err error) {
		got, err = p.Snapshot(ctx, false)
		return err
	})
	if err != nil || time.Since(begun) > 20*time.Second {
		t.Fatalf("after %v: %v", time.Since(begun), err)
	}
	if !strings.Contains(got.Snapshot, `- link "a link"`) || !strings.Contains(got.Snapshot, `- button "x y x y`) || len(got.Snapshot) > maxOutline+maxRead {
		t.Errorf("%d bytes: %.300s", len(got.Snapshot), got.Snapshot)
	}
	ref := got.Snapshot[strings.Index(got.Snapshot, `"a link" [ref=`)+len(`"a link" [ref=`):]
	ref, _, _ = strings.Cut(ref, "]")
	if err := r.do(func(ctx context.Context, p *Page) error { return p.Click(ctx, Target{Ref: ref}) }); err != nil {
		t.Errorf("clicking %s: %v", ref, err)
	}
}
