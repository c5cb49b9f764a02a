package proc

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stat is what /proc/<pid>/stat says of a process.
type stat struct {
	state           byte
	ppid, pgrp, sid int
	start           uint64 // clock ticks since boot; with the pid, it names a process for ever
	ticks           uint64 // processor time, with that of children it waited for
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// parseStat reads from the last ')' on: the name before it may hold anything.
func parseStat(text []byte) (stat, bool) {
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return stat{}, false
	}
	f := bytes.Fields(text[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, false
	}
	s := stat{state: f[0][0]}
	ok := true
	num := func(i int) uint64 {
		n, err := strconv.ParseUint(string(f[i]), 10, 63)
		ok = ok && err == nil
		return n
	}
	s.ppid, s.pgrp, s.sid = int(num(1)), int(num(2)), int(num(3))
	s.ticks, s.start = num(11)+num(12)+num(13)+num(14), num(19)
	return s, ok
}

// ignores says that a process ignores a signal.
func ignores(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && statusMask(status, "SigIgn:")&(1<<(sig-1)) != 0
}

// eachProcess calls f for every process that /proc shows, reading the folder
// in pieces so that f sees a number soon after it was listed.
func eachProcess(f func(pid int)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				f(pid)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lastPID is the number the kernel gave out last. If it is the same before and
// after a look at all processes, none was born meanwhile.
func lastPID() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	f := strings.Fields(string(text))
	if len(f) == 0 {
		return -1
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return -1
	}
	return n
}

// children lists the children of a process. It needs CONFIG_PROC_CHILDREN and
// is empty without.
func children(pid int) []int {
	base := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var out []int
	for _, t := range tasks {
		text, err := os.ReadFile(base + t.Name() + "/children")
		if err != nil {
			continue
		}
		out = append(out, numbers(text)...)
	}
	return out
}

// adopted lists the children that came to us when their parents ended, with
// some of those we started: the kernel gives orphans to the first thread.
func adopted() []int {
	self := "/proc/self/task/" + strconv.Itoa(unix.Getpid()) + "/children"
	text, err := os.ReadFile(self)
	if err != nil {
		return nil
	}
	return numbers(text)
}

func numbers(text []byte) []int {
	var out []int
	for f := range bytes.FieldsSeq(text) {
		if n, err := strconv.Atoi(string(f)); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// descendants walks the tree below pid, at most limit processes of it, and
// tells each by number and start time.
func descendants(pid, limit int) map[int]uint64 {
	found := map[int]uint64{}
	queue := []int{pid}
	for len(queue) > 0 && len(found) < limit {
		at := queue[0]
		queue = queue[1:]
		for _, c := range children(at) {
			if _, dup := found[c]; dup {
				continue
			}
			if s, ok := readStat(c); ok {
				found[c] = s.start
				queue = append(queue, c)
			}
		}
	}
	return found
}

// signalIf sends sig to pid if same, asked while a pidfd holds the process,
// says that it is the one that is meant. It reports whether the signal was
// sent. Signal 0 only asks.
func signalIf(pid int, sig syscall.Signal, same func() bool) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) { // no pidfd on this kernel: the gap is a few microseconds
		return same() && (sig == 0 || syscall.Kill(pid, sig) == nil)
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return same() && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}
