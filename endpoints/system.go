package endpoints

import (
	"context"
	"math"
	"net/netip"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
	"github.com/agent-sandbox/agent-sandbox-server/internal/host"
)

// facts is what the handlers of the system group stand on.
type facts struct {
	*Server
	host   *host.Host
	python *host.Python
}

func (s *Server) system() []api.Endpoint {
	f := &facts{Server: s, host: host.New(), python: host.NewPython(s.Procs)}
	read := func(name, path, summary string) api.Row {
		return api.Row{Name: name, Method: "GET", Path: path, Group: "system", Summary: summary, Scopes: []string{"system:read"}}
	}
	envGet := read("env_get", "/env", "Show environment variables, without secrets.")
	envSet := api.Row{
		Name: "env_set", Method: "POST", Path: "/env", Group: "system",
		Summary: "Set and unset variables for programs started later.",
		Scopes:  []string{"system:write"}, Mutates: true,
	}
	envdInit := api.Row{
		Name: "envd_init", Method: "POST", Path: "/init", Group: "system",
		Summary: "Set variables, user and access token of the envd listener.",
		Scopes:  []string{"system:write"}, Mutates: true, Follows: "env_set",
	}
	envGet.Params = []string{"allow_vars", "deny_vars"}
	envSet.Params = envGet.Params
	text := read("metrics_text", "/metrics", "Tell the metrics in the text format of Prometheus.")
	text.As = "system_metrics"
	return []api.Endpoint{
		api.Unary(read("system_info", "/system/info", "Tell what machine this is and how much of it may be used."), f.info),
		api.Unary(read("system_metrics", "/system/metrics", "Tell load, memory and disk in use."), f.metrics),
		api.Unary(text, f.metricsText),
		api.Unary(envGet, s.env),
		api.Unary(envSet, s.setEnv),
		api.Elsewhere(envdInit),
		api.Unary(read("ports", "/ports", "List listening TCP sockets."), f.ports),
		api.Unary(read("packages", "/packages", "List what a package manager has installed."), f.packages),
	}
}

type infoOut struct {
	OS              string  `json:"os"`
	Arch            string  `json:"arch" doc:"As uname -m says."`
	CPUCount        int     `json:"cpu_count" doc:"CPUs this server can keep busy: by affinity and quota."`
	MemoryTotal     uint64  `json:"memory_total_mb" doc:"MiB there are for this server."`
	MemoryAvailable uint64  `json:"memory_available_mb" doc:"MiB that can be had now."`
	DiskTotal       float64 `json:"disk_total_gb" doc:"GiB of the file system of /."`
	DiskFree        float64 `json:"disk_free_gb" doc:"GiB a user without privileges may write."`
	PythonVersion   string  `json:"python_version" doc:"Of the python3 on PATH; empty when there is none."`
	Hostname        string  `json:"hostname"`

	CPULimit        *float64 `json:"cpu_limit" doc:"The quota of the container in CPUs, or null."`
	MemoryLimit     *uint64  `json:"memory_limit_mb" doc:"The bound of the container in MiB, or null."`
	HostCPUCount    int      `json:"host_cpu_count"`
	HostMemoryTotal uint64   `json:"host_memory_total_mb"`
}

func (f *facts) info(ctx context.Context, c *api.Call, _ struct{}) (infoOut, error) {
	k, cpu, mem, disk := f.host.Kernel(), f.host.CPU(), f.host.Memory(), f.host.Disk()
	version, err := f.python.Version(ctx, f.where(c))
	if err != nil {
		version = "" // no python3, or one that does not answer
	}
	out := infoOut{
		OS: k.Name, Arch: k.Machine, Hostname: k.Hostname, PythonVersion: version,
		CPUCount: cpu.Count, HostCPUCount: cpu.Host,
		MemoryTotal: mib(mem.Total), MemoryAvailable: mib(mem.Available), HostMemoryTotal: mib(mem.HostTotal),
		DiskTotal: gib(disk.Total), DiskFree: gib(disk.Free),
	}
	if cpu.Limit > 0 {
		limit := round(cpu.Limit, 3)
		out.CPULimit = &limit
	}
	if mem.Limit > 0 {
		limit := mib(mem.Limit)
		out.MemoryLimit = &limit
	}
	return out, nil
}

