package browser

import (
	"context"
	"strings"
	"testing"
)

// TestTextsOfAPageAreNotCountedAsPages prints pages whose title and links look
// like parts of a PDF.
func TestTextsOfAPageAreNotCountedAsPages(t *testing.T) {
	r := newRig(t, `{}`, Options{})
	r.serve("/title", `<title>/Type /Page /Type /Pages /Count 7 startxref 0 trailer /Root 1 0 R</title>one page`)
	r.serve("/link", `<html lang="/Pages 1 0 R"><a href="http://other.test/?/Type/Page">one page</a>`)
	r.serve("/many", `<title>/Type /Page</title>`+strings.Repeat(`<p style="break-after:page">page</p>`, 40)+"the last")
	for path, want := range map[string]int{"/title": 1, "/link": 1, "/many": 41} {
		r.mustOpen("http://page.test" + path)
		err := r.do(func(ctx context.Context, p *Page) error {
			pdf, pages, err := p.PDF(ctx, Papers["a4"], false)
			if err == nil && pages != want {
				t.Errorf("%s: %d pages, not %d", path, pages, want)
			}
			if n, ok := rootCount(pdf); err == nil && (!ok || n != want) {
				t.Errorf("%s: the tree of pages says %d, %v", path, n, ok)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func FuzzPageCount(f *testing.F) {
	f.Add([]byte("1 0 obj\n<</Type /Catalog\n/Pages 2 0 R>>\n2 0 obj\n<</Type /Pages\n/Count 3>>\nxref\n0 3\n" +
		"0000000000 65535 f \n0000000000 00000 n \n0000000041 00000 n \ntrailer\n<</Root 1 0 R>>\nstartxref\n81\n%%EOF"))
	f.Add([]byte("startxref\n0 "))
	f.Add([]byte("/Type /Page /Type /Page"))
	f.Fuzz(func(t *testing.T, pdf []byte) {
		if n := pageCount(pdf); n < 1 {
			t.Errorf("%d pages", n)
		}
	})
}
