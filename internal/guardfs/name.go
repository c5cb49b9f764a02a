package guardfs

import (
	"path"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const (
	maxPath = 4096 // bytes of a name, as policy documents promise
	maxName = 255  // bytes of one component
)

// tmpPrefix begins the names of files that are not finished.
const tmpPrefix = ".abx-tmp-"

// checkName refuses what can be no path at all.
func checkName(name string) policy.Decision {
	switch {
	case name == "":
		return policy.Refuse(policy.InvalidPath, "Path is empty")
	case strings.IndexByte(name, 0) >= 0:
		return policy.Refuse(policy.InvalidPath, "Path contains a NUL byte")
	case len(name) > maxPath:
		return policy.Refuse(policy.InvalidPath, "Path is longer than 4096 bytes")
	case hasSurrogate(name):
		return policy.Refuse(policy.InvalidPath, "Path contains a surrogate that stands for no byte")
	}
	return policy.Allow()
}

// hasSurrogate finds an encoded surrogate: what decoding a JSON string leaves
// of an escape that stands for no byte.
func hasSurrogate(s string) bool {
	for {
		i := strings.IndexByte(s, 0xED)
		if i < 0 || i+2 >= len(s) {
			return false
		}
		if s[i+1] >= 0xA0 && s[i+1] <= 0xBF && s[i+2] >= 0x80 && s[i+2] <= 0xBF {
			return true
		}
		s = s[i+1:]
	}
}

// checkNew refuses a path that no new file may have.
func checkNew(real string) error {
	if len(real) > maxPath {
		return refuse(policy.InvalidPath, "Path is longer than 4096 bytes")
	}
	for part := range strings.SplitSeq(real, "/") {
		if len(part) > maxName {
			return refuse(policy.InvalidPath, "A component of the path is longer than 255 bytes")
		}
		if isTemp(part) {
			return refuse(policy.InvalidPath, "Names that begin with "+tmpPrefix+" are for unfinished files")
		}
	}
	return nil
}

func isTemp(name string) bool { return strings.HasPrefix(name, tmpPrefix) }

// split cuts a clean absolute path into its directory and last component; the
// root directory is "." of itself.
func split(p string) (dir, name string) {
	if p == "/" {
		return "/", "."
	}
	i := strings.LastIndexByte(p, '/')
	if i == 0 {
		return "/", p[1:]
	}
	return p[:i], p[i+1:]
}

// join is dir/name for a clean dir and a single component or clean relative path.
func join(dir, name string) string {
	switch {
	case name == "." || name == "":
		return dir
	case dir == "" || dir == ".":
		return name
	case dir == "/":
		return "/" + name
	}
	return dir + "/" + name
}

// within tells whether p is dir or below it, by whole components.
func within(dir, p string) bool {
	if dir == "/" {
		return true
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// absolute makes a clean absolute path of name, from being where relative
// names start.
func absolute(from, name string) string {
	if !path.IsAbs(name) {
		name = from + "/" + name
	}
	return path.Clean(name)
}
