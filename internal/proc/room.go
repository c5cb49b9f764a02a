package proc

import (
	"errors"
	"slices"
	"syscall"
)

// full are what the kernel says when a program cannot be started now, for no
// fault of the program.
var full = []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}

// NoRoom tells whether err says that the system has no room for another
// process: of processes, memory or descriptors.
func NoRoom(err error) bool {
	return slices.ContainsFunc(full, func(e error) bool { return errors.Is(err, e) })
}
