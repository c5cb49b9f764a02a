package endpoints

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) transfers() []api.Endpoint {
	up := api.Row{
		Name: "files_upload_stream", Method: "POST", Path: "/files/upload-stream", Group: "file_ops",
		Summary: "Write a file.", Scopes: []string{"files:write"}, Limits: []string{"max_bytes"},
		Params: []string{"overwrite", "allow_extensions", "deny_extensions"},
		Paths:  true, Op: policy.Write, Mutates: true,
	}
	down := api.Row{
		Name: "files_download_stream", Method: "GET", Path: "/files/download-stream", Group: "file_ops",
		Summary: "Read a file.", Scopes: []string{"files:read"}, Limits: []string{"max_bytes"}, Paths: true,
	}
	upAlso, downAlso := up, down
	upAlso.Name, upAlso.As, upAlso.Path = "upload", up.Name, "/upload"
	downAlso.Name, downAlso.As, downAlso.Path = "download", down.Name, "/download"
	return []api.Endpoint{
		api.Transfer(up, upload),
		api.Unary(down, download),
		api.Transfer(upAlso, uploadAlso),
		api.Unary(downAlso, download),
	}
}

type uploadIn struct {
	Path          api.Field[string] `json:"path" doc:"Where to write; parents are made."`
	ContentBase64 api.Field[string] `json:"content_base64" doc:"The bytes, base64."`
	Content       api.Field[string] `json:"content" doc:"The text, with encoding utf8."`
	Encoding      api.Field[string] `json:"encoding" doc:"utf8: content is the text itself."`
	Overwrite     api.Field[bool]   `json:"overwrite" doc:"false: an existing file is an error."`
	Mode          api.Field[string] `json:"mode" doc:"Permissions, octal, at most 0777."`
	Mtime         api.Field[any]    `json:"mtime" doc:"Time of modification: ISO 8601 or seconds."`
	SHA256        api.Field[string] `json:"sha256" doc:"The content must have this checksum."`
	CreateParents api.Field[bool]   `json:"create_parents" doc:"false: a missing parent is an error."`
	Append        api.Field[bool]   `json:"append" doc:"Add to the end of the file."`
}

type uploadOut struct {
	Path    api.Name `json:"path"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256"`
	Created bool     `json:"created"`
	ETag    string   `json:"etag"`
}

func upload(ctx context.Context, c *api.Call, _ uploadIn) (uploadOut, error) {
	return receive(ctx, c, false)
}

// uploadAlso takes "content" for another name of "content_base64" too.
func uploadAlso(ctx context.Context, c *api.Call, _ uploadIn) (uploadOut, error) {
	return receive(ctx, c, true)
}

// receive writes the file a JSON body holds.
func receive(ctx context.Context, c *api.Call, contentIsBase64 bool) (uploadOut, error) {
	u := newIncoming(c)
	defer u.content.Close()
	if err := c.Members(&u.in, contentMembers, u.open); err != nil {
		return uploadOut{}, err
	}
	w, err := u.finish(ctx, contentIsBase64)
	if err != nil {
		return uploadOut{}, err
	}
	defer w.Abort()
	return commit(ctx, w)
}

// contentMembers are the members whose text may be too long for memory.
var contentMembers = []string{"content_base64", "content"}

// incoming is a file in a JSON object while that is read. The members that say
// where and how may come behind the content, so a short content waits in
// memory. A long one goes to the unfinished file at once if its path is known
// by then; only when a later member asks for another way of writing is it
// copied.
type incoming struct {
	c       *api.Call
	in      uploadIn // so far
	early   uploadIn // as it was when the content began
	content *spool   // to be closed
}

func newIncoming(c *api.Call) *incoming {
	return &incoming{c: c, content: newSpool(c)}
}

// open makes what takes a content that begins.
func (u *incoming) open(name string) (io.Writer, error) {
	u.content.begin(name)
	if u.in.Path.State != api.Good || name != "content_base64" {
		return u.content, nil
	}
	// What can be refused before the bytes have come is refused now.
	if err := judgeUpload(u.c, u.in.Path.V); err != nil {
		return nil, err
	}
	u.early = u.in
	u.content.bytes.early = func() (*guardfs.Writer, error) {
		opt, err := u.early.options(u.c, u.c.Rule)
		if err != nil {
			return nil, err
		}
		return u.c.Guard(nil).Create(u.early.Path.V, opt)
	}
	return u.content, nil
}

