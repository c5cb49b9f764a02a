package host

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks bounds how many open files of all processes are looked at.
const mostLinks = 1 << 20

// findOwners looks for the processes that hold the sockets among those whose
// open files may be seen. The error is that of ctx.
func (h *Host) findOwners(ctx context.Context, sockets []Listener) error {
	wanted := map[uint64][]*Listener{}
	for i := range sockets {
		if s := &sockets[i]; s.inode != 0 {
			wanted[s.inode] = append(wanted[s.inode], s)
		}
	}
	pids, err := h.pids()
	if err != nil || len(wanted) == 0 {
		return ctx.Err()
	}
	slices.Sort(pids)
	left := mostLinks
	for _, pid := range pids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(wanted) == 0 || left <= 0 {
			break
		}
		name := ""
		left = h.sockets(pid, left, func(inode uint64) {
			for _, s := range wanted[inode] {
				if name == "" {
					name = h.command(pid)
				}
				s.PID, s.Process = pid, name
			}
			delete(wanted, inode)
		})
	}
	return nil
}

// command is the name of a process's program, as the kernel keeps it.
func (h *Host) command(pid int) string {
	comm := h.read("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.ToValidUTF8(string(bytes.TrimSuffix(comm, []byte("\n"))), "\uFFFD")
}

// sockets tells the sockets that a process holds, looking at no more than
// left of its files, and returns how many are left.
func (h *Host) sockets(pid, left int, tell func(inode uint64)) int {
	dir, err := os.OpenFile(h.root+"/proc/"+strconv.Itoa(pid)+"/fd", openFlags|unix.O_DIRECTORY, 0)
	if err != nil {
		return left // another user's, or gone
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var buf [64]byte
	for left > 0 {
		names, err := dir.Readdirnames(min(left, 1024))
		left -= len(names)
		for _, name := range names {
			n, err := unix.Readlinkat(fd, name, buf[:])
			if err != nil {
				continue
			}
			if inode, ok := socketInode(buf[:n]); ok {
				tell(inode)
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
	}
	return left
}

// socketInode reads the link of a socket, "socket:[123]".
func socketInode(link []byte) (uint64, bool) {
	text, ok := bytes.CutPrefix(link, []byte("socket:["))
	if !ok {
		return 0, false
	}
	text, ok = bytes.CutSuffix(text, []byte("]"))
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text), 10, 64)
	return n, err == nil
}
