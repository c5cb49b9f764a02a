package browser

import (
	"net/netip"
	"strings"
)

// special are the networks that are not the public internet: this machine,
// its neighbours, ways to reach them through a translation of addresses, and
// what is reserved.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// local tells whether an address is not a public one.
func local(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	for _, p := range special {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// loopback tells whether an address is this machine's own.
func loopback(addr netip.Addr) bool { return addr.WithZone("").Unmap().IsLoopback() }

// localName tells whether a name means this machine wherever it is looked up.
func localName(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