// finish judges the whole object and gives the file with all its bytes, which
// the caller ends.
func (u *incoming) finish(ctx context.Context, contentIsBase64 bool) (*guardfs.Writer, error) {
	opt, err := u.in.options(u.c, u.c.Rule)
	if err != nil {
		return nil, err
	}
	if err := u.in.content(u.content, contentIsBase64); err != nil {
		return nil, err
	}
	if err := judgeUpload(u.c, u.in.Path.V); err != nil {
		return nil, err
	}
	if err := u.content.check(); err != nil {
		return nil, err
	}
	if w, ok := u.content.bytes.file.(*guardfs.Writer); ok && u.content.base64 && u.in.sameWay(u.early) {
		u.content.bytes.file = nil // the caller's now
		return w, nil
	}
	w, err := u.c.Guard(nil).Create(u.in.Path.V, opt)
	if err != nil {
		return nil, err
	}
	if err := u.content.copyTo(ctx, w); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// sameWay tells whether two requests ask to write the same place in the same
// way. Their options have been read, so every value is comparable.
func (in uploadIn) sameWay(other uploadIn) bool {
	in.ContentBase64, in.Content, in.Encoding = other.ContentBase64, other.Content, other.Encoding
	return in == other
}

// commit ends a write and tells what it did.
func commit(ctx context.Context, w *guardfs.Writer) (uploadOut, error) {
	res, err := w.Commit(ctx)
	if err != nil {
		return uploadOut{}, err
	}
	return uploaded(res), nil
}

func uploaded(res guardfs.Result) uploadOut {
	return uploadOut{api.Name(res.Info.Path), res.Bytes, res.SHA256, res.Created, res.Info.ETag()}
}

// judgeUpload asks what the rules say of a name before the content is there.
func judgeUpload(c *api.Call, path string) error {
	if path == "" {
		return missingField("path")
	}
	real, err := c.Guard(nil).Check(path, policy.Write)
	if err != nil {
		return err
	}
	return extensionDecision(c.Rule, real).Err()
}

// options are how the file is to be written; rule is the upload endpoint's.
func (in *uploadIn) options(c *api.Call, rule *policy.Rule) (guardfs.CreateOptions, error) {
	opt := guardfs.CreateOptions{
		Max:   c.MaxUpload(rule),
		Judge: func(real string) error { return extensionDecision(rule, real).Err() },
	}
	if _, err := wantPath(in.Path, "path"); err != nil {
		return opt, err
	}
	overwrite, err := in.Overwrite.Optional("overwrite", true)
	if err != nil {
		return opt, err
	}
	opt.NoOverwrite = !overwrite || keepsFiles(rule)
	if opt.Mode, err = octal(in.Mode, "mode"); err != nil {
		return opt, err
	}
	if opt.Mtime, err = moment(in.Mtime, "mtime"); err != nil {
		return opt, err
	}
	if opt.SHA256, err = in.SHA256.Optional("sha256", ""); err != nil {
		return opt, err
	}
	opt.SHA256 = strings.ToLower(opt.SHA256)
	parents, err := in.CreateParents.Optional("create_parents", true)
	if err != nil {
		return opt, err
	}
	opt.NoParents = !parents
	opt.Append, err = in.Append.Optional("append", false)
	return opt, err
}

// keepsFiles tells whether a rule forbids to replace what is there.
func keepsFiles(rule *policy.Rule) bool {
	overwrite, set := rule.Bool("overwrite")
	return set && !overwrite
}

// content says how the spooled text is to be read.
func (in *uploadIn) content(s *spool, contentIsBase64 bool) error {
	encoding, err := in.Encoding.Optional("encoding", "")
	if err != nil || encoding != "" && encoding != "utf8" {
		return api.Invalidf("Invalid 'encoding': utf8 or nothing")
	}
	switch {
	case in.ContentBase64.State == api.Good && s.member == "content_base64":
		s.base64 = true
	case in.Content.State == api.Good && s.member == "content" && encoding == "utf8":
		s.base64 = false
	case in.Content.State == api.Good && s.member == "content" && contentIsBase64:
		s.base64 = true
	default:
		return missingField("content_base64")
	}
	return nil
}

// furthest is how many seconds a time may be from 1970, so that its nanoseconds
// have a number.
const furthest = math.MaxInt64 / 1e9

// moment reads a time; zero when the field is absent.
func moment(f api.Field[any], name string) (time.Time, error) {
	if f.State != api.Good {
		return time.Time{}, nil
	}
	switch v := f.V.(type) {
	case api.Number:
		if s := v.Float(); math.Abs(s) < furthest {
			whole, frac := math.Modf(s)
			return time.Unix(int64(whole), int64(frac*1e9)), nil
		}
	case string:
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02"} {
			if t, err := time.Parse(layout, v); err == nil && math.Abs(float64(t.Unix())) < furthest {
				return t, nil
			}
		}
	}
	return time.Time{}, api.Invalidf("Invalid '%s': ISO 8601 or seconds", name)
}

type downloadIn struct {
	Path       string `query:"path" doc:"The file."`
	Attachment bool   `query:"download" doc:"Of the bytes themselves: let a browser save them."`
	Encoding   string `query:"encoding" doc:"Of the bytes themselves: gzip sends them compressed."`
}

func download(_ context.Context, c *api.Call, in downloadIn) (api.Body, error) {
	if wantsBytes(c.R.Header) {
		return openRaw(c, in)
	}
	f, info, err := openDownload(c, c.Rule, in.Path)
	if err != nil {
		return nil, err
	}
	o := &api.Object{}
	o.Hold(f)
	o.Set("path", api.Name(info.Path))
	o.Base64("content_base64", f, info.Size)
	o.Set("bytes", info.Size)
	return o, nil
}

// openDownload opens a file whose content a rule lets the caller see.
func openDownload(c *api.Call, rule *policy.Rule, path string) (*os.File, guardfs.Info, error) {
	if path == "" {
		return nil, guardfs.Info{}, missingField("path")
	}
	f, info, err := c.Guard(rule).Open(path)
	if err != nil {
		return nil, info, notAFile(err)
	}
	if most, ok := rule.Int("max_bytes"); ok && info.Size > most {
		_ = f.Close()
		return nil, info, fileTooLarge(info.Size, most)
	}
	return f, info, nil
}

// notAFile tells whatever is no regular file as missing, as the published
// server does for downloads.
func notAFile(err error) error {
	if !errors.Is(err, guardfs.ErrNotRegular) && !errors.Is(err, guardfs.ErrIsDirectory) {
		return err
	}
	e := api.Errorf(404, "FileNotFoundError", "", "Not a regular file")
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		e.Msg += ": " + strings.ToValidUTF8(pe.Path, "\uFFFD")
	}
	return e
}

// nameBase64 is a name's bytes where they are not UTF-8, else "".
func nameBase64(name string) string {
	if strings.ToValidUTF8(name, "") == name {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(name))
}
