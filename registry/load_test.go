package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/childenv"
)

func TestFilesThatDoNotLoadSayWhy(t *testing.T) {
	for _, c := range []struct{ name, text, want, trace string }{
		{"raises.py", "x = 1\nraise RuntimeError('load-marker')\n", "RuntimeError: load-marker", `raises.py", line 2`},
		{"syntax.py", "def broken(:\n  pass\n", "SyntaxError: invalid syntax (syntax.py, line 1)", "def broken(:"},
		{"import.py", "import no_such_module_x\n", "ModuleNotFoundError: No module named 'no_such_module_x'", ""},
		{"exits.py", "import sys\nsys.exit(0)\n", "SystemExit: 0", ""},
		{"dies.py", "import os\nos._exit(3)\n", "the Python worker ended with exit status 3 before it was ready", ""},
		{"killed.py", "import os\nos.kill(os.getpid(), 9)\n", "the Python worker was ended by signal 9 before it was ready", ""},
		{"dir/plain.txt", "x", "ImportError", ""},
		{"default.py", "from agent_sandbox.server import command\nfrom typing import List\n@command()\ndef f(a: List[str] = None): pass\n", "ValueError: argument 'a'", ""},
		{"argtype.py", "from agent_sandbox.server import CommandArg\nCommandArg('a', 'int')\n", "ValueError: argument 'a': unknown type 'int'", ""},
		{"argdef.py", "from agent_sandbox.server import CommandArg\nCommandArg('a', 'string_array', default='[1]')\n", "ValueError: argument 'a'", ""},
		{"bare.py", "from agent_sandbox.server import command\n@command\ndef f(): pass\n", "TypeError: use @command() with parentheses", ""},
		{"route.py", "from agent_sandbox.server import default_table\ndefault_table().register('GET', '/a/*', print, group='commands')\n", "route GET /a/*: each segment", ""},
		{"method.py", "from agent_sandbox.server import default_table\ndefault_table().register('PATCH', '/a', print, group='commands')\n", "route PATCH /a: the method must be", ""},
		{"core.py", "from agent_sandbox.server import *\ndefault_table().disable_group(CapabilityGroup.CORE)\n", "ValueError: the core group cannot be disabled", ""},
	} {
		_, err := tryLoad(t, map[string]string{c.name: c.text}, nil, c.name)
		e, ok := errors.AsType[*LoadError](err)
		if !ok || !strings.HasPrefix(e.Text, c.want) || !strings.Contains(e.Trace, c.trace) || !strings.HasSuffix(e.Item, c.name) {
			t.Errorf("%s: %v\n%+v", c.name, err, e)
		}
	}
	for item, want := range map[string]string{"missing.py": "FileNotFoundError", "no.such.module": "ModuleNotFoundError: No module named 'no'"} {
		if _, err := tryLoad(t, nil, nil, item); err == nil || !strings.Contains(err.Error(), item+": "+want) {
			t.Errorf("%s: %v", item, err)
		}
	}
	_, err := tryLoad(t, map[string]string{"a.py": ""}, func(o *Options) { o.Python = "no-such-python" }, "a.py")
	if err == nil || !strings.Contains(err.Error(), "needs a Python interpreter; there is no no-such-python") {
		t.Errorf("%v", err)
	}
}

