package search

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// MaxContentSize is the largest file a search looks into.
const MaxContentSize = 32 << 20

const (
	maxAhead   = 32       // files opened and not reported yet
	smallFile  = 4 << 20  // each scanner has a buffer of this size at most
	binaryHead = 8 << 10  // bytes that are looked at for a NUL
	foundRoom  = 1 << 20  // bytes of lines of one file
	firstRead  = 64 << 10 // bytes of a new buffer
)

// job is one file being looked into. The fields below done hold once done is
// closed.
type job struct {
	file *os.File
	info guardfs.Info
	size int64
	done chan struct{}

	found []Match
	full  bool
	bytes int64
}

// scanners look into files, several at once. They are owned by one search,
// which must stop them.
type scanners struct {
	*Content
	ctx    context.Context
	cancel context.CancelFunc
	jobs   chan *job
	ahead  []*job // in the order they were met
	wg     sync.WaitGroup

	large    sync.Mutex // one file at a time that is no small one
	largeBuf []byte
}

func startScanners(ctx context.Context, c *Content) *scanners {
	s := &scanners{Content: c, jobs: make(chan *job, maxAhead)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for range min(4, max(2, runtime.GOMAXPROCS(0))) {
		s.wg.Go(s.work)
	}
	return s
}

// add never blocks: the search keeps no more than maxAhead jobs ahead.
func (s *scanners) add(j *job) {
	s.ahead = append(s.ahead, j)
	s.jobs <- j
}

// stop ends the scanners and waits until every file is closed.
func (s *scanners) stop() {
	s.cancel()
	close(s.jobs)
	s.wg.Wait()
}

func (s *scanners) work() {
	var buf []byte
	for j := range s.jobs {
		if s.ctx.Err() == nil {
			s.scan(j, &buf)
		}
		_ = j.file.Close()
		close(j.done)
	}
}

func (s *scanners) scan(j *job, buf *[]byte) {
	limit := min(s.MaxSize, smallFile)
	if j.size > smallFile {
		s.large.Lock()
		defer s.large.Unlock()
		limit, buf = min(s.MaxSize, MaxContentSize), &s.largeBuf
	}
	text, ok := s.read(j, buf, limit)
	j.bytes = int64(len(text))
	if !ok {
		return
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	j.found, j.full = s.Expression.scan(s.ctx, text, scanOptions{before: s.Before, after: s.After, most: s.MaxMatches, room: foundRoom})
}

// read fills buf with the file; ok is false when it is not to be searched:
// binary, too large by now, or unreadable.
func (s *scanners) read(j *job, buf *[]byte, limit int64) (text []byte, ok bool) {
	n := 0
	for {
		if n == len(*buf) {
			if int64(n) > limit {
				return (*buf)[:n], false
			}
			bigger := make([]byte, min(limit+1, max(firstRead, int64(2*n), min(j.size, limit)+1)))
			copy(bigger, (*buf)[:n])
			*buf = bigger
		}
		to := len(*buf)
		if n < binaryHead && !s.Binary {
			to = min(to, binaryHead) // reading on is for nothing if this is binary
		}
		got, err := j.file.Read((*buf)[n:to])
		if !s.Binary && n < binaryHead && bytes.IndexByte((*buf)[n:n+got], 0) >= 0 {
			return (*buf)[:n+got], false
		}
		n += got
		if errors.Is(err, io.EOF) {
			return (*buf)[:n], int64(n) <= limit
		}
		if err != nil || s.ctx.Err() != nil {
			return (*buf)[:n], false
		}
	}
}
