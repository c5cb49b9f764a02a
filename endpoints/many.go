package endpoints

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// mostFiles is how many files one request may write.
const mostFiles = 1000

type manyIn struct {
	Files  api.Field[[]any] `json:"files" doc:"Objects with path, content (text) or content_base64, and what an upload may say besides, such as mode."`
	Atomic api.Field[bool]  `json:"atomic" doc:"true: all files or none."`
}

type manyOut struct {
	Files   []manyFile `json:"files" doc:"One for each file of the request, in its order."`
	Written int        `json:"written"`
	Failed  int        `json:"failed"`
}

// manyFile is the outcome of one file, good or bad.
type manyFile struct {
	Path api.Name `json:"path"`
	*manyWritten
	*manyFailed
}

type manyWritten struct {
	Bytes   int64  `json:"bytes"`
	Created bool   `json:"created"`
	SHA256  string `json:"sha256"`
	ETag    string `json:"etag"`
}

type manyFailed struct {
	Error string `json:"error"`
	Type  string `json:"type"`
	Code  string `json:"code,omitempty"`
	Limit any    `json:"limit,omitempty"`
}

// writeMany writes the files of a JSON list. Nothing takes effect before the
// whole list was read: "atomic" may stand behind it.
func writeMany(ctx context.Context, c *api.Call, _ manyIn) (manyOut, error) {
	var in manyIn
	b := &batch{c: c}
	defer b.close()
	u := newIncoming(c)
	defer u.content.Close()
	err := c.Items(&in, "files", b.close, func(item *api.Item) error { return b.addItem(ctx, item, u) })
	if err != nil {
		return manyOut{}, err
	}
	if _, err := in.Files.Want("files"); err != nil {
		return manyOut{}, err
	}
	atomic, err := in.Atomic.Optional("atomic", false)
	if err != nil {
		return manyOut{}, err
	}
	return b.commit(ctx, atomic)
}

// batch is the files of one request. Each is staged as it comes; what is wrong
// with one is that one's outcome.
type batch struct {
	c     *api.Call
	lot   guardfs.Lot
	files []outcome
}

// outcome is one file: staged, written or failed.
type outcome struct {
	path   string // as asked, or resolved
	staged *guardfs.Writer
	done   uploadOut
	err    error
}

// close gives up what is only staged, and forgets everything.
func (b *batch) close() {
	// From the last to the first, so that directories made for them are empty.
	for _, f := range slices.Backward(b.files) {
		if f.staged != nil {
			f.staged.Abort()
		}
	}
	b.files = nil
}

// room refuses one file too many.
func (b *batch) room() error {
	if len(b.files) >= mostFiles {
		return api.Invalidf("Too many files; at most %d", mostFiles)
	}
	return nil
}

// longestShown bounds the path of a refused file in the answer.
const longestShown = 4096

func (b *batch) add(path string, w *guardfs.Writer, err error) {
	if w != nil {
		path = w.Path()
		b.lot.Park(w)
	}
	b.files = append(b.files, outcome{path: path[:min(len(path), longestShown)], staged: w, err: err})
}

// addItem stages one object of the list. An error is one of the request.
func (b *batch) addItem(ctx context.Context, item *api.Item, u *incoming) error {
	if err := b.room(); err != nil {
		return err
	}
	if item == nil {
		b.add("", nil, api.Invalidf("An item of 'files' must be an object"))
		return nil
	}
	u.in, u.early = uploadIn{}, uploadIn{}
	u.content.begin("")
	var wrong error
	err := item.Members(&u.in, contentMembers, func(name string) (io.Writer, error) {
		w, err := u.open(name)
		wrong = err // of equal names the last counts
		return &tolerant{w, &wrong}, nil
	})
	if err != nil {
		return err
	}
	if u.in.Encoding.State == api.Absent { // here text needs no word that it is text
		u.in.Encoding = api.Field[string]{V: "utf8", State: api.Good}
	}
	var w *guardfs.Writer
	if wrong == nil {
		w, wrong = u.finish(ctx, false)
	}
	b.add(u.in.Path.V, w, wrong)
	return nil
}

// tolerant reads on when something is wrong, so that the rest of the request
// is understood.
type tolerant struct {
	w     io.Writer
	wrong *error
}

// Write implements [io.Writer].
func (t *tolerant) Write(p []byte) (int, error) {
	if *t.wrong == nil {
		_, *t.wrong = t.w.Write(p)
	}
	return len(p), nil
}

// commit lets the files take effect, each for itself or all together.
func (b *batch) commit(ctx context.Context, atomic bool) (manyOut, error) {
	if atomic {
		if err := b.commitAll(ctx); err != nil {
			return manyOut{}, err
		}
	} else {
		for i := range b.files {
			if f := &b.files[i]; f.err == nil {
				f.done, f.err = commit(ctx, f.staged)
			}
		}
		if err := ctx.Err(); err != nil {
			return manyOut{}, err
		}
	}
	out := manyOut{Files: make([]manyFile, len(b.files))}
	for i, f := range b.files {
		out.Files[i] = b.show(f)
		if f.err != nil {
			out.Failed++
		} else {
			out.Written++
		}
	}
	return out, nil
}

func (b *batch) commitAll(ctx context.Context) error {
	writers := make([]*guardfs.Writer, len(b.files))
	for i, f := range b.files {
		if f.err != nil {
			return b.failed(i, f.err)
		}
		writers[i] = f.staged
	}
	results, at, err := guardfs.CommitAll(ctx, writers)
	if err != nil {
		return b.failed(at, err)
	}
	for i, res := range results {
		b.files[i].done = uploaded(res)
	}
	return nil
}

// failed is the answer to a request that one file has failed as a whole.
func (b *batch) failed(i int, err error) error {
	return api.Describe(err).With("index", i).With("path", api.Name(b.files[i].path))
}

func (b *batch) show(f outcome) manyFile {
	if f.err == nil {
		return manyFile{Path: f.done.Path, manyWritten: &manyWritten{f.done.Bytes, f.done.Created, f.done.SHA256, f.done.ETag}}
	}
	b.c.Refused(f.err)
	e := api.Describe(f.err)
	if e.Status >= http.StatusInternalServerError {
		b.c.Log().Error("file not written", "path", f.path, "code", e.Code, "err", f.err)
	}
	return manyFile{Path: api.Name(f.path), manyFailed: &manyFailed{e.Msg, e.Type, e.Code, e.Extra["limit"]}}
}
