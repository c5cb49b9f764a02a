package host

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sites remembers what lies in the folders of a sys.path.
type sites struct {
	path   []string
	stamps []stamp
	found  Packages
}

// list gives what pip lists for a sys.path. The result must not be changed.
func (s *sites) list(ctx context.Context, path []string) (Packages, error) {
	if s.stamps != nil && slices.Equal(s.path, path) && fresh(s.stamps) {
		return s.found, nil
	}
	*s = sites{path: path}
	began := time.Now()
	finder := distFinder{seen: map[string]bool{}, left: mostEntries}
	for _, dir := range path {
		finder.stamps = append(finder.stamps, stampOf(dir))
		finder.folder(ctx, dir, true)
	}
	if err := ctx.Err(); err != nil {
		return Packages{}, err
	}
	found := finder.result()
	if settled(finder.stamps, began) {
		s.stamps, s.found = finder.stamps, found
	}
	return found, nil
}

// distFinder finds installed distributions as pip does: folder by folder, of
// each project the first.
type distFinder struct {
	seen   map[string]bool // canonical names
	found  []dist
	full   bool
	left   int // entries it may still look at
	stamps []stamp
}

type dist struct {
	canonical string
	Package
}

// result orders what was found as pip does. These three names belong to Python
// itself, and pip never lists them.
func (d *distFinder) result() Packages {
	out := Packages{Truncated: d.full}
	slices.SortStableFunc(d.found, func(a, b dist) int { return cmp.Compare(a.canonical, b.canonical) })
	for _, p := range d.found {
		if p.canonical != "python" && p.canonical != "wsgiref" && p.canonical != "argparse" {
			out.List = append(out.List, p.Package)
		}
	}
	return out
}

// folder looks for distributions in a folder; links tells whether those of
// .egg-link files count, which name the folder of a project under work.
func (d *distFinder) folder(ctx context.Context, dir string, links bool) {
	f, err := os.OpenFile(dir, openFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var eggLinks []string
	egg := strings.HasSuffix(strings.ToLower(filepath.Base(dir)), ".egg")
	for d.left > 0 && ctx.Err() == nil {
		// The kernel's order, which is the one Python sees.
		names, err := f.Readdirnames(min(d.left, 1024))
		d.left -= len(names)
		for _, name := range names {
			low := strings.ToLower(name)
			switch {
			case strings.HasSuffix(low, ".dist-info"), strings.HasSuffix(low, ".egg-info"), egg && low == "egg-info":
				d.dist(dir, name)
			case links && strings.HasSuffix(name, ".egg-link"):
				eggLinks = append(eggLinks, filepath.Join(dir, name))
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	for _, link := range eggLinks {
		d.eggLink(ctx, dir, link)
	}
	d.full = d.full || d.left <= 0
}

// eggLink follows the first line of an .egg-link file.
func (d *distFinder) eggLink(ctx context.Context, dir, link string) {
	text, err := readHead(link, 4096)
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			if !filepath.IsAbs(line) {
				line = filepath.Join(dir, line)
			}
			d.stamps = append(d.stamps, stampOf(link), stampOf(line))
			d.folder(ctx, line, false)
			return
		}
	}
}

// dist reads one distribution. Its folder is named like "attrs-26.1.0.dist-info";
// the metadata in it has the name as it is written, and decides.
func (d *distFinder) dist(dir, entry string) {
	if len(d.found) >= mostPackages {
		d.full = true
		return
	}
	stem := strings.TrimSuffix(entry, filepath.Ext(entry)) // "EGG-INFO" has no more than that
	name, version, hasVersion := strings.Cut(stem, "-")
	p := d.metadata(filepath.Join(dir, entry))
	if !proper(p.Name) {
		if p.Name = canonicalName(name); !hasVersion || filepath.Ext(entry) == "" {
			return
		}
	}
	if !proper(p.Version) {
		p.Version, _, _ = strings.Cut(version, "-")
	}
	canonical := canonicalName(p.Name)
	if !validProject(canonical) || !proper(p.Version) || d.seen[canonical] {
		return
	}
	d.seen[canonical] = true
	p.Version = normalVersion(p.Version)
	d.found = append(d.found, dist{canonical, p})
}

// metadata finds name and version in the metadata of a distribution. Old ones
// are a file alone.
func (d *distFinder) metadata(info string) Package {
	for _, path := range []string{info + "/METADATA", info + "/PKG-INFO", info} {
		at := stampOf(path)
		text, err := readHead(path, 2<<10) // name and version come first
		if err != nil {
			continue
		}
		p := parseMetadata(text)
		if p.Name == "" || p.Version == "" {
			if text, err = readHead(path, 32<<10); err == nil {
				p = parseMetadata(text)
			}
		}
		d.stamps = append(d.stamps, at)
		return p
	}
	return Package{}
}

// parseMetadata reads the fields Name and Version before the first empty line.
func parseMetadata(text []byte) (p Package) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		value = bytes.TrimSpace(value)
		switch {
		case p.Name == "" && bytes.EqualFold(key, []byte("name")):
			p.Name = string(bytes.ToValidUTF8(value, []byte("\uFFFD")))
		case p.Version == "" && bytes.EqualFold(key, []byte("version")):
			p.Version = string(bytes.ToValidUTF8(value, []byte("\uFFFD")))
		}
		if p.Name != "" && p.Version != "" {
			break
		}
	}
	return p
}

// canonicalName is a project's name in lower case, with runs of "-", "_" and
// "." as one "-".
func canonicalName(name string) string {
	var b strings.Builder
	dash := false
	for _, r := range strings.ToLower(name) {
		if r == '-' || r == '_' || r == '.' {
			dash = true
			continue
		}
		if dash {
			b.WriteByte('-')
			dash = false
		}
		b.WriteRune(r)
	}
	if dash {
		b.WriteByte('-')
	}
	return b.String()
}

// validProject tells a project from what an interrupted pip leaves, such as
// "~ttrs".
func validProject(canonical string) bool {
	for i := range len(canonical) {
		c := canonical[i]
		plain := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !plain && (c != '-' || i == 0 || i == len(canonical)-1) {
			return false
		}
	}
	return canonical != ""
}
