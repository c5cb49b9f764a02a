package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// written is a file as the answer of an upload tells of it.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload serves POST /files.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	c, q, err := s.arriveAtFiles(r, "files_upload_stream", "write")
	status := http.StatusOK
	defer func() { c.Leave(status, codeOf(err)) }()
	var out []written
	if err == nil {
		u := &uploading{c: c, q: q.Get("path"), named: q.Has("path") && q.Get("path") != "", done: map[string]bool{}}
		err = u.receive(r)
		out = u.out
	}
	if err != nil {
		status = s.fail(w, err)
		return
	}
	writeJSON(w, out)
}

// uploading is one upload, of one file or several.
type uploading struct {
	c     *call
	q     string // the path of the query
	named bool
	attrs map[string]string
	done  map[string]bool // paths that were written
	out   []written
}

func (u *uploading) receive(r *http.Request) (err error) {
	if u.attrs, err = metadataOf(r.Header); err != nil {
		return err
	}
	var body io.Reader = bodyOf{r.Body}
	switch r.Header.Get("Content-Encoding") {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return connect.Errorf(connect.InvalidArgument, "the body is not gzip")
		}
		body = unzipped{z}
	default:
		return connect.Errorf(connect.InvalidArgument, "unknown Content-Encoding; gzip is supported")
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/octet-stream":
		if !u.named {
			return connect.Errorf(connect.InvalidArgument, "'path' is needed")
		}
		return u.save(r.Context(), u.q, body)
	case err == nil && kind == "multipart/form-data" && params["boundary"] != "":
		return u.form(r.Context(), multipart.NewReader(body, params["boundary"]))
	}
	return connect.Errorf(connect.InvalidArgument, "the body must be multipart/form-data or application/octet-stream")
}

// form saves the parts named "file".
func (u *uploading) form(ctx context.Context, parts *multipart.Reader) error {
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // wrapped it means that the body ended early
			if u.out == nil {
				u.out = []written{}
			}
			return nil
		}
		if err != nil {
			if _, known := errors.AsType[*connect.Error](err); known {
				return err
			}
			return connect.Errorf(connect.InvalidArgument, "the body is not a whole form")
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil || params["name"] != "file" {
			continue
		}
		to := u.q
		if !u.named {
			// With its directories, which Part.FileName leaves out.
			if to = params["filename"]; to == "" {
				return connect.Errorf(connect.InvalidArgument, "a file has no name and there is no 'path'")
			}
		}
		if err := u.save(ctx, to, formPart{part}); err != nil {
			return err
		}
	}
}

// save writes one file as the call's user.
func (u *uploading) save(ctx context.Context, to string, body io.Reader) error {
	c := u.c
	full, err := c.expand(to)
	if err != nil {
		return err
	}
	full = path.Clean(full)
	if u.done[full] {
		return connect.Errorf(connect.InvalidArgument, "%s is written twice", shownPath(full))
	}
	u.done[full] = true
	g := c.guard(c.Rule)
	var attrs map[string]string
	err = c.files(func() error {
		w, err := g.Create(full, c.createOptions())
		if err != nil {
			return asDestination(err)
		}
		defer w.Abort()
		if _, err := io.Copy(struct{ io.Writer }{w}, body); err != nil {
			return err
		}
		if _, err := w.Commit(ctx); err != nil {
			return asDestination(err)
		}
		attrs = replaceMetadata(g.Quiet(), full, u.attrs)
		return nil
	})
	if err == nil {
		u.out = append(u.out, written{Name: shownPath(path.Base(full)), Path: shownPath(full), Type: "file", Metadata: attrs})
	}
	return err
}

func (c *call) createOptions() guardfs.CreateOptions {
	opt := guardfs.CreateOptions{Judge: func(real string) error { return extension(c.Rule, real) }}
	if most, ok := c.Rule.Int("max_bytes"); ok {
		opt.Max = most
	}
	if overwrite, set := c.Rule.Bool("overwrite"); set && !overwrite {
		opt.NoOverwrite = true
	}
	return opt
}

// bodyOf makes a body that breaks off a mistake of the caller's.
type bodyOf struct{ r io.Reader }

// Read implements [io.Reader].
func (b bodyOf) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &connect.Error{Code: connect.InvalidArgument, Msg: "the body ended early", Err: err}
	}
	return n, err
}

// unzipped makes bad gzip a mistake of the caller's.
type unzipped struct{ z *gzip.Reader }

// Read implements [io.Reader].
func (u unzipped) Read(p []byte) (int, error) {
	n, err := u.z.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // wrapped it means that the body ended early
		return n, err
	}
	if _, known := errors.AsType[*connect.Error](err); !known {
		err = connect.Errorf(connect.InvalidArgument, "the body is not gzip")
	}
	return n, err
}

// formPart makes a part that breaks off a mistake of the caller's.
type formPart struct{ r io.Reader }

// Read implements [io.Reader].
func (f formPart) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // as above
		return n, err
	}
	if _, known := errors.AsType[*connect.Error](err); !known {
		err = connect.Errorf(connect.InvalidArgument, "the body is not a whole form")
	}
	return n, err
}

// Bounds of metadata.
const (
	maxMetadataKey = 246
	maxMetadata    = 4096
)

