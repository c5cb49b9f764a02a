package watch

import "sync"

// inbox holds the kernel's changes for one listener. put never waits: when the
// inbox is full its content is dropped and the loss remembered.
type inbox struct {
	max   int
	ready chan struct{} // holds one token when there is something to take

	mu   sync.Mutex
	list []change
	lost bool // changes were dropped before those in list
}

func newInbox(size int) *inbox { return &inbox{max: size, ready: make(chan struct{}, 1)} }

func (b *inbox) put(c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.list); n > 0 {
		// The same change twice in a row is one, as in the kernel's own queue.
		if last := b.list[n-1]; last.wd == c.wd && last.mask == c.mask && last.cookie == c.cookie && last.name == c.name {
			return
		}
		if n >= b.max {
			b.list, b.lost = nil, true
		}
	}
	b.list = append(b.list, c)
	b.wake()
}

func (b *inbox) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list, b.lost = nil, true // the tree is looked at again: they add nothing
	b.wake()
}

// take empties the inbox.
func (b *inbox) take() (list []change, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list, lost = b.list, b.lost
	b.list, b.lost = nil, false
	return list, lost
}

func (b *inbox) wake() { token(b.ready) }
