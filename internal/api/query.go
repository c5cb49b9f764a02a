package api

import "strings"

// Query holds the decoded parameters of a URL. Blank values are dropped, so a
// key that is there has a value.
type Query map[string]string

// parseQuery decodes a raw query as forms are: '+' is a space, only '&'
// separates, a bad escape stays as it is, raw bytes stay bytes. twice names a
// key with two or more values that are not blank.
func parseQuery(raw string) (q Query, twice string) {
	q = Query{}
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		key, value, _ := strings.Cut(pair, "=")
		if value == "" {
			continue
		}
		key, value = unescapeForm(key), unescapeForm(value)
		if value == "" {
			continue
		}
		if _, dup := q[key]; dup && twice == "" {
			twice = key
		}
		q[key] = value
	}
	return q, twice
}

// unescapeForm decodes %XX and '+'; url.QueryUnescape would refuse the bad
// escapes that the contract keeps.
func unescapeForm(s string) string {
	if !strings.ContainsAny(s, "%+") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			out = append(out, ' ')
		case c == '%' && i+2 < len(s) && hexDigit(s[i+1]) >= 0 && hexDigit(s[i+2]) >= 0:
			out = append(out, byte(hexDigit(s[i+1])<<4|hexDigit(s[i+2])))
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string(out)
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
