"""The worker: loads command files, runs commands and routes, and talks to the server.

One JSON object per line, ASCII, on two pipes. One thread reads; commands run on
threads of a pool or, if they are coroutines, on one event loop; every thread
writes its own answers.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import queue
import re
import sys
import threading
import time
import traceback

from ._coerce import ArgumentError
from .policy import PolicyDenied
from .registry import RegisteredCommand, default_registry, loading
from .router import default_table
from .types import Headers, ServerRequest, ServerResponse, SSEResponse

MAX_MESSAGE = 100 << 20
MAX_THREADS = 256
STREAM_WINDOW = 256 << 10  # bytes a stream may be ahead of its reader
EXIT_PATIENCE = 5.0  # seconds the process may take to end once the server has gone
IDLE_THREAD = 30.0  # seconds a thread waits for work before it ends

_current = None


def current():
    """The worker of this process, or None."""
    return _current


class Worker:
    def __init__(self, read_fd, write_fd, threads=MAX_THREADS, folder=None):
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._write_lock = threading.Lock()
        self._pool = _Pool(threads)
        self._loop = _Loop()
        self._jobs = {}
        self._stop = threading.Event()
        self._commands = default_registry()
        self._table = default_table()
        self._routes = []
        self._loadable = threading.Event()
        self._items = []
        self._ready = False
        self._start = None
        self._attached = False
        self._folder = folder  # ours alone; a server that was killed leaves it to us

    def begin(self):
        """Make this the worker of the process and start to read."""
        global _current
        _current = self
        for fd in (self._read_fd, self._write_fd):
            os.set_inheritable(fd, False)
        os.register_at_fork(after_in_child=self._forked)
        threading.Thread(target=self._read, name="agent-sandbox-reader", daemon=True).start()

    def attach(self, server):
        """Be the worker of a server that this process started."""
        self._attached = True
        self._commands, self._table = server.registry, server.route_table
        self.begin()

    def detach(self):
        """The server has ended: nobody is to be served any more."""
        global _current
        _current = None
        self._stop.set()
        with self._write_lock:
            self._close_write()

    def _forked(self):
        # A forked child shares the pipes and has no reader: it is no worker.
        global _current
        if _current is self:
            _current = None
        self._close_read()
        self._close_write()

    # A closed number may be another file's in a moment, so it is forgotten.

    def _close_read(self):
        fd, self._read_fd = self._read_fd, None
        if fd is not None:
            os.close(fd)

    def _close_write(self):
        fd, self._write_fd = self._write_fd, None
        if fd is not None:
            os.close(fd)

    # ---- messages

    def send(self, text):
        """Write one line, whole."""
        data = memoryview(text.encode("ascii"))
        with self._write_lock:
            if self._write_fd is None:
                return
            try:
                while data:
                    data = data[os.write(self._write_fd, data):]
            except OSError:
                pass  # the server has gone; the reader sees that too

    def _read(self):
        rest = b""
        while True:
            try:
                data = os.read(self._read_fd, 1 << 18)
            except OSError:
                data = b""
            if not data:
                break
            if b"\n" not in data:
                rest = _gather(self._read_fd, rest, data)
                if rest is None:
                    break
                data, rest = rest, b""
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                try:
                    self._take(line)
                except Exception:
                    _log_exception(*sys.exc_info())
        self._gone()

    def _gone(self):
        """The server closed the pipe: end, in a moment whatever the code here does."""
        orphaned = not self._stop.is_set() and not self._attached
        if orphaned and self._folder is not None:
            import shutil

            shutil.rmtree(self._folder, ignore_errors=True)
        self._stop.set()
        self._close_read()
        if orphaned:
            time.sleep(EXIT_PATIENCE)
            os._exit(1)

    def _take(self, line):
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            # Valid JSON can be too much for Python: very long numbers, deep nesting.
            match = re.match(rb'\{"op":"(?:call|route)","id":(\d+)', line)
            if match:
                self._fail(int(match.group(1)), 400, "ValueError", "Invalid JSON: %s" % error, {"code": "invalid_json"})
            return
        op = message.get("op")
        if op in ("call", "route"):
            try:
                (self._call if op == "call" else self._route)(message)
            except Exception as error:
                self._raised(message["id"], error)
        elif op == "cancel":
            job = self._jobs.get(message["id"])
            if job is not None:
                job.cancel()
        elif op == "more":
            job = self._jobs.get(message["id"])
            if job is not None:
                job.more(message["bytes"])
        elif op == "env":
            os.environ.update(message.get("set") or {})
            for name in message.get("unset") or ():
                os.environ.pop(name, None)
        elif op == "load":
            self._pool.cap = message.get("threads") or MAX_THREADS
            self._items = message["items"]
            self._loadable.set()
        elif op == "shutdown":
            self._stop.set()

    # ---- loading and serving, on the main thread

    def main(self):
        """Load what the server names and serve until it says to stop."""
        self._loadable.wait()
        self._load_rest()
        if not self._ready:
            self._serve(self._start)

    def _load_rest(self):
        while self._items and not self._ready:
            item = self._items.pop(0)
            loading.item += 1
            try:
                load(item)
            except BaseException as error:
                if self._ready:
                    raise  # code after start() failed; that is not loading
                self._failed(item, error)

    def _failed(self, item, error):
        self.send(
            _line(
                {
                    "op": "failed",
                    "item": item,
                    "error": _text(error),
                    "type": type(error).__name__,
                    "traceback": "".join(traceback.format_exception(type(error), error, _below(error))),
                }
            )
        )
        sys.stdout.flush()
        os._exit(1)

    def serve(self, server, values):
        """What SandboxServer.serve does in a file that is being loaded."""
        if not self._ready and self._start is None:
            self._start = values
            self._commands, self._table = server.registry, server.route_table
        if threading.current_thread() is not threading.main_thread():
            self._stop.wait()
            return
        self._load_rest()
        if self._ready:
            self._stop.wait()
        else:
            self._serve(self._start)

    def _serve(self, values):
        self.announce(values)
        self._stop.wait()

    def announce(self, values):
        """Fix the commands and tell the server what there is."""
        self._commands.freeze()
        self._table.freeze()
        self._routes = list(self._table)
        self._ready = True
        self.send(
            _line(
                {
                    "op": "ready",
                    "commands": [_command(c) for c in self._commands.list_all()],
                    "routes": [_route(r) for r in self._routes],
                    "groups": {g.value: on for g, on in self._table.group_overrides.items()},
                    "start": values,
                    "python": "%d.%d.%d" % sys.version_info[:3],
                }
            )
        )

    def stop_server(self):
        self.send('{"op":"stop"}\n')

    # ---- running

    def _call(self, message):
        id = message["id"]
        command = self._commands.get(message["name"])
        if command is None:
            self._fail(id, 404, "ValueError", "Unknown command '%s'" % message["name"])
            return
        try:
            call = command.prepare(message["args"])
        except ArgumentError as error:
            extra = {} if error.name is None else {"code": "argument_invalid", "argument": error.name}
            self._fail(id, 400, error.type, str(error), extra)
            return
        except BaseException as error:
            self._raised(id, error)
            return
        self._run(_Job(self, id, self._answer_command), command.fn, call)

    def _route(self, message):
        id = message["id"]
        if not 0 <= message["route"] < len(self._routes):
            self._fail(id, 404, "ValueError", "Unknown route")
            return
        route = self._routes[message["route"]]
        r = message["request"]
        request = ServerRequest(
            r["method"], r["path"], r["query"] or {}, Headers(r["headers"] or {}), r["body"], r["path_params"] or {},
            {"identity": r["identity"], "scopes": r["scopes"] or [], "request_id": r["request_id"]},
        )
        self._run(_Job(self, id, self._answer_route), route.handler, lambda: route.handler(request))

    def _run(self, job, fn, call):
        self._jobs[job.id] = job
        if inspect.iscoroutinefunction(fn):
            self._loop.start(job, call)
        else:
            self._pool.submit(lambda: self._on_thread(job, call))

    def _on_thread(self, job, call):
        try:
            value = call()
            if inspect.isawaitable(value):
                self._loop.start(job, lambda: value)
                return
            if inspect.isgenerator(value):
                value = list(value)
            if inspect.isasyncgen(value):
                self._loop.start(job, lambda: _collect(value))
                return
        except BaseException as error:
            job.raised(error)
            return
        job.returned(value)

    def _answer_command(self, job, value):
        try:
            body = _json(value)
        except Exception as error:
            self._fail(
                job.id, 500, type(error).__name__, "The result cannot be written as JSON: %s" % _text(error),
                {"code": "result_not_serializable"},
            )
        else:
            self._result(job.id, 200, body)
        return False

    def _answer_route(self, job, value):
        if isinstance(value, SSEResponse):
            job.stream(value)
            return True
        if not isinstance(value, ServerResponse):
            value = ServerResponse.ok(value)
        try:
            body = _json(value.body)
            headers = {str(k): str(v) for k, v in dict(value.headers or {}).items()}
            status = int(value.status)
        except Exception as error:
            self._fail(
                job.id, 500, type(error).__name__, "The response cannot be written: %s" % _text(error),
                {"code": "result_not_serializable"},
            )
        else:
            self._result(job.id, status, body, headers)
        return False

    def _result(self, id, status, body, headers=None):
        if len(body) > MAX_MESSAGE:
            self._fail(
                id, 500, "ValueError", "The result has more than %d bytes" % MAX_MESSAGE, {"code": "result_too_large"}
            )
            return
        if headers:
            self.send('{"op":"result","id":%d,"status":%d,"headers":%s,"body":%s}\n' % (id, status, json.dumps(headers), body))
        else:
            self.send('{"op":"result","id":%d,"status":%d,"body":%s}\n' % (id, status, body))

    def _fail(self, id, status, type_, text, extra=None):
        body = {"error": text, "type": type_}
        body.update(extra or {})
        self.send('{"op":"result","id":%d,"status":%d,"failed":true,"body":%s}\n' % (id, status, json.dumps(body)))

    def _raised(self, id, error):
        if isinstance(error, PolicyDenied):
            self._fail(id, 403, "PolicyDenied", _text(error), {"code": error.code})
            return
        self._fail(id, 500, type(error).__name__, _text(error))
        _log_exception(type(error), error, _below(error))


class _Job:
    """One call. It is answered once, unless the server gave it up."""

    def __init__(self, worker, id, answer):
        self.worker = worker
        self.id = id
        self._answer = answer
        self._given_up = False
        self._task = None
        self._room = threading.Condition()
        self._window = STREAM_WINDOW

    def returned(self, value):
        if self._given_up:
            self._late()
            return
        try:
            goes_on = self._answer(self, value)
        except BaseException as error:
            self.worker._raised(self.id, error)
            goes_on = False
        if not goes_on:
            self.done()

    def raised(self, error):
        if self._given_up:
            self._late()
            return
        self.worker._raised(self.id, error)
        self.done()

    def done(self):
        self.worker._jobs.pop(self.id, None)

    def _late(self):
        # What nobody waits for is not sent, but the server counts the threads.
        self.done()
        self.worker.send('{"op":"late","id":%d}\n' % self.id)

    def cancel(self):
        self._given_up = True
        with self._room:
            self._room.notify_all()
        task = self._task
        if task is not None:
            self.worker._loop.call(task.cancel)

    def more(self, n):
        with self._room:
            self._window += n
            self._room.notify_all()

    # ---- streams

    def stream(self, response):
        headers = {str(k): str(v) for k, v in dict(response.headers or {}).items()}
        self.worker.send('{"op":"head","id":%d,"status":%d,"headers":%s}\n' % (self.id, int(response.status), json.dumps(headers)))
        items = response.event_iterator
        if hasattr(items, "__aiter__"):
            self.worker._loop.start(self, lambda: self._stream_async(items), streaming=True)
            return
        if self._task is not None:
            # Made by a coroutine: its iterator may block, so it gets a thread.
            self.worker._pool.submit(lambda: self._stream(items))
            return
        self._stream(items)

    def _stream(self, items):
        try:
            for item in items:
                if not self._chunk(item):
                    break
        except BaseException as error:
            self._broken(error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                try:
                    close()
                except BaseException:
                    _log_exception(*sys.exc_info())
            self._end()

    async def _stream_async(self, items):
        import asyncio

        try:
            async for item in items:
                if self._window <= 0:
                    await asyncio.get_running_loop().run_in_executor(None, self._wait_for_room)
                if not self._chunk(item):
                    break
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._broken(error)
        finally:
            self._end()

    def _wait_for_room(self):
        with self._room:
            while self._window <= 0 and not self._given_up:
                self._room.wait()

    def _chunk(self, item):
        if isinstance(item, (bytes, bytearray)):
            item = bytes(item).decode("utf-8", "replace")
        self._wait_for_room()
        if self._given_up:
            return False
        with self._room:
            self._window -= max(len(item), 1)
        self.worker.send('{"op":"chunk","id":%d,"data":%s}\n' % (self.id, json.dumps(item)))
        return True

    def _broken(self, error):
        if not self._given_up:
            _log_exception(type(error), error, _below(error))
            event = json.dumps({"error": _text(error), "type": type(error).__name__})
            self._chunk("event: error\ndata: %s\n\n" % event)

    def _end(self):
        self.done()
        self.worker.send('{"op":"end","id":%d}\n' % self.id)


class _Pool:
    """Threads that are made when work waits for one and end when there is none."""

    def __init__(self, cap):
        self.cap = cap
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._waiting = 0  # threads that wait and have no job coming
        self._backlog = 0  # jobs that no thread was set aside for

    def submit(self, job):
        with self._lock:
            if self._waiting:
                self._waiting -= 1
            elif self._threads < self.cap:
                self._threads += 1
                threading.Thread(target=self._run, name="agent-sandbox-command", daemon=True).start()
            else:
                self._backlog += 1
        self._jobs.put(job)

    def _run(self):
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_THREAD)
            except queue.Empty:
                with self._lock:
                    if self._waiting:
                        self._waiting -= 1
                        self._threads -= 1
                        return
                continue
            job()
            job = None
            with self._lock:
                if self._backlog:
                    self._backlog -= 1
                else:
                    self._waiting += 1


class _Loop:
    """One event loop for all coroutines, so that what they share stays valid."""

    def __init__(self):
        self._lock = threading.Lock()
        self._loop = None

    def call(self, fn, *args):
        with self._lock:
            if self._loop is None:
                import asyncio  # slow to import, and most files need none of it

                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._run, args=(asyncio,), name="agent-sandbox-loop", daemon=True).start()
        self._loop.call_soon_threadsafe(fn, *args)

    def _run(self, asyncio):
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, job, make, streaming=False):
        """Await what make gives, as the work of job."""

        def begin():
            task = self._loop.create_task(make() if streaming else self._guard(job, make))
            # A task that is cancelled before its first step runs none of its code.
            task.add_done_callback(lambda t: t.cancelled() and (job._end() if streaming else job._late()))
            job._task = task
            if job._given_up:
                task.cancel()

        self.call(begin)

    async def _guard(self, job, make):
        # No exception may reach the task: an exit would end the loop for all.
        try:
            value = make()
            if inspect.isasyncgen(value):
                value = await _collect(value)
            while inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            job.raised(error)
        else:
            job.returned(value)


async def _collect(generator):
    return [item async for item in generator]


def load(item):
    """Import a command file, or a module by its name."""
    if item.endswith(".py") or "/" in item or os.path.isfile(item):
        load_file(item)
        return
    # The working directory is looked at last.
    cwd = os.getcwd()
    if cwd not in sys.path:
        sys.path.append(cwd)
    importlib.import_module(item)


def load_file(path):
    real = os.path.realpath(path)
    if not os.path.isfile(real):
        raise FileNotFoundError("no such file: %s" % path)
    name = "_agent_sandbox_commands_" + hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, real)
    if spec is None or spec.loader is None:
        raise ImportError("%s: not a Python file" % path)
    folder = os.path.dirname(real)
    sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        if folder in sys.path:
            sys.path.remove(folder)
        raise


def _gather(fd, rest, data):
    """Read on until there is a whole line, without joining the pieces each time."""
    pieces = [rest, data]
    while b"\n" not in data:
        data = os.read(fd, 1 << 20)
        if not data:
            return None
        pieces.append(data)
    return b"".join(pieces)


def _json(value):
    return json.dumps(value, default=str, separators=(",", ":"))


def _line(message):
    return _json(message) + "\n"


def _text(error):
    try:
        text = str(error)
    except BaseException:
        text = ""
    return text or type(error).__name__


def _log_exception(type_, error, tb):
    try:
        sys.stderr.write("".join(traceback.format_exception(type_, error, tb)))
    except Exception:
        pass  # whoever read the log may have gone


def _below(error):
    """The traceback without the frames of this module at its top."""
    tb = error.__traceback__
    while tb is not None and tb.tb_next is not None and tb.tb_frame.f_code.co_filename in _OWN_FILES:
        tb = tb.tb_next
    while tb is not None and tb.tb_next is not None and tb.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
        tb = tb.tb_next
    return tb


_OWN_FILES = {__file__, RegisteredCommand.prepare.__code__.co_filename}


def _command(c):
    return {
        "name": c.name,
        "description": c.description,
        "hidden": bool(c.hidden),
        "scopes": list(c.scopes),
        "args": [
            {"name": a.name, "type": a.type, "required": bool(a.required), "default": a.default, "description": a.description}
            for a in c.args
        ],
        "first": c._first_item,
        "item": c._item,
    }


def _route(r):
    return {
        "id": r.id,
        "name": r.name,
        "method": r.method,
        "pattern": r.pattern,
        "group": r.group.value,
        "scopes": list(r.scopes),
        "auth_required": r.auth_required,
        "streaming": r.streaming,
        "summary": r.summary,
    }
