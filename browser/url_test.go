package browser

import (
	"net/netip"
	"strings"
	"testing"
)

// addresses are spellings and the one form browsers make of them; "" is none.
var addresses = []struct{ text, want string }{
	{"http://example.com", "http://example.com/"},
	{"HTTP://EXAMPLE.COM/A", "http://example.com/A"},
	{"http://example.com:80/", "http://example.com/"},
	{"https://example.com:443/", "https://example.com/"},
	{"https://example.com:80/", "https://example.com:80/"},
	{"http://example.com:08080/", "http://example.com:8080/"},
	{"http://example.com:/", "http://example.com/"},
	{"http://u:p@example.com/", "http://example.com/"},
	{"http://a@b@example.com/", "http://example.com/"},
	{"http://example.com@evil.test/", "http://evil.test/"},
	{"http://example.com\\@evil.test/", "http://example.com/@evil.test/"},
	{"http:\\\\example.com\\x", "http://example.com/x"},
	{"http://example.com#@evil.test/", "http://example.com/"},
	{"http://example.com?@evil.test/", "http://example.com/?@evil.test/"},
	{"http://example.com/a/../b/./c", "http://example.com/b/c"},
	{"http://example.com/a/%2e%2E/b", "http://example.com/b"},
	{"http://example.com/a/..", "http://example.com/"},
	{"http://example.com/a/.", "http://example.com/a/"},
	{"http://example.com/../../x", "http://example.com/x"},
	{"http://example.com/a b\"<>`{}", "http://example.com/a%20b%22%3C%3E%60%7B%7D"},
	{"http://example.com/?a b'\"<>", "http://example.com/?a%20b%27%22%3C%3E"},
	{"http://example.com/ä?ö", "http://example.com/%C3%A4?%C3%B6"},
	{"http://example.com/%zz%", "http://example.com/%zz%"},
	{"\thttp://exa\nmple.com/\r", "http://example.com/"},
	{"http://ex%61mple.com/", "http://example.com/"},
	{"http://%31%32%37.0.0.1/", "http://127.0.0.1/"},
	{"http://127.1/", "http://127.0.0.1/"},
	{"http://2130706433/", "http://127.0.0.1/"},
	{"http://0x7f000001/", "http://127.0.0.1/"},
	{"http://0x7f.1/", "http://127.0.0.1/"},
	{"http://0177.0.0.1/", "http://127.0.0.1/"},
	{"http://127.0.0.1./", "http://127.0.0.1/"},
	{"http://0/", "http://0.0.0.0/"},
	{"http://0x/", "http://0.0.0.0/"},
	{"http://1.2.3/", "http://1.2.0.3/"},
	{"http://１２７。０．0｡1/", "http://127.0.0.1/"},
	{"http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "http://localhost/"},
	{"http://lo\u00adcalhost/", "http://localhost/"},
	{"http://BÜCHER.de/", "http://xn--bcher-kva.de/"},
	{"http://straße.de/", "http://xn--strae-oqa.de/"},
	{"http://example.com./", "http://example.com./"},
	{"http://[::1]/", "http://[::1]/"},
	{"http://[0:0:0:0:0:0:0:1]:8080/", "http://[::1]:8080/"},
	{"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"},
	{"http://[2001:DB8::1]/", "http://[2001:db8::1]/"},
	{"ws://example.com/x", "ws://example.com/x"},
	{"wss://example.com:443/x", "wss://example.com/x"},
	{"http://a_b.example.com/", "http://a_b.example.com/"},
	{"http://r3---sn.example.com/", "http://r3---sn.example.com/"},

	{"", ""},
	{"example.com", ""},
	{"//example.com/", ""},
	{"http:example.com", ""},
	{"http:/example.com", ""},
	{"http://", ""},
	{"http:///x", ""},
	{"http://:80/", ""},
	{"http://u@/", ""},
	{"http://./", ""},
	{"http://../", ""},
	{"http://a b/", ""},
	{"http://a%20b/", ""},
	{"http://a%2Fb/", ""},
	{"http://a%00b/", ""},
	{"http://a<b/", ""},
	{"http://a|b/", ""},
	{"http://a^b/", ""},
	{"http://example.com:0/", ""},
	{"http://example.com:65536/", ""},
	{"http://example.com:99999999999999999999/", ""},
	{"http://example.com:8a/", ""},
	{"http://example.com:-1/", ""},
	{"http://256.0.0.1/", ""},
	{"http://1.2.3.4.5/", ""},
	{"http://4294967296/", ""},
	{"http://0x100000000/", ""},
	{"http://08.1.1.1/", ""},
	{"http://1..2/", ""},
	{"http://foo.0x7z.09/", ""},
	{"http://[::1/", ""},
	{"http://[::1]x/", ""},
	{"http://[::1%25eth0]/", ""},
	{"http://[fe80::1%eth0]/", ""},
	{"http://[127.0.0.1]/", ""},
	{"http://\xff\xfe/", ""},
	{"file:///etc/passwd", ""},
	{"ftp://example.com/", ""},
	{"javascript://example.com/%0aalert(1)", ""},
	{"view-source:http://example.com/", ""},
	{"data:text/html,x", ""},
	{"blob:http://example.com/1", ""},
	{"about:blank", ""},
	{"chrome://version", ""},
}

func TestAddressesAreReadAsBrowsersReadThem(t *testing.T) {
	for _, c := range addresses {
		u, err := ParseURL(c.text)
		got := ""
		if err == nil {
			got = u.String()
		}
		if got != c.want {
			t.Errorf("%q: got %q (%v), want %q", c.text, got, err, c.want)
		}
	}
	if _, err := ParseURL("http://example.com/" + strings.Repeat("x", maxURL)); err == nil {
		t.Error("an endless address is accepted")
	}
}

func TestShownAddressesHoldNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"http://user:secret@example.com/a?token=secret#secret": "http://example.com/a",
		"javascript:secret()": "javascript:",
		"no secret address":   "?",
		"a secret: x":         "?",
	} {
		if got := Shown(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestSpecialNetworks(t *testing.T) {
	for text, want := range map[string]bool{
		"8.8.8.8": false, "1.1.1.1": false, "100.63.255.255": false, "100.128.0.1": false, "172.15.0.1": false, "172.32.0.1": false,
		"93.184.216.34": false, "2606:4700::1111": false, "2a00:1450::1": false, "::ffff:8.8.8.8": false, "223.255.255.255": false,
		"127.0.0.1": true, "127.255.255.255": true, "10.0.0.1": true, "172.16.0.1": true, "172.31.255.255": true, "192.168.0.1": true,
		"169.254.169.254": true, "0.0.0.0": true, "0.1.2.3": true, "100.64.0.1": true, "100.127.255.255": true, "224.0.0.1": true,
		"255.255.255.255": true, "240.0.0.1": true, "198.18.0.1": true, "192.0.2.1": true, "192.0.0.8": true,
		"::": true, "::1": true, "::ffff:127.0.0.1": true, "::ffff:10.0.0.1": true, "::7f00:1": true, "fe80::1": true, "fe80::1%eth0": true,
		"fc00::1": true, "fd12::1": true, "fec0::1": true, "ff02::1": true, "64:ff9b::7f00:1": true, "64:ff9b::808:808": true,
		"2002:7f00:1::": true, "2001:0:1::": true, "2001:db8::1": true, "100::1": true,
	} {
		if got := local(netip.MustParseAddr(text)); got != want {
			t.Errorf("local(%s) = %v", text, got)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, c := range addresses {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseURL(text)
		if err != nil {
			return
		}
		again, err := ParseURL(u.String())
		if err != nil || again != u {
			t.Fatalf("%q: %+v, and read again %+v, %v", text, u, again, err)
		}
		for _, c := range []byte(u.String()) {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("%q: %q is not ASCII without blanks", text, u.String())
			}
		}
		if u.Port < 1 || u.Port > 65535 || u.name() == "" || strings.ToLower(u.Host) != u.Host {
			t.Fatalf("%q: %+v", text, u)
		}
	})
}
