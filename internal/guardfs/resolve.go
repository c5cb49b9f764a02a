package guardfs

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the links of one resolution; the kernel allows 40.
const maxLinks = 128

// step is one thing to do while resolving: enter a component, or note that the
// text of a link has been used up.
type step struct{ name, used string }

// resolve follows all links of a clean absolute path, the last component
// included, and returns where it leads. What does not exist or cannot be read
// is kept as text. loop tells that a link leads back to itself; real is then
// that link and what was left to resolve, as text.
//
// The answer may be out of date when it is used. That is no danger: it is only
// ever walked with links forbidden.
func resolve(clean string, readLink func(string) (string, bool)) (real string, loop bool) {
	todo := push(nil, clean)
	at, links := "/", 0
	open := map[string]bool{} // links whose text is being followed
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case s.used != "":
			delete(open, s.used)
			continue
		case s.name == "..":
			at, _ = split(at)
			continue
		}
		next := join(at, s.name)
		text, ok := readLink(next)
		if !ok {
			at = next
			continue
		}
		if links++; open[next] || links > maxLinks {
			return path.Clean(next + "/" + rest(todo)), true
		}
		open[next] = true
		todo = push(append(todo, step{used: next}), text)
		if text[0] == '/' {
			at = "/"
		}
	}
	return at, false
}

// push puts the components of p on the stack, the first one on top.
func push(todo []step, p string) []step {
	for p != "" {
		i := strings.LastIndexByte(p, '/')
		if name := p[i+1:]; name != "" && name != "." {
			todo = append(todo, step{name: name})
		}
		p = p[:max(i, 0)]
	}
	return todo
}

// rest is what is left on the stack, as text.
func rest(todo []step) string {
	var b strings.Builder
	for _, s := range slices.Backward(todo) {
		if s.used == "" {
			b.WriteString(s.name + "/")
		}
	}
	return b.String()
}

// readLink returns the text of a link; false for everything that is none or
// cannot be read.
func readLink(p string) (string, bool) {
	text, err := readLinkAt(unix.AT_FDCWD, p)
	return text, err == nil && text != ""
}
