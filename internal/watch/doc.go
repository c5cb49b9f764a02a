// Package watch turns a directory tree into one ordered stream of changes.
//
// A [Hub] owns one inotify instance with one set of kernel watches, counted by
// reference and shared by all its listeners. Each [Listener] owns a model of
// the tree as its reader has been told of it: every event is one step of that
// model, so replaying the events onto the tree as it was when [Hub.Watch]
// returned gives the tree as it is now, also after an overflow.
//
// The kernel's events are taken as hints with two exceptions: a name that was
// created or deleted was so, even if it is long gone. All else is found by
// looking: at the entry, or at the whole directory when it is new, when events
// were lost, or when no watch is to be had and the directory is polled.
//
// Nothing is looked up by following links. A directory is remembered by its
// device and inode, which its watch keeps from being used again; it is found
// by name below the root with links forbidden, and used only if it is the one
// remembered. Between two looks no descriptor inside the tree is open, so a
// watched file system can be unmounted and a removed directory goes at once.
package watch
