package policy

import (
	"path"
	"slices"
	"strings"
)

// ExtensionDecision judges the name of a file by allow_extensions and
// deny_extensions: deny wins, an empty allow list allows all. Entries carry
// their dot, "" stands for no extension, and case does not matter.
func ExtensionDecision(name string, allow, deny []string) Decision {
	ext := Extension(name)
	same := func(entry string) bool { return strings.ToLower(entry) == ext }
	if slices.ContainsFunc(deny, same) || len(allow) > 0 && !slices.ContainsFunc(allow, same) {
		if ext == "" {
			return Refuse(ExtensionNotAllowed, "Files without an extension are not allowed by policy")
		}
		return Refuse(ExtensionNotAllowed, "Extension "+ext+" is not allowed by policy")
	}
	return Allow()
}

// Extension is the last suffix of a path's last component in lower case, with
// its dot: ".gz" for a.tar.gz, "" for noext, .bashrc and a name that ends in a
// dot.
func Extension(name string) string {
	base := path.Base(name)
	i := strings.LastIndexByte(base, '.')
	if i <= 0 || i == len(base)-1 {
		return ""
	}
	return strings.ToLower(base[i:])
}
