package host

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mostManifest bounds a package.json.
const mostManifest = 4 << 20

// NPMProject lists the direct dependencies of the project in a folder that
// are installed: those its package.json names, or without one all that lie in
// node_modules. dir may be a name of an opened folder under /proc/self/fd.
// Links that lead out of the folder are not followed. The error is that of
// ctx; a folder that is no project has no packages.
func NPMProject(ctx context.Context, dir string) (Packages, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Packages{}, ctx.Err()
	}
	defer root.Close()
	var m struct {
		Dependencies         map[string]any `json:"dependencies"`
		DevDependencies      map[string]any `json:"devDependencies"`
		OptionalDependencies map[string]any `json:"optionalDependencies"`
		PeerDependencies     map[string]any `json:"peerDependencies"`
	}
	text, err := readIn(root, "package.json")
	if err != nil || json.Unmarshal(text, &m) != nil {
		return npmFolder(ctx, root, "node_modules", modules(root, "node_modules"))
	}
	wanted := map[string]any{}
	for _, some := range []map[string]any{m.PeerDependencies, m.OptionalDependencies, m.DevDependencies, m.Dependencies} {
		maps.Copy(wanted, some)
	}
	return npmFolder(ctx, root, "node_modules", slices.Sorted(maps.Keys(wanted)))
}

// NPMGlobal lists what npm has installed globally for the node of a search
// path. The error is that of ctx.
func NPMGlobal(ctx context.Context, at Where) (Packages, error) {
	root, err := os.OpenRoot(filepath.Join(npmPrefix(at), "lib/node_modules"))
	if err != nil {
		return Packages{}, ctx.Err()
	}
	defer root.Close()
	return npmFolder(ctx, root, ".", modules(root, "."))
}

// npmFolder reads the versions of named packages in a folder of modules.
func npmFolder(ctx context.Context, root *os.Root, dir string, names []string) (Packages, error) {
	var out Packages
	for _, name := range names {
		if ctx.Err() != nil {
			return Packages{}, ctx.Err()
		}
		if !moduleName(name) {
			continue
		}
		text, err := readIn(root, filepath.Join(dir, name, "package.json"))
		if err != nil {
			continue
		}
		var m struct {
			Version any `json:"version"`
		}
		if json.Unmarshal(text, &m) != nil {
			continue
		}
		if version, ok := m.Version.(string); ok && !out.add(Package{Name: name, Version: version}) {
			break
		}
	}
	return out, nil
}

// modules lists the packages in a folder of modules, with those of scopes.
func modules(root *os.Root, dir string) []string {
	var out []string
	for _, name := range namesIn(root.OpenFile(dir, openFlags, 0)) {
		if !strings.HasPrefix(name, "@") {
			out = append(out, name)
			continue
		}
		for _, inner := range namesIn(root.OpenFile(filepath.Join(dir, name), openFlags, 0)) {
			out = append(out, name+"/"+inner)
		}
		if len(out) >= mostEntries {
			break
		}
	}
	slices.Sort(out)
	return out
}

// moduleName tells names of packages from hidden folders and from names that
// lead elsewhere.
func moduleName(name string) bool {
	scope, rest, scoped := strings.Cut(name, "/")
	if scoped && (!strings.HasPrefix(scope, "@") || len(scope) < 2) {
		return false
	}
	if !scoped {
		rest = name
	}
	return proper(name) && rest != "" && rest[0] != '.' && !strings.ContainsAny(rest, "/\x00") && !strings.Contains(scope, "\x00")
}

// readIn reads a manifest below a root.
func readIn(root *os.Root, name string) ([]byte, error) {
	text, err := readAll(mostManifest)(regular(root.OpenFile(name, openFlags, 0)))
	return bytes.TrimPrefix(text, []byte("\xEF\xBB\xBF")), err
}
