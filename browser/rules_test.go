package browser

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// internet is what the tests have instead of one: names, and which addresses
// lead to which local listener. What is dialled beside is forbidden and counted.
type internet struct {
	mu        sync.Mutex
	names     map[string][][]string // name → what it resolves to, one answer after the other
	hosts     map[string]string     // address and port → listener
	dialled   []string
	forbidden []string
	looked    map[string]int
}

func newInternet() *internet {
	return &internet{names: map[string][][]string{}, hosts: map[string]string{}, looked: map[string]int{}}
}

// LookupNetIP implements [Resolver].
func (n *internet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host = strings.TrimSuffix(host, ".")
	n.looked[host]++
	answers := n.names[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		n.names[host] = answers[1:]
	}
	var out []netip.Addr
	for _, a := range answers[0] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// DialContext implements [Dialer].
func (n *internet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	to, ok := n.hosts[address]
	n.dialled = append(n.dialled, address)
	if !ok {
		n.forbidden = append(n.forbidden, address)
	}
	n.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func (n *internet) wrong() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.forbidden...)
}

// ruleOf compiles the parameters of browser_navigate, JSON.
func ruleOf(t testing.TB, params string) *policy.Rule {
	t.Helper()
	doc, err := policy.Parse([]byte(`{"groups":["browser"],"endpoints":{"browser_navigate":{"params":`+params+`}}}`), policy.JSON)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(doc, []policy.Row{{
		Name: judged, Method: "POST", Path: "/browser/navigate", Group: "browser",
		Params: []string{"url_allow", "url_deny", "block_private_networks", "allow_loopback"},
	}}, policy.Options{Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	return p.Rule(judged)
}

func codeOf(err error) policy.Code {
	if d, ok := errors.AsType[*policy.Denied](err); ok {
		return d.Code
	}
	if err != nil {
		return policy.Code("? " + err.Error())
	}
	return ""
}

func TestAddressesAreJudged(t *testing.T) {
	const allow = `{"url_allow":["http://ok.test/*","https://*.good.test/*","http://HOST.test","https://exact.test/page"]}`
	const deny = `{"url_deny":["http://evil.test/*","*/bad*","https://WSS.test/*"]}`
	const private = `{"block_private_networks":true}`
	const dev = `{"allow_loopback":true}`
	const none = `{}`
	for _, c := range []struct {
		params, url string
		want        policy.Code
	}{
		{none, "http://page.test/", ""},
		{none, "http://private.test/", ""}, // names are not looked up without the parameter
		{none, "http://10.0.0.1.nip.test/", ""},
		{none, "http://notlocalhost/", ""},
		{none, "http://localhost.test/", ""},
		{none, "http://8.8.8.8/", ""},
		{none, "file:///etc/passwd", policy.URLInvalid},
		{none, "data:text/html,x", policy.URLInvalid},
		{none, "view-source:http://page.test/", policy.URLInvalid},
		{none, "ws://page.test/", policy.URLInvalid},
		{none, "http://page.test/a b", policy.URLInvalid},
		{none, "http://page.test/\u00a0", policy.URLInvalid},
		{none, " http://page.test/", policy.URLInvalid},
		{none, "http://page.test/\t", policy.URLInvalid},
		{none, "http://localhost/", policy.URLDenied},
		{none, "http://LOCALHOST./", policy.URLDenied},
		{none, "http://a.b.localhost/", policy.URLDenied},
		{none, "http://127.1/", policy.URLDenied},
		{none, "http://[::ffff:7f00:1]/", policy.URLDenied},
		{none, "http://169.254.169.254/latest/meta-data/", policy.URLDenied},
		{none, "http://0/", policy.URLDenied},
		{none, "https://[fe80::1]/", policy.URLDenied},

		{dev, "http://localhost:3000/", ""},
		{dev, "http://127.0.0.1:3000/", ""},
		{dev, "http://[::1]:3000/", ""},
		{dev, "http://[::ffff:127.0.0.1]/", ""},
		{dev, "http://10.0.0.1/", policy.URLDenied},
		{dev, "http://0.0.0.0/", policy.URLDenied},
		{dev, "http://169.254.169.254/", policy.URLDenied},
		{dev, "file:///etc/passwd", policy.URLInvalid},

		{allow, "http://ok.test/x", ""},
		{allow, "http://OK.test", ""},
		{allow, "http://ok.test./x", ""},
		{allow, "http://u:p@ok.test/x", ""},
		{allow, "http://ok.test:80/x", ""},
		{allow, "http://host.test/", ""},
		{allow, "https://exact.test/page#part", ""},
		{allow, "https://a.good.test/x?y", ""},
		{allow, "https://exact.test/other", policy.URLNotAllowed},
		{allow, "http://host.test/x", policy.URLNotAllowed},
		{allow, "https://good.test/", policy.URLNotAllowed},
		{allow, "http://ok.test:8080/", policy.URLNotAllowed},
		{allow, "https://ok.test/", policy.URLNotAllowed},
		{allow, "http://ok.test@evil.test/", policy.URLNotAllowed},
		{allow, "http://evil.test/#http://ok.test/", policy.URLNotAllowed},
		{allow, "http://evil.test/?http://ok.test/", policy.URLNotAllowed},
		{allow, "http://evil.test\\.good.test/", policy.URLNotAllowed},
		{allow, "file:///etc/passwd", policy.URLNotAllowed},
		{allow, "about:blank", policy.URLNotAllowed},
		{`{"url_allow":[]}`, "http://ok.test/", policy.URLNotAllowed},
		{`{"url_allow":["*"]}`, "http://127.0.0.1/", policy.URLDenied},
		{`{"url_allow":["*"]}`, "http://a.test/ ", policy.URLInvalid},

		{deny, "http://fine.test/", ""},
		{deny, "HTTP://EVIL.test/x", policy.URLNotAllowed},
		{deny, "http://evil.test", policy.URLNotAllowed},
		{deny, "http://evil.test./", policy.URLNotAllowed},
		{deny, "http://evil.test:80/x", policy.URLNotAllowed},
		{deny, "http://u@evil.test/x", policy.URLNotAllowed},
		{deny, "http://evil.test\\x", policy.URLNotAllowed},
		{deny, "http://ｅvil.test/x", policy.URLNotAllowed},
		{deny, "http://evil%2etest/x", policy.URLNotAllowed},
		{deny, "http://fine.test/x/../bad", policy.URLNotAllowed},
		{deny, "http://fine.test/%62ad", policy.URLNotAllowed},
		{deny, "http://fine.test/x#/bad", policy.URLNotAllowed}, // as it was written
		{deny, "https://wss.test/", policy.URLNotAllowed},

		{private, "http://page.test/", ""},
		{private, "http://nowhere.test/", ""}, // nobody can be reached there
		{private, "http://private.test/", policy.URLNotAllowed},
		{private, "http://mixed.test/", policy.URLNotAllowed},
		{private, "http://six.test/", policy.URLNotAllowed},
		{private, "http://127.0.0.1/", policy.URLNotAllowed},
		{private, "http://2130706433/", policy.URLNotAllowed},
		{private, "http://localhost/", policy.URLNotAllowed},
		{private, "http://224.0.0.1/", policy.URLNotAllowed},
		{private, "ftp://page.test/", policy.URLNotAllowed},
		{`{"block_private_networks":true,"allow_loopback":true}`, "http://localhost/", policy.URLNotAllowed},
	} {
		n := newInternet()
		n.names["page.test"] = [][]string{{"93.184.216.34"}}
		n.names["private.test"] = [][]string{{"10.0.0.5"}}
		n.names["mixed.test"] = [][]string{{"93.184.216.34", "192.168.1.1"}}
		n.names["six.test"] = [][]string{{"fd00::1"}}
		err := NewRules(ruleOf(t, c.params)).Judge(t.Context(), n, c.url)
		if got := codeOf(err); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.params, c.url, got, c.want)
		}
		if d, ok := errors.AsType[*policy.Denied](err); ok && d.Endpoint != judged {
			t.Errorf("%q: the refusal is of %q", c.url, d.Endpoint)
		}
		if !strings.Contains(c.params, "block_private") && len(n.looked) > 0 {
			t.Errorf("%s %q: names were looked up", c.params, c.url)
		}
	}
}

