package endpoints

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) files() []api.Endpoint {
	list := api.Row{
		Name: "files_list", Method: "GET", Path: "/files/list", Group: "file_ops",
		Summary: "List a directory.", Scopes: []string{"files:read"},
		Limits: []string{"max_depth", "max_entries"}, Paths: true,
	}
	stat := api.Row{
		Name: "files_stat", Method: "GET", Path: "/files/stat", Group: "file_ops",
		Summary: "Describe a file or directory.", Scopes: []string{"files:read"}, Paths: true,
	}
	mkdir := api.Row{
		Name: "files_mkdir", Method: "POST", Path: "/files/mkdir", Group: "file_ops",
		Summary: "Make a directory and its parents.", Scopes: []string{"files:write"},
		Paths: true, Op: policy.Write, Mutates: true,
	}
	remove := api.Row{
		Name: "files_delete", Method: "DELETE", Path: "/files", Group: "file_ops",
		Summary: "Remove a file or a directory with its content.", Scopes: []string{"files:delete"},
		Paths: true, Op: policy.Delete, Mutates: true,
	}
	move := api.Row{
		Name: "files_move", Method: "POST", Path: "/files/move", Group: "file_ops",
		Summary: "Move or rename a file or directory.", Scopes: []string{"files:write", "files:delete"},
		Paths: true, Op: policy.Delete, Mutates: true, // the source; the destination is written
	}
	return []api.Endpoint{
		api.Unary(list, s.list),
		api.Unary(stat, s.stat),
		api.Unary(mkdir, mkdirFile),
		api.Unary(remove, removeFile),
		api.Unary(move, moveFile),
	}
}

// fileFacts are what an entry shows beyond the published fields.
type fileFacts struct {
	Mode       uint32       `json:"mode" doc:"Permission bits, with setuid, setgid and sticky."`
	UID        uint32       `json:"uid"`
	GID        uint32       `json:"gid"`
	Owner      string       `json:"owner"`
	Group      string       `json:"group"`
	IsSymlink  bool         `json:"is_symlink"`
	Target     *api.Name    `json:"symlink_target,omitempty"`
	Kind       guardfs.Kind `json:"kind" doc:"file, directory, symlink, fifo, socket or device"`
	NameBase64 string       `json:"name_base64,omitempty" doc:"The name's bytes, when they are not UTF-8."`
}

func (s *Server) factsOf(i guardfs.Info) fileFacts {
	f := fileFacts{
		Mode: i.Mode, UID: i.UID, GID: i.GID, Owner: s.Files.Owner(i.UID), Group: s.Files.Group(i.GID),
		IsSymlink: i.Kind == guardfs.Symlink, Kind: i.Kind, NameBase64: nameBase64(i.Name),
	}
	if i.Kind == guardfs.Symlink || i.Target != "" {
		target := api.Name(i.Target)
		f.Target = &target
	}
	return f
}

// plainType is the published pair of types: all that is no directory is a file.
func plainType(k guardfs.Kind) string {
	if k == guardfs.Directory {
		return "directory"
	}
	return "file"
}

// stamp is a time as the published server writes it: microseconds, rounded,
// left out when zero.
func stamp(ns int64) string {
	t := time.Unix(0, ns).UTC().Round(time.Microsecond)
	layout := "2006-01-02T15:04:05.000000+00:00"
	if t.Nanosecond() == 0 {
		layout = "2006-01-02T15:04:05+00:00"
	}
	return t.Format(layout)
}

type listIn struct {
	Path       string `query:"path" doc:"The directory."`
	Recursive  bool   `query:"recursive" doc:"Descend."`
	MaxEntries string `query:"max_entries" doc:"At most so many entries; 1000 by default."`
	Depth      string `query:"depth" doc:"Levels to descend; more than 1 implies recursive."`
	After      string `query:"after" doc:"Continue behind this 'next' of an earlier answer."`
	Hidden     string `query:"hidden" doc:"false leaves out names that begin with a dot."`
	Fields     string `query:"fields" doc:"basic gives only name, type, size and modified."`
}

type listEntry struct {
	Name     api.Name `json:"name"`
	Type     string   `json:"type"`
	Size     int64    `json:"size"`
	Modified string   `json:"modified"`
	*listMore
}

type listMore struct {
	Path        api.Name `json:"path"`
	Permissions string   `json:"permissions"`
	fileFacts
}

