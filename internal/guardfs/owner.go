package guardfs

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Owner is the name of a user, or the number as text where it has none.
func (f *FS) Owner(uid uint32) string { return f.users.name(uid) }

// Group is the name of a group, or the number as text where it has none.
func (f *FS) Group(gid uint32) string { return f.groups.name(gid) }

// nameTable keeps the names of a file like /etc/passwd. It is read again when
// the file changed, which is looked at once a second.
type nameTable struct {
	file string

	mu    sync.Mutex
	names map[uint32]string
	next  time.Time // when to look again
	seen  os.FileInfo
}

// maxNameTable bounds how much of the file is read.
const maxNameTable = 4 << 20

func (t *nameTable) name(id uint32) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.After(t.next) {
		t.next = now.Add(time.Second)
		t.refresh()
	}
	if name, ok := t.names[id]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (t *nameTable) refresh() {
	now, err := os.Stat(t.file)
	if err == nil && t.seen != nil && os.SameFile(now, t.seen) && now.ModTime().Equal(t.seen.ModTime()) && now.Size() == t.seen.Size() {
		return
	}
	t.names, t.seen = nil, nil
	if err != nil || !now.Mode().IsRegular() {
		return
	}
	f, err := os.Open(t.file)
	if err != nil {
		return
	}
	defer f.Close()
	t.names, t.seen = parseNames(f), now
}

// parseNames reads lines of name:password:number:…; the first name of a number
// counts. Lines that are not like that are passed over.
func parseNames(r io.Reader) map[uint32]string {
	names := map[uint32]string{}
	lines := bufio.NewScanner(io.LimitReader(r, maxNameTable))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 4)
		if len(parts) < 3 || parts[0] == "" || parts[0][0] == '#' {
			continue
		}
		id, err := strconv.ParseUint(parts[2], 10, 32)
		if _, taken := names[uint32(id)]; err == nil && !taken {
			names[uint32(id)] = parts[0]
		}
	}
	return names
}
