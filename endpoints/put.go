package endpoints

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

type putIn struct {
	Path          string `query:"path" doc:"Where to write; parents are made."`
	Overwrite     string `query:"overwrite" doc:"false: an existing file is an error."`
	Mode          string `query:"mode" doc:"Permissions, octal, at most 0777."`
	Mtime         string `query:"mtime" doc:"Time of modification: ISO 8601 or seconds."`
	SHA256        string `query:"sha256" doc:"The content must have this checksum."`
	CreateParents string `query:"create_parents" doc:"false: a missing parent is an error."`
	Append        bool   `query:"append" doc:"Add to the end of the file."`
	Offset        string `query:"offset" doc:"Go on with a file that has so many bytes; what arrives of a broken request stays."`
}

// putOut answers 201 for a new file.
type putOut uploadOut

// Status implements [api.Statuser].
func (o putOut) Status() int {
	if o.Created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// putContent writes the body. All that can be decided without it is decided
// before the first byte is asked for.
func putContent(ctx context.Context, c *api.Call, in putIn) (putOut, error) {
	if c.R.Header.Get("Content-Range") != "" {
		// Taken for a whole file, a part would replace it.
		return putOut{}, api.Invalidf("Content-Range is not understood here; 'offset' goes on with a file")
	}
	opt, err := in.options(c)
	if err != nil {
		return putOut{}, err
	}
	opt.If = readConditions(c.R.Header).judge
	zipped := isZipped(c)
	if !zipped && c.R.ContentLength > opt.Max {
		return putOut{}, fileTooLarge(c.R.ContentLength, opt.Max)
	}
	w, err := c.Guard(nil).Create(in.Path, opt)
	if err != nil {
		return putOut{}, err
	}
	defer w.Abort()
	body := c.Body()
	if zipped {
		body = &gunzip{src: kept{r: body}, left: opt.Max, limit: opt.Max}
	}
	if err := pour(ctx, w, body); err != nil {
		return putOut{}, err
	}
	out, err := commit(ctx, w)
	return putOut(out), err
}

// options are those of an upload by JSON, and an offset.
func (in *putIn) options(c *api.Call) (guardfs.CreateOptions, error) {
	up := uploadIn{
		Path: given(in.Path), Mode: given(in.Mode), SHA256: given(in.SHA256),
		Overwrite: onUnless(in.Overwrite), CreateParents: onUnless(in.CreateParents),
		Append: api.Field[bool]{V: in.Append, State: api.Good},
	}
	if in.Mtime != "" {
		up.Mtime = api.Field[any]{V: in.Mtime, State: api.Good}
		if _, err := strconv.ParseFloat(in.Mtime, 64); err == nil {
			up.Mtime.V = api.Number(in.Mtime)
		}
	}
	opt, err := up.options(c, c.Rule)
	if err != nil || in.Offset == "" {
		return opt, err
	}
	at, err := strconv.ParseInt(in.Offset, 10, 64)
	if err != nil || at < 0 {
		return opt, api.Invalidf("Invalid 'offset'")
	}
	if in.Append {
		return opt, api.Invalidf("'offset' and 'append' exclude each other")
	}
	opt.Offset = &at
	return opt, nil
}

// given is a field of a query, where blank means absent.
func given(s string) (f api.Field[string]) {
	if s != "" {
		f.V, f.State = s, api.Good
	}
	return f
}

// onUnless is a flag of a query that is on unless it is given otherwise.
func onUnless(s string) (f api.Field[bool]) {
	if s != "" {
		f.V, f.State = api.Truthy(s), api.Good
	}
	return f
}

// isZipped tells whether a raw body is to be decoded; the gate has let no other
// coding in.
func isZipped(c *api.Call) bool {
	return strings.EqualFold(c.R.Header.Get("Content-Encoding"), "gzip")
}

// gunzip decodes a body from its first read on. More than limit bytes are a
// 413; a failure of the body stays what it is.
type gunzip struct {
	src   kept
	z     *gzip.Reader
	left  int64
	limit int64
}

// Read implements [io.Reader].
func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.z == nil {
		if g.z, err = gzip.NewReader(&g.src); err != nil {
			return 0, g.fault()
		}
	}
	if int64(len(p)) > g.left+1 {
		p = p[:g.left+1]
	}
	n, err = g.z.Read(p)
	if g.left -= int64(n); g.left < 0 {
		return n - 1, api.TooLarge(g.limit, "The content is larger than the limit of %d bytes", g.limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = g.fault()
	}
	return n, err
}

func (g *gunzip) fault() error {
	if g.src.err != nil {
		return g.src.err
	}
	return api.Invalidf("The body is not valid gzip")
}

// kept remembers why a source failed, for readers that say only that it did.
type kept struct {
	r   io.Reader
	err error
}

// Read implements [io.Reader].
func (k *kept) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}
