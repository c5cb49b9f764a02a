package guardfs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// unkept are attributes that speak of a file's old bytes.
var unkept = map[string]bool{"security.capability": true, "security.ima": true, "security.evm": true}

// copyAttrs gives the open file fd the extended attributes of name in dir, as
// far as the system lets us.
func copyAttrs(dir int, name string, fd int) {
	// Through the descriptor of the directory, so that the entry need not be
	// readable; the last component is not followed.
	from := fdPath(dir) + "/" + name
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(from, list)
	if err != nil || n == 0 {
		return
	}
	value := make([]byte, 64<<10)
	for attr := range bytes.SplitSeq(list[:n], []byte{0}) {
		key := string(attr)
		if key == "" || unkept[key] {
			continue
		}
		if m, err := unix.Lgetxattr(from, key, value); err == nil {
			_ = unix.Fsetxattr(fd, key, value[:m], 0)
		}
	}
}
