package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// stamp tells whether a file or folder is still the one it was.
type stamp struct {
	path     string
	dev, ino uint64
	changed  int64 // ns; ctime, which programs cannot set
}

// stampOf looks at a path, following links. What is not there has a stamp too.
func stampOf(path string) stamp {
	s := stamp{path: path}
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		s.dev, s.ino, s.changed = st.Dev, st.Ino, max(st.Ctim.Nano(), st.Mtim.Nano())
	}
	return s
}

// fresh tells whether everything is as it was stamped.
func fresh(stamps []stamp) bool {
	for _, s := range stamps {
		if stampOf(s.path) != s {
			return false
		}
	}
	return true
}

// coarse is more than the step of any file system's clock.
const coarse = 2 * time.Second

// settled tells whether all changes are so long ago that another one would
// show.
func settled(stamps []stamp, now time.Time) bool {
	for _, s := range stamps {
		if now.Sub(time.Unix(0, s.changed)) < coarse {
			return false
		}
	}
	return true
}