type listOut struct {
	Entries   []listEntry  `json:"entries"`
	Truncated bool         `json:"truncated"`
	Next      api.Name     `json:"next,omitempty"`
	Errors    []entryError `json:"errors,omitempty"`
}

type entryError struct {
	Path api.Name `json:"path"`
	Code string   `json:"code"`
}

const (
	defaultEntries = 1000
	defaultDepth   = 3
	deepest        = 100
)

func (s *Server) list(ctx context.Context, c *api.Call, in listIn) (listOut, error) {
	if in.Path == "" {
		return listOut{}, missingField("path")
	}
	opt := guardfs.WalkOptions{Depth: 1, After: in.After, NoHidden: strings.EqualFold(in.Hidden, "false"), Stat: true}
	most := int64(defaultEntries)
	if n, ok := c.Rule.Int("max_entries"); ok {
		most = n
	}
	asked := int64(defaultEntries)
	if n, ok := queryInt(in.MaxEntries); ok {
		asked = n
	}
	if opt.Max = int(min(asked, most)); opt.Max <= 0 {
		opt.Max = -1
	}
	levels, bounded := c.Rule.Int("max_depth")
	if in.Recursive {
		opt.Depth = defaultDepth
		if bounded {
			opt.Depth = int(levels)
		}
	}
	if in.Depth != "" {
		n, ok := queryInt(in.Depth)
		if !ok || n < 1 {
			return listOut{}, api.Invalidf("Invalid 'depth'")
		}
		if !bounded {
			levels = deepest
		}
		opt.Depth = int(min(n, levels))
	}
	found, err := c.Guard(nil).List(ctx, in.Path, opt)
	if err != nil {
		return listOut{}, directoryError(err)
	}
	out := listOut{Entries: make([]listEntry, len(found.Entries)), Truncated: found.Truncated, Next: api.Name(found.Next)}
	for i, e := range found.Entries {
		out.Entries[i] = s.listEntry(e, in.Fields == "basic")
	}
	for _, e := range found.Errors {
		out.Errors = append(out.Errors, entryError{api.Name(e.Path), api.CodeOf(e.Err)})
	}
	return out, nil
}

// Compose implements [api.Composed].
func (l listOut) Compose() *api.Object {
	entries := &api.List{}
	for i := range l.Entries {
		entries.Add(l.Entries[i].append)
	}
	o := &api.Object{}
	o.List("entries", entries)
	o.Set("truncated", l.Truncated)
	if l.Next != "" {
		o.Set("next", l.Next)
	}
	if len(l.Errors) > 0 {
		o.Set("errors", l.Errors)
	}
	return o
}

func (e *listEntry) append(dst []byte) []byte {
	dst = e.Name.Append(append(dst, `{"name":`...))
	dst = append(append(dst, `,"type":"`...), e.Type...)
	dst = strconv.AppendInt(append(dst, `","size":`...), e.Size, 10)
	dst = append(append(dst, `,"modified":"`...), e.Modified...)
	dst = append(dst, '"')
	if m := e.listMore; m != nil {
		dst = m.Path.Append(append(dst, `,"path":`...))
		dst = append(append(dst, `,"permissions":"`...), m.Permissions...)
		dst = strconv.AppendUint(append(dst, `","mode":`...), uint64(m.Mode), 10)
		dst = strconv.AppendUint(append(dst, `,"uid":`...), uint64(m.UID), 10)
		dst = strconv.AppendUint(append(dst, `,"gid":`...), uint64(m.GID), 10)
		dst = api.AppendText(append(dst, `,"owner":`...), m.Owner)
		dst = api.AppendText(append(dst, `,"group":`...), m.Group)
		dst = strconv.AppendBool(append(dst, `,"is_symlink":`...), m.IsSymlink)
		if m.Target != nil {
			dst = m.Target.Append(append(dst, `,"symlink_target":`...))
		}
		dst = append(append(append(dst, `,"kind":"`...), m.Kind...), '"')
		if m.NameBase64 != "" {
			dst = append(append(append(dst, `,"name_base64":"`...), m.NameBase64...), '"')
		}
	}
	return append(dst, '}')
}

func (s *Server) listEntry(i guardfs.Info, basic bool) listEntry {
	e := listEntry{Name: api.Name(i.Name), Type: plainType(i.Kind), Size: i.Size, Modified: stamp(i.Mtime)}
	if !basic {
		e.listMore = &listMore{Path: api.Name(i.Path), Permissions: i.Permissions(), fileFacts: s.factsOf(i)}
	}
	return e
}

