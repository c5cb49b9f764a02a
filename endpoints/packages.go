package endpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/host"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

type packagesIn struct {
	Manager string `query:"manager" doc:"pip (the default), npm, apt, apk, gem, cargo or go."`
	Path    string `query:"path" doc:"npm: the folder of the project; the server's working directory by default."`
	Global  bool   `query:"global" doc:"npm: what is installed globally."`
}

type packagesOut struct {
	Manager   string         `json:"manager"`
	Packages  []packageEntry `json:"packages"`
	Truncated bool           `json:"truncated,omitempty"`
}

type packageEntry struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Arch    string `json:"architecture,omitempty" doc:"apt, apk and gem."`
}

// managers list what each package manager has installed.
var managers = map[string]func(*facts, context.Context, *api.Call, packagesIn) (host.Packages, error){
	"pip": func(f *facts, ctx context.Context, c *api.Call, _ packagesIn) (host.Packages, error) {
		return f.python.Packages(ctx, f.where(c))
	},
	"npm": (*facts).npm,
	"apt": func(f *facts, ctx context.Context, _ *api.Call, _ packagesIn) (host.Packages, error) {
		return f.host.DebianPackages(ctx)
	},
	"apk": func(f *facts, ctx context.Context, _ *api.Call, _ packagesIn) (host.Packages, error) {
		return f.host.AlpinePackages(ctx)
	},
	"gem": func(f *facts, ctx context.Context, c *api.Call, _ packagesIn) (host.Packages, error) {
		return f.host.RubyGems(ctx, f.where(c))
	},
	"cargo": func(f *facts, ctx context.Context, c *api.Call, _ packagesIn) (host.Packages, error) {
		return host.CargoPrograms(ctx, f.where(c))
	},
	"go": func(f *facts, ctx context.Context, c *api.Call, _ packagesIn) (host.Packages, error) {
		return host.GoPrograms(ctx, f.where(c))
	},
}

// packagesTime bounds one listing.
const packagesTime = 10 * time.Second

func (f *facts) packages(ctx context.Context, c *api.Call, in packagesIn) (packagesOut, error) {
	manager := in.Manager
	if manager == "" {
		manager = "pip"
	}
	list, ok := managers[manager]
	if !ok {
		return packagesOut{}, api.Invalidf("Unknown package manager; known are %s", strings.Join(slices.Sorted(maps.Keys(managers)), ", "))
	}
	if manager != "npm" && (in.Path != "" || in.Global) {
		return packagesOut{}, api.Invalidf("'path' and 'global' are for npm")
	}
	ctx, cancel := context.WithTimeout(ctx, packagesTime)
	defer cancel()
	found, err := list(f, ctx, c, in)
	if err := listingError(manager, err); err != nil {
		return packagesOut{}, err
	}
	out := packagesOut{Manager: manager, Packages: make([]packageEntry, len(found.List)), Truncated: found.Truncated}
	for i, p := range found.List {
		out.Packages[i] = packageEntry{p.Name, p.Version, p.Arch}
	}
	return out, nil
}

// listingError is the error of a listing as it is answered. A manager that is
// not there, or does not work, has no packages.
func listingError(manager string, err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Error{
			Status: http.StatusInternalServerError, Type: "TimeoutError",
			Msg: "Listing the packages of " + manager + " took too long", NoEndpoint: true, Err: err,
		}
	case errors.Is(err, proc.ErrNotFound), errors.Is(err, proc.ErrNotExecutable), errors.Is(err, host.ErrNoAnswer):
		return nil
	case proc.NoRoom(err):
		return noRoom(err)
	}
	return err
}

// npm lists a project or what is global. As published, the plain question has
// an empty answer where there is no npm.
func (f *facts) npm(ctx context.Context, c *api.Call, in packagesIn) (host.Packages, error) {
	at := f.where(c)
	switch {
	case in.Global && in.Path != "":
		return host.Packages{}, api.Invalidf("Only one of 'path' and 'global' can be given")
	case in.Global:
		return host.NPMGlobal(ctx, at)
	case in.Path == "":
		if !at.Has("npm") {
			return host.Packages{}, nil
		}
		return host.NPMProject(ctx, f.Workdir)
	}
	dir, _, err := c.Guard(nil).Dir(in.Path, policy.Read)
	if err != nil {
		return host.Packages{}, err
	}
	defer dir.Close()
	return host.NPMProject(ctx, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
}
