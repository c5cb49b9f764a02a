package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// parent makes the package around ours find the client, wherever on the path
// that is.
const parent = `"""The package around agent_sandbox.server; the client is found wherever else it is."""

import os as _os
import sys as _sys

_here = _os.path.dirname(_os.path.abspath(__file__))
for _folder in _sys.path:
    _other = _os.path.join(_folder or _os.getcwd(), "agent_sandbox")
    _init = _os.path.join(_other, "__init__.py")
    if _os.path.abspath(_other) != _here and _os.path.isfile(_init):
        __path__.append(_other)
        __file__ = _init
        with open(_init, encoding="utf-8") as _f:
            exec(compile(_f.read(), _init, "exec"))
        break
`

// Installed is what [Install] did.
type Installed struct {
	Dir      string // the package
	Replaced bool   // another package was there
}

// Install writes the Python package agent_sandbox.server below target, a
// folder on Python's path, in place of any other of that name. The rest of
// agent_sandbox, the client, stays as it is.
func Install(target, version string) (Installed, error) {
	out := Installed{Dir: filepath.Join(target, "agent_sandbox", "server")}
	around := filepath.Dir(out.Dir)
	if err := os.MkdirAll(around, 0o755); err != nil {
		return out, err
	}
	// The new package is made beside the old and takes its place in one step.
	fresh, err := os.MkdirTemp(around, ".server-*")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(fresh)
	if err := errors.Join(copyShim(fresh, version, "agent_sandbox/server"), os.Chmod(fresh, 0o755)); err != nil {
		return out, err
	}
	if _, err := os.Lstat(out.Dir); err == nil {
		out.Replaced = !isOurs(out.Dir)
		old := fresh + ".old"
		if err := os.Rename(out.Dir, old); err != nil {
			return out, err
		}
		defer os.RemoveAll(old)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	if err := os.Rename(fresh, out.Dir); err != nil {
		return out, err
	}
	init := filepath.Join(around, "__init__.py")
	if _, err := os.Stat(init); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(init, []byte(parent), 0o644); err != nil {
			return out, fmt.Errorf("write %s: %w", init, err)
		}
	}
	return out, nil
}

// isOurs tells whether a package directory was written by Install.
func isOurs(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "_worker.py"))
	ours, ourErr := shim.ReadFile("shim/agent_sandbox/server/_worker.py")
	first, _, _ := bytes.Cut(ours, []byte("\n"))
	return err == nil && ourErr == nil && bytes.HasPrefix(text, first)
}
