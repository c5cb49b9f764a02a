package envd

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// enter admits the call as an endpoint about paths and expands one.
func (c *call) enter(id, name string) (string, *guardfs.Guard, error) {
	if err := c.Enter(id); err != nil {
		return "", nil, err
	}
	full, err := c.expand(name)
	if err != nil {
		return "", nil, err
	}
	return path.Clean(full), c.guard(c.Rule), nil
}

func (s *Server) stat(ctx context.Context, _ *connect.Call, in *pathRequest) (*entryResponse, error) {
	c := callOf(ctx)
	full, g, err := c.enter("files_stat", in.Path)
	if err != nil {
		return nil, err
	}
	return c.describe(g, full)
}

// describe is the entry of a path, as it was asked for.
func (c *call) describe(g *guardfs.Guard, full string) (out *entryResponse, err error) {
	err = c.files(func() error {
		info, err := g.Stat(full, false)
		if err != nil {
			return err
		}
		d := describer{c: c, g: g.Quiet()}
		defer d.close()
		out = &entryResponse{Entry: d.entry(info, full, "")}
		return nil
	})
	return out, err
}

// deepest bounds how far a listing goes when no rule does.
const deepest = 1 << 20

func (s *Server) listDir(ctx context.Context, _ *connect.Call, in *listDirRequest) (*listDirResponse, error) {
	c := callOf(ctx)
	full, g, err := c.enter("files_list", in.Path)
	if err != nil {
		return nil, err
	}
	opt := guardfs.WalkOptions{Depth: int(min(max(in.Depth, 1), deepest)), Stat: true}
	if most, ok := c.Rule.Int("max_depth"); ok {
		opt.Depth = int(min(int64(opt.Depth), max(most, 1)))
	}
	if most, ok := c.Rule.Int("max_entries"); ok {
		if opt.Max = int(min(most, 1<<31)); opt.Max <= 0 {
			opt.Max = -1
		}
	}
	out := &listDirResponse{}
	err = c.files(func() error {
		if err := isDirectory(g, full); err != nil {
			return err
		}
		var unreadable error
		opt.Failed = func(name string, err error) {
			if unreadable == nil && path.Clean(name) == full {
				unreadable = err
			}
		}
		d := describer{c: c, g: g.Quiet()}
		defer d.close()
		entered := false
		opt.Enter = func(*guardfs.Dir) error {
			entered = true
			return nil
		}
		_, err := g.Walk(ctx, full, opt, func(e *guardfs.Entry) error {
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			d.dir = e.Dir()
			out.Entries = append(out.Entries, d.entry(info, path.Join(full, e.Rel()), e.Name()))
			return nil
		})
		if err == nil && !entered && unreadable == nil {
			unreadable = fs.ErrPermission
		}
		return errors.Join(err, unreadable)
	})
	return out, err
}

// isDirectory tells with nil that a path leads to a directory.
func isDirectory(g *guardfs.Guard, full string) error {
	info, err := g.Stat(full, true)
	if err == nil && !info.IsDir() {
		err = connect.Errorf(connect.InvalidArgument, "%s is not a directory", shownPath(full))
	}
	return err
}

func shownPath(p string) string { return strings.ToValidUTF8(p, "\uFFFD") }

// newDirMode is the mode of directories that calls ask for.
const newDirMode = 0o755

func (s *Server) makeDir(ctx context.Context, _ *connect.Call, in *pathRequest) (*entryResponse, error) {
	c := callOf(ctx)
	full, g, err := c.enter("files_mkdir", in.Path)
	if err != nil {
		return nil, err
	}
	err = c.files(func() error {
		mode := uint32(newDirMode)
		_, existed, err := g.Mkdir(full, guardfs.MkdirOptions{Mode: &mode})
		if existed {
			return connect.Errorf(connect.AlreadyExists, "%s exists", shownPath(full))
		}
		if errors.Is(err, guardfs.ErrAlreadyExists) {
			return connect.Errorf(connect.InvalidArgument, "%s exists and is not a directory", shownPath(full))
		}
		return asDestination(err)
	})
	if err != nil {
		return nil, err
	}
	return c.describe(g.Quiet(), full)
}

func (s *Server) move(ctx context.Context, _ *connect.Call, in *moveRequest) (*entryResponse, error) {
	c := callOf(ctx)
	source, g, err := c.enter("files_move", in.Source)
	if err != nil {
		return nil, err
	}
	destination, err := c.expand(in.Destination)
	if err != nil {
		return nil, err
	}
	destination = path.Clean(destination)
	upload := c.Policy.Rule("files_upload_stream")
	err = c.files(func() error {
		_, err := g.Move(ctx, source, destination, guardfs.MoveOptions{
			Exact: true,
			Final: func(real string, info guardfs.Info, taken bool) error { return mayBecome(upload, real, info, taken) },
		})
		if errors.Is(err, guardfs.ErrAlreadyExists) || errors.Is(err, guardfs.ErrNotDirectory) {
			return &connect.Error{Code: connect.FailedPrecondition, Msg: text(err), Err: err}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.describe(g.Quiet(), destination)
}

// mayBecome holds a move to what an upload may make.
func mayBecome(upload *policy.Rule, real string, info guardfs.Info, taken bool) error {
	if upload == nil {
		return nil
	}
	if keep, set := upload.Bool("overwrite"); taken && set && !keep {
		return policy.Refuse(policy.FileExists, "").Err()
	}
	if info.IsDir() {
		return nil
	}
	return extension(upload, real)
}

// extension judges a name by the lists of the upload endpoint.
func extension(upload *policy.Rule, real string) error {
	allow, _ := upload.Strings("allow_extensions")
	deny, _ := upload.Strings("deny_extensions")
	return policy.ExtensionDecision(real, allow, deny).Err()
}

func (s *Server) remove(ctx context.Context, _ *connect.Call, in *pathRequest) (*empty, error) {
	c := callOf(ctx)
	full, g, err := c.enter("files_delete", in.Path)
	if err != nil {
		return nil, err
	}
	err = c.files(func() error {
		_, err := g.Delete(ctx, full, guardfs.DeleteOptions{})
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return &empty{}, err
}
