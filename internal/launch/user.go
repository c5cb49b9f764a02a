package launch

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"strconv"

	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

// ErrUnknownUser is a name that the user database does not have.
var ErrUnknownUser = errors.New("unknown user")

// User is somebody of the user database.
type User struct {
	Name, Home string
	IDs        proc.User
}

// LookupUser finds a user by name, with all groups. The error is
// [ErrUnknownUser], or the database's own.
func LookupUser(name string) (*User, error) {
	known, err := user.Lookup(name)
	if err != nil {
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			return nil, ErrUnknownUser
		}
		return nil, fmt.Errorf("look up a user: %w", err)
	}
	return describe(known)
}

// LookupUID finds a user by number, as LookupUser does by name.
func LookupUID(uid uint32) (*User, error) {
	known, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		if _, unknown := errors.AsType[user.UnknownUserIdError](err); unknown {
			return nil, ErrUnknownUser
		}
		return nil, fmt.Errorf("look up a user: %w", err)
	}
	return describe(known)
}

func describe(known *user.User) (*User, error) {
	uid, err1 := number(known.Uid)
	gid, err2 := number(known.Gid)
	groups, err3 := known.GroupIds()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("user %s: %w", known.Username, err)
	}
	u := &User{Name: known.Username, Home: known.HomeDir, IDs: proc.User{UID: uid, GID: gid}}
	for _, g := range groups {
		if n, err := number(g); err == nil {
			u.IDs.Groups = append(u.IDs.Groups, n)
		}
	}
	return u, nil
}

// number reads an id. The highest number means "no change" to the kernel and
// is nobody.
func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err == nil && n == math.MaxUint32 {
		err = errors.New("an id that nobody has")
	}
	return uint32(n), err
}

// Become says in an environment who one is.
func (u *User) Become(env map[string]string) {
	env["USER"], env["LOGNAME"], env["HOME"] = u.Name, u.Name, u.Home
}
