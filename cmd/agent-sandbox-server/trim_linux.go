package main

import (
	"bufio"
	"bytes"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// trim gives back memory that only the start needed: the heap of parsing and
// compiling, and the pages of our own program that hold the code for it. The
// kernel maps those sixteen at a time around each one touched; what is needed
// again comes back from the page cache. It is a courtesy to small sandboxes, so
// a failure is none.
func trim() {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	lines := bufio.NewScanner(bytes.NewReader(maps))
	for lines.Scan() {
		if from, to, ok := readOnlyPart(lines.Text(), program); ok {
			_, _, _ = syscall.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		}
	}
}

// readOnlyPart is the span of a line of /proc/self/maps if it maps the program
// and cannot have been written to: pages of any other kind would be lost.
func readOnlyPart(line, program string) (from, to uintptr, ok bool) {
	fields := bytes.Fields([]byte(line))
	if len(fields) < 6 || string(fields[5]) != program {
		return 0, 0, false
	}
	if mode := string(fields[1]); mode != "r-xp" && mode != "r--p" {
		return 0, 0, false
	}
	low, high, cut := bytes.Cut(fields[0], []byte("-"))
	start, err := strconv.ParseUint(string(low), 16, 64)
	end, err2 := strconv.ParseUint(string(high), 16, 64)
	return uintptr(start), uintptr(end), cut && err == nil && err2 == nil && start < end
}