func TestHostsAreJudgedWithoutTheirPaths(t *testing.T) {
	for _, c := range []struct {
		params, host string
		want         bool
	}{
		{`{}`, "https://any.test/", true},
		{`{"url_allow":["https://ok.test/app/*"]}`, "https://ok.test/", true},
		{`{"url_allow":["https://ok.test/app/*"]}`, "https://ok.test:8443/", false},
		{`{"url_allow":["https://ok.test/app/*"]}`, "https://ok.test.evil.test/", false},
		{`{"url_allow":["https://*.ok.test/*"]}`, "https://a.ok.test/", true},
		{`{"url_allow":["https://*.ok.test/*"]}`, "https://a.evil.test/", true}, // the star takes slashes too
		{`{"url_allow":["http://ok.test/*"]}`, "https://ok.test/", false},
		{`{"url_allow":[]}`, "https://ok.test/", false},
		{`{"url_deny":["https://evil.test/*"]}`, "https://evil.test/", false},
		{`{"url_deny":["https://evil.test/*"]}`, "https://evil.test./", false},
		{`{"url_deny":["https://evil.test/x*"]}`, "https://evil.test/", true}, // the rest is judged in the browser
		{`{"url_deny":["*evil*"]}`, "https://evil.test/", false},
	} {
		u, err := ParseURL(c.host)
		if err != nil {
			t.Fatal(err)
		}
		if err := NewRules(ruleOf(t, c.params)).secure(u); (err == nil) != c.want {
			t.Errorf("%s %s: %v", c.params, c.host, err)
		}
	}
}
