// Package browser is one Chrome, its pages and its recovery, and the policy
// about the addresses it may open.
//
// # The browser
//
// A [Browser] starts Chrome with the first call that needs it, speaks the
// DevTools protocol with it over two pipes that no other program can reach,
// starts it again when it has died, and stops it when nobody has used it for a
// while; cookies and tabs then wait for the next call. Every call holds its
// tab, and no other, and ends by its deadline, whatever the page does.
//
// # Addresses
//
// A [Rules] judges addresses as browsers read them, see [ParseURL]. Asking
// before a navigation is not enough: a page redirects, embeds, fetches. So all
// of Chrome's traffic goes through one forward proxy in this process, which
// judges each address, resolves its name once, judges what it resolved to and
// dials that very address. Chrome itself resolves nothing. The paths of HTTPS
// addresses, which a proxy does not see, are judged by intercepting requests
// inside Chrome. Of WebSockets over TLS only the host can be judged.
package browser
