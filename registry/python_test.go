package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const commandsPy = `
import asyncio, os, sys, threading, time, signal, subprocess
from typing import List
from agent_sandbox.server import command, default_registry, CommandArg, PolicyDenied

HERE = os.path.dirname(os.path.abspath(__file__))
STATE = {"n": 0}
LOCK = threading.Lock()
EVENT = threading.Event()

@command(description="Say hello", scopes=["greet:run"])
def hello(name: str = "world"): return "hello " + name

@command()
def echo(v): return v

@command()
def typed(i: int, f: float = 1.5, b: bool = False, a: "List[str]" = ["x"], *, s: str = "d"): return [i, f, b, a, s]

@command()
def positional(a, b=2, /, c=3): return [a, b, c]

@command()
def number(n: int): return n

@command()
def pid(): return os.getpid()

@command()
def count():
    with LOCK:
        STATE["n"] += 1
        return STATE["n"]

@command()
async def acount():
    STATE["n"] += 1
    return STATE["n"]

@command()
async def loop_id(): return id(asyncio.get_running_loop())

@command()
def wrapped():
    async def inner(): return "awaited"
    return inner()

@command()
def many(n: int): return ["x" * 100] * n

@command()
def big(n: int): return "x" * n

@command()
def getenv(name): return os.environ.get(name)

@command()
def environment(): return sorted(k for k in os.environ if k.startswith("ABX_"))

@command()
def fail(kind: str = "value"):
    if kind == "exit": sys.exit("bye")
    if kind == "interrupt": raise KeyboardInterrupt
    if kind == "empty": raise RuntimeError
    if kind == "denied": raise PolicyDenied("not you", code="command_denied")
    if kind == "odd":
        class Odd(Exception):
            def __str__(self): raise ValueError
        raise Odd()
    if kind == "surrogate": raise ValueError("a\ud800b")
    raise ValueError("bad value")

@command()
async def afail(kind: str = "exit"):
    if kind == "exit": sys.exit(4)
    if kind == "cancel": raise asyncio.CancelledError()
    raise ValueError("async")

@command()
def result(kind):
    if kind == "tuplekeys": return {(1,): 2}
    if kind == "cycle":
        a = []; a.append(a); return a
    if kind == "nan": return [float("nan"), float("inf"), float("-inf")]
    if kind == "surrogate": return "a\ud800b"
    if kind == "deep":
        a = []
        for _ in range(100000): a = [a]
        return a
    if kind == "set": return sorted({1, 2}), {3}, b"x", object
    if kind == "badstr":
        class Bad:
            def __str__(self): raise RuntimeError("no text")
        return Bad()

@command()
def die(how: str = "exit"):
    if how == "exit": os._exit(9)
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "close": os.close(4)
    if how == "garbage": os.write(4, b"this is no message\n")
    if how == "huge":
        while True: os.write(4, b"x" * (1 << 20))
    time.sleep(600)

@command()
def stuck():
    EVENT.wait(600)
    return "free"

@command()
async def astuck():
    try: await asyncio.sleep(600)
    finally:
        open(os.path.join(HERE, "cancelled"), "w").close()

@command()
def release(): EVENT.set()

@command()
def nap(s: float):
    time.sleep(s)
    open(os.path.join(HERE, "napped"), "w").close()

@command()
def fork():
    child = os.fork()
    if child == 0:
        try:
            from agent_sandbox.server import _worker
            print("in the child:", _worker.current(), flush=True)
        finally: os._exit(0)
    os.waitpid(child, 0)
    return "forked"

@command()
def noisy():
    print("on stdout é")
    print("on stderr é", file=sys.stderr)
    sys.stdout.write("half a line")
    return "quiet"

@command()
def late():
    @command("too-late")
    def f(): pass

@command()
def threads(): return threading.active_count()

@command()
def descriptors():
    out = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, close_fds=False).stdout.split()
    return [n for n in out if int(n) > 2]

@command()
def leader(): return os.getpgid(0) == os.getpid()

@command()
def argv(): return [sys.argv, __name__ == "__main__", __file__, sys.path[0]]

@command()
def client():
    import agent_sandbox
    import agent_sandbox.server
    return [hasattr(agent_sandbox.server, "command"), agent_sandbox.server is sys.modules["agent_sandbox.server"]]

for _i in range(3):
    default_registry().register("bound%d" % _i, (lambda i: lambda x: i + x)(_i), args=[CommandArg("x", "integer", required=True)])
`

func loadPython(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	return load(t, map[string]string{"commands.py": commandsPy}, change, "commands.py")
}