// metadataOf reads the X-Metadata-… headers.
func metadataOf(h http.Header) (map[string]string, error) {
	var out map[string]string
	size := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, "X-Metadata-")
		if !ok || key == "" {
			continue
		}
		key = strings.ToLower(key)
		if len(values) != 1 || len(key) > maxMetadataKey || strings.ContainsFunc(key+values[0], func(r rune) bool { return r < 0x20 || r > 0x7e }) {
			return nil, connect.Errorf(connect.InvalidArgument, "invalid metadata: one printable ASCII value for each key")
		}
		if size += len(attributePrefix) + len(key) + len(values[0]); size > maxMetadata {
			return nil, connect.Errorf(connect.InvalidArgument, "metadata is larger than %d bytes", maxMetadata)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = values[0]
	}
	return out, nil
}

// replaceMetadata makes attrs the metadata of a file and returns what it has
// then: nothing where the file system keeps none.
func replaceMetadata(g *guardfs.Guard, full string, attrs map[string]string) map[string]string {
	f, _, err := g.Open(full)
	if err != nil {
		return nil
	}
	defer f.Close()
	fd := int(f.Fd())
	var d describer
	for key := range d.ofFile(f) {
		if _, stays := attrs[key]; !stays {
			_ = unix.Fremovexattr(fd, attributePrefix+key)
		}
	}
	for key, value := range attrs {
		if unix.Fsetxattr(fd, attributePrefix+key, []byte(value), 0) != nil {
			return nil
		}
	}
	return maps.Clone(attrs)
}

// composeRequest is the body of /files/compose.
type composeRequest struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// maxSources is how many files one call may join.
const maxSources = 256

// compose serves POST /files/compose: it joins files and removes them.
func (s *Server) compose(w http.ResponseWriter, r *http.Request) {
	arrived, err := s.Gate.Arrive(r, door, "files_upload_stream", s.identify(r))
	c := &call{Call: arrived, s: s, user: s.self}
	status := http.StatusOK
	defer func() { c.Leave(status, codeOf(err)) }()
	var out written
	if err == nil {
		out, err = c.compose(w, r) //nolint:contextcheck // it takes the request's
	}
	if err != nil {
		status = s.fail(w, err)
		return
	}
	writeJSON(w, out)
}

func (c *call) compose(w http.ResponseWriter, r *http.Request) (out written, err error) {
	if err := c.Enter("files_upload_stream"); err != nil {
		return out, err
	}
	remove, err := c.Also("files_delete")
	if err != nil {
		return out, err
	}
	if !c.Identity.Holds("files:read") {
		return out, policy.Decision{Code: policy.MissingScope, Scope: "files:read", Identity: c.Identity.ID, Endpoint: "files_upload_stream"}.Err()
	}
	most := int64(maxInitBody)
	if n, ok := c.Rule.Int("max_request_bytes"); ok {
		most = n
	}
	var in composeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, most)).Decode(&in); err != nil {
		return out, connect.Errorf(connect.InvalidArgument, "the body is not a JSON object of /files/compose")
	}
	if len(in.Sources) == 0 || len(in.Sources) > maxSources || in.Destination == "" {
		return out, connect.Errorf(connect.InvalidArgument, "source_paths (1 to %d) and destination are needed", maxSources)
	}
	if err := c.become(in.Username); err != nil {
		return out, err
	}
	destination, err := c.expand(in.Destination)
	if err != nil {
		return out, err
	}
	destination = path.Clean(destination)
	sources := make([]string, len(in.Sources))
	for i, name := range in.Sources {
		if sources[i], err = c.expand(name); err != nil {
			return out, err
		}
		if sources[i] = path.Clean(sources[i]); sources[i] == destination || slices.Contains(sources[:i], sources[i]) {
			return out, connect.Errorf(connect.InvalidArgument, "a source is the destination, or given twice")
		}
	}
	if err := c.files(func() error { return c.join(r.Context(), sources, destination, remove) }); err != nil {
		return out, err
	}
	return written{Name: shownPath(path.Base(destination)), Path: shownPath(destination), Type: "file"}, nil
}

// join writes the sources to the destination, one after the other, and then
// removes them.
func (c *call) join(ctx context.Context, sources []string, destination string, remove *policy.Rule) error {
	g, del := c.guard(c.Rule), c.guard(remove)
	files := make([]*os.File, 0, len(sources))
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, name := range sources {
		f, _, err := g.Open(name)
		if err == nil {
			files = append(files, f)
			_, err = del.Check(name, policy.Delete)
		}
		if err != nil {
			return err
		}
	}
	w, err := g.Create(destination, c.createOptions())
	if err != nil {
		return asDestination(err)
	}
	defer w.Abort()
	for _, f := range files {
		if _, err := io.Copy(struct{ io.Writer }{w}, f); err != nil {
			return err
		}
	}
	if _, err := w.Commit(ctx); err != nil {
		return asDestination(err)
	}
	for _, name := range sources {
		if _, err := del.Delete(ctx, name, guardfs.DeleteOptions{Flat: true}); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("the files were joined, but a source stays: %w", err)
		}
	}
	return nil
}