type statIn struct {
	Path     string `query:"path" doc:"What to describe."`
	Follow   string `query:"follow" doc:"false describes a link itself."`
	Checksum string `query:"checksum" doc:"sha256 adds the checksum of a regular file."`
}

type statOut struct {
	Name        api.Name `json:"name"`
	Path        api.Name `json:"path"`
	Type        string   `json:"type"`
	Size        int64    `json:"size"`
	Permissions string   `json:"permissions"`
	Modified    string   `json:"modified"`
	Accessed    string   `json:"accessed"`
	Created     string   `json:"created"`
	Exists      bool     `json:"exists"`
	ErrorCode   string   `json:"error_code,omitempty"`
	*statMore
}

type statMore struct {
	fileFacts
	Inode    uint64 `json:"inode"`
	Nlink    uint64 `json:"nlink"`
	MtimeNS  string `json:"mtime_ns"`
	ETag     string `json:"etag"`
	MimeType string `json:"mime_type,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
}

func (s *Server) stat(ctx context.Context, c *api.Call, in statIn) (statOut, error) {
	if in.Path == "" {
		return statOut{}, missingField("path")
	}
	if in.Checksum != "" && in.Checksum != "sha256" {
		return statOut{}, api.Invalidf("Invalid 'checksum'; only sha256 is known")
	}
	follow := !strings.EqualFold(in.Follow, "false")
	i, err := c.Guard(nil).Stat(in.Path, follow)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		return statOut{Name: api.Name(i.Name), Path: api.Name(i.Path), Type: "unknown"}, nil
	case errors.Is(err, fs.ErrPermission) && !policy.IsDenied(err):
		return statOut{Name: api.Name(i.Name), Path: api.Name(i.Path), Type: "unknown", ErrorCode: "os_permission_denied"}, nil
	default:
		return statOut{}, err
	}
	out := statOut{
		Name: api.Name(i.Name), Path: api.Name(i.Path), Type: plainType(i.Kind), Size: i.Size, Permissions: i.Permissions(),
		Modified: stamp(i.Mtime), Accessed: stamp(i.Atime), Created: stamp(i.Ctime), Exists: true,
		statMore: &statMore{
			fileFacts: s.factsOf(i), Inode: i.Inode, Nlink: i.Nlink,
			MtimeNS: strconv.FormatInt(i.Mtime, 10), ETag: i.ETag(),
		},
	}
	switch i.Kind {
	case guardfs.File:
		out.MimeType = mimeType(i.Name)
	case guardfs.Symlink:
		out.Type = "symlink"
	}
	if in.Checksum != "" && i.Kind == guardfs.File {
		out.SHA256, err = checksum(ctx, c, in.Path)
	}
	return out, err
}

// checksum shows something of a file's content, so the download's own rules
// must allow it too.
func checksum(ctx context.Context, c *api.Call, path string) (string, error) {
	rule, err := c.Also("files_download_stream")
	if err != nil {
		return "", err
	}
	f, info, err := c.Guard(rule).Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if most, ok := rule.Int("max_bytes"); ok && info.Size > most {
		return "", fileTooLarge(info.Size, most)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// contextReader ends a long read when the caller has gone.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

type mkdirIn struct {
	Path    api.Field[string] `json:"path" doc:"The directory; parents are made too."`
	Mode    api.Field[string] `json:"mode" doc:"Permissions of the last directory, octal."`
	Parents api.Field[bool]   `json:"parents" doc:"false: a missing parent is an error."`
}

type mkdirOut struct {
	Path    api.Name `json:"path"`
	Created bool     `json:"created" doc:"Always true; see existed."`
	Existed bool     `json:"existed"`
}

func mkdirFile(_ context.Context, c *api.Call, in mkdirIn) (mkdirOut, error) {
	path, err := wantPath(in.Path, "path")
	if err != nil {
		return mkdirOut{}, err
	}
	mode, err := octal(in.Mode, "mode")
	if err != nil {
		return mkdirOut{}, err
	}
	parents, err := in.Parents.Optional("parents", true)
	if err != nil {
		return mkdirOut{}, err
	}
	real, existed, err := c.Guard(nil).Mkdir(path, guardfs.MkdirOptions{Mode: mode, NoParents: !parents})
	return mkdirOut{api.Name(real), true, existed}, err
}

type removeIn struct {
	Path      string `query:"path" doc:"What to remove; a link itself, never its target."`
	Recursive string `query:"recursive" doc:"false refuses a directory that is not empty."`
	NoFollow  bool   `query:"nofollow" doc:"Judge only the link's own place, wherever it leads."`
	MissingOK bool   `query:"missing_ok" doc:"A missing path is no error."`
}

type removeOut struct {
	Path    api.Name `json:"path"`
	Deleted bool     `json:"deleted"`
}

func removeFile(ctx context.Context, c *api.Call, in removeIn) (removeOut, error) {
	if in.Path == "" {
		return removeOut{}, missingField("path")
	}
	real, err := c.Guard(nil).Delete(ctx, in.Path, guardfs.DeleteOptions{
		Flat: strings.EqualFold(in.Recursive, "false"), NoFollow: in.NoFollow,
	})
	if in.MissingOK && errors.Is(err, fs.ErrNotExist) {
		return removeOut{Path: api.Name(real)}, nil
	}
	return removeOut{api.Name(real), true}, err
}

type moveIn struct {
	Source      api.Field[string] `json:"source" doc:"What to move; a link itself, never its target."`
	Destination api.Field[string] `json:"destination" doc:"Where to; an existing directory receives the source under its own name."`
	Overwrite   api.Field[bool]   `json:"overwrite" doc:"false: an existing destination is an error."`
}

type moveOut struct {
	Source      api.Name `json:"source"`
	Destination api.Name `json:"destination"`
	Path        api.Name `json:"path" doc:"Where the source is now."`
}

func moveFile(ctx context.Context, c *api.Call, in moveIn) (moveOut, error) {
	source, err := wantPath(in.Source, "source")
	if err != nil {
		return moveOut{}, err
	}
	destination, err := wantPath(in.Destination, "destination")
	if err != nil {
		return moveOut{}, err
	}
	overwrite, err := in.Overwrite.Optional("overwrite", true)
	if err != nil {
		return moveOut{}, err
	}
	// A move must not make what an upload may not.
	upload := c.Policy.Rule("files_upload_stream")
	res, err := c.Guard(nil).Move(ctx, source, destination, guardfs.MoveOptions{
		NoOverwrite: !overwrite,
		Final: func(real string, source guardfs.Info, taken bool) error {
			if taken && keepsFiles(upload) {
				return policy.Refuse(policy.FileExists, "").Err()
			}
			if source.IsDir() {
				return nil
			}
			return extensionDecision(upload, real).Err()
		},
	})
	return moveOut{api.Name(res.Source), api.Name(res.Destination), api.Name(res.Path)}, err
}

func missingField(name string) error { return api.Invalidf("Missing or invalid '%s'", name) }

// wantPath is a field that must be a path; what the path may be is the
// guard's to say.
func wantPath(f api.Field[string], name string) (string, error) {
	p, err := f.Want(name)
	if err == nil && p == "" {
		err = missingField(name)
	}
	return p, err
}

// octal reads permission bits; nil when the field is absent.
func octal(f api.Field[string], name string) (*uint32, error) {
	text, err := f.Optional(name, "")
	if err != nil || f.State != api.Good {
		return nil, err
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 {
		return nil, api.Invalidf("Invalid '%s': octal permissions up to 0777", name)
	}
	mode := uint32(n)
	return &mode, nil
}

// queryInt reads an integer of a query, saturating.
func queryInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return min(n, math.MaxInt32), true
	}
	return n, err == nil
}

// directoryError tells a missing directory as one.
func directoryError(err error) error {
	if policy.IsDenied(err) || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, guardfs.ErrNotDirectory) {
		return err
	}
	e := api.Errorf(404, "FileNotFoundError", "", "Directory not found")
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		e.Msg += ": " + strings.ToValidUTF8(pe.Path, "\uFFFD")
	}
	return e
}

func fileTooLarge(size, limit int64) error {
	return api.TooLarge(limit, "File size %d exceeds limit %d", size, limit)
}

// extensionDecision judges a name by the upload endpoint's extension lists.
func extensionDecision(rule *policy.Rule, name string) policy.Decision {
	allow, _ := rule.Strings("allow_extensions")
	deny, _ := rule.Strings("deny_extensions")
	return policy.ExtensionDecision(name, allow, deny)
}
