package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/host"
	"github.com/agent-sandbox/agent-sandbox-server/internal/proc"
)

func TestSystemInfo(t *testing.T) {
	r := newRig(t, rigOptions{})
	status, out := r.call("GET", "/system/info", nil)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	for field, want := range map[string]string{
		"os": "Linux", "arch": unix.ByteSliceToString(u.Machine[:]), "hostname": unix.ByteSliceToString(u.Nodename[:]),
	} {
		if out[field] != want {
			t.Errorf("%s is %v, want %q", field, out[field], want)
		}
	}
	number := func(field string) float64 {
		t.Helper()
		f, ok := out[field].(float64)
		if !ok {
			t.Errorf("%s is %v", field, out[field])
		}
		return f
	}
	if n := number("cpu_count"); n < 1 || n > number("host_cpu_count") || n > float64(runtime.NumCPU()) {
		t.Errorf("cpu_count %v", n)
	}
	total := number("memory_total_mb")
	if free := number("memory_available_mb"); free <= 0 || free > total || total > number("host_memory_total_mb") {
		t.Errorf("memory %v of %v", free, total)
	}
	if free := number("disk_free_gb"); free < 0 || free > number("disk_total_gb") {
		t.Errorf("disk %v", free)
	}
	for _, field := range []string{"cpu_limit", "memory_limit_mb"} {
		if v, there := out[field]; !there || v != nil && number(field) <= 0 {
			t.Errorf("%s is %v", field, v)
		}
	}
	if version, ok := out["python_version"].(string); !ok || !regexp.MustCompile(`^(\d+\.\d+\.\d+)?$`).MatchString(version) {
		t.Errorf("python_version is %v", out["python_version"])
	}
}

func TestSystemInfoWithoutPython(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"PATH": "/nonexistent"}})
	if status, out := r.call("GET", "/system/info", nil); status != 200 || out["python_version"] != "" {
		t.Errorf("%d %v", status, out)
	}
}

func TestSystemMetricsAgreeWithInfo(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"PATH": "/nonexistent"}})
	_, info := r.call("GET", "/system/info", nil)
	status, m := r.call("GET", "/system/metrics", nil)
	if status != 200 {
		t.Fatal(status, m)
	}
	number := func(field string) float64 {
		t.Helper()
		f, ok := m[field].(float64)
		if !ok || f < 0 {
			t.Errorf("%s is %v", field, m[field])
		}
		return f
	}
	for _, kind := range []struct{ used, total, percent string }{
		{"memory_used_mb", "memory_total_mb", "memory_percent"}, {"disk_used_gb", "disk_total_gb", "disk_percent"},
	} {
		used, total := number(kind.used), number(kind.total)
		if total != info[kind.total] || used <= 0 || used > total {
			t.Errorf("%s: %v of %v (info: %v)", kind.used, used, total, info[kind.total])
		}
		if got := number(kind.percent); math.Abs(got-100*used/total) > 0.2 {
			t.Errorf("%s is %v for %v of %v", kind.percent, got, used, total)
		}
	}
	if number("cpu_percent") > 100 || number("process_count") < 1 || number("cpu_load_1m") > 1e6 {
		t.Errorf("%v", m)
	}
	_, later := r.call("GET", "/system/metrics", nil)
	if a, b := number("uptime_seconds"), later["uptime_seconds"].(float64); b < a || b > 3600 {
		t.Errorf("up for %v, then %v", a, b)
	}
}

