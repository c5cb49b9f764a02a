package guardfs

import "io"

// Staged reads back what has been written so far. It is nil where bytes go to
// the file at once (an Offset), and valid until Commit or Abort.
func (w *Writer) Staged() io.Reader {
	if w.stage == nil {
		return nil
	}
	return io.NewSectionReader(w.stage, 0, w.n)
}
