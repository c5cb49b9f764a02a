package endpoints

import (
	"context"
	"errors"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

type copyIn struct {
	Source      api.Field[string] `json:"source" doc:"What to copy; a link is copied itself."`
	Destination api.Field[string] `json:"destination" doc:"Where to; an existing directory receives the copy under the source's name."`
	Recursive   api.Field[bool]   `json:"recursive" doc:"false: a directory is an error."`
	Overwrite   api.Field[bool]   `json:"overwrite" doc:"false: an existing destination is an error."`
	Preserve    api.Field[bool]   `json:"preserve" doc:"false: owner, times and extended attributes are not copied, only modes."`
}

type copyOut struct {
	Source      api.Name `json:"source"`
	Destination api.Name `json:"destination"`
	Path        api.Name `json:"path" doc:"Where the copy is."`
	Files       int      `json:"files" doc:"Files and links."`
	Bytes       int64    `json:"bytes"`
}

// copyFiles reads under the rules of a download and writes under those of an
// upload.
func copyFiles(ctx context.Context, c *api.Call, in copyIn) (copyOut, error) {
	upload, err := c.Also("files_upload_stream")
	if err != nil {
		return copyOut{}, err
	}
	source, err := wantPath(in.Source, "source")
	if err != nil {
		return copyOut{}, err
	}
	destination, err := wantPath(in.Destination, "destination")
	if err != nil {
		return copyOut{}, err
	}
	recursive, err := in.Recursive.Optional("recursive", true)
	if err != nil {
		return copyOut{}, err
	}
	overwrite, err := in.Overwrite.Optional("overwrite", true)
	if err != nil {
		return copyOut{}, err
	}
	preserve, err := in.Preserve.Optional("preserve", true)
	if err != nil {
		return copyOut{}, err
	}
	res, err := guardfs.Copy(ctx, c.Guard(c.Rule), source, c.Guard(upload), destination, guardfs.CopyOptions{
		Flat: !recursive, NoOverwrite: !overwrite || keepsFiles(upload), Preserve: preserve,
		Each: func(real string, source guardfs.Info) error { return judgeCopy(c.Rule, upload, real, source) },
	})
	if err != nil {
		return copyOut{}, copyError(err)
	}
	return copyOut{api.Name(res.Source), api.Name(res.Destination), api.Name(res.Path), res.Files, res.Bytes}, nil
}

// judgeCopy asks of one file what its download and its upload would be asked.
// Only limits that a policy sets count: the built-in one is for what comes over
// the network.
func judgeCopy(download, upload *policy.Rule, real string, source guardfs.Info) error {
	if err := extensionDecision(upload, real).Err(); err != nil {
		return err
	}
	if source.Kind != guardfs.File {
		return nil
	}
	for _, rule := range []*policy.Rule{download, upload} {
		if most, ok := rule.Int("max_bytes"); ok && source.Size > most {
			return fileTooLarge(source.Size, most)
		}
	}
	return nil
}

// copyError names the endpoint whose rules refused, where that is not the one
// the call was judged as.
func copyError(err error) error {
	if errors.Is(err, guardfs.ErrInvalidMove) {
		return api.Errorf(400, "ValueError", "invalid_move", "Source and destination are the same, or one lies in the other")
	}
	d, ok := errors.AsType[*policy.Denied](err)
	if !ok || d.Endpoint != "" || strings.HasPrefix(d.Text, "source: ") {
		return err
	}
	decision := d.Decision
	decision.Endpoint = "files_upload_stream"
	return decision.Err()
}

type chmodIn struct {
	Path      api.Field[string] `json:"path" doc:"What to change; a link stands for its target."`
	Mode      api.Field[string] `json:"mode" doc:"Permissions, octal, at most 0777."`
	Recursive api.Field[bool]   `json:"recursive" doc:"Change everything below too; links are left alone."`
}

type chmodOut struct {
	Path    api.Name `json:"path"`
	Mode    string   `json:"mode"`
	Changed int      `json:"changed" doc:"Entries whose mode is another now."`
}

func chmodFile(ctx context.Context, c *api.Call, in chmodIn) (chmodOut, error) {
	path, err := wantPath(in.Path, "path")
	if err != nil {
		return chmodOut{}, err
	}
	if _, err := in.Mode.Want("mode"); err != nil {
		return chmodOut{}, err
	}
	mode, err := octal(in.Mode, "mode")
	if err != nil {
		return chmodOut{}, err
	}
	recursive, err := in.Recursive.Optional("recursive", false)
	if err != nil {
		return chmodOut{}, err
	}
	real, changed, err := c.Guard(nil).Chmod(ctx, path, *mode, recursive)
	return chmodOut{api.Name(real), octalText(*mode), changed}, err
}
