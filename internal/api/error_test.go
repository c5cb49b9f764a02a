package api

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// "Input/output error" of a disk in good order: the server had no descriptors
// left, or the directory was a mounted one that cannot be moved.
func TestRareFailuresAreToldAsWhatTheyAre(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EBUSY: "Device or resource busy: /a/b", syscall.EMFILE: "Too many open files: /a/b",
		syscall.EIO: "Input/output error: /a/b", syscall.ETXTBSY: "Text file busy: /a/b",
	} {
		e := Describe(&fs.PathError{Op: "open", Path: "/a/b", Err: errno})
		if e.Status != 500 || e.Code != "io_error" || !strings.EqualFold(e.Msg, want) {
			t.Errorf("%v: %d %s %q, want %q", errno, e.Status, e.Code, e.Msg, want)
		}
	}
	if e := Describe(&fs.PathError{Op: "open", Path: "/a/b", Err: fs.ErrClosed}); e.Msg != "Input/output error: /a/b" {
		t.Errorf("%q", e.Msg)
	}
}
