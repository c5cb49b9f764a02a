package endpoints

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"os"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/guardfs"
)

// spoolMemory is how much of a content is held in memory before it goes to a
// file without a name.
const spoolMemory = 256 << 10

// spool holds the text of a content member until it is known what to do with
// it. base64 is checked and decoded as it comes, so a mistake is known before
// anything is written. It is a writer for the text.
type spool struct {
	limit  int64 // decoded bytes
	member string
	base64 bool // what to give out: decoded, else the text

	text  counted // the text as it came, only for a member that may be text
	bytes counted // decoded
	dec   base64Writer
	bad   error
}

// begin starts over for a member, since of equal names the last one counts.
func (s *spool) begin(member string) {
	s.member, s.bad = member, nil
	s.dec = base64Writer{}
	s.text.reset()
	s.bytes.early = nil
	s.bytes.reset()
}

func (s *spool) Write(p []byte) (int, error) {
	if s.member == "content" {
		if err := s.text.add(p, s.limit*2+4); err != nil {
			return 0, err
		}
	}
	if s.bad == nil {
		s.bad = s.dec.decode(p, func(b []byte) error { return s.bytes.add(b, s.limit+1) })
	}
	if s.bad != nil && s.member != "content" && !errors.Is(s.bad, badBase64) {
		return 0, s.bad
	}
	return len(p), nil
}

// check tells what is wrong with the content itself, base64 before size.
func (s *spool) check() error {
	size := s.text.n
	if s.base64 {
		if s.bad == nil {
			s.bad = s.dec.end()
		}
		if s.bad != nil {
			return s.bad
		}
		size = s.bytes.n
	}
	if size > s.limit {
		return api.TooLarge(s.limit, "The content has more than %d bytes", s.limit)
	}
	return nil
}

func (s *spool) copyTo(ctx context.Context, w io.Writer) error {
	from := &s.text
	if s.base64 {
		from = &s.bytes
	}
	return from.copyTo(ctx, w)
}

// Close gives back the file. It may be called more than once.
func (s *spool) Close() {
	s.text.close()
	s.bytes.close()
}

// counted is a run of bytes, in memory while it is short.
type counted struct {
	n    int64
	mem  bytes.Buffer
	file stage
	// early, if not nil, makes the stage of a long run: the very file that is
	// to be written, so that its bytes reach the disk once.
	early func() (*guardfs.Writer, error)
}

// stage holds bytes outside of memory.
type stage interface {
	io.Writer
	Staged() io.Reader
	Abort()
}

// tempStage is a file without a name.
type tempStage struct{ *os.File }

func newTempStage() (stage, error) {
	f, err := os.CreateTemp("", ".abx-tmp-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(f.Name()) // gone with its descriptor, whatever happens to us
	return tempStage{f}, nil
}

func (t tempStage) Staged() io.Reader { return io.NewSectionReader(t.File, 0, math.MaxInt64) }
func (t tempStage) Abort()            { _ = t.Close() }

// add appends bytes; beyond most they are counted and dropped, since the
// answer will be a refusal.
func (c *counted) add(p []byte, most int64) error {
	c.n += int64(len(p))
	if c.n > most {
		return nil
	}
	if c.file == nil && c.mem.Len()+len(p) <= spoolMemory {
		c.mem.Write(p)
		return nil
	}
	if c.file == nil {
		if err := c.unload(); err != nil {
			return err
		}
	}
	_, err := c.file.Write(p)
	return err
}

// unload moves what is in memory to a stage.
func (c *counted) unload() (err error) {
	if c.early != nil {
		w, err := c.early()
		if err != nil {
			return err
		}
		c.file = w
	} else if c.file, err = newTempStage(); err != nil {
		return err
	}
	_, err = c.file.Write(c.mem.Bytes())
	c.mem = bytes.Buffer{}
	return err
}

func (c *counted) copyTo(ctx context.Context, w io.Writer) error {
	if c.file == nil {
		_, err := w.Write(c.mem.Bytes())
		return err
	}
	_, err := io.Copy(w, contextReader{ctx, c.file.Staged()})
	return err
}

func (c *counted) reset() {
	c.close()
	*c = counted{early: c.early}
}

func (c *counted) close() {
	if c.file != nil {
		c.file.Abort()
		c.file = nil
	}
}

// badBase64 is the answer to text that is not base64 with padding.
var badBase64 = api.Invalidf("'content_base64' is not valid base64")

// base64Writer decodes base64 that comes in pieces, strictly: the standard
// alphabet, whole groups, padding at the very end, and no line breaks, which
// the standard decoder skips.
type base64Writer struct {
	part  [4]byte
	n     int // bytes of part
	ended bool
	out   [48 << 10]byte
}

func (d *base64Writer) decode(p []byte, put func([]byte) error) error {
	for d.n > 0 && len(p) > 0 {
		d.part[d.n] = p[0]
		d.n, p = d.n+1, p[1:]
		if d.n == 4 {
			d.n = 0
			if err := d.groups(d.part[:], put); err != nil {
				return err
			}
		}
	}
	whole := len(p) / 4 * 4
	for at := 0; at < whole; {
		end := min(whole, at+len(d.out)/3*4)
		if err := d.groups(p[at:end], put); err != nil {
			return err
		}
		at = end
	}
	d.n += copy(d.part[d.n:], p[whole:])
	return nil
}

func (d *base64Writer) groups(p []byte, put func([]byte) error) error {
	if d.ended || bytes.IndexByte(p, '\n') >= 0 || bytes.IndexByte(p, '\r') >= 0 {
		return badBase64
	}
	n, err := base64.StdEncoding.Strict().Decode(d.out[:], p)
	if err != nil {
		return badBase64
	}
	d.ended = p[len(p)-1] == '='
	return put(d.out[:n])
}

func (d *base64Writer) end() error {
	if d.n != 0 {
		return badBase64
	}
	return nil
}
