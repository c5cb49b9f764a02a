package envd

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// ownUser is whom the server runs as, also where no database knows.
func ownUser() *launch.User {
	uid := uint32(os.Geteuid())
	if u, err := launch.LookupUID(uid); err == nil {
		return u
	}
	home := os.Getenv("HOME")
	if home == "" {
		home = "/"
	}
	return &launch.User{Name: strconv.FormatUint(uint64(uid), 10), Home: home, IDs: proc.User{UID: uid, GID: uint32(os.Getegid())}}
}

// become decides whom the call works as: the user that is named, else the
// default one. Where the policy lists users, the server's own is free only
// while it is what calls without a name mean: a listener that was given a lesser
// user must not be talked out of it.
func (c *call) become(name string) error {
	if name == "" {
		name = c.s.settings().user
	}
	if name == "" {
		name = c.s.User
	}
	u := c.s.self
	if name != "" && name != c.s.self.Name {
		var err error
		if u, err = launch.LookupUser(name); errors.Is(err, launch.ErrUnknownUser) {
			return connect.Errorf(connect.Unauthenticated, "invalid username: '%s'", name)
		} else if err != nil {
			return err
		}
	}
	own := u.IDs.UID == c.s.self.IDs.UID
	if !own && c.s.self.IDs.UID != 0 {
		return policy.Refuse(policy.UserNotAllowed, "The server does not run as root and can only work as its own user").Err()
	}
	if rule := c.Policy.Rule("process_start"); rule != nil && (!own || !c.s.ownIsDefault) {
		if allowed, set := rule.Strings("allow_users"); set && !slices.Contains(allowed, name) {
			return policy.Refuse(policy.UserNotAllowed, "Calls may not work as this user").Err()
		}
	}
	c.user = u
	return nil
}

// ids are whom to start programs as; nil is the server's own user.
func (c *call) ids() *proc.User {
	if c.user.IDs.UID == c.s.self.IDs.UID {
		return nil
	}
	return &c.user.IDs
}

// files does f with the rights that the call's user has to files. f runs in
// one goroutine and must start none that use files.
func (c *call) files(f func() error) error {
	ids := c.ids()
	if ids == nil {
		return f()
	}
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		// The rights to files are a matter of the thread. One that cannot get
		// its own back is given up: a locked thread ends with its goroutine.
		runtime.LockOSThread()
		if err = putOn(ids.UID, ids.GID, ids.Groups); err == nil {
			err = f()
		}
		if putOn(uint32(os.Geteuid()), uint32(os.Getegid()), ownGroups()) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// ownGroups are the supplementary groups of the server.
func ownGroups() []uint32 {
	ids, _ := os.Getgroups()
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return out
}

// putOn gives the calling thread a user's rights to files. With a user other
// than root the kernel drops the capabilities that go past them.
func putOn(uid, gid uint32, groups []uint32) error {
	if uid == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0) // first, or the rest is not permitted
	}
	var list unsafe.Pointer
	if len(groups) > 0 {
		list = unsafe.Pointer(&groups[0]) //nolint:gosec // the kernel takes an address
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(list), 0); errno != 0 {
		return fmt.Errorf("set the groups of a thread: %w", errno)
	}
	// They report no failure but in what they leave in force, asked for below.
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	const ask = ^uintptr(0)
	gotUser, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ask, 0, 0)
	gotGroup, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ask, 0, 0)
	if uint32(gotUser) != uid || uint32(gotGroup) != gid {
		return errors.New("the rights of another user cannot be taken on")
	}
	return nil
}
