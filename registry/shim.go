package registry

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// shim is the Python side: what command files import, and the worker.
//
//go:embed shim/*.py shim/agent_sandbox/server/*.py
var shim embed.FS

// entry is the file that a worker runs.
const entry = "bootstrap.py"

// writeShim writes the Python side to a new directory that only we can read.
func writeShim(version string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "agent-sandbox-worker-*")
	if err != nil {
		return "", err
	}
	if err := copyShim(dir, version, ""); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// copyShim writes the files below a folder of the shim into dir.
func copyShim(dir, version, below string) error {
	root, err := fs.Sub(shim, filepath.Join("shim", below))
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, root); err != nil {
		return err
	}
	text := "__version__ = " + strconv.Quote(version) + "\n"
	pkg := filepath.Join(dir, "agent_sandbox", "server")
	if below != "" {
		pkg = dir
	}
	return os.WriteFile(filepath.Join(pkg, "_version.py"), []byte(text), 0o644)
}
