package host

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// smallFile is the most that is read of a file of the kernel; only the list
// of mounts and the counters of big machines come near.
const smallFile = 4 << 20

var (
	errNotRegular = errors.New("not a regular file")
	errTooLarge   = errors.New("file too large")
)

// openFlags let no FIFO or device hold us up.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY

// openRegular opens a regular file for reading.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, openFlags, 0)
	return regular(f, err)
}

// regular closes what is no regular file.
func regular(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: errNotRegular}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// readFile reads a regular file of at most so many bytes.
func readFile(path string, most int64) ([]byte, error) {
	return readAll(most)(openRegular(path))
}

// readAll reads and closes a file of at most so many bytes.
func readAll(most int64) func(*os.File, error) ([]byte, error) {
	return func(f *os.File, err error) ([]byte, error) {
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, most+1))
		if err == nil && int64(len(text)) > most {
			err = &fs.PathError{Op: "read", Path: f.Name(), Err: errTooLarge}
		}
		if err != nil {
			return nil, err
		}
		return text, nil
	}
}

// readHead reads the lines that lie whole in the first bytes of a regular file.
func readHead(path string, most int) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	buf := make([]byte, most)
	n, err := io.ReadFull(f, buf)
	if err == nil {
		n = bytes.LastIndexByte(buf, '\n') + 1
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return buf[:n], err
}

// read is the text of a small file of the kernel, nil when there is none.
func (h *Host) read(path string) []byte {
	text, err := readFile(h.root+path, smallFile)
	if err != nil {
		return nil
	}
	return text
}

// number is the single number in a small file.
func (h *Host) number(path string) (uint64, bool) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(h.read(path))), 10, 64)
	return n, err == nil
}

// field is the number behind a name in a file of "name number" lines, such as
// memory.stat; a colon behind the name does not count.
func field(text []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(text) {
		key, value, ok := bytes.Cut(line, []byte(" "))
		if !ok || string(bytes.TrimSuffix(key, []byte(":"))) != name {
			continue
		}
		words := bytes.Fields(value)
		if len(words) == 0 {
			return 0, false
		}
		n, err := strconv.ParseUint(string(words[0]), 10, 64)
		return n, err == nil
	}
	return 0, false
}

// folderNames lists a folder by name, nothing when it cannot be read.
func folderNames(path string) []string {
	f, err := os.OpenFile(path, openFlags|syscall.O_DIRECTORY, 0)
	return namesIn(f, err)
}

// namesIn reads and closes a folder.
func namesIn(f *os.File, err error) []string {
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []string
	for len(out) < mostEntries {
		names, err := f.Readdirnames(1024)
		out = append(out, names...)
		if err != nil || len(names) == 0 {
			break
		}
	}
	slices.Sort(out)
	return out
}
