package envd

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
	"github.com/agent-sandbox/agent-sandbox-server/internal/watch"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

const (
	// watcherEvents is how many events wait for a poll.
	watcherEventsMax = 65536
	// watcherLife is how long a watcher lives that nobody polls.
	watcherLife = 10 * time.Minute
	// watchersMax is how many watchers one caller may have.
	watchersMax = 1024
)

// networkFS are file systems whose changes the kernel does not tell all of.
var networkFS = []int64{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC}

// tree is a directory that is watched for one caller.
type tree struct {
	c       *call
	g       *guardfs.Guard // quiet; for one goroutine
	l       *watch.Listener
	real    string
	entries bool
}

// listen arms a watch.
func (c *call) listen(ctx context.Context, in *watchRequest) (*tree, error) {
	full, g, err := c.enter("files_watch", in.Path)
	if err != nil {
		return nil, err
	}
	t := &tree{c: c, g: g.Quiet(), entries: in.IncludeEntry}
	var dir *os.File
	err = c.files(func() (err error) {
		if err := isDirectory(g, full); err != nil {
			return err
		}
		dir, t.real, err = g.Dir(full, policy.Read)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err == nil && !in.AllowNetworkMounts && slices.Contains(networkFS, int64(uint32(st.Type))) {
		return nil, connect.Errorf(connect.InvalidArgument, "%s is on a network file system", shownPath(full))
	}
	shows := c.guard(c.Rule).Quiet() // the listener's own goroutine asks it
	t.l, err = c.s.Watches.Watch(ctx, dir, t.real, watch.Options{
		Recursive: in.Recursive, Raw: true, Queue: watcherEventsMax,
		Filter: func(dir, name string, typ fs.FileMode) watch.Verdict {
			link := typ&fs.ModeSymlink != 0 || typ&fs.ModeIrregular != 0 && typ&fs.ModeDir == 0
			if !shows.Shows(path.Join(t.real, dir), name, link) {
				return watch.Hide
			}
			return watch.Pass
		},
	})
	return t, err
}

// errLost says that there were more events than are kept.
var errLost = connect.Errorf(connect.DataLoss, "events were lost")

// events are the messages of what the kernel told; errLost may come with them.
func (t *tree) events(raw []watch.Event) (out []*filesystemEvent, err error) {
	for _, e := range raw {
		if e.Kind == watch.Overflow {
			if e.Reason == watch.QueueLost {
				err = errLost
			}
			continue
		}
		m := &filesystemEvent{Name: shownPath(e.Path), Type: eventOf(e.Op)}
		if t.entries && (e.Op == watch.OpCreate || e.Op == watch.OpWrite || e.Op == watch.OpChmod) {
			full := path.Join(t.real, e.Path)
			if got, err := t.c.describe(t.g, full); err == nil {
				m.Entry = got.Entry
			}
		}
		out = append(out, m)
	}
	return out, err
}

func eventOf(op watch.Op) eventType {
	switch op {
	case watch.OpCreate:
		return 1
	case watch.OpWrite:
		return 2
	case watch.OpRemove:
		return 3
	case watch.OpRename:
		return 4
	case watch.OpChmod:
		return 5
	}
	return 0
}

// window is how long a watch may last; 0 is without end.
func (c *call) window() time.Duration {
	if most, ok := c.Rule.Seconds("max_duration_seconds"); ok {
		return time.Duration(min(most, 1e9) * float64(time.Second))
	}
	return 0
}

func (s *Server) watchDir(ctx context.Context, rc *connect.Call, in *watchRequest, out connect.Sender[watchDirResponse]) error {
	c := callOf(ctx)
	t, err := c.listen(ctx, in)
	if err != nil {
		return err
	}
	defer t.l.Close()
	longest := c.window()
	if d, ok := rc.Timeout(); ok && (longest == 0 || d < longest) {
		longest = d
	}
	if longest > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, longest)
		defer cancel()
	}
	closed := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-c.Stopping():
			t.l.Close()
		case <-stop:
		}
	}()
	defer func() { close(stop); <-closed }()
	if err := out.Send(&watchDirResponse{Start: &empty{}}); err != nil {
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, keepalive(rc.R))
		raw, err := t.l.Next(wait)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if err = out.Send(&watchDirResponse{Keepalive: &empty{}}); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, watch.ErrGone) {
			<-ctx.Done() // nothing happens any more, and nobody was promised an end
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		events, err := t.events(raw)
		for _, e := range events {
			if err := out.Send(&watchDirResponse{Filesystem: e}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// watcher gathers events for polls.
type watcher struct {
	owner string
	t     *tree
	life  *time.Timer // since the last poll
	whole *time.Timer // since the start; nil without a limit
	stop  context.CancelFunc
	over  chan struct{} // closed when its goroutine has ended

	mu     sync.Mutex
	events []*filesystemEvent
	lost   bool
	err    error
}

// end ends the watcher and waits for it.
func (w *watcher) end() {
	w.stop()
	w.t.l.Close()
	w.life.Stop()
	if w.whole != nil {
		w.whole.Stop() // it would keep all that the watcher holds
	}
	<-w.over
}

func (s *Server) createWatcher(ctx context.Context, _ *connect.Call, in *watchRequest) (*watcherID, error) {
	c := callOf(ctx)
	t, err := c.listen(ctx, in)
	if err != nil {
		return nil, err
	}
	id := "w" + rand.Text()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watcher{owner: c.Identity.ID, t: t, stop: stop, over: make(chan struct{})}
	s.mu.Lock()
	mine := 0
	for _, other := range s.watchers {
		if other.owner == w.owner {
			mine++
		}
	}
	if s.closed || mine >= watchersMax {
		s.mu.Unlock()
		stop()
		t.l.Close()
		return nil, connect.Errorf(connect.ResourceExhausted, "too many watchers; the limit is %d", watchersMax)
	}
	drop := func() { s.drop(id, w) } // waits for the lock, so it finds the watcher in its place
	w.life = time.AfterFunc(watcherLife, drop)
	if most := c.window(); most > 0 {
		w.whole = time.AfterFunc(most, drop)
	}
	s.watchers[id] = w
	s.mu.Unlock()
	go w.gather(running)
	return &watcherID{WatcherID: id}, nil
}

func (w *watcher) gather(ctx context.Context) {
	defer close(w.over)
	for {
		raw, err := w.t.l.Next(ctx)
		if errors.Is(err, watch.ErrGone) {
			return // its last events were told, and no more will come
		}
		if err != nil {
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			return
		}
		events, err := w.t.events(raw)
		w.mu.Lock()
		w.lost = w.lost || err != nil
		if w.events = append(w.events, events...); len(w.events) > watcherEventsMax {
			w.events, w.lost = w.events[:watcherEventsMax], true
		}
		w.mu.Unlock()
	}
}

// drop ends a watcher, if it is still the one of that id.
func (s *Server) drop(id string, w *watcher) {
	s.mu.Lock()
	found := s.watchers[id] == w
	if found {
		delete(s.watchers, id)
	}
	s.mu.Unlock()
	if found {
		w.end()
	}
}

// watcher finds a watcher that the caller may know of.
func (c *call) watcher(id string) (*watcher, error) {
	if err := c.Enter("files_watch"); err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	w := c.s.watchers[id]
	if w == nil || !c.sees(w.owner) {
		return nil, connect.Errorf(connect.NotFound, "no such watcher")
	}
	return w, nil
}

func (s *Server) watcherEvents(ctx context.Context, _ *connect.Call, in *watcherID) (*watcherEventsResponse, error) {
	w, err := callOf(ctx).watcher(in.WatcherID)
	if err != nil {
		return nil, err
	}
	w.life.Reset(watcherLife)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost {
		w.lost = false // what is kept is told by the next poll
		return nil, errLost
	}
	out := &watcherEventsResponse{Events: w.events}
	w.events = nil
	if len(out.Events) == 0 && w.err != nil {
		return nil, w.err
	}
	return out, nil
}

func (s *Server) removeWatcher(ctx context.Context, _ *connect.Call, in *watcherID) (*empty, error) {
	w, err := callOf(ctx).watcher(in.WatcherID)
	if err != nil {
		return nil, err
	}
	s.drop(in.WatcherID, w)
	return &empty{}, nil
}