// where is how interpreters and package managers are found and asked: as the
// server was started, so that callers cannot choose what runs.
func (f *facts) where(c *api.Call) host.Where {
	env := f.Env.Start(c.Policy)
	return host.Where{Path: env["PATH"], Dir: f.Workdir, Env: childenv.List(env)}
}

type metricsOut struct {
	Load1         float64 `json:"cpu_load_1m"`
	Load5         float64 `json:"cpu_load_5m"`
	Load15        float64 `json:"cpu_load_15m"`
	MemoryUsed    uint64  `json:"memory_used_mb"`
	MemoryTotal   uint64  `json:"memory_total_mb"`
	MemoryPercent float64 `json:"memory_percent"`
	DiskUsed      float64 `json:"disk_used_gb"`
	DiskTotal     float64 `json:"disk_total_gb"`
	DiskPercent   float64 `json:"disk_percent"`
	Uptime        float64 `json:"uptime_seconds" doc:"Since the server started."`
	CPUPercent    float64 `json:"cpu_percent" doc:"How busy the CPUs of cpu_count were since the last call."`
	ProcessCount  int     `json:"process_count"`
}

func (f *facts) metrics(context.Context, *api.Call, struct{}) (metricsOut, error) {
	load, mem, disk := f.host.Load(), f.host.Memory(), f.host.Disk()
	out := metricsOut{
		Load1: round(load[0], 2), Load5: round(load[1], 2), Load15: round(load[2], 2),
		MemoryUsed: mib(mem.Used), MemoryTotal: mib(mem.Total),
		DiskUsed: gib(disk.Used), DiskTotal: gib(disk.Total), DiskPercent: percent(disk.Used, disk.Total),
		Uptime:     math.Floor(f.host.Uptime().Seconds()*10) / 10, // never ahead of the clock
		CPUPercent: round(f.host.CPUPercent(), 1), ProcessCount: f.host.ProcessCount(),
	}
	if mem.Used+mem.Available == mem.Total {
		out.MemoryUsed = mib(mem.Total) - mib(mem.Available) // the two shown add up to the total shown
	}
	out.MemoryPercent = percent(out.MemoryUsed, out.MemoryTotal)
	return out, nil
}

func mib(bytes uint64) uint64 { return bytes >> 20 }

func gib(bytes uint64) float64 { return round(float64(bytes)/(1<<30), 2) }

func round(f float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(f*scale) / scale
}

// percent is how much of whole part is, one digit behind the point.
func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return round(100*float64(part)/float64(whole), 1)
}

type portsOut struct {
	Listening []listener `json:"listening"`
}

type listener struct {
	Port     uint16  `json:"port"`
	Protocol string  `json:"protocol" doc:"tcp or tcp6"`
	Address  string  `json:"address" doc:"IPv6 in brackets."`
	PID      *int    `json:"pid" doc:"The process that holds the socket; null when it cannot be seen."`
	Process  *string `json:"process" doc:"The command name of that process."`
	UID      uint32  `json:"uid" doc:"Of the user who made the socket."`
}

func (f *facts) ports(ctx context.Context, _ *api.Call, _ struct{}) (portsOut, error) {
	found, err := f.host.Listeners(ctx)
	if err != nil {
		return portsOut{}, err
	}
	out := portsOut{Listening: make([]listener, len(found))}
	for i, l := range found {
		row := listener{Port: l.Port, Protocol: "tcp", Address: l.Addr.String(), UID: l.UID}
		if l.IPv6 {
			row.Protocol, row.Address = "tcp6", bracketed(l.Addr)
		}
		if l.PID != 0 {
			row.PID, row.Process = &l.PID, &l.Process
		}
		out.Listening[i] = row
	}
	return out, nil
}

func bracketed(a netip.Addr) string { return "[" + a.String() + "]" }
