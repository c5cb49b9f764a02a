"""Containers for the tests: no network but their own loopback, reached through their network namespace."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import socket
import subprocess
import threading
import time
import uuid

import httpx
import pytest
from agent_sandbox.api import ServerClient

IMAGE = "agent-sandbox-server:test-"
START_TIMEOUT_S = 60.0
CLONE_NEWNET = 0x40000000


def docker(*args: str, check: bool = True, **kw) -> subprocess.CompletedProcess:
    done = subprocess.run(["docker", *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **kw)
    if check:
        assert done.returncode == 0, f"docker {' '.join(args)}\n{done.stderr}"
    return done


def inspect(kind: str, name: str) -> dict:
    return json.loads(docker(kind, "inspect", name).stdout)[0]


def wait_for(what, timeout: float = 30.0, why: str = ""):
    """Polls until `what()` holds and returns it."""
    deadline = time.monotonic() + timeout
    while not (got := what()):
        assert time.monotonic() < deadline, f"waited in vain {why}"
        time.sleep(0.02)
    return got


class Door:
    """A port of the host's loopback that leads to a port inside a network namespace.

    A socket belongs to the namespace in which its thread made it, so one thread makes them all.
    """

    def __init__(self, pid: int, port: int):
        self._port, self._pid = port, pid
        self._wanted: queue.Queue = queue.Queue()
        self._made: queue.Queue = queue.Queue()
        threading.Thread(target=self._make, daemon=True).start()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _make(self):
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{self._pid}/ns/net") as ns:
            if libc.setns(ns.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        while self._wanted.get():
            self._made.put(socket.socket())

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._wanted.put(True)
                far = self._made.get(timeout=10)
                try:
                    far.connect(("127.0.0.1", self._port))
                except OSError:
                    near.close()
                    far.close()
                    continue
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(a, b), daemon=True).start()

    @staticmethod
    def _copy(a: socket.socket, b: socket.socket):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        with contextlib.suppress(OSError):
            b.shutdown(socket.SHUT_WR)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._wanted.put(False)


class Container:
    """One running container and clients for the server in it."""

    def __init__(self, target: str, args: list[str], command: list[str]):
        self.name = "asbx-" + uuid.uuid4().hex[:12]
        self.began = time.monotonic()
        self.ended = False
        docker("run", "--detach", "--name", self.name, "--network", "none", *args, IMAGE + target, *command)
        self.pid = inspect("container", self.name)["State"]["Pid"]
        self._doors: dict[int, Door] = {}

    def port(self, inside: int) -> int:
        if inside not in self._doors:
            self._doors[inside] = Door(self.pid, inside)
        return self._doors[inside].port

    def url(self, inside: int = 9000) -> str:
        return f"http://127.0.0.1:{self.port(inside)}"

    def client(self, token: str | None = None, port: int = 9000) -> ServerClient:
        return ServerClient(self.url(port), token=token, pty_url=f"ws://127.0.0.1:{self.port(9001)}")

    def healthy(self, port: int = 9000) -> float:
        """Waits for /health, and says after how many seconds from `docker run` it came."""

        def ask():
            state = inspect("container", self.name)["State"]
            assert state["Running"], docker("logs", self.name).stderr
            return answers()

        def answers():
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(self.url(port) + "/health", timeout=2, trust_env=False).json() == {"status": "ok"}

        wait_for(lambda: answers() or ask(), START_TIMEOUT_S)
        return time.monotonic() - self.began

    def run(self, *argv: str, check: bool = True, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        return docker("exec", *options, self.name, *argv, check=check)

    def log(self) -> str:
        done = docker("logs", self.name)
        return done.stdout + done.stderr

    def close(self):
        for door in self._doors.values():
            door.close()
        docker("rm", "--force", "--volumes", self.name, check=False)


@pytest.fixture
def container():
    """Factory: `container(target, options, command)`."""
    with contextlib.ExitStack() as running:

        def make(target: str, options: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> Container:
            c = Container(target, list(options), list(command))
            running.callback(c.close)
            return c

        yield make


# As platforms run it: nobody special, nothing writable but two folders, little memory, few processes.
GUARDED = (
    "--user", "1000:1000", "--read-only", "--tmpfs", "/tmp:mode=1777", "--tmpfs", "/home/user:uid=1000,gid=1000,mode=700,exec",
    "--memory", "256m", "--memory-swap", "256m", "--pids-limit", "200", "--cap-drop", "ALL",
    "--security-opt", "no-new-privileges", "--env", "HOME=/home/user",
)


@pytest.fixture(scope="session", autouse=True)
def engine():
    os.environ.setdefault("DOCKER_BUILDKIT", "1")
    docker("version")
