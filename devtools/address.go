package devtools

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/lazyregexp"
)

// address is where another repository is. There are only the forms that name a
// place: what makes git run a helper, a command of the caller's or a transport
// nobody authenticates is none.
type address struct {
	kind addressKind
	// url is what git is given, without credentials, or a path.
	url            string
	user, password string
	hasUser        bool
}

type addressKind uint8

const (
	byPath addressKind = iota
	byHTTP
	bySSH
)

var (
	errAddress = &GitError{Msg: "an address must be https, ssh or a path"}
	hostName   = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	userName   = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._+-]*$`)
	helper     = lazyregexp.New(`^[A-Za-z0-9+.-]*::`)
)

// schemes are what is a mistake as the name of a host.
var schemes = []string{"http", "https", "ssh", "git", "file", "ext", "ftp"}

// parseAddress reads an address as callers write it.
func parseAddress(text string) (address, error) {
	if text == "" || len(text) > 4096 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' && r != ' ' || r == 0x7f }) ||
		helper.MatchString(text) || text[0] == '-' {
		return address{}, errAddress
	}
	scheme, _, ok := strings.Cut(text, "://")
	if ok {
		return parseURL(strings.ToLower(scheme), text)
	}
	host, path, ok := strings.Cut(text, ":")
	if !ok || strings.Contains(host, "/") {
		return address{kind: byPath, url: text}, nil
	}
	user, name, hasUser := strings.Cut(host, "@")
	if !hasUser {
		user, name = "git", host
	}
	if !userName.MatchString(user) || !hostName.MatchString(name) || !isRemotePath(path) || slices.Contains(schemes, strings.ToLower(name)) {
		return address{}, errAddress
	}
	return address{kind: bySSH, url: text}, nil
}

// isRemotePath refuses what a program on the other side could take for an
// option, and what is no path.
func isRemotePath(path string) bool {
	return path != "" && path[0] != '-' && !strings.HasPrefix(path, "/-")
}

func parseURL(scheme, text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" || u.RawQuery != "" || !isRemotePath(u.Path) {
		return address{}, errAddress
	}
	name := u.Hostname()
	if _, err := netip.ParseAddr(name); err != nil && !hostName.MatchString(name) {
		return address{}, errAddress
	}
	a := address{hasUser: u.User != nil}
	if u.User != nil {
		a.user = u.User.Username()
		a.password, _ = u.User.Password()
	}
	switch scheme {
	case "https", "http":
		a.kind = byHTTP
		u.User = nil
	case "ssh":
		a.kind = bySSH
		if u.User != nil && (!userName.MatchString(a.user) || a.password != "") {
			return address{}, errAddress
		}
		a.hasUser, a.user = false, "" // a name, no secret, and part of the address
	default:
		return address{}, errAddress
	}
	u.Scheme = scheme
	a.url = u.String()
	return a, nil
}

// secure tells whether a password may be sent to the address: over TLS, or to
// this very machine.
func (a address) secure() bool {
	u, err := url.Parse(a.url)
	if err != nil || a.kind != byHTTP {
		return false
	}
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}

// origin is the address without its path, as settings for it are named.
func (a address) origin() string {
	u, err := url.Parse(a.url)
	if err != nil {
		return a.url
	}
	return u.Scheme + "://" + u.Host
}
