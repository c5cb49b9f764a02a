package browser

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parseHost reads a host as browsers do and returns its one normal form.
func parseHost(text string) (string, error) {
	if strings.HasPrefix(text, "[") {
		addr, err := netip.ParseAddr(strings.TrimSuffix(text[1:], "]"))
		if err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errHost
		}
		return "[" + ipv6(addr) + "]", nil
	}
	host, err := toASCII(unescape(text))
	if err != nil {
		return "", err
	}
	if host == "" || strings.Trim(host, ".") == "" || len(host) > 1024 {
		return "", errHost
	}
	for _, c := range []byte(host) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`#/:<>?@[\]^|%`, c) >= 0 {
			return "", errHost
		}
	}
	if !endsInNumber(host) {
		return host, nil
	}
	addr, err := parseIPv4(host)
	if err != nil {
		return "", err
	}
	return addr.String(), nil
}

// ipv6 writes an address as browsers do: the IPv4 address inside a mapped one
// in hexadecimal too.
func ipv6(addr netip.Addr) string {
	if !addr.Is4In6() {
		return addr.String()
	}
	b := addr.As16()
	return "::ffff:" + strconv.FormatUint(uint64(b[12])<<8|uint64(b[13]), 16) + ":" + strconv.FormatUint(uint64(b[14])<<8|uint64(b[15]), 16)
}

// unescape decodes %XX; anything else stays.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// toASCII maps a host name to the form it is looked up by: full-width letters,
// circled ones, other dots and the like become what they stand for, and what is
// left beyond ASCII is encoded.
func toASCII(host string) (string, error) {
	ascii := true
	for i := range len(host) {
		ascii = ascii && host[i] < utf8.RuneSelf
	}
	if ascii {
		return strings.ToLower(host), nil
	}
	if !utf8.ValidString(host) || strings.ContainsAny(host, "/:?#@%[]\\") {
		return "", errHost
	}
	mapped, err := mapping.dialled(host)
	if err != nil {
		return "", err
	}
	for i := range len(mapped) {
		if mapped[i] >= utf8.RuneSelf {
			return "", errHost // not a name
		}
	}
	return strings.ToLower(mapped), nil
}

// mapper maps names by the tables of the HTTP library. It maps them before it
// dials and has no other door to them; a second copy of the tables would be
// most of this package's size.
type mapper struct{ transport *http.Transport }

// mapping never dials: its dialler only tells what it was asked for.
var mapping = mapper{&http.Transport{
	DisableKeepAlives: true,
	DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
		return nil, &askedFor{addr}
	},
}}

type askedFor struct{ addr string }

func (a *askedFor) Error() string { return "asked for " + a.addr }

// dialled is the name that would be looked up for host.
func (m mapper) dialled(host string) (string, error) {
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: host, Path: "/"}, Header: http.Header{}}
	res, err := m.transport.RoundTrip(req)
	if err == nil {
		_ = res.Body.Close()
		return "", errHost
	}
	asked, ok := errors.AsType[*askedFor](err)
	if !ok {
		return "", errHost
	}
	name, _, err := net.SplitHostPort(asked.addr)
	if err != nil {
		return "", errHost
	}
	return name, nil
}

// endsInNumber tells whether a host can only be an IPv4 address.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" {
		return false
	}
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	_, err := ipv4Number(last)
	return err == nil
}

// ipv4Number reads a part of an IPv4 address: decimal, octal after 0,
// hexadecimal after 0x.
func ipv4Number(s string) (uint64, error) {
	base := 10
	switch {
	case len(s) >= 2 && (s[:2] == "0x" || s[:2] == "0X"):
		s, base = s[2:], 16
	case len(s) >= 2 && s[0] == '0':
		s, base = s[1:], 8
	case s == "":
		return 0, errHost
	}
	if s == "" {
		return 0, nil // "0x"
	}
	if s[0] == '+' || s[0] == '-' || strings.Contains(s, "_") {
		return 0, errHost
	}
	n, err := strconv.ParseUint(s, base, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 1 << 63, nil // a number, though none that fits
	}
	return n, err
}

func parseIPv4(host string) (netip.Addr, error) {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return netip.Addr{}, errHost
	}
	var value uint64
	for i, p := range parts {
		n, err := ipv4Number(p)
		if err != nil {
			return netip.Addr{}, errHost
		}
		if i < len(parts)-1 {
			if n > 255 {
				return netip.Addr{}, errHost
			}
			value |= n << (8 * (3 - i))
			continue
		}
		if n >= 1<<(8*(5-len(parts))) {
			return netip.Addr{}, errHost
		}
		value |= n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), nil
}
