package endpoints

import (
	"math/big"
	"regexp"
	"strings"
	"testing"
)

func TestParseRange(t *testing.T) {
	tests := []struct {
		header string
		size   int64
		want   span
		kind   rangeKind
	}{
		{"bytes=0-3", 10, span{0, 4}, partialRange},
		{"bytes=0-0", 10, span{0, 1}, partialRange},
		{"bytes=7-", 10, span{7, 3}, partialRange},
		{"bytes=-2", 10, span{8, 2}, partialRange},
		{"bytes=-20", 10, span{0, 10}, partialRange},
		{"bytes=5-99", 10, span{5, 5}, partialRange},
		{"bytes=5-99999999999999999999999", 10, span{5, 5}, partialRange},
		{"BYTES = 0-3", 10, span{0, 4}, partialRange},
		{"bytes=10-", 10, span{}, unsatisfiableRange},
		{"bytes=99999999999999999999999-", 10, span{}, unsatisfiableRange},
		{"bytes=-0", 10, span{}, unsatisfiableRange},
		{"bytes=0-", 0, span{}, unsatisfiableRange},
		{"bytes=-5", 0, span{}, wholeRange},
		{"bytes=0-1,4-5", 10, span{}, wholeRange},
		{"lines=1-2", 10, span{}, wholeRange},
		{"bytes=5-2", 10, span{}, wholeRange},
		{"bytes=-", 10, span{}, wholeRange},
		{"bytes=", 10, span{}, wholeRange},
		{"bytes", 10, span{}, wholeRange},
		{"bytes=a-b", 10, span{}, wholeRange},
		{"bytes=+1-2", 10, span{}, wholeRange},
		{"bytes=1-2-3", 10, span{}, wholeRange},
		{"", 10, span{}, wholeRange},
	}
	for _, tt := range tests {
		if got, kind := parseRange(tt.header, tt.size); got != tt.want || kind != tt.kind {
			t.Errorf("%q of %d: %v %d, want %v %d", tt.header, tt.size, got, kind, tt.want, tt.kind)
		}
	}
}

var oneRange = regexp.MustCompile(`^[ \t\r\n\v\f]*(?i:bytes)[ \t\r\n\v\f]*=[ \t]*([0-9]*)-([0-9]*)[ \t]*$`)

// slowRange is parseRange with a pattern and numbers of any size.
func slowRange(header string, size int64) (span, rangeKind) {
	m := oneRange.FindStringSubmatch(header)
	if m == nil || m[1] == "" && m[2] == "" {
		return span{}, wholeRange
	}
	number := func(s string) *big.Int { n, _ := new(big.Int).SetString("0"+s, 10); return n }
	from, to, end := number(m[1]), number(m[2]), big.NewInt(size-1)
	switch {
	case m[1] == "" && to.Sign() == 0:
		return span{}, unsatisfiableRange
	case m[1] == "" && size == 0:
		return span{}, wholeRange
	case m[1] == "":
		from, to = new(big.Int).Sub(big.NewInt(size), to), end
		if from.Sign() < 0 {
			from = big.NewInt(0)
		}
	case m[2] == "":
		to = end
	case to.Cmp(from) < 0:
		return span{}, wholeRange
	}
	if from.Cmp(end) > 0 {
		return span{}, unsatisfiableRange
	}
	if to.Cmp(end) > 0 {
		to = end
	}
	return span{from.Int64(), new(big.Int).Sub(to, from).Int64() + 1}, partialRange
}

func FuzzRange(f *testing.F) {
	for _, h := range []string{"bytes=0-3", "bytes=7-", "bytes=-2", "bytes=-0", "bytes=0-1,4-5", " Bytes = 5-99 ", "bytes=9223372036854775807-", "bytes=-9223372036854775808", "x=1-2"} {
		f.Add(h, int64(10))
	}
	f.Add("bytes=-5", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if strings.Trim(header, "\t\n\v\f\r ~!@#$%^&*()_+-=[]{}|;':\",./<>?`\\abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != "" {
			return // no header can have other characters that matter here
		}
		size &= 1<<62 - 1
		got, kind := parseRange(header, size)
		want, wantKind := slowRange(header, size)
		if got != want || kind != wantKind {
			t.Fatalf("%q of %d: %v %d, want %v %d", header, size, got, kind, want, wantKind)
		}
		if kind == partialRange && (got.from < 0 || got.n < 1 || got.from+got.n > size) {
			t.Fatalf("%q of %d: %v is not in the file", header, size, got)
		}
	})
}
