package browser

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxURL bounds addresses; Chrome takes no longer ones either.
const maxURL = 2 << 20

// URL is an address of the web in the form browsers give it. The user
// information of the text it came from is dropped.
type URL struct {
	Scheme string // http, https, ws or wss
	Host   string // lower case; IPv6 in brackets; names in their ASCII form
	Port   int
	Path   string // "/" at least, with the query, without the fragment
}

// What can be wrong with an address.
var (
	errScheme = errors.New("not an http or https address")
	errHost   = errors.New("the address has no valid host")
	errPort   = errors.New("the address has no valid port")
	errLength = errors.New("the address is too long")
)

// ParseURL reads an absolute address as the URL Standard tells browsers to:
// blanks around it and line breaks inside are dropped, backslashes are slashes,
// hosts are unescaped, mapped to ASCII and, where they look like a number, read
// as an IPv4 address, dot segments are resolved. It is stricter only where
// browsers guess: the scheme must be followed by two slashes and a host.
func ParseURL(text string) (URL, error) {
	if len(text) > maxURL {
		return URL{}, errLength
	}
	text = strings.TrimFunc(text, func(r rune) bool { return r <= ' ' })
	text = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
	scheme, rest, ok := strings.Cut(text, ":")
	u := URL{Scheme: strings.ToLower(scheme)}
	if !ok || defaultPort(u.Scheme) == 0 {
		return URL{}, errScheme
	}
	if len(rest) < 2 || !slash(rest[0]) || !slash(rest[1]) {
		return URL{}, errHost
	}
	rest = rest[2:]
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest, `/\?`)
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	host, port, err := splitPort(authority)
	if err != nil {
		return URL{}, err
	}
	if u.Host, err = parseHost(host); err != nil {
		return URL{}, err
	}
	if u.Port, err = parsePort(port, defaultPort(u.Scheme)); err != nil {
		return URL{}, err
	}
	u.Path = normalPath(rest[end:])
	return u, nil
}

func slash(c byte) bool { return c == '/' || c == '\\' }

// defaultPort is 0 for schemes that are not the web's.
func defaultPort(scheme string) int {
	switch scheme {
	case "http", "ws":
		return 80
	case "https", "wss":
		return 443
	}
	return 0
}

// splitPort cuts a port off; the colons of an IPv6 address are not one.
func splitPort(authority string) (host, port string, err error) {
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", "", errHost
		}
		rest := authority[end+1:]
		if rest != "" && rest[0] != ':' {
			return "", "", errHost
		}
		return authority[:end+1], strings.TrimPrefix(rest, ":"), nil
	}
	host, port, _ = strings.Cut(authority, ":")
	return host, port, nil
}

func parsePort(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, errPort
		}
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > 65535 {
		return 0, errPort
	}
	return int(n), nil
}

// normalPath resolves dot segments and escapes what browsers escape, in a path
// with its query.
func normalPath(text string) string {
	path, query, hasQuery := strings.Cut(text, "?")
	path = escape(strings.ReplaceAll(path, `\`, "/"), " \"#<>?^`{}")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	path = withoutDots(path)
	if !hasQuery {
		return path
	}
	return path + "?" + escape(query, " \"#<>'")
}

// withoutDots resolves "." and "..", also in their escaped spellings.
func withoutDots(path string) string {
	parts := strings.Split(path[1:], "/")
	kept := make([]string, 0, len(parts))
	for i, p := range parts {
		last := i == len(parts)-1
		switch strings.ReplaceAll(strings.ToLower(p), "%2e", ".") {
		case ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, p)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

// escape writes control characters, what is not ASCII, and the characters of
// set as %XX. What is escaped already stays as it is.
func escape(s, set string) string {
	const hex = "0123456789ABCDEF"
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c >= 0x7f || strings.IndexByte(set, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// wholeEscapes writes a "%" of the path that escapes nothing as "%25". Browsers
// leave it, and servers that take it take both for the same; HTTP libraries
// refuse it.
func wholeEscapes(address string) string {
	end := strings.IndexAny(address, "?#")
	if end < 0 {
		end = len(address)
	}
	path := address[:end]
	if !strings.Contains(path, "%") {
		return address
	}
	var b strings.Builder
	for i := range len(path) {
		b.WriteByte(path[i])
		if path[i] == '%' && (i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2])) {
			b.WriteString("25")
		}
	}
	return b.String() + address[end:]
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// String is the normal form of the address: no user information, no default
// port, no fragment.
func (u URL) String() string {
	return u.origin() + u.Path
}

func (u URL) origin() string {
	s := u.Scheme + "://" + u.Host
	if u.Port != defaultPort(u.Scheme) {
		s += ":" + strconv.Itoa(u.Port)
	}
	return s
}

// name is the host without brackets and without a final dot.
func (u URL) name() string {
	if strings.HasPrefix(u.Host, "[") {
		return u.Host[1 : len(u.Host)-1]
	}
	return strings.TrimSuffix(u.Host, ".")
}

// Shown is how an address may be told in logs: without user information, query
// and fragment, which may hold secrets. Of another text only the scheme is told,
// if it has one.
func Shown(text string) string {
	if u, err := ParseURL(text); err == nil {
		path, _, _ := strings.Cut(u.Path, "?")
		return u.origin() + path
	}
	scheme, _, ok := strings.Cut(text, ":")
	if !ok || len(scheme) > 32 || strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return "?"
	}
	return scheme + ":"
}
