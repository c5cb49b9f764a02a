package endpoints

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/search"
)

func (s *Server) searching() []api.Endpoint {
	row := api.Row{
		Name: "files_search", Method: "POST", Path: "/files/search", Group: "file_ops",
		Summary: "Find files by name and by content.", Scopes: []string{"files:read"},
		Limits: []string{"max_depth", "max_results", "timeout_seconds"}, Paths: true,
	}
	return []api.Endpoint{api.Unary(row, searchFiles)}
}

type searchIn struct {
	Path             api.Field[string]   `json:"path" doc:"The directory to search."`
	Pattern          api.Field[string]   `json:"pattern" doc:"Pattern of the whole name; one with a slash is held against the path relative to the directory, with ** for any directories."`
	MaxDepth         api.Field[any]      `json:"max_depth" doc:"Levels; 1 is the directory itself; 5 by default."`
	MaxResults       api.Field[any]      `json:"max_results" doc:"At most so many hits; 100 by default."`
	Type             api.Field[string]   `json:"type" doc:"file (default), directory or any."`
	Exclude          api.Field[[]string] `json:"exclude" doc:"Patterns of what is left out; a directory is not entered."`
	IgnoreCase       api.Field[bool]     `json:"ignore_case" doc:"Compare names and content without case."`
	Hidden           api.Field[bool]     `json:"hidden" doc:"false leaves out names that begin with a dot."`
	RespectGitignore api.Field[bool]     `json:"respect_gitignore" doc:"Leave out what .gitignore files name."`

	Content           api.Field[string] `json:"content" doc:"RE2 expression; only files with a match are found."`
	Literal           api.Field[bool]   `json:"literal" doc:"content is text, no expression."`
	Multiline         api.Field[bool]   `json:"multiline" doc:"Matches may span lines."`
	Binary            api.Field[bool]   `json:"binary" doc:"Look into binary files too."`
	Context           api.Field[any]    `json:"context" doc:"Lines shown before and after a match, 0 to 20."`
	Before            api.Field[any]    `json:"before" doc:"Lines shown before a match."`
	After             api.Field[any]    `json:"after" doc:"Lines shown after a match."`
	MaxMatchesPerFile api.Field[any]    `json:"max_matches_per_file" doc:"100 by default."`
	MaxFileBytes      api.Field[any]    `json:"max_file_bytes" doc:"Larger files are passed over; 10 MiB by default, at most 32 MiB."`
}

const (
	defaultSearchDepth = 5
	defaultHits        = 100
	mostHits           = 100_000
	mostHitBytes       = 32 << 20 // text of one answer
	searchTime         = 10.0     // seconds
	mostSearchTime     = 3600.0
	mostContextLines   = 20
	mostMatches        = 10_000
)

func searchFiles(ctx context.Context, c *api.Call, in searchIn) (api.Body, error) {
	q, err := in.query(c)
	if err != nil {
		return nil, err
	}
	if q.Content != nil {
		if err := in.mayRead(c, q.Content); err != nil {
			return nil, err
		}
	}
	list := &api.List{}
	sum, err := search.Run(ctx, c.Guard(nil), q, func(h search.Hit) bool {
		if list.Size() > mostHitBytes {
			return false
		}
		list.Add(func(dst []byte) []byte { return appendHit(dst, h) })
		return true
	})
	if err != nil {
		return nil, directoryError(err)
	}
	out := &api.Object{}
	out.List("results", list)
	out.Set("timed_out", sum.TimedOut)
	out.Set("truncated", sum.Truncated)
	if q.Content != nil {
		out.Set("files_scanned", sum.Files)
		out.Set("bytes_scanned", sum.Bytes)
	}
	return out, nil
}

// query is what the body asks for, within the limits of the rule.
func (in *searchIn) query(c *api.Call) (q search.Query, err error) {
	if q.Path, err = wantPath(in.Path, "path"); err != nil {
		return q, err
	}
	pattern, err := wantPath(in.Pattern, "pattern")
	if err != nil {
		return q, err
	}
	if q.Depth, err = lenient(in.MaxDepth, "max_depth", defaultSearchDepth, math.MinInt32, limitOr(c, "max_depth", math.MaxInt32)); err != nil {
		return q, err
	}
	if q.Max, err = lenient(in.MaxResults, "max_results", defaultHits, math.MinInt32, min(mostHits, limitOr(c, "max_results", mostHits))); err != nil {
		return q, err
	}
	if q.Type, err = searchType(in.Type); err != nil {
		return q, err
	}
	flags := flagReader{}
	ignoreCase := flags.read(in.IgnoreCase, "ignore_case", false)
	q.NoHidden = !flags.read(in.Hidden, "hidden", true)
	q.GitIgnore = flags.read(in.RespectGitignore, "respect_gitignore", false)
	exclude, err := in.Exclude.Optional("exclude", nil)
	if err != nil || flags.err != nil {
		return q, firstError(flags.err, err)
	}
	q.Name = search.Compile(pattern, ignoreCase)
	if q.Exclude, err = excludePatterns(exclude, ignoreCase); err != nil {
		return q, err
	}
	seconds := searchTime
	if n, ok := c.Rule.Seconds("timeout_seconds"); ok {
		seconds = min(n, mostSearchTime)
	}
	q.Timeout = time.Duration(seconds * float64(time.Second))
	if in.Content.State != api.Absent && in.Content.State != api.Null {
		q.Content, err = in.content(ignoreCase)
	}
	return q, err
}

