package endpoints

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

func (s *Server) watching() []api.Endpoint {
	return []api.Endpoint{
		api.Streaming(api.Row{
			Name: "files_watch", Method: "GET", Path: "/files/watch", Group: "file_ops",
			Summary: "Stream the changes of a directory.", Scopes: []string{"files:read"},
			Limits: []string{"max_duration_seconds"}, Paths: true,
		}, s.watch),
	}
}

type watchIn struct {
	Path      string `query:"path" doc:"The directory."`
	Recursive bool   `query:"recursive" doc:"The whole tree below it."`
	Interval  string `query:"interval" doc:"Seconds between two looks where the kernel tells no changes, 0.1 to 5."`
	Timeout   string `query:"timeout" doc:"Seconds to watch; 300 by default."`
	Renames   bool   `query:"renames" doc:"Report a rename as one change."`
}

const (
	defaultInterval = 0.5
	defaultWindow   = 300.0 // seconds
)

func (s *Server) watch(ctx context.Context, c *api.Call, in watchIn, ev *api.Events) error {
	if in.Path == "" {
		return missingField("path")
	}
	interval, err := querySeconds(in.Interval, "interval", defaultInterval)
	if err != nil {
		return err
	}
	window, err := querySeconds(in.Timeout, "timeout", defaultWindow)
	if err != nil {
		return err
	}
	longest := defaultWindow
	if most, ok := c.Rule.Seconds("max_duration_seconds"); ok {
		longest = most
	}
	window = min(max(window, 0.1), longest)
	interval = min(max(interval, 0.1), 5)

	l, real, err := s.listen(ctx, c.Guard(nil), in, seconds(interval))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := ev.Send("ready", map[string]any{"path": api.Name(real)}); err != nil {
		return err
	}
	over := time.AfterFunc(seconds(window), l.Finish)
	defer over.Stop()
	defer when(c.Stopping(), l.Close)()
	return tell(ctx, l, real, ev)
}

// listen arms the watch of a directory.
func (s *Server) listen(ctx context.Context, g *guardfs.Guard, in watchIn, interval time.Duration) (*watch.Listener, string, error) {
	dir, real, err := g.Dir(in.Path, policy.Read)
	if err != nil {
		return nil, "", directoryError(err)
	}
	defer dir.Close()
	l, err := s.Watches.Watch(ctx, dir, real, watch.Options{
		Recursive: in.Recursive, Renames: in.Renames, Interval: interval,
		Filter: func(dir, name string, typ fs.FileMode) watch.Verdict {
			link := typ&fs.ModeSymlink != 0 || typ&fs.ModeIrregular != 0 && typ&fs.ModeDir == 0
			if !g.Shows(path.Join(real, dir), name, link) {
				return watch.Hide
			}
			return watch.Pass
		},
	})
	if err != nil {
		return nil, "", directoryError(err)
	}
	return l, real, nil
}

// tell sends changes until the stream ends, and says why it ends.
func tell(ctx context.Context, l *watch.Listener, root string, ev *api.Events) error {
	for {
		events, err := l.Next(ctx)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return end(ev, "timeout")
		case errors.Is(err, watch.ErrGone):
			return end(ev, "deleted")
		case errors.Is(err, watch.ErrClosed):
			return end(ev, "shutdown")
		default:
			return err
		}
		for _, e := range events {
			if err := change(ev, root, e); err != nil {
				return err
			}
		}
	}
}

func end(ev *api.Events, reason string) error {
	return ev.Send("end", map[string]string{"reason": reason})
}

type changeEvent struct {
	Type      string    `json:"type"`
	Path      api.Name  `json:"path"`
	IsDir     bool      `json:"is_dir"`
	Timestamp float64   `json:"timestamp"`
	OldPath   *api.Name `json:"old_path,omitempty"`
}

func change(ev *api.Events, root string, e watch.Event) error {
	if e.Kind == watch.Overflow {
		return ev.Send("overflow", map[string]string{"reason": string(e.Reason)})
	}
	out := changeEvent{
		Type: e.Kind.String(), Path: api.Name(path.Join(root, e.Path)), IsDir: e.Dir,
		Timestamp: float64(e.Time.UnixMicro()) / 1e6,
	}
	if e.Old != "" {
		old := api.Name(path.Join(root, e.Old))
		out.OldPath = &old
	}
	return ev.Send("change", out)
}

// querySeconds reads a number of seconds; NaN and infinities are none.
func querySeconds(text, name string, def float64) (float64, error) {
	if text == "" {
		return def, nil
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, api.Invalidf("Invalid '%s'", name)
	}
	return f, nil
}

func seconds(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
