package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tree is what list, search and archive walk: parts with sections with files.
type tree struct {
	name                   string
	parts, sections, files int // files in each section
	text                   string
}

var (
	smallTree = tree{"tree", 10, 20, 100, "a line of text\n"}
	largeTree = tree{"forest", 20, 25, 100, strings.Repeat("One of many lines, with nothing in it.\n", 25)}
)

func (t tree) total() int   { return t.parts * t.sections * t.files }
func (t tree) entries() int { return t.total() + t.parts*t.sections + t.parts }
func (t tree) hits() int    { return t.total() / 10 } // files whose name ends in 7.txt

// oneIn is how many files of a tree there are for each that holds the needle.
const oneIn = 1000

// make makes the tree below root, unless it is there.
func (t tree) make(root string) (string, error) {
	top := filepath.Join(root, t.name)
	if _, err := os.Stat(top); err == nil {
		return top, nil
	}
	n := 0
	for i := range t.parts {
		for j := range t.sections {
			dir := filepath.Join(top, fmt.Sprintf("part%02d/section%02d", i, j))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return "", err
			}
			for range t.files {
				text := t.text
				if n%oneIn == oneIn/2 {
					text += "a needle in it\n"
				}
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%05d.txt", n)), []byte(text), 0o644); err != nil {
					return "", err
				}
				n++
			}
		}
	}
	return top, nil
}