func searchType(f api.Field[string]) (search.Type, error) {
	name, err := f.Optional("type", "file")
	switch {
	case err != nil:
	case name == "file":
		return search.Files, nil
	case name == "directory":
		return search.Directories, nil
	case name == "any":
		return search.Any, nil
	}
	return 0, api.Invalidf("Invalid 'type': file, directory or any")
}

// content is the part of the body that speaks of content.
func (in *searchIn) content(ignoreCase bool) (*search.Content, error) {
	text, err := in.Content.Want("content")
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, missingField("content")
	}
	flags := flagReader{}
	c := &search.Content{Binary: flags.read(in.Binary, "binary", false)}
	opt := search.ExpressionOptions{
		Literal: flags.read(in.Literal, "literal", false), IgnoreCase: ignoreCase,
		Multiline: flags.read(in.Multiline, "multiline", false),
	}
	if flags.err != nil {
		return nil, flags.err
	}
	around, err := lenient(in.Context, "context", 0, 0, mostContextLines)
	if err != nil {
		return nil, err
	}
	if c.Before, err = lenient(in.Before, "before", around, 0, mostContextLines); err != nil {
		return nil, err
	}
	if c.After, err = lenient(in.After, "after", around, 0, mostContextLines); err != nil {
		return nil, err
	}
	if c.MaxMatches, err = lenient(in.MaxMatchesPerFile, "max_matches_per_file", 100, 1, mostMatches); err != nil {
		return nil, err
	}
	size, err := lenient(in.MaxFileBytes, "max_file_bytes", 10<<20, 0, search.MaxContentSize)
	if err != nil {
		return nil, err
	}
	c.MaxSize = int64(size)
	if c.Expression, err = search.CompileExpression(text, opt); err != nil {
		return nil, api.Errorf(400, "ValueError", "invalid_pattern", "Invalid 'content': %v", err)
	}
	return c, nil
}

// mayRead asks the download's own rules too, since content is shown.
func (in *searchIn) mayRead(c *api.Call, content *search.Content) error {
	rule, err := c.Also("files_download_stream")
	if err != nil {
		return err
	}
	content.Guard = c.Guard(rule)
	if n, ok := rule.Int("max_bytes"); ok {
		content.MaxSize = min(content.MaxSize, n)
	}
	return nil
}

// limitOr is a limit of the call's rule.
func limitOr(c *api.Call, name string, def int64) int64 {
	if n, ok := c.Rule.Int(name); ok {
		return n
	}
	return def
}

// lenient reads a number as the published server does, between the bounds. Only
// an absent one is the default.
func lenient(f api.Field[any], name string, def int, least, most int64) (int, error) {
	n := int64(def)
	if f.State != api.Absent {
		var ok bool
		if n, ok = api.LenientInt(f.V); !ok {
			return 0, api.Invalidf("Invalid '%s'", name)
		}
	}
	return int(min(max(n, least), most)), nil
}

// flagReader reads optional flags and keeps the first mistake.
type flagReader struct{ err error }

func (r *flagReader) read(f api.Field[bool], name string, def bool) bool {
	v, err := f.Optional(name, def)
	r.err = firstError(r.err, err)
	return v
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// mostPatterns bounds the patterns every entry is held against.
const mostPatterns = 200

func excludePatterns(texts []string, ignoreCase bool) ([]search.Pattern, error) {
	if len(texts) > mostPatterns {
		return nil, api.Invalidf("Invalid 'exclude': at most %d patterns", mostPatterns)
	}
	out := make([]search.Pattern, len(texts))
	for i, text := range texts {
		out[i] = search.Compile(text, ignoreCase)
	}
	return out, nil
}

// appendHit writes a hit as JSON.
func appendHit(dst []byte, h search.Hit) []byte {
	i := h.Info
	dst = api.Name(i.Name).Append(append(dst, `{"name":`...))
	dst = api.Name(i.Path).Append(append(dst, `,"path":`...))
	dst = append(append(dst, `,"type":"`...), plainType(i.Kind)...)
	dst = strconv.AppendInt(append(dst, `","size":`...), i.Size, 10)
	dst = append(append(append(dst, `,"modified":"`...), stamp(i.Mtime)...), '"')
	if raw := nameBase64(i.Name); raw != "" {
		dst = append(append(append(dst, `,"name_base64":"`...), raw...), '"')
	}
	if h.Matches != nil {
		dst = append(dst, `,"matches":[`...)
		for n, m := range h.Matches {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = appendMatch(dst, m)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func appendMatch(dst []byte, m search.Match) []byte {
	dst = strconv.AppendInt(append(dst, `{"line":`...), int64(m.Line), 10)
	dst = strconv.AppendInt(append(dst, `,"column":`...), int64(m.Column), 10)
	dst = api.AppendUTF8(append(dst, `,"text":`...), m.Text)
	dst = appendLines(append(dst, `,"before":`...), m.Before)
	dst = appendLines(append(dst, `,"after":`...), m.After)
	if m.Cut {
		dst = append(dst, `,"cut":true`...)
	}
	return append(dst, '}')
}

func appendLines(dst []byte, lines [][]byte) []byte {
	dst = append(dst, '[')
	for i, line := range lines {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = api.AppendUTF8(dst, line)
	}
	return append(dst, ']')
}
