package host

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
)

// hierarchy is where this process stands in the tree of one controller. The
// zero hierarchy has no groups.
type hierarchy struct {
	v2  bool
	top string // where the tree is mounted; "" when it is not
	rel string // the process's group below top, clean, "/" for top itself
}

// deepest bounds how many groups are looked at.
const deepest = 64

// dirs lists the folders of the process's group and of all above it that can
// be seen, innermost first. Some may not exist.
func (y hierarchy) dirs() []string {
	if y.top == "" {
		return nil
	}
	var out []string
	for rel := y.rel; len(out) < deepest; rel = path.Dir(rel) {
		out = append(out, path.Join(y.top, rel))
		if rel == "/" {
			break
		}
	}
	return out
}

// beside is the folder in y that corresponds to a folder of z.
func (y hierarchy) beside(z hierarchy, dir string) string {
	return path.Join(y.top, strings.TrimPrefix(dir, z.top))
}

// mount is a mounted tree of control groups.
type mount struct {
	v2          bool
	root        string // which group is seen at point
	point       string
	controllers []string // v1
}

// hierarchy finds the process in the tree of a controller. Version 1 goes
// first: a controller is in one tree only, and where version 1 has it, the
// tree of version 2 beside it is empty.
func (h *Host) hierarchy(controller string) hierarchy {
	own := h.read("/proc/self/cgroup")
	mounts := parseMounts(h.read("/proc/self/mountinfo"))
	if group, ok := groupOf(own, controller); ok {
		for _, m := range mounts {
			if !m.v2 && slices.Contains(m.controllers, controller) {
				return hierarchy{top: m.point, rel: m.below(group)}
			}
		}
	}
	if group, ok := groupOf(own, ""); ok {
		for _, m := range mounts {
			if m.v2 {
				return hierarchy{v2: true, top: m.point, rel: m.below(group)}
			}
		}
	}
	return hierarchy{}
}

// below is where a group is under the mount. A group that the mount does not
// show (the container has its own view of the tree, and the process's name
// for its group is another's) is the mount itself.
func (m mount) below(group string) string {
	rel, inside := strings.CutPrefix(group, m.root)
	if m.root == "/" {
		rel, inside = group, true
	}
	if !inside || rel != "" && rel[0] != '/' || slices.Contains(strings.Split(rel, "/"), "..") {
		return "/"
	}
	return path.Clean("/" + rel)
}

// groupOf finds a controller's group in /proc/self/cgroup; the controller ""
// is the tree of version 2.
func groupOf(text []byte, controller string) (string, bool) {
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) == 3 && strings.HasPrefix(f[2], "/") && slices.Contains(strings.Split(f[1], ","), controller) {
			return f[2], true
		}
	}
	return "", false
}

// parseMounts finds the trees of control groups in a mountinfo.
func parseMounts(text []byte) []mount {
	var out []mount
	for line := range bytes.Lines(text) {
		before, after, ok := strings.Cut(string(line), " - ")
		if !ok {
			continue
		}
		where, what := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(what) < 1 {
			continue
		}
		m := mount{root: unescapeMount(where[3]), point: unescapeMount(where[4])}
		switch what[0] {
		case "cgroup2":
			m.v2 = true
		case "cgroup":
			m.controllers = strings.Split(what[len(what)-1], ",")
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// unescapeMount undoes the kernel's \ooo for blanks and backslashes.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
