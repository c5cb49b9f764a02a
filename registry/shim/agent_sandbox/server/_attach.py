"""Start the binary from a Python program and serve it from there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading

from ._worker import MAX_THREADS, Worker

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def find_binary():
    """The server binary: ABX_SERVER_BIN, else beside this package, else on PATH."""
    named = os.environ.get("ABX_SERVER_BIN")
    if named:
        return named
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in (here, os.path.dirname(here), os.path.join(here, "bin")):
        candidate = os.path.join(folder, "agent-sandbox-server")
        if _is_binary(candidate):
            return candidate
    path = os.environ.get("PATH") or os.defpath
    for folder in path.split(os.pathsep):
        candidate = shutil.which("agent-sandbox-server", path=folder)
        if candidate and _is_binary(candidate):
            return candidate
    raise SystemExit("agent-sandbox-server: the server binary is not on PATH; set ABX_SERVER_BIN")


def _is_binary(path):
    # A script of that name is most likely the one that looks for the binary.
    try:
        with open(path, "rb") as f:
            return f.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def run(server, port):
    """Serve until the server ends; raise SystemExit if it did not end well."""
    to_us, from_server = os.pipe()
    to_server, from_us = os.pipe()
    argv = [find_binary(), "serve", "--attached=%d,%d" % (to_server, from_server), "--host", server.host, "--port", str(port)]
    if server.pty_port is not None:
        argv += ["--pty-port", str(server.pty_port)]
    try:
        # A session of its own: a key typed at our terminal reaches us, and the
        # server once, through us.
        child = subprocess.Popen(argv, pass_fds=(to_server, from_server), stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise SystemExit("agent-sandbox-server: cannot start %s: %s" % (argv[0], error))
    finally:
        os.close(to_server)
        os.close(from_server)

    threads = os.environ.get("ABX_COMMANDS_MAX_CONCURRENCY", "")
    worker = Worker(to_us, from_us, int(threads) if threads.isdigit() and int(threads) > 0 else MAX_THREADS)
    worker.attach(server)
    restore = _forward(child)
    try:
        worker.announce(server.values(port))
        code = child.wait()
    finally:
        restore()
        worker.detach()
    if code != 0:
        raise SystemExit(code if code > 0 else 128 - code)


def _forward(child):
    """Hand signals on to the server; returns what puts the handlers back."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    before = {}
    for number in _FORWARDED:
        before[number] = signal.signal(number, lambda n, frame: _send(child, n))

    def restore():
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    return restore


def _send(child, number):
    if child.poll() is None:
        child.send_signal(number)
