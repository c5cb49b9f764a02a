package endpoints

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/archive"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/search"
)

func (s *Server) archives() []api.Endpoint {
	pack := api.Row{
		Name: "files_archive", Method: "POST", Path: "/files/archive", Group: "file_ops",
		Summary: "Pack files and directories into an archive.", Scopes: []string{"files:read"},
		Limits: []string{"max_bytes", "max_files"}, Paths: true,
	}
	return []api.Endpoint{api.Unary(pack, s.archiveFiles)}
}

type archiveIn struct {
	Paths   api.Field[[]string] `json:"paths" doc:"Files and directories; a link stands for its target."`
	Format  api.Field[string]   `json:"format" doc:"tar.gz (default), zip, tar or tar.zst."`
	Raw     api.Field[bool]     `json:"raw" doc:"Answer the archive itself."`
	Exclude api.Field[[]string] `json:"exclude" doc:"Patterns of what is left out."`
	Base    api.Field[string]   `json:"base" doc:"Directory that names are made relative to."`
}

const (
	defaultArchiveFiles = 10_000
	defaultArchiveBytes = 100 << 20
	inputPerByte        = 20 // how much more may be read than the archive may have
)

func (s *Server) archiveFiles(ctx context.Context, c *api.Call, in archiveIn) (api.Body, error) {
	opt, raw, err := in.options(c)
	if err != nil {
		return nil, err
	}
	opt.Owner, opt.Group = s.Files.Owner, s.Files.Group
	plan, err := archive.Prepare(ctx, c.Guard(nil), opt)
	if err != nil {
		return nil, archiveError(err)
	}
	if raw {
		return &rawArchive{plan}, nil
	}
	packed := &counted{guard: c.Guard(nil)}
	skipped, err := plan.Write(ctx, packed)
	if err != nil {
		packed.close()
		return nil, archiveError(err)
	}
	o := &api.Object{}
	o.Hold(closing(packed.close))
	o.Base64("content_base64", packed.reader(), packed.n)
	o.Set("format", opt.Format)
	o.Set("bytes", packed.n)
	o.Set("skipped", leftOut(skipped))
	return o, nil
}

// options are what the body asks for, within the limits of the rule, and
// whether the archive itself is wanted.
func (in *archiveIn) options(c *api.Call) (o archive.PackOptions, raw bool, err error) {
	accept := acceptedArchive(c.R.Header)
	if o.Format, err = in.format(accept); err != nil {
		return o, false, err
	}
	if o.Paths, err = in.Paths.Want("paths"); err != nil || len(o.Paths) == 0 {
		return o, false, missingField("paths")
	}
	if raw, err = in.Raw.Optional("raw", accept != ""); err != nil {
		return o, false, err
	}
	exclude, err := in.Exclude.Optional("exclude", nil)
	if err != nil {
		return o, false, err
	}
	patterns, err := excludePatterns(exclude, false)
	if err != nil {
		return o, false, err
	}
	if len(patterns) > 0 {
		o.Exclude = func(e *guardfs.Entry) bool { return search.MatchesAny(patterns, e) }
	}
	if o.Base, err = in.Base.Optional("base", ""); err != nil {
		return o, false, err
	}
	o.MaxFiles = int(min(limitOr(c, "max_files", defaultArchiveFiles), math.MaxInt32))
	o.MaxBytes = min(limitOr(c, "max_bytes", defaultArchiveBytes), math.MaxInt64/inputPerByte)
	o.MaxInput = o.MaxBytes * inputPerByte
	return o, raw, nil
}

func (in *archiveIn) format(accept string) (archive.Format, error) {
	if in.Format.State == api.Absent {
		if accept == archive.Zip.MediaType() {
			return archive.Zip, nil
		}
		return archive.TarGz, nil
	}
	if f, ok := archive.ParseFormat(in.Format.Or("")); ok {
		return f, nil
	}
	return "", api.Invalidf("Invalid 'format': tar.gz, zip, tar or tar.zst")
}

// acceptedArchive is the media type by which a caller asks for the archive
// itself; a wildcard does not.
func acceptedArchive(h http.Header) string {
	for _, line := range h.Values("Accept") {
		for item := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(item, ";")
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case archive.TarGz.MediaType(), archive.Zip.MediaType(), anyBytes:
				return name
			}
		}
	}
	return ""
}

// archiveError tells limits of packing as the contract does.
func archiveError(err error) error {
	if many, ok := errors.AsType[*archive.TooManyError](err); ok {
		return api.Invalidf("Too many files; limit is %d", many.Limit)
	}
	if big, ok := errors.AsType[*guardfs.TooLargeError](err); ok {
		return api.TooLarge(big.Limit, "Archive exceeds limit %d", big.Limit)
	}
	if errors.Is(err, archive.ErrOutsideBase) {
		return api.Invalidf("Invalid 'base': a path does not lie below it")
	}
	return err
}

func leftOut(skipped []archive.Skipped) []entryError {
	out := make([]entryError, len(skipped))
	for i, s := range skipped {
		out[i] = entryError{api.Name(s.Name), skipCode(s.Err)}
	}
	return out
}

func skipCode(err error) string {
	if errors.Is(err, archive.ErrChanged) {
		return "changed"
	}
	return api.CodeOf(err)
}

// rawArchive is the archive itself, made while it is sent.
type rawArchive struct{ plan *archive.Plan }

// Header implements [api.Body].
func (r *rawArchive) Header(h http.Header) {
	h.Set("Content-Type", r.plan.Format.MediaType())
	h.Set("X-Content-Type-Options", "nosniff")
}

// Send implements [api.Body].
func (r *rawArchive) Send(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	if _, err := r.plan.Write(ctx, out); err != nil {
		return err
	}
	return out.Flush()
}

// closing makes a function an [io.Closer].
type closing func()

// Close implements [io.Closer].
func (f closing) Close() error { f(); return nil }

// Write adds all bytes; whoever writes has a bound of its own.
func (c *counted) Write(p []byte) (int, error) { return len(p), c.add(p, math.MaxInt64) }

// whole is a run of bytes that can be read anywhere.
type whole interface {
	io.Reader
	io.ReaderAt
}

// reader reads the bytes, which are in memory or in a file without a name,
// from the start. They are there until close.
func (c *counted) reader() whole {
	if t, ok := c.file.(tempStage); ok {
		return io.NewSectionReader(t, 0, c.n)
	}
	return bytes.NewReader(c.mem.Bytes())
}