// quick makes restarts come at once.
func quick(o *Options) { o.pauseMost = 20 * time.Millisecond }

func TestPythonFunctionsAnswerTheirCalls(t *testing.T) {
	r := loadPython(t, nil)
	for _, c := range []struct{ name, args, want string }{
		{"hello", `{}`, `"hello world"`},
		{"hello", "{\n\t\"name\" :\r\n\"\u00e9\U0001f600\"}", `"hello \u00e9\ud83d\ude00"`},
		{"echo", `{"v":"a\ud800b\u0000\u2028"}`, `"a\ud800b\u0000\u2028"`},
		{"echo", `{"v":{"a":[null,true,1.50]}}`, `"{'a': [None, True, 1.5]}"`},
		{"typed", `{"i":"7"}`, `[7,1.5,false,["x"],"d"]`},
		{"typed", `{"i":1.9,"f":true,"b":"YES","a":[],"s":null}`, `[1,1.0,true,[],"None"]`},
		{"typed", `{"i":1180591620717411303424}`, `[1180591620717411303424,1.5,false,["x"],"d"]`},
		{"positional", `{"a":"1"}`, `["1",2,3]`},
		{"positional", `{"a":"1","b":"x","c":"y"}`, `["1","x","y"]`},
		{"wrapped", `{}`, `"awaited"`},
		{"bound2", `{"x":40}`, `42`},
		{"result", `{"kind":"nan"}`, `[NaN,Infinity,-Infinity]`},
		{"result", `{"kind":"surrogate"}`, `"a\ud800b"`},
		{"result", `{"kind":"set"}`, `[[1,2],"{3}","b'x'","<class 'object'>"]`},
		{"leader", `{}`, `true`},
		{"client", `{}`, `[true,true]`},
	} {
		r.want(c.name, c.args, c.want)
	}
}

