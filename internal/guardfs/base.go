package guardfs

import "path"

// Base is the base directory as it is named now: a policy's own, or where own
// is "" the one that New was told. Whether it exists is not asked.
func (f *FS) Base(own string) string {
	if own == "" {
		own = f.base()
	}
	return path.Clean(own)
}
