package policy

import (
	"errors"
	"math/big"
	"strings"
)

// Units by their lower-case name. Without one, bytes are meant.
var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}

var errSize = errors.New("expected a size such as 1048576, '5MB' or '1.5 GiB'")

// ParseSize reads "1.5 MB" as bytes, cut to a whole number. The least size is
// 1, the greatest fits an int64.
func ParseSize(s string) (int64, error) {
	s = strings.Trim(s, " \t\r\n")
	end := strings.LastIndexAny(s, "0123456789") + 1
	digits, unit := s[:end], strings.ToLower(strings.TrimLeft(s[end:], " \t"))
	factor, ok := sizeUnits[unit]
	whole, part, dotted := strings.Cut(digits, ".")
	if !ok || !allDigits(whole) || (dotted && !allDigits(part)) || len(digits) > 64 {
		return 0, errSize
	}
	r, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, errSize
	}
	r.Mul(r, new(big.Rat).SetInt64(factor))
	n := new(big.Int).Quo(r.Num(), r.Denom())
	if n.Sign() <= 0 {
		return 0, errors.New("the size is less than one byte")
	}
	if !n.IsInt64() {
		return 0, errors.New("the size is beyond 64 bits")
	}
	return n.Int64(), nil
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
