package endpoints

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/archive"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) extracting() []api.Endpoint {
	row := api.Row{
		Name: "files_extract", As: "files_upload_stream", Method: "POST", Path: "/files/extract", Group: "file_ops",
		Summary: "Unpack an archive.", Scopes: []string{"files:write"},
		Paths: true, Op: policy.Write, Mutates: true,
	}
	return []api.Endpoint{api.Transfer(row, extract)}
}

type extractIn struct {
	Path          api.Field[string] `json:"path" doc:"An archive in the sandbox."`
	ContentBase64 api.Field[string] `json:"content_base64" doc:"The archive itself, base64."`
	Destination   api.Field[string] `json:"destination" doc:"The directory to fill; made if it is missing."`
	Format        api.Field[string] `json:"format" doc:"tar, tar.gz, tar.zst or zip; guessed from the bytes by default."`
	Strip         api.Field[any]    `json:"strip_components" doc:"Leading components of names to drop."`
	Overwrite     api.Field[bool]   `json:"overwrite" doc:"false: a file that is there is an error."`

	extractQuery
}

// extractQuery says the same for a body that is the archive.
type extractQuery struct {
	QueryDestination string `query:"destination" doc:"The body is the archive; fill this directory."`
	QueryFormat      string `query:"format" doc:"As in the body."`
	QueryStrip       string `query:"strip_components" doc:"As in the body."`
	QueryOverwrite   string `query:"overwrite" doc:"As in the body."`
}

type extractOut struct {
	Destination api.Name      `json:"destination"`
	Files       int           `json:"files" doc:"Files and links."`
	Directories int           `json:"directories" doc:"Directories made."`
	Bytes       int64         `json:"bytes"`
	Skipped     []skippedName `json:"skipped"`
}

type skippedName struct {
	Name api.Name `json:"name"`
	Code string   `json:"code"`
}

// mostEntries is how much an archive may hold that is unpacked.
const mostEntries = 100_000

func extract(ctx context.Context, c *api.Call, in extractIn) (extractOut, error) {
	packed := newSpool(c)
	packed.base64 = true
	defer packed.Close()
	var opt archive.UnpackOptions
	var err error
	if in.QueryDestination != "" {
		opt, err = in.raw(c, &packed.bytes)
	} else {
		opt, err = in.json(c, packed)
	}
	if err != nil {
		return extractOut{}, err
	}
	opt.MaxBytes, opt.MaxEntries = c.MaxUpload(c.Rule), mostEntries
	opt.Keep = opt.Keep || keepsFiles(c.Rule)
	opt.Judge = func(real string) error { return extensionDecision(c.Rule, real).Err() }
	from, size := io.ReaderAt(packed.bytes.reader()), packed.bytes.n
	if in.Path.State == api.Good {
		rule, err := c.Also("files_download_stream")
		if err != nil {
			return extractOut{}, err
		}
		f, info, err := openDownload(c, rule, in.Path.V)
		if err != nil {
			return extractOut{}, err
		}
		defer f.Close()
		from, size = f, info.Size
	}
	done, err := archive.Unpack(ctx, c.Guard(nil), from, size, opt)
	if err != nil {
		return extractOut{}, extractError(err)
	}
	out := extractOut{Destination: api.Name(done.Destination), Files: done.Files, Directories: done.Directories, Bytes: done.Bytes, Skipped: []skippedName{}}
	for _, s := range done.Skipped {
		out.Skipped = append(out.Skipped, skippedName{api.Name(s.Name), skipCode(s.Err)})
	}
	return out, nil
}

