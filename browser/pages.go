package browser

import (
	"bytes"
	"regexp"
	"strconv"
)

// What is read of a PDF as Chrome writes it. Each expression is tried at one
// place only: texts of the page, such as its title and its links, are in the
// file as they are and may look like anything.
var (
	pdfStart   = regexp.MustCompile(`^startxref\s+(\d{1,10})\s`)
	pdfTable   = regexp.MustCompile(`^xref\s+0 (\d{1,8}) *\r?\n`)
	pdfTrailer = regexp.MustCompile(`^trailer\s*<<[^(]*?/Root (\d{1,8}) 0 R`)
	pdfCatalog = regexp.MustCompile(`^\d+ 0 obj\s*<<\s*/Type\s*/Catalog\s*/Pages (\d{1,8}) 0 R`)
	pdfPages   = regexp.MustCompile(`^\d+ 0 obj\s*<<\s*/Type\s*/Pages\s*/Count (\d{1,8})\b`)
	// pdfLeaf is a page, wherever it is found.
	pdfLeaf = regexp.MustCompile(`/Type\s*/Page\b`)
)

// pdfEntry is the length of a line of the table of objects.
const pdfEntry = 20

// pageCount is how many pages a PDF of Chrome's has, 1 at least. One that is
// not written as we know it has as many as it seems to.
func pageCount(pdf []byte) int {
	n, ok := rootCount(pdf)
	if !ok {
		n = len(pdfLeaf.FindAllIndex(pdf, -1))
	}
	return max(1, n)
}

// rootCount reads the count of the root of the tree of pages, which it finds by
// the table of objects.
func rootCount(pdf []byte) (int, bool) {
	at := func(offset int, want *regexp.Regexp) (number, end int) {
		if offset < 0 || offset >= len(pdf) {
			return -1, 0
		}
		m := want.FindSubmatchIndex(pdf[offset:])
		if m == nil {
			return -1, 0
		}
		n, _ := strconv.Atoi(string(pdf[offset+m[2] : offset+m[3]]))
		return n, offset + m[1]
	}
	table, _ := at(bytes.LastIndex(pdf, []byte("startxref")), pdfStart)
	objects, first := at(table, pdfTable)
	if objects < 0 || len(pdf)-first < objects*pdfEntry {
		return 0, false
	}
	object := func(n int) int { // its offset
		if n < 0 || n >= objects {
			return -1
		}
		offset, err := strconv.Atoi(string(pdf[first+n*pdfEntry:][:10]))
		if err != nil {
			return -1
		}
		return offset
	}
	root, _ := at(first+objects*pdfEntry, pdfTrailer)
	pages, _ := at(object(root), pdfCatalog)
	count, _ := at(object(pages), pdfPages)
	return count, count >= 0
}
