package endpoints

import (
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/launch"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// circumstances say how a command is to run, beyond what it is.
type circumstances struct {
	User      api.Field[string]         `json:"user" doc:"Whom to run as, name or uid:gid; only where policy lists it."`
	Umask     api.Field[string]         `json:"umask" doc:"File mode mask, octal."`
	Nice      api.Field[api.Number]     `json:"nice" doc:"Niceness to add, 0 to 19."`
	Limits    api.Field[map[string]any] `json:"limits" doc:"Bounds of the process and its children: cpu_seconds, memory_bytes, processes, open_files, file_size_bytes."`
	KillGrace api.Field[api.Number]     `json:"kill_grace" doc:"Seconds between SIGTERM and SIGKILL at the time limit; 0 by default, at most 8."`
}

// maxKillGrace is how long an answer may come after the time limit: published
// clients wait ten seconds more than they allow a command.
const maxKillGrace = 8 * time.Second

// arrange fills in what needs no decision.
func (in *circumstances) arrange(spec *proc.Spec) error {
	if in.User.State == api.Wrong || in.User.State == api.Good && in.User.V == "" {
		return api.Invalidf("Invalid 'user': a name or uid:gid")
	}
	mask, err := octal(in.Umask, "umask")
	if err != nil {
		return err
	}
	if mask != nil {
		n := int(*mask)
		spec.Umask = &n
	}
	nice, err := in.Nice.Optional("nice", "0")
	if err != nil || nice.Int() < 0 || nice.Int() > 19 || nice.Float() != float64(nice.Int()) {
		return api.Invalidf("Invalid 'nice': 0 to 19")
	}
	spec.Nice = int(nice.Int())
	pause, err := in.KillGrace.Optional("kill_grace", "0")
	if err != nil || pause.Float() < 0 || pause.Float() > maxKillGrace.Seconds() {
		return api.Invalidf("Invalid 'kill_grace': 0 to %g seconds", maxKillGrace.Seconds())
	}
	spec.KillGrace = seconds(pause.Float())
	return in.readLimits(&spec.Limits)
}

func (in *circumstances) readLimits(l *proc.Limits) error {
	given, err := in.Limits.Optional("limits", nil)
	if err != nil {
		return err
	}
	for name, v := range given {
		var to *uint64
		switch name {
		case "cpu_seconds":
			to = &l.CPUSeconds
		case "memory_bytes":
			to = &l.MemoryBytes
		case "processes":
			to = &l.Processes
		case "open_files":
			to = &l.OpenFiles
		case "file_size_bytes":
			to = &l.FileSizeBytes
		default:
			// A bound that was misspelled must not be taken for one that holds.
			return api.Invalidf("Unknown limit in 'limits'")
		}
		n, ok := v.(api.Number)
		if !ok || n.Int() < 1 {
			return api.Invalidf("Invalid '%s' in 'limits': a positive number", name)
		}
		*to = uint64(n.Int())
	}
	return nil
}

// wanted is how many seconds the command may run: what was asked for, or the
// default.
func (in *execIn) wanted() float64 {
	if f, ok := api.Lenient(in.Timeout.V); ok && in.Timeout.State == api.Good && f > 0 {
		return min(f, maxTimeout)
	}
	return defaultTimeout.Seconds()
}

// limitTime sets the time limit in seconds, infinite for none. The rule bounds
// the whole of it, the time between SIGTERM and SIGKILL included.
func limitTime(rule *policy.Rule, spec *proc.Spec, limit float64) {
	if most, ok := rule.Seconds("timeout_seconds"); ok {
		pause := min(spec.KillGrace.Seconds(), most/2)
		spec.KillGrace = seconds(pause)
		limit = min(limit, min(most, maxTimeout)-pause)
	}
	spec.Timeout = 0
	if !math.IsInf(limit, 1) {
		spec.Timeout = time.Duration(math.Ceil(limit * float64(time.Second)))
	}
}

// runAs is the user a call wants to run as, if policy lets it: the rule names
// it as the call does, and the server can become it. env gets the variables
// that say who one is.
func runAs(rule *policy.Rule, name string, env map[string]string) (*proc.User, error) {
	allowed, _ := rule.Strings("allow_users")
	if !slices.Contains(allowed, name) || os.Geteuid() != 0 {
		return nil, policy.Refuse(policy.UserNotAllowed, "Commands may not run as this user").Err()
	}
	if uid, gid, ok := numericUser(name); ok {
		if known, err := launch.LookupUID(uid); err == nil {
			known.Become(env)
		}
		return &proc.User{UID: uid, GID: gid}, nil
	}
	known, err := launch.LookupUser(name)
	if errors.Is(err, launch.ErrUnknownUser) {
		return nil, api.Invalidf("Unknown user in 'user'")
	}
	if err != nil {
		return nil, err
	}
	known.Become(env)
	return &known.IDs, nil
}

// numericUser reads uid:gid. The highest number means "no change" to the
// kernel and is nobody.
func numericUser(name string) (uid, gid uint32, ok bool) {
	left, right, ok := strings.Cut(name, ":")
	if !ok {
		return 0, 0, false
	}
	u, err1 := strconv.ParseUint(left, 10, 32)
	g, err2 := strconv.ParseUint(right, 10, 32)
	if err1 != nil || err2 != nil || u == math.MaxUint32 || g == math.MaxUint32 {
		return 0, 0, false
	}
	return uint32(u), uint32(g), true
}

// failed is the answer to a start that did not succeed.
func (l *prepared) failed(err error) error {
	if errors.Is(err, proc.ErrUser) {
		return policy.Refuse(policy.UserNotAllowed, "The server cannot run commands as this user").Err()
	}
	if l.how.Limits != (proc.Limits{}) && proc.NoRoom(err) {
		return api.Invalidf("The program cannot be started within 'limits'")
	}
	return startError(err, l.argv[0])
}
