package endpoints

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// content are the routes for files as they are, without JSON around their
// bytes, and for many files at once. All are judged as an upload or a download.
func (s *Server) content() []api.Endpoint {
	get := api.Row{
		Name: "files_content", As: "files_download_stream", Method: "GET", Path: "/files/content", Group: "file_ops",
		Summary: "Read the bytes of a file, whole or in part.", Scopes: []string{"files:read"}, Paths: true,
	}
	put := api.Row{
		Name: "files_content_put", As: "files_upload_stream", Method: "PUT", Path: "/files/content", Group: "file_ops",
		Summary: "Write the bytes of a file.", Scopes: []string{"files:write"}, Paths: true, Op: policy.Write, Mutates: true,
	}
	form, many, change := put, put, put
	form.Name, form.Method = "files_content_form", "POST"
	form.Summary = "Write the files of a form (multipart/form-data) to a directory."
	many.Name, many.Method, many.Path = "files_write_many", "POST", "/files/write-many"
	many.Summary = "Write many files, each with its own outcome or all together."
	change.Name, change.Method, change.Path = "files_chmod", "POST", "/files/chmod"
	change.Summary = "Change the permissions of a file or a tree."
	duplicate := api.Row{
		Name: "files_copy", As: "files_download_stream", Method: "POST", Path: "/files/copy", Group: "file_ops",
		Summary: "Copy a file or a directory.", Scopes: []string{"files:read", "files:write"}, Paths: true, Mutates: true,
	}
	return []api.Endpoint{
		api.Unary(get, getContent),
		api.Raw(put, putContent),
		api.Raw(form, writeForm),
		api.Transfer(many, writeMany),
		api.Unary(duplicate, copyFiles),
		api.Unary(change, chmodFile),
	}
}

func getContent(_ context.Context, c *api.Call, in downloadIn) (api.Body, error) {
	return openRaw(c, in)
}

// wantsBytes tells whether a caller names the type of plain bytes; a wildcard
// is no wish.
func wantsBytes(h http.Header) bool {
	for _, line := range h.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			kind, params, err := mime.ParseMediaType(item)
			if err != nil || kind != anyBytes {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// rawFile is an answer of a file's own bytes. Size, tag and bytes are those of
// one open file.
type rawFile struct {
	file       *os.File
	info       guardfs.Info
	status     int
	part       span // of an answer with a body
	gzip       bool
	attachment bool
}

// openRaw judges and opens a file and picks what of it the headers ask for.
func openRaw(c *api.Call, in downloadIn) (api.Body, error) {
	if in.Encoding != "" && in.Encoding != "gzip" && in.Encoding != "identity" {
		return nil, api.Invalidf("Invalid 'encoding': gzip or nothing")
	}
	f, info, err := openDownload(c, c.Rule, in.Path)
	if err != nil {
		return nil, err
	}
	r := &rawFile{
		file: f, info: info, status: http.StatusOK, part: span{0, info.Size},
		gzip: in.Encoding == "gzip", attachment: in.Attachment,
	}
	if err := r.choose(c.R.Header); err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

// choose applies conditions, then the range.
func (r *rawFile) choose(h http.Header) error {
	now := version{exists: true, tag: r.tag(), modified: r.info.Modified()}
	cond := readConditions(h)
	if !cond.holds(now) {
		return preconditionFailed()
	}
	if cond.unchanged(now) {
		r.status = http.StatusNotModified
		return nil
	}
	asked := h.Values("Range")
	if len(asked) != 1 || r.gzip || !ifRange(h.Get("If-Range"), now) {
		return nil
	}
	part, kind := parseRange(asked[0], r.info.Size)
	switch kind {
	case partialRange:
		r.status, r.part = http.StatusPartialContent, part
	case unsatisfiableRange:
		return &api.Error{
			Status: http.StatusRequestedRangeNotSatisfiable, Type: "ValueError", Code: "range_not_satisfiable",
			Msg:    "The file has " + strconv.FormatInt(r.info.Size, 10) + " bytes",
			Header: map[string]string{"Content-Range": "bytes */" + strconv.FormatInt(r.info.Size, 10)},
		}
	}
	return nil
}

// tag is weak when the bytes sent are not the file's own.
func (r *rawFile) tag() string {
	if r.gzip {
		return "W/" + r.info.ETag()
	}
	return r.info.ETag()
}

// Status implements [api.Statuser].
func (r *rawFile) Status() int { return r.status }

// Close implements [io.Closer].
func (r *rawFile) Close() error { return r.file.Close() }

// Header implements [api.Body].
func (r *rawFile) Header(h http.Header) {
	h.Set("ETag", r.tag())
	h.Set("Last-Modified", r.info.Modified().Format(http.TimeFormat))
	h.Set("Cache-Control", "private, no-cache")
	h.Set("X-File-Path", headerPath(r.info.Path))
	h.Set("X-File-Mode", octalText(r.info.Mode))
	if r.status == http.StatusNotModified {
		return
	}
	h.Set("Content-Type", mimeType(r.info.Name))
	h.Set("X-Content-Type-Options", "nosniff")
	// A page from the sandbox must not act as a page of this server's origin.
	h.Set("Content-Security-Policy", "sandbox")
	if r.attachment {
		h.Set("Content-Disposition", attachment(r.info.Name))
	}
	if r.gzip {
		h.Set("Content-Encoding", "gzip")
		h.Set("Accept-Ranges", "none")
		return
	}
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Length", strconv.FormatInt(r.part.n, 10))
	if r.status == http.StatusPartialContent {
		h.Set("Content-Range", r.part.of(r.info.Size))
	}
}

// Send implements [api.Body]. A file that has become shorter than its header
// said ends in an error.
func (r *rawFile) Send(ctx context.Context, w io.Writer) error {
	if r.gzip {
		return r.sendZipped(ctx, w)
	}
	if _, err := r.file.Seek(r.part.from, io.SeekStart); err != nil {
		return err
	}
	// Nothing between the file and the connection, so that the kernel copies.
	n, err := io.Copy(w, &io.LimitedReader{R: r.file, N: r.part.n})
	if err == nil && n < r.part.n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (r *rawFile) sendZipped(ctx context.Context, w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	n, err := io.Copy(z, contextReader{ctx, io.LimitReader(r.file, r.info.Size)})
	if err == nil && n < r.info.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return z.Close()
}

// headerPath is a path in the form a header can hold: all but its plain
// characters and slashes percent-encoded, byte by byte.
func headerPath(path string) string {
	return strings.ReplaceAll(url.PathEscape(path), "%2F", "/")
}

func octalText(mode uint32) string {
	text := strconv.FormatUint(uint64(mode), 8)
	return strings.Repeat("0", max(0, 4-len(text))) + text
}

// attachment is a Content-Disposition by which browsers save under a name.
func attachment(name string) string {
	if text := mime.FormatMediaType("attachment", map[string]string{"filename": name}); text != "" {
		return text
	}
	return "attachment"
}