func TestPrometheusReadsTheMetrics(t *testing.T) {
	r := newRig(t, rigOptions{})
	res := r.do("GET", "/metrics", nil)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatal(res.StatusCode, res.Header, err)
	}
	line := regexp.MustCompile(`^(# TYPE (agent_sandbox_[a-z0-9_]+) gauge|agent_sandbox_[a-z0-9_]+ [0-9.e+-]+)$`)
	for l := range strings.Lines(string(text)) {
		if !line.MatchString(strings.TrimSuffix(l, "\n")) {
			t.Errorf("%q is no line of metrics", l)
		}
	}
	if !strings.Contains(string(text), "\nagent_sandbox_memory_total_mb ") {
		t.Errorf("%s", text)
	}
	off := newRig(t, rigOptions{policy: `{"endpoints":{"system_metrics":{"enabled":false}}}`})
	status, out := off.call("GET", "/metrics", nil)
	wantError(t, "metrics", status, out, 404, "endpoint_disabled")
}

func TestPortsShowAddressAndOwner(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, c := range []struct{ network, listen, protocol, address string }{
		{"tcp4", "127.0.0.1:0", "tcp", "127.0.0.1"}, {"tcp6", "[::1]:0", "tcp6", "[::1]"},
	} {
		l, err := net.Listen(c.network, c.listen)
		if err != nil {
			t.Logf("no %s here: %v", c.network, err)
			continue
		}
		port := float64(l.Addr().(*net.TCPAddr).Port)
		find := func() map[string]any {
			_, out := r.call("GET", "/ports", nil)
			for _, one := range out["listening"].([]any) {
				if row := one.(map[string]any); row["port"] == port {
					return row
				}
			}
			return nil
		}
		got := find()
		name, _ := got["process"].(string)
		want := map[string]any{
			"port": port, "protocol": c.protocol, "address": c.address, "pid": float64(os.Getpid()), "uid": float64(os.Getuid()), "process": name,
		}
		if diff := cmp.Diff(want, got); diff != "" || name == "" {
			t.Error(diff)
		}
		_ = l.Close()
		if got := find(); got != nil {
			t.Errorf("closed, but listed: %v", got)
		}
	}
}

// plant writes a file below the rig's base directory.
func (r *rig) plant(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.base, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) packages(query string) any {
	r.t.Helper()
	status, out := r.call("GET", "/packages"+query, nil)
	if status != 200 {
		r.t.Fatalf("%s: %d %v", query, status, out)
	}
	return out["packages"]
}

