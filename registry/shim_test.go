package registry

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestShimReadsAsOldPython: the oldest interpreter that is promised reads
// every file, and none needs more than the standard library.
func TestShimReadsAsOldPython(t *testing.T) {
	const check = `
import ast, sys
known = set(getattr(sys, "stdlib_module_names", ())) | {"agent_sandbox"}
for path in sys.argv[1:]:
    tree = ast.parse(open(path, encoding="utf-8").read(), path, feature_version=(3, 8))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import): names = [a.name for a in node.names]
        if isinstance(node, ast.ImportFrom) and not node.level: names = [node.module]
        for name in names:
            if len(known) > 1 and name.split(".")[0] not in known: sys.exit("%s imports %s" % (path, name))
print(len(sys.argv) - 1)
`
	var files []string
	err := filepath.WalkDir("shim", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".py") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python3(t), append([]string{"-c", check}, files...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range files {
		if _, err := shim.ReadFile(name); err != nil {
			t.Errorf("%s is not in the binary: %v", name, err)
		}
	}
	if len(files) < 12 {
		t.Errorf("only %d files", len(files))
	}
}

func TestInstalledPackageIsReplacedInOneStep(t *testing.T) {
	dir := t.TempDir()
	for _, replaced := range []bool{false, false} {
		done, err := Install(dir, "1.2.3")
		if err != nil || done.Replaced != replaced || done.Dir != filepath.Join(dir, "agent_sandbox", "server") {
			t.Errorf("%+v, %v", done, err)
		}
	}
	init := filepath.Join(dir, "agent_sandbox", "server", "__init__.py")
	worker := filepath.Join(dir, "agent_sandbox", "server", "_worker.py")
	for name, text := range map[string]string{init: "other = 1\n", worker: "other = 2\n", filepath.Join(filepath.Dir(init), "extra.py"): ""} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := Install(dir, "1.2.4"); err != nil || !done.Replaced {
		t.Errorf("%+v, %v", done, err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "agent_sandbox"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || strings.Join(names, " ") != "__init__.py server" {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(init), "extra.py")); !os.IsNotExist(err) {
		t.Errorf("a file of the other package is left: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(init), "_version.py"))
	if err != nil || string(text) != "__version__ = \"1.2.4\"\n" {
		t.Errorf("%q, %v", text, err)
	}
}
