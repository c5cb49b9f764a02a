package endpoints

import (
	"cmp"
	"context"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"path/filepath"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

type formIn struct {
	Dir           string `query:"dir" doc:"The directory that file names are relative to."`
	Overwrite     string `query:"overwrite" doc:"false: an existing file is an error."`
	Mode          string `query:"mode" doc:"Permissions of every file, octal, at most 0777."`
	CreateParents string `query:"create_parents" doc:"false: a missing parent is an error."`
	Atomic        bool   `query:"atomic" doc:"All files or none."`
}

// writeForm writes the files of a form. Nothing takes effect before the whole
// form was read.
func writeForm(ctx context.Context, c *api.Call, in formIn) (manyOut, error) {
	if in.Dir == "" {
		return manyOut{}, missingField("dir")
	}
	boundary, err := formBoundary(c.R.Header.Get("Content-Type"))
	if err != nil {
		return manyOut{}, err
	}
	up := uploadIn{Path: given(in.Dir), Mode: given(in.Mode), Overwrite: onUnless(in.Overwrite), CreateParents: onUnless(in.CreateParents)}
	opt, err := up.options(c, c.Rule)
	if err != nil {
		return manyOut{}, err
	}
	// Where the directory is refused, so is every file in it.
	if _, err := c.Guard(nil).Check(in.Dir, policy.Write); err != nil {
		return manyOut{}, err
	}
	f := form{batch: batch{c: c}, dir: in.Dir, opt: opt}
	defer f.close()
	if err := f.read(ctx, boundary); err != nil {
		return manyOut{}, err
	}
	return f.commit(ctx, in.Atomic)
}

func formBoundary(contentType string) (string, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return "", api.Errorf(http.StatusUnsupportedMediaType, "ValueError", "unsupported_media_type", "The body must be multipart/form-data with a boundary")
	}
	return params["boundary"], nil
}

// form is the files of one form.
type form struct {
	batch
	dir string
	opt guardfs.CreateOptions
}

// read stages every part that has a file name.
func (f *form) read(ctx context.Context, boundary string) error {
	body := &kept{r: f.c.Body()}
	var src io.Reader = body
	if isZipped(f.c) {
		most := f.opt.Max + f.opt.Max/64 + 1<<20 // as much as a form may have that is sent as it is
		body = &kept{r: &gunzip{src: *body, left: most, limit: f.opt.Max}}
		src = body
	}
	parts := multipart.NewReader(src, boundary)
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // wrapped it means that the body ended early
			break
		}
		if err == nil {
			err = f.addPart(ctx, part)
		} else {
			err = badForm()
		}
		if err != nil {
			return cmp.Or(body.err, err)
		}
	}
	// To the end, so that the connection can be used again.
	_, err := io.Copy(io.Discard, src)
	return err
}

// addPart stages a file. An error is one of the request.
func (f *form) addPart(ctx context.Context, part *multipart.Part) error {
	name, err := fileName(part.Header.Get("Content-Disposition"))
	if err != nil || name == "" {
		return err // a field, or a file input without a file, is no file of ours
	}
	if err := f.room(); err != nil {
		return err
	}
	to, err := below(f.dir, name)
	if err != nil {
		f.add(name, nil, err)
		return nil
	}
	w, err := f.c.Guard(nil).Create(to, f.opt)
	if err != nil {
		f.add(to, nil, err)
		return nil
	}
	src := &kept{r: part}
	if err = pour(ctx, w, src); err != nil {
		w.Abort()
		if src.err != nil {
			return badForm()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.add(to, nil, err)
		return nil
	}
	f.add(to, w, nil)
	return nil
}

func badForm() error { return api.Invalidf("The body is not a whole multipart form") }

// fileName is the file name of a part with its directories, as sent; "" when
// it has none.
func fileName(disposition string) (string, error) {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return "", api.Invalidf("A part of the form has no readable Content-Disposition")
	}
	return params["filename"], nil
}

// below is where a file name of a form leads, which must be in the directory.
func below(dir, name string) (string, error) {
	if !filepath.IsLocal(name) || path.Clean(name) == "." {
		return "", policy.Refuse(policy.InvalidPath, "File name must lead to below the directory").Err()
	}
	return dir + "/" + path.Clean(name), nil
}
