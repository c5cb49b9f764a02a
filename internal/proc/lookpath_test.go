package proc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLookPath(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"a/prog": 0o755, "b/prog": 0o755, "a/nox": 0o644, "b/nox2": 0o644, "b/nox": 0o755, "prog": 0o755, "a/only": 0o644,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(root+"/a/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root+"/b/prog", root+"/a/link"); err != nil {
		t.Fatal(err)
	}
	ab := root + "/a:" + root + "/b"
	for _, tc := range []struct {
		name, path, want string
		err              error
	}{
		{"prog", ab, root + "/a/prog", nil},
		{"prog", root + "/b/:" + root + "/a", root + "/b/prog", nil},
		{"prog", "b:a", root + "/b/prog", nil},
		{"prog", ":" + ab, root + "/prog", nil},
		{"prog", "", "", ErrNotFound},
		{"sh", "", "/usr/bin/sh", nil},
		{"link", ab, root + "/a/link", nil},
		{"nox", ab, root + "/b/nox", nil}, // goes on after one that may not be executed
		{"only", ab, "", ErrNotExecutable},
		{"folder", ab, "", ErrNotExecutable},
		{"nope", ab, "", ErrNotFound},
		{"nope", "/no/such/folder", "", ErrNotFound},
		{"./prog", ab, root + "/./prog", nil},
		{"a/prog", "", root + "/a/prog", nil},
		{root + "/a/prog", "", root + "/a/prog", nil},
		{"a", ab, "", ErrNotFound},
		{"./a", ab, "", ErrNotExecutable},
		{"./a/nox", ab, "", ErrNotExecutable},
		{"./prog/x", ab, "", ErrNotFound},
		{"/dev/null", ab, "", ErrNotExecutable},
		{"", ab, "", ErrNotFound},
		{"a\x00b", ab, "", ErrNotFound},
	} {
		got, err := LookPath(tc.name, tc.path, root)
		onDefault := tc.path == "" && tc.err == nil && filepath.Base(got) == tc.name
		if got != tc.want && !onDefault || !errors.Is(err, tc.err) {
			t.Errorf("%q in %q: %q, %v", tc.name, tc.path, got, err)
		}
	}
}
