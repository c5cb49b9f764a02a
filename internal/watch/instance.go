package watch

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	treeMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// goneMask is for the directory above a root, which alone tells at once of
	// the root's removal while someone still has the root open.
	goneMask = unix.IN_DELETE | unix.IN_MOVED_FROM
	// Watches are shared, so a mask may only grow. Files that are unlinked but
	// still written to no longer belong to the tree.
	maskFlags = unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK | unix.IN_MASK_ADD
)

// instance is one inotify descriptor and its table of watches. One goroutine
// reads it and hands each change to the inboxes that want it, never waiting
// for any of them.
type instance struct {
	file  *os.File
	conn  syscall.RawConn
	limit int // most watches, for tests; 0: the kernel's own limit

	reading sync.Mutex // held from reading a buffer until it is handed out
	buf     []byte

	mu      sync.Mutex
	watches map[int32][]subscription
	boxes   map[*inbox]struct{}

	done sync.WaitGroup
}

// subscription is one inbox's interest in a watch.
type subscription struct {
	box  *inbox
	refs int
	only string // not empty: only whether this name goes away
}

func newInstance(limit int, init func() (int, error)) (*instance, error) {
	fd, err := init()
	if err != nil {
		return nil, err
	}
	in := &instance{
		file:    os.NewFile(uintptr(fd), "inotify"),
		limit:   limit,
		buf:     make([]byte, 64<<10),
		watches: map[int32][]subscription{},
		boxes:   map[*inbox]struct{}{},
	}
	if in.conn, err = in.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, in.file.Close())
	}
	in.done.Go(in.read)
	return in, nil
}

// close frees the descriptor with all its watches and awaits the reader.
func (in *instance) close() {
	_ = in.file.Close()
	in.done.Wait()
}

// join makes box hear of events that the kernel lost.
func (in *instance) join(box *inbox) {
	in.mu.Lock()
	in.boxes[box] = struct{}{}
	in.mu.Unlock()
}

func (in *instance) leave(box *inbox) {
	in.mu.Lock()
	delete(in.boxes, box)
	in.mu.Unlock()
}

// subscribe makes box receive what happens in the directory open as fd. Each
// call is undone by one unsubscribe. Once it has returned, no change is missed.
func (in *instance) subscribe(box *inbox, fd int, only string) (int32, error) {
	mask := uint32(treeMask)
	if only != "" {
		mask = goneMask
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var wd int
	err := in.control(func(ino int) (err error) {
		// The magic link names the open directory itself, whatever has
		// happened to its path.
		wd, err = unix.InotifyAddWatch(ino, "/proc/self/fd/"+strconv.Itoa(fd), mask|maskFlags)
		return err
	})
	if err != nil {
		return 0, err
	}
	id := int32(wd)
	subs, known := in.watches[id]
	if !known && in.limit > 0 && len(in.watches) >= in.limit {
		in.remove(id)
		return 0, unix.ENOSPC
	}
	i := slices.IndexFunc(subs, func(s subscription) bool { return s.box == box && s.only == only })
	if i >= 0 {
		subs[i].refs++
	} else {
		in.watches[id] = append(subs, subscription{box, 1, only})
	}
	return id, nil
}

func (in *instance) unsubscribe(box *inbox, wd int32, only string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	subs := in.watches[wd]
	i := slices.IndexFunc(subs, func(s subscription) bool { return s.box == box && s.only == only })
	if i < 0 {
		return // the kernel dropped the watch with its directory
	}
	if subs[i].refs--; subs[i].refs > 0 {
		return
	}
	if subs = slices.Delete(subs, i, i+1); len(subs) > 0 {
		in.watches[wd] = subs
		return
	}
	in.remove(wd)
}

func (in *instance) remove(wd int32) {
	delete(in.watches, wd)
	_ = in.control(func(ino int) error {
		_, err := unix.InotifyRmWatch(ino, uint32(wd))
		return err
	})
}

// control runs f on the descriptor, which stays open meanwhile.
func (in *instance) control(f func(fd int) error) (err error) {
	if e := in.conn.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// read is the reader's goroutine; it ends when the file is closed.
func (in *instance) read() {
	_ = in.conn.Read(func(fd uintptr) bool {
		for in.readOnce(int(fd)) > 0 {
			continue
		}
		return false // wait for more
	})
}

// readOnce hands out one buffer of changes and says how many bytes they were.
func (in *instance) readOnce(fd int) int {
	in.reading.Lock()
	defer in.reading.Unlock()
	n, err := unix.Read(fd, in.buf)
	if err != nil || n <= 0 {
		return 0 // nothing there: the descriptor does not block
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for c := range changes(in.buf[:n], time.Now().UnixNano()) {
		in.dispatch(c)
	}
	return n
}

// sync returns when everything that happened before the call is in the inboxes.
func (in *instance) sync() {
	_ = in.control(func(fd int) error {
		left, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // bytes to read
		for err == nil && left > 0 {
			n := in.readOnce(fd)
			if n == 0 {
				break // the reader was faster
			}
			left -= n
		}
		// The reader may have taken them and not yet handed them out.
		in.reading.Lock()
		defer in.reading.Unlock()
		return err
	})
}

// dispatch is called with mu held.
func (in *instance) dispatch(c change) {
	if c.is(unix.IN_Q_OVERFLOW) {
		for box := range in.boxes {
			box.lose()
		}
		return
	}
	for _, s := range in.watches[c.wd] {
		switch {
		case s.only == "":
			s.box.put(c)
		case c.is(unix.IN_DELETE|unix.IN_MOVED_FROM) && c.name == s.only,
			c.is(unix.IN_IGNORED):
			s.box.wake() // its listener looks for the root whenever it wakes
		}
	}
	if c.is(unix.IN_IGNORED) {
		delete(in.watches, c.wd)
	}
}
