package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// The tree that list and search walk: treeDirs folders in two levels with treeFiles files between them.
const (
	treeFiles   = 20_000
	treeDirs    = 210 // 10 of them hold 20 each
	treeEntries = treeFiles + treeDirs
	treeHits    = treeFiles / 10 // files whose name ends in 7.txt
)

func makeTree(root string) error {
	n := 0
	for i := range 10 {
		for j := range 20 {
			dir := filepath.Join(root, fmt.Sprintf("part%02d/section%02d", i, j))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			for range treeFiles / 200 {
				name := filepath.Join(dir, fmt.Sprintf("file%05d.txt", n))
				if err := os.WriteFile(name, []byte("a line of text\n"), 0o644); err != nil {
					return err
				}
				n++
			}
		}
	}
	return nil
}