// json reads a body that is a JSON object. The archive is held outside of
// memory until all of it is there.
func (in *extractIn) json(c *api.Call, packed *spool) (o archive.UnpackOptions, err error) {
	judged := false
	err = c.Members(in, []string{"content_base64"}, func(name string) (io.Writer, error) {
		// What can be refused before the bytes have come is refused now.
		if in.Destination.State == api.Good && !judged {
			judged = true
			if err := judgeDestination(c, in.Destination.V); err != nil {
				return nil, err
			}
		}
		packed.begin(name)
		return packed, nil
	})
	if err != nil {
		return o, err
	}
	inside := in.ContentBase64.State != api.Absent
	switch {
	case inside && in.Path.State != api.Absent:
		return o, api.Invalidf("Either 'path' or 'content_base64'")
	case inside && in.ContentBase64.State != api.Good:
		return o, missingField("content_base64")
	case !inside:
		if _, err := wantPath(in.Path, "path"); err != nil {
			return o, err
		}
	}
	if o.Destination, err = wantPath(in.Destination, "destination"); err != nil {
		return o, err
	}
	if o.Strip, err = lenient(in.Strip, "strip_components", 0, 0, math.MaxInt16); err != nil {
		return o, err
	}
	overwrite, err := in.Overwrite.Optional("overwrite", true)
	if err != nil {
		return o, err
	}
	o.Keep = !overwrite
	format, err := in.Format.Optional("format", "")
	if err == nil {
		o.Format, err = unpackFormat(format)
	}
	if err == nil && !judged {
		err = judgeDestination(c, o.Destination)
	}
	if err == nil && inside {
		err = packed.check()
	}
	return o, err
}

// raw reads a body that is the archive.
func (in *extractIn) raw(c *api.Call, packed *counted) (o archive.UnpackOptions, err error) {
	o.Destination = in.QueryDestination
	if in.QueryStrip != "" {
		n, ok := queryInt(in.QueryStrip)
		if !ok {
			return o, api.Invalidf("Invalid 'strip_components'")
		}
		o.Strip = int(min(max(n, 0), math.MaxInt16))
	}
	o.Keep = in.QueryOverwrite != "" && !api.Truthy(in.QueryOverwrite)
	if o.Format, err = unpackFormat(in.QueryFormat); err != nil {
		return o, err
	}
	if err := judgeDestination(c, o.Destination); err != nil {
		return o, err
	}
	limit := c.MaxUpload(c.Rule)
	if _, err := io.Copy(packed, io.LimitReader(c.Body(), limit+1)); err != nil {
		return o, err
	}
	if packed.n > limit {
		return o, api.TooLarge(limit, "The archive has more than %d bytes", limit)
	}
	return o, nil
}

func judgeDestination(c *api.Call, path string) error {
	if path == "" {
		return missingField("destination")
	}
	_, err := c.Guard(nil).Check(path, policy.Write)
	return err
}

func unpackFormat(name string) (archive.Format, error) {
	f, ok := archive.ParseFormat(name)
	if name != "" && !ok {
		return "", api.Invalidf("Invalid 'format': tar, tar.gz, tar.zst or zip")
	}
	return f, nil
}

// extractError tells what is wrong with an archive, and with which entry.
func extractError(err error) error {
	if bad, ok := errors.AsType[*archive.UnsafeError](err); ok {
		return api.Errorf(400, "ValueError", "unsafe_entry", "An entry of the archive leads out of the destination").With("name", shownName(bad.Name))
	}
	if many, ok := errors.AsType[*archive.TooManyError](err); ok {
		return api.TooLarge(int64(many.Limit), "The archive has more than %d entries", many.Limit)
	}
	if big, ok := errors.AsType[*guardfs.TooLargeError](err); ok {
		return api.TooLarge(big.Limit, "The archive unpacks to more than %d bytes", big.Limit)
	}
	if errors.Is(err, archive.ErrInvalid) {
		text := err.Error()
		return api.Errorf(400, "ValueError", "invalid_archive", "%s", strings.ToUpper(text[:1])+text[1:])
	}
	return err
}

// shownName is the name of an entry, of which nobody needs more than a path.
func shownName(name string) api.Name { return api.Name(name[:min(len(name), 4096)]) }
