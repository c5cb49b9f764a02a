package browser

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// TestAPageThatOpensAMailIsStillAnswered visits pages that name a scheme of
// another program while they are read, after which Chrome never says that they
// have loaded.
func TestAPageThatOpensAMailIsStillAnswered(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/early", `<title>early</title><script>location = "mailto:a@b.test"</script><p>text`)
	r.serve("/late", `<title>late</title><p>text<script>onload = () => location = "tel:123"</script>`)
	r.serve("/link", `<title>link</title><a id=a href="mailto:a@b.test">write</a><script>a.click()</script>`)
	r.serve("/frame", `<title>frame</title><iframe src="mailto:a@b.test"></iframe>`)
	r.serve("/plain", `<title>plain</title>`)
	r.serve("/stop", `<title>stop</title><script>window.stop()</script><p>text`)
	for _, path := range []string{"/early", "/plain", "/late", "/link", "/frame", "/stop", "/early"} {
		for _, until := range []Until{Load, Idle, DOMContent} {
			var v Visit
			begun := time.Now()
			err := r.b.Do(t.Context(), r.ask(""), 15*time.Second, func(ctx context.Context, p *Page) (err error) {
				v, err = p.Navigate(ctx, "http://page.test"+path, until)
				return err
			})
			if err != nil || v.Status != http.StatusOK || v.Title != path[1:] {
				t.Errorf("%s, %s, after %v: %+v, %v", path, until, time.Since(begun), v, err)
			}
		}
	}
}
