package endpoints

import (
	"net/http"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// conditions are the headers that make a request depend on what is there.
// Those that are missing, or dates that cannot be read, are nil or zero.
type conditions struct {
	match, noneMatch               tags
	unmodifiedSince, modifiedSince time.Time
}

func readConditions(h http.Header) *conditions {
	c := &conditions{match: parseTags(h.Values("If-Match")), noneMatch: parseTags(h.Values("If-None-Match"))}
	c.unmodifiedSince, _ = http.ParseTime(h.Get("If-Unmodified-Since"))
	c.modifiedSince, _ = http.ParseTime(h.Get("If-Modified-Since"))
	return c
}

// holds tells whether what is there is what the caller knows.
func (c *conditions) holds(now version) bool {
	switch {
	case c.match != nil:
		return c.match.strongly(now)
	case !c.unmodifiedSince.IsZero() && now.exists:
		return !now.modified.Truncate(time.Second).After(c.unmodifiedSince)
	}
	return true
}

// unchanged tells whether a reader has what is there already.
func (c *conditions) unchanged(now version) bool {
	switch {
	case c.noneMatch != nil:
		return c.noneMatch.weakly(now)
	case !c.modifiedSince.IsZero():
		return !now.modified.Truncate(time.Second).After(c.modifiedSince)
	}
	return false
}

// ifRange tells whether a range is still wanted.
func ifRange(header string, now version) bool {
	if header = strings.TrimSpace(header); header == "" {
		return true
	}
	if t, err := http.ParseTime(header); err == nil {
		return t.Equal(now.modified.Truncate(time.Second))
	}
	return tags{header}.strongly(now)
}

// tags is a list of entity tags, as written; nil is no list.
type tags []string

// parseTags reads a list of tags, or "*". What is no tag by the grammar stays
// in the list and is equal to none, so that a condition never holds by mistake
// of writing it down.
func parseTags(lines []string) tags {
	if len(lines) == 0 {
		return nil
	}
	out := tags{}
	for rest := strings.Join(lines, ","); rest != ""; {
		rest = strings.TrimLeft(rest, " \t,")
		end := len(rest)
		start := 0
		if strings.HasPrefix(rest, "W/") {
			start = 2
		}
		if strings.HasPrefix(rest[start:], `"`) { // commas belong to the tag
			if i := strings.IndexByte(rest[start+1:], '"'); i >= 0 {
				start += i + 2
			}
		}
		if i := strings.IndexByte(rest[start:], ','); i >= 0 {
			end = start + i
		}
		if tag := strings.Trim(rest[:end], " \t"); tag != "" {
			out = append(out, tag)
		}
		rest = rest[end:]
	}
	return out
}

// strongly tells whether one of the tags stands for the very same bytes.
func (t tags) strongly(now version) bool {
	return t.any(now, func(tag string) bool { return tag == now.tag && !strings.HasPrefix(tag, "W/") })
}

// weakly tells whether one of the tags stands for the same content.
func (t tags) weakly(now version) bool {
	return t.any(now, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(now.tag, "W/") })
}

func (t tags) any(now version, same func(string) bool) bool {
	if !now.exists {
		return false
	}
	for _, tag := range t {
		if tag == "*" || same(tag) {
			return true
		}
	}
	return false
}

// version is what a condition is compared with.
type version struct {
	exists   bool
	tag      string
	modified time.Time
}

// judge is a condition of a write, for [guardfs.CreateOptions].
func (c *conditions) judge(exists bool, info guardfs.Info) error {
	now := version{exists: exists}
	if exists {
		now.tag, now.modified = info.ETag(), info.Modified()
	}
	if !c.holds(now) || c.noneMatch != nil && c.noneMatch.weakly(now) {
		return preconditionFailed()
	}
	return nil
}

// preconditionFailed is the answer to a condition that does not hold.
func preconditionFailed() error {
	return api.Errorf(http.StatusPreconditionFailed, "ValueError", "precondition_failed", "The file is not as the request's conditions want it")
}