func TestNothingIsLeftOfALoad(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := func() []string {
		names, err := filepath.Glob(filepath.Join(os.TempDir(), "agent-sandbox-worker-*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if _, err := tryLoad(t, map[string]string{"a.py": "raise ValueError"}, nil, "a.py"); err == nil {
		t.Fatal("it loads")
	}
	if dirs := left(); len(dirs) != 0 {
		t.Errorf("%v", dirs)
	}
	r := loadPython(t, quick)
	dirs := left()
	if len(dirs) != 1 {
		t.Fatalf("%v", dirs)
	}
	if info, err := os.Stat(dirs[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	// A cleaner of temporary files takes nothing away that matters.
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	r.fails("die", `{}`, 500, "WorkerCrashed", "command_worker_crashed")
	r.want("hello", `{}`, `"hello world"`)
	r.close()
	if dirs := left(); len(dirs) != 0 {
		t.Errorf("%v", dirs)
	}
}

// TestWorkerEndsWithItsServer: a server that is killed closes its pipes, and
// code that does not end is ended.
func TestWorkerEndsWithItsServer(t *testing.T) {
	for _, after := range []string{"", "time.sleep(600)"} {
		r := load(t, map[string]string{"a.py": "import os, time\nfrom agent_sandbox.server import *\n" +
			"@command()\ndef pid(): return os.getpid()\n@command()\ndef nap(): time.sleep(600)\nstart(1)\n" + after + "\n"}, nil, "a.py")
		text, err := r.run("pid", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		if _, err := fmt.Sscan(text, &pid); err != nil {
			t.Fatal(err)
		}
		r.python.cancel() // so that no other is started
		if err := r.python.current.out.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the worker is gone", func() bool { return !alive(pid) })
	}
}

func TestLoadingEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "slow.py")
	if err := os.WriteFile(file, []byte("import time\nopen('"+dir+"/on', 'w').close()\ntime.sleep(600)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := Load(ctx, Options{
			Items: []string{file}, Procs: newProcs(t), Env: childenv.New(os.Environ()), Workdir: dir,
			Log: slog.New(slog.DiscardHandler), Python: python3(t), Version: "test",
		})
		done <- err
	}()
	eventually(t, "it loads", func() bool {
		_, err := os.Stat(filepath.Join(dir, "on"))
		return err == nil
	})
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("it loads on")
	}
}

func names(r *rig) []string {
	var out []string
	for _, c := range r.Commands() {
		out = append(out, c.Name+":"+c.Source[:1])
	}
	return out
}

func TestItemsRegisterInTheirOrder(t *testing.T) {
	py := func(names ...string) string {
		s := "from agent_sandbox.server import command\n"
		for _, n := range names {
			s += fmt.Sprintf("@command(%q)\ndef %s(): return __file__[-4]\n", n, n)
		}
		return s
	}
	manifest := func(names ...string) string {
		s := "version: 1\ncommands:\n"
		for _, n := range names {
			s += "- {name: " + n + ", argv: [printf, m]}\n"
		}
		return s
	}
	files := map[string]string{"1.py": py("a", "b"), "2.yaml": manifest("b", "c"), "3.py": py("c", "a", "d"), "4.yaml": manifest("d", "e")}
	for _, c := range []struct {
		items []string
		want  []string
		runs  string
	}{
		{[]string{"1.py", "2.yaml", "3.py", "4.yaml"}, []string{"a:p", "b:m", "c:p", "d:m", "e:m"}, "3m3mm"},
		{[]string{"2.yaml", "1.py", "1.py"}, []string{"b:p", "c:m", "a:p"}, "1m1"},
		{[]string{"4.yaml", "2.yaml"}, []string{"d:m", "e:m", "b:m", "c:m"}, "mmmm"},
		{[]string{"3.py", "1.py", "2.yaml"}, []string{"c:m", "a:p", "d:p", "b:m"}, "m13m"},
	} {
		r := load(t, files, nil, slices.Clone(c.items)...)
		if got := names(r); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.items, got, c.want)
		}
		got := ""
		for _, cmd := range r.Commands() {
			out, err := r.run(cmd.Name, "{}")
			if err != nil {
				t.Error(err)
			}
			got += strings.Trim(out, `"`)
		}
		if got != c.runs {
			t.Errorf("%v: %s, want %s", c.items, got, c.runs)
		}
	}
}