func TestPipPackages(t *testing.T) {
	bin, site := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nprintf '3.12.1\\0/usr/bin/python3\\0" + site + "'\n"
	if err := os.WriteFile(bin+"/python3", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{env: map[string]string{"PATH": bin + ":" + os.Getenv("PATH")}})
	if got := r.packages(""); len(got.([]any)) != 0 {
		t.Errorf("got %v", got)
	}
	for _, name := range []string{"b-1", "A-2"} {
		if err := os.Mkdir(site+"/"+name+".dist-info", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []any{map[string]any{"name": "a", "version": "2"}, map[string]any{"name": "b", "version": "1"}}
	for _, query := range []string{"", "?manager=", "?manager=pip"} {
		if diff := cmp.Diff(want, r.packages(query)); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	if _, out := r.call("GET", "/packages", nil); out["manager"] != "pip" {
		t.Errorf("%v", out)
	}
	if _, out := r.call("GET", "/system/info", nil); out["python_version"] != "3.12.1" {
		t.Errorf("%v", out)
	}
}

// Who may set variables must not get code run by having facts asked for.
func TestSettingVariablesDoesNotChooseWhatIsAsked(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\nenv >" + bin + "/env\nprintf '3.12.1\\0/usr/bin/python3'\n"
	if err := os.WriteFile(bin+"/python3", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{env: map[string]string{"PATH": bin + ":" + os.Getenv("PATH"), "FROM_START": "1"}})
	for _, name := range []string{"PYTHONPATH", "LD_PRELOAD", "PYENV_HOOK_PATH", "SOME_SHIM"} {
		if status, out := r.call("POST", "/env", map[string]any{"vars": map[string]string{name: "/evil"}}); status != 200 {
			t.Fatal(status, out)
		}
	}
	r.call("GET", "/system/info", nil)
	text, err := os.ReadFile(bin + "/env")
	if err != nil {
		t.Fatal(err)
	}
	if env := string(text); strings.Contains(env, "/evil") || !strings.Contains(env, "FROM_START=1") || strings.Contains(env, "ABX_SERVER_TOKEN") {
		t.Errorf("asked with %s", env)
	}
}

func TestPackagesOfOtherManagers(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, manager := range []string{"npm", "apt", "apk", "gem", "cargo", "go"} {
		status, out := r.call("GET", "/packages?manager="+manager, nil)
		if _, list := out["packages"].([]any); status != 200 || out["manager"] != manager || !list {
			t.Errorf("%s: %d %v", manager, status, out)
		}
	}
	for _, bad := range []string{"nosuchmanager", "PIP", "pip&path=.", "apt&global=true", "npm&global=1&path=."} {
		status, out := r.call("GET", "/packages?manager="+bad, nil)
		if status != 400 || out["type"] != "ValueError" || out["code"] != nil {
			t.Errorf("%s: %d %v", bad, status, out)
		}
	}
}

func TestPackagesWithoutTheTool(t *testing.T) {
	r := newRig(t, rigOptions{env: map[string]string{"PATH": "/nonexistent"}})
	r.plant("node_modules/x/package.json", `{"version":"1"}`)
	for _, manager := range []string{"pip", "npm"} {
		if got := r.packages("?manager=" + manager); len(got.([]any)) != 0 {
			t.Errorf("%s: %v", manager, got)
		}
	}
}

func TestNPMProjectsAreHeldToTheBaseDirectory(t *testing.T) {
	bin, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(bin+"/npm", []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{env: map[string]string{"PATH": bin}})
	r.plant("node_modules/here/package.json", `{"version":"1.0.0"}`)
	r.plant("sub/package.json", `{"dependencies":{"inner":"*"}}`)
	r.plant("sub/node_modules/inner/package.json", `{"version":"2.0.0"}`)
	r.plant("file", "")
	if err := os.Symlink(outside, r.base+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(r.base+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]any{
		"?manager=npm":                             []any{map[string]any{"name": "here", "version": "1.0.0"}},
		"?manager=npm&path=sub":                    []any{map[string]any{"name": "inner", "version": "2.0.0"}},
		"?manager=npm&path=" + r.base + "/sub/../": []any{map[string]any{"name": "here", "version": "1.0.0"}},
	} {
		if diff := cmp.Diff(want, r.packages(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		outside: {403, "path_not_allowed"}, "/etc": {403, "path_not_allowed"}, "..": {403, "path_not_allowed"}, "out": {403, "path_not_allowed"},
		"/proc": {403, "path_not_allowed"}, "missing": {404, ""}, "file": {409, "not_a_directory"}, "fifo": {409, "not_a_directory"},
	} {
		status, out := r.call("GET", "/packages?manager=npm&path="+path, nil)
		wantError(t, path, status, out, want.status, want.code)
	}
}

func TestWhatGoesWrongWithAManager(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int // 0: an empty list
	}{
		{nil, 0},
		{&proc.StartError{Kind: proc.ErrNotFound}, 0},
		{&proc.StartError{Kind: proc.ErrNotExecutable}, 0},
		{host.ErrNoAnswer, 0},
		{fmt.Errorf("%w: %w", host.ErrNoAnswer, context.DeadlineExceeded), 500},
		{context.DeadlineExceeded, 500},
		{proc.ErrClosed, -1},
	} {
		err := listingError("pip", c.err)
		e, mine := errors.AsType[*api.Error](err)
		switch {
		case c.status == 0 && err != nil, c.status < 0 && !errors.Is(err, c.err):
			t.Errorf("%v became %v", c.err, err)
		case c.status > 0 && (!mine || e.Status != c.status || e.Type != "TimeoutError" || e.Code != ""):
			t.Errorf("%v became %+v", c.err, e)
		}
	}
}