func TestPythonArgumentsAreListed(t *testing.T) {
	r := loadPython(t, nil)
	c := r.Lookup("typed")
	got, err := json.Marshal(c.Args)
	want := `[{"Name":"i","Type":"integer","Required":true,"Default":null,"Description":"","Choices":null},` +
		`{"Name":"f","Type":"float","Required":false,"Default":"1.5","Description":"","Choices":null},` +
		`{"Name":"b","Type":"boolean","Required":false,"Default":"False","Description":"","Choices":null},` +
		`{"Name":"a","Type":"string_array","Required":false,"Default":"[\"x\"]","Description":"","Choices":null},` +
		`{"Name":"s","Type":"string","Required":false,"Default":"d","Description":"","Choices":null}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if h := r.Lookup("hello"); h.Description != "Say hello" || !slices.Equal(h.Scopes, []string{"greet:run"}) || h.Source != "python" {
		t.Errorf("%+v", h)
	}
	if first := r.Commands()[0].Name; first != "hello" {
		t.Errorf("first is %s", first)
	}
}

func TestPythonFailuresAreAnswers(t *testing.T) {
	r := loadPython(t, nil)
	for _, c := range []struct {
		name, args string
		status     int
		typ, code  string
		text       string
	}{
		{"fail", `{}`, 500, "ValueError", "", "bad value"},
		{"fail", `{"kind":"exit"}`, 500, "SystemExit", "", "bye"},
		{"fail", `{"kind":"interrupt"}`, 500, "KeyboardInterrupt", "", "KeyboardInterrupt"},
		{"fail", `{"kind":"empty"}`, 500, "RuntimeError", "", "RuntimeError"},
		{"fail", `{"kind":"odd"}`, 500, "Odd", "", "Odd"},
		{"fail", `{"kind":"surrogate"}`, 500, "ValueError", "", "a\ufffdb"},
		{"fail", `{"kind":"denied"}`, 403, "PolicyDenied", "command_denied", "not you"},
		{"afail", `{}`, 500, "SystemExit", "", "4"},
		{"afail", `{"kind":"cancel"}`, 500, "CancelledError", "", "CancelledError"},
		{"afail", `{"kind":"x"}`, 500, "ValueError", "", "async"},
		{"result", `{"kind":"tuplekeys"}`, 500, "TypeError", "result_not_serializable", ""},
		{"result", `{"kind":"cycle"}`, 500, "ValueError", "result_not_serializable", ""},
		{"result", `{"kind":"deep"}`, 500, "RecursionError", "result_not_serializable", ""},
		{"result", `{"kind":"badstr"}`, 500, "RuntimeError", "result_not_serializable", ""},
		{"late", `{}`, 500, "RuntimeError", "", ""},
		{"number", `{"n":"x"}`, 400, "TypeError", "argument_invalid", "Cannot convert argument 'n' to integer: 'x'"},
		{"number", `{"n":1e400}`, 400, "TypeError", "argument_invalid", ""},
		{"number", `{}`, 400, "ValueError", "argument_invalid", "Required argument 'n' missing"},
		{"number", `{"b":1,"a":2}`, 400, "ValueError", "", "Unexpected argument(s): ['a', 'b']; declared: ['n']"},
		{"number", `{"n":` + strings.Repeat("9", 5000) + `}`, 400, "ValueError", "invalid_json", ""},
	} {
		f := r.fails(c.name, c.args, c.status, c.typ, c.code)
		if c.text != "" && f.Text != c.text {
			t.Errorf("%s %.40s: %q, want %q", c.name, c.args, f.Text, c.text)
		}
	}
	r.want("hello", `{}`, `"hello world"`)
}

func TestLongResultsPass(t *testing.T) {
	r := loadPython(t, nil)
	got, err := r.run("big", `{"n":20000000}`)
	if err != nil || len(got) != 20000002 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	r.fails("big", `{"n":110000000}`, 500, "ValueError", "result_too_large")
	r.want("hello", `{}`, `"hello world"`)
	long := strings.Repeat("é", 3000000)
	if got, err := r.run("echo", `{"v":"`+long+`"}`); err != nil || len(got) != 6*3000000+2 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	call := r.call(`{"n":100}`)
	call.MaxOutput = 50
	_, err = r.runCall(context.Background(), "big", call)
	wantFailure(t, "big", "", err, 500, "OutputLimitError", "output_limit")
}

func TestWhatCommandsPrintGoesToTheLog(t *testing.T) {
	r := loadPython(t, nil)
	r.want("noisy", `{}`, `"quiet"`)
	r.want("noisy", `{}`, `"quiet"`)
	eventually(t, "both lines", func() bool {
		text := r.printed()
		return strings.Contains(text, "on stdout é\n") && strings.Contains(text, "on stderr é\n")
	})
	r.fails("fail", `{}`, 500, "ValueError", "")
	eventually(t, "the traceback", func() bool {
		return strings.Contains(r.printed(), "Traceback") && strings.Contains(r.printed(), `raise ValueError("bad value")`)
	})
	if strings.Contains(r.printed(), "_worker.py") {
		t.Errorf("the traceback shows our own frames:\n%s", r.printed())
	}
}

func TestWorkerKeepsStateAndOneLoop(t *testing.T) {
	r := loadPython(t, nil)
	r.want("count", `{}`, `1`)
	r.want("acount", `{}`, `2`)
	first, err1 := r.run("loop_id", `{}`)
	second, err2 := r.run("loop_id", `{}`)
	if err := errors.Join(err1, err2); err != nil || first != second {
		t.Errorf("%s, %s, %v", first, second, err)
	}
}

func TestChangesOfTheEnvironmentReachTheWorker(t *testing.T) {
	r := loadPython(t, quick)
	r.want("getenv", `{"name":"SET_LATER"}`, `null`)
	if _, err := r.env.Change(map[string]string{"SET_LATER": "väl\nue", "ABX_SERVER_TOKEN": "no"}, nil); err != nil {
		t.Fatal(err)
	}
	r.want("getenv", `{"name":"SET_LATER"}`, `"v\u00e4l\nue"`)
	r.fails("die", `{}`, 500, "WorkerCrashed", "command_worker_crashed")
	r.want("getenv", `{"name":"SET_LATER"}`, `"v\u00e4l\nue"`)
	if _, err := r.env.Change(nil, []string{"SET_LATER"}); err != nil {
		t.Fatal(err)
	}
	r.want("getenv", `{"name":"SET_LATER"}`, `null`)
}

// TestCommandsDoNotSeeServerSecrets: the token is in no variable, and not in
// the block that the kernel shows.
func TestCommandsDoNotSeeServerSecrets(t *testing.T) {
	r := loadPython(t, nil)
	got, err := r.run("environment", `{}`)
	if err != nil || strings.Contains(got, "TOKEN") {
		t.Errorf("%s, %v", got, err)
	}
	pid, _ := r.run("pid", `{}`)
	block, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil || strings.Contains(string(block), "never-shown") {
		t.Errorf("%v, the token is in the environment block", err)
	}
}

func TestWorkerIsALoneProcess(t *testing.T) {
	r := loadPython(t, nil)
	r.want("descriptors", `{}`, `["3"]`) // ls's own
	r.want("fork", `{}`, `"forked"`)
	eventually(t, "the forked child is no worker", func() bool { return strings.Contains(r.printed(), "in the child: None") })
	r.want("hello", `{}`, `"hello world"`)
	file := filepath.Join(r.dir, "commands.py")
	r.want("argv", `{}`, fmt.Sprintf(`[["agent-sandbox-server","serve"],false,%q,%q]`, file, r.dir))
}

// TestEachWayToDieIsAnswered: whatever ends the worker, the call is answered,
// a new one comes, and the list stays.
func TestEachWayToDieIsAnswered(t *testing.T) {
	r := loadPython(t, quick)
	before := len(r.Commands())
	for _, how := range []string{"exit", "kill", "close", "garbage", "huge"} {
		old, err := r.run("pid", `{}`)
		if err != nil {
			t.Fatal(err)
		}
		r.fails("die", `{"how":"`+how+`"}`, 500, "WorkerCrashed", "command_worker_crashed")
		r.want("hello", `{}`, `"hello world"`)
		now, err := r.run("pid", `{}`)
		if err != nil || now == old {
			t.Errorf("%s: %s, %v", how, now, err)
		}
		pid, _ := strconv.Atoi(old)
		eventually(t, "the old worker is gone", func() bool { return !alive(pid) })
		eventually(t, "ready again", r.Ready)
	}
	if len(r.Commands()) != before {
		t.Error("the list has changed")
	}
	if !strings.Contains(r.log.String(), "the Python worker has ended") {
		t.Errorf("log: %s", r.log)
	}
}

// TestWorkerKilledUnderLoadAnswersEachCallOnce is the storm: calls from many
// callers while the worker is killed fifty times.
func TestWorkerKilledUnderLoadAnswersEachCallOnce(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	r := loadPython(t, quick)
	var done atomic.Bool
	var good, crashed atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := 0; !done.Load(); i++ {
				want := strconv.Itoa(i)
				got, err := r.run("number", `{"n":`+want+`}`)
				if f, ok := errors.AsType[*Failure](err); ok && f.Code == "command_worker_crashed" {
					crashed.Add(1)
				} else if err != nil || got != want {
					t.Errorf("%s, %v; want %s", got, err, want)
				} else {
					good.Add(1)
				}
			}
		})
	}
	for range kills {
		var text string
		eventually(t, "a worker to kill", func() bool {
			got, err := r.run("pid", `{}`)
			text = got
			return err == nil
		})
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		eventually(t, "it is gone", func() bool { return !alive(pid) })
	}
	done.Store(true)
	wg.Wait()
	if good.Load() == 0 || crashed.Load() == 0 {
		t.Errorf("%d answered, %d crashed: that was no storm", good.Load(), crashed.Load())
	}
	r.want("hello", `{}`, `"hello world"`)
}

func TestAThousandCallsAtOnce(t *testing.T) {
	r := loadPython(t, nil)
	var wg sync.WaitGroup
	var answered atomic.Int64
	for i := range 1000 {
		wg.Go(func() {
			name := []string{"number", "number", "bound0"}[i%3]
			args := fmt.Sprintf(`{"n":%d}`, i)
			if name == "bound0" {
				args = fmt.Sprintf(`{"x":%d}`, i)
			}
			if got, err := r.run(name, args); err != nil || got != strconv.Itoa(i) {
				t.Errorf("%d: %s, %v", i, got, err)
			} else {
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	if answered.Load() != 1000 {
		t.Errorf("%d of 1000", answered.Load())
	}
	got, err := r.run("threads", `{}`)
	if n, _ := strconv.Atoi(got); err != nil || n > 256+4 {
		t.Errorf("%s threads, %v", got, err)
	}
}

func TestThreadsAreBounded(t *testing.T) {
	r := loadPython(t, func(o *Options) { o.Threads = 2 })
	call := r.call(`{"s":0.05}`)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := r.runCall(context.Background(), "nap", call); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := r.run("threads", `{}`)
	if n, _ := strconv.Atoi(got); err != nil || n > 2+2 {
		t.Errorf("%s threads, %v", got, err)
	}
}

func TestTimeLimitOfPythonCommands(t *testing.T) {
	r := loadPython(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
	f := r.fails("astuck", `{}`, 500, "TimeoutError", "command_timeout")
	if f.Extra["timeout"] != 0.3 {
		t.Errorf("%v", f.Extra)
	}
	eventually(t, "the coroutine is cancelled", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "cancelled"))
		return err == nil
	})
	r.fails("stuck", `{}`, 500, "TimeoutError", "command_timeout")
	r.want("release", `{}`, `null`)
	call := r.call(`{}`)
	call.Timeout = 50 * time.Millisecond
	_, err := r.runCall(context.Background(), "astuck", call)
	if f := wantFailure(t, "astuck", "", err, 500, "TimeoutError", "command_timeout"); f.Extra["timeout"] != 0.05 {
		t.Errorf("%v", f.Extra)
	}
	r.want("hello", `{}`, `"hello world"`)
}

// TestManyStuckThreadsGetAFreshWorker: after sixteen a new worker takes over;
// the old one finishes what is waited for and goes.
func TestManyStuckThreadsGetAFreshWorker(t *testing.T) {
	r := loadPython(t, quick)
	old, err := r.run("pid", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan string, 1)
	go func() {
		got, err := r.run("stuck", `{}`)
		waited <- fmt.Sprint(got, err)
	}()
	eventually(t, "it has begun", func() bool {
		r.python.current.mu.Lock()
		defer r.python.current.mu.Unlock()
		return len(r.python.current.open) == 1
	})
	call := r.call(`{}`)
	call.Timeout = 20 * time.Millisecond
	for range abandonedMost {
		_, err := r.runCall(context.Background(), "stuck", call)
		wantFailure(t, "stuck", "", err, 500, "TimeoutError", "command_timeout")
	}
	eventually(t, "a fresh worker", func() bool {
		now, err := r.run("pid", `{}`)
		return err == nil && now != old
	})
	pid, _ := strconv.Atoi(old)
	if !alive(pid) {
		t.Fatal("the old worker is gone before its call was done")
	}
	r.python.mu.Lock()
	var retired *worker
	for w := range r.python.live {
		if w != r.python.current {
			retired = w
		}
	}
	r.python.mu.Unlock()
	retired.tell([]byte(`{"op":"call","id":18446744073709551615,"name":"release","args":{}}` + "\n"))
	if got := <-waited; got != `"free"<nil>` {
		t.Errorf("%s", got)
	}
	eventually(t, "the old worker is gone", func() bool { return !alive(pid) })
	r.want("hello", `{}`, `"hello world"`)
}

// TestCallerThatLeavesDoesNotStopAFunction, as published.
func TestCallerThatLeavesDoesNotStopAFunction(t *testing.T) {
	r := loadPython(t, nil)
	ctx, leave := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer leave()
	if _, err := r.runCall(ctx, "nap", r.call(`{"s":0.3}`)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	eventually(t, "it ran on", func() bool {
		_, err := os.Stat(filepath.Join(r.dir, "napped"))
		return err == nil
	})
	r.want("hello", `{}`, `"hello world"`)
}

func TestCallsWaitForAWorkerOnlyForAWhile(t *testing.T) {
	r := load(t, map[string]string{"slow.py": `
import os, time
from agent_sandbox.server import command
MARK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loaded")
if os.path.exists(MARK):
    while not os.path.exists(MARK + "2"): time.sleep(0.01)
open(MARK, "w").close()
@command()
def die(): os._exit(1)
@command()
def ok(): return 1
`}, func(o *Options) { quick(o); o.waitMost = 200 * time.Millisecond }, "slow.py")
	r.fails("die", `{}`, 500, "WorkerCrashed", "command_worker_crashed")
	f := r.fails("ok", `{}`, 503, "WorkerUnavailable", "command_worker_unavailable")
	if f.Extra["retry_after"] != int64(1) {
		t.Errorf("%v", f.Extra)
	}
	if r.Ready() {
		t.Error("ready without a worker")
	}
	if err := os.WriteFile(filepath.Join(r.dir, "loaded2"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", r.Ready)
	r.want("ok", `{}`, `1`)
}

// TestFilesThatBreakLaterAreTriedAgain: a restart that fails to load is
// logged and tried again; calls get their 503 meanwhile.
func TestFilesThatBreakLaterAreTriedAgain(t *testing.T) {
	r := loadPython(t, func(o *Options) { quick(o); o.waitMost = 100 * time.Millisecond })
	file := filepath.Join(r.dir, "commands.py")
	if err := os.WriteFile(file, []byte("raise RuntimeError('broken now')\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.fails("die", `{}`, 500, "WorkerCrashed", "command_worker_crashed")
	eventually(t, "the log tells", func() bool { return strings.Contains(r.log.String(), "broken now") })
	r.fails("hello", `{}`, 503, "WorkerUnavailable", "command_worker_unavailable")
	if err := os.WriteFile(file, []byte("from agent_sandbox.server import command\n@command()\ndef hello(): return 'new'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", r.Ready)
	r.want("hello", `{}`, `"new"`)
	f := r.fails("count", `{}`, 404, "ValueError", "")
	if f.Text != "Unknown command 'count'" {
		t.Errorf("%s", f.Text)
	}
}