func TestModulesAndNeighboursAreFound(t *testing.T) {
	r := load(t, map[string]string{
		"lib/main.py":     "import sidekick\nfrom agent_sandbox.server import command\n@command()\ndef side(): return sidekick.V\n",
		"lib/sidekick.py": "V = 'from beside'\n",
		"pkg/__init__.py": "", "pkg/tools.py": "from agent_sandbox.server import command\n@command()\ndef where(): return __name__\n",
		"single.py": "from agent_sandbox.server import command\n@command()\ndef one(): return 1\n",
	}, nil, "lib/main.py", "pkg.tools", "single")
	r.want("side", `{}`, `"from beside"`)
	r.want("where", `{}`, `"pkg.tools"`)
	r.want("one", `{}`, `1`)
}

const startPy = `
import os, threading
from agent_sandbox.server import *
HERE = os.path.dirname(os.path.abspath(__file__))

@command()
def before(): return threading.current_thread() is threading.main_thread()

try:
    start(8123, host="127.0.0.9", policy=ServerPolicy.only("run_command", "list_*").with_options(base_dir="/srv"))
finally:
    with open(os.path.join(HERE, "after"), "w") as f: f.write("after start")
`

// TestStartInALoadedFileServesThere: the rest is loaded first, its values are
// told, and code after it runs at the end.
func TestStartInALoadedFileServesThere(t *testing.T) {
	second := "from agent_sandbox.server import *\n@command()\ndef second(): return 2\nstart(1)\n"
	r := load(t, map[string]string{"a.py": startPy, "b.py": second}, nil, "a.py", "b.py")
	r.want("before", `{}`, `false`)
	r.want("second", `{}`, `2`)
	s := r.Start()
	if s == nil || *s.Port != 8123 || *s.Host != "127.0.0.9" || s.PTYPort != nil {
		t.Fatalf("%+v", s)
	}
	want := `{"endpoints":{"*":{"enabled":false},"run_command":{"enabled":true},"list_*":{"enabled":true}},"base_dir":"/srv"}`
	if string(s.Policy) != want {
		t.Errorf("%s", s.Policy)
	}
	r.close()
	if text, err := os.ReadFile(filepath.Join(r.dir, "after")); err != nil || string(text) != "after start" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestStartWithARegistryOfItsOwn(t *testing.T) {
	r := load(t, map[string]string{"a.py": `
import threading
from agent_sandbox.server import *
mine = CommandRegistry()
@mine.command()
def only(): return "mine"
@command()
def other(): return "default"
table = default_table().copy()
table.enable_group("browser")
threading.Thread(target=SandboxServer("::1", registry=mine, route_table=table, pty_port=7).serve, args=(77,), daemon=True).start()
`, "b.py": "import time\ntime.sleep(0.3)\n"}, nil, "a.py", "b.py")
	if got := names(r); !slices.Equal(got, []string{"only:p"}) {
		t.Errorf("%v", got)
	}
	if s := r.Start(); s == nil || *s.Port != 77 || *s.Host != "::1" || *s.PTYPort != 7 || s.Policy != nil {
		t.Errorf("%+v", s)
	}
	if !r.Groups()["browser"] {
		t.Errorf("%v", r.Groups())
	}
	r.want("only", `{}`, `"mine"`)
}

func TestPolicyOfTheEnvironmentIsNotReplacedByAnEmptyOne(t *testing.T) {
	r := load(t, map[string]string{"a.py": "from agent_sandbox.server import *\nstart(1, policy=ServerPolicy.from_environment())\n"}, nil, "a.py")
	if s := r.Start(); s == nil || s.Policy != nil {
		t.Errorf("%+v", s)
	}
	_, err := tryLoad(t, map[string]string{"a.py": "from agent_sandbox.server import *\nServerPolicy.from_environment().with_options(preset='locked')\n"}, nil, "a.py")
	if err == nil || !strings.Contains(err.Error(), "cannot be extended") {
		t.Errorf("%v", err)
	}
}

func TestCodeCanStopTheServer(t *testing.T) {
	r := load(t, map[string]string{"a.py": `
from agent_sandbox.server import *
server = SandboxServer()
@command()
def stop(): server.shutdown()
server.serve(1)
`}, nil, "a.py")
	select {
	case <-r.Ended():
		t.Fatal("ended before")
	default:
	}
	r.want("stop", `{}`, `null`)
	select {
	case <-r.Ended():
	case <-time.After(patience):
		t.Error("it does not want to stop")
	}
}

// TestCodeThatDoesNotEndIsEnded: code after start() may take a moment, not
// more.
func TestCodeThatDoesNotEndIsEnded(t *testing.T) {
	r := load(t, map[string]string{"a.py": "import os, time\nfrom agent_sandbox.server import *\n@command()\ndef pid(): return os.getpid()\nstart(1)\ntime.sleep(600)\n"},
		func(o *Options) { o.exitPatience = 100 * time.Millisecond }, "a.py")
	text, err := r.run("pid", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	var pid int
	if _, err := fmt.Sscan(text, &pid); err != nil || alive(pid) {
		t.Errorf("%s still runs, %v", text, err)
	}
}

func TestAllNamesOfTheContractImport(t *testing.T) {
	load(t, map[string]string{"a.py": `
from agent_sandbox.server import (
    __version__, SandboxServer, start, ServerPolicy, PolicyDenied, CommandArg, CommandRegistry, RegisteredCommand, command,
    default_registry, ServerRequest, ServerResponse, SSEResponse, RouteTable, RouteInfo, CapabilityGroup, default_table,
    PtySession, PtySessionManager, pty_session_manager, start_pty_server)
import agent_sandbox.server.registry, agent_sandbox.server.router, agent_sandbox.server.types, agent_sandbox.server.policy
import agent_sandbox.server.endpoints, agent_sandbox.server.contract, agent_sandbox.server.app, agent_sandbox.server._coerce
import agent_sandbox.server.__main__
assert __version__ == "test", __version__
assert [g.value for g in CapabilityGroup] == "core commands file_ops process terminal system dev_tools browser agents".split()
assert agent_sandbox.server.registry.default_registry() is default_registry()
assert start_pty_server() is None and pty_session_manager().list() == []

table = RouteTable()
@table.route("get", "/a/{id}/b", group=CapabilityGroup.COMMANDS, name="mine")
def handler(req):
    "What it does."
route, params = table.match("GET", "/a/x/b/")
assert (route.name, route.summary, route.handler, params) == ("mine", "What it does.", handler, {"id": "x"})
assert table.by_name("mine") == route and table.match("GET", "/a//b") is None and table.match("POST", "/a/x/b") is None
table.enable_group(CapabilityGroup.BROWSER)
other = table.copy()
table.clear_group_overrides()
assert (len(other), other.group_overrides, table.group_overrides) == (1, {CapabilityGroup.BROWSER: True}, {})

reg = CommandRegistry()
@reg.command("n", hidden=True, scopes="one")
def fn(a: int, *, b=1): return a
assert ("n" in reg, len(reg), reg.list_visible(), [c.name for c in reg.list_all()]) == (True, 1, [], ["n"])
c = reg.get("n")
assert (c.fn, c.scopes, [(a.name, a.type, a.required, a.default) for a in c.args]) == (
    fn, ("one",), [("a", "integer", True, None), ("b", "string", False, "1")])
reg.freeze()
try: reg.register("m", fn)
except RuntimeError: pass
else: raise AssertionError

assert ServerResponse.ok({"a": 1}).status == 200 and ServerResponse.error(404, "no").body == {"error": "no", "type": "ValueError"}
assert ServerPolicy.from_json('{"preset":"locked"}').to_dict() == ServerPolicy.preset("locked").to_dict() == ServerPolicy.from_dict({"preset": "locked"}).to_dict()
p = ServerPolicy.preset("default").with_endpoint("shell", enabled=False).with_endpoint("shell", {"scopes": ["x"]})
assert p.to_dict() == {"preset": "default", "endpoints": {"shell": {"enabled": False, "scopes": ["x"]}}}, p.to_dict()
`}, nil, "a.py")
}
