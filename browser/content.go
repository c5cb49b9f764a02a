package browser

import (
	"context"
	"strconv"
	"strings"
)

const contentJS = `(() => {
  let s;
  if (TEXT) {
    s = document.body ? document.body.innerText : '';
  } else {
    const d = document.doctype;
    s = (d ? new XMLSerializer().serializeToString(d) : '') + (document.documentElement ? document.documentElement.outerHTML : '');
  }
  if (s.length > MOST) throw new Error('the page is too large');
  return s;
})()`

// Content is the live document as HTML, or its text as it is read.
func (p *Page) Content(ctx context.Context, text bool) (content, title string, err error) {
	code := strings.NewReplacer("TEXT", strconv.FormatBool(text), "MOST", strconv.Itoa(maxResult)).Replace(contentJS)
	err = again(ctx, func() error { return p.run(ctx, code, &content) })
	if err != nil {
		return "", "", err
	}
	return content, p.title(ctx), nil
}
