"""Starts the server for the journey: SERVER_BIN on free loopback ports, stopped at the end of the test."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from agent_sandbox.api import ServerClient

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 15.0


def free_ports() -> tuple[int, int]:
    """Two TCP ports of the loopback that nobody uses now."""
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]


class Server:
    """One running server and clients for it."""

    def __init__(self, base: Path, log: Path, policy: dict | None, args: Sequence[str], env: dict[str, str]):
        self.base = base
        self.port, pty_port = free_ports()
        self.url = f"http://127.0.0.1:{self.port}"
        self._pty_url = f"ws://127.0.0.1:{pty_port}"
        self._log = log
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ABX_")}
        if policy is not None:
            inherited["ABX_SERVER_POLICY"] = json.dumps(policy)
        with log.open("wb") as out:
            self.proc = subprocess.Popen(
                [os.environ["SERVER_BIN"], "serve", "--host", "127.0.0.1", "--port", str(self.port),
                 "--pty-port", str(pty_port), "--base-dir", str(base), *args],
                env=inherited | env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                if httpx.get(self.url + "/health", timeout=1.0, trust_env=False).json() == {"status": "ok"}:
                    return
            except httpx.HTTPError:
                pass
            assert self.proc.poll() is None, f"the server ended at start:\n{self.log()}"
            assert time.monotonic() < deadline, f"the server is not healthy:\n{self.log()}"
            time.sleep(0.02)

    def client(self, token: str | None = None) -> ServerClient:
        return ServerClient(self.url, token=token, pty_url=self._pty_url)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM, and the exit status it leads to."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        try:
            return self.proc.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise


@pytest.fixture
def serve(tmp_path):
    """Factory: `serve(policy=…, args=[…], env={…})` is a healthy server with a folder of its own."""
    with contextlib.ExitStack() as running:
        count = itertools.count()

        def make(policy: dict | None = None, args: Sequence[str] = (), env: dict[str, str] | None = None) -> Server:
            number = next(count)
            base = tmp_path / f"base{number}"
            base.mkdir()
            server = Server(base, tmp_path / f"server{number}.log", policy, args, env or {})
            running.callback(server.stop)
            server.wait_healthy()
            return server

        yield make
