"""The published client through a router like those in front of sandboxes on Kubernetes.

The router here does what those do: it wants X-Sandbox-ID, strips Authorization and Origin, rewrites Host, hands path and
query on as they are, lets no request last longer than its limit, and no upgraded connection end by it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
import threading
import time

import httpx
import pytest
from agent_sandbox.api import ServerClient
from agent_sandbox.models.errors import ServerAuthError

TOKEN = "the caller's token"
POLICY = {
    "version": 1,
    "auth": {"tokens": [{"id": "caller", "scopes": ["*"], "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest()}]},
}
ROUTE = {"X-Sandbox-ID": "box-1", "X-Sandbox-Namespace": "default"}


class Router:
    """One thread of asyncio between a client and a sandbox's port."""

    def __init__(self, limit: float = 180.0):
        self.limit = limit
        self.seen: list[bytes] = []  # heads of requests, as the sandbox gets them
        self.statuses: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        async def end():
            self._server.close()
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head[:-4].split(b"\r\n")
            fields = [line.split(b": ", 1) for line in lines[1:]]
            named = {k.lower(): v for k, v in fields}
            if b"x-sandbox-id" not in named:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            upgraded = b"upgrade" in named
            port = int(named.get(b"x-sandbox-port", b"8888"))
            gone = {b"authorization", b"origin", b"host", b"x-sandbox-id", b"x-sandbox-namespace", b"x-sandbox-port"}
            gone |= set() if upgraded else {b"connection"}
            out = [lines[0], b"Host: 10.1.2.3:%d" % port] + [k + b": " + v for k, v in fields if k.lower() not in gone]
            out += [] if upgraded else [b"Connection: close"]
            head = b"\r\n".join(out) + b"\r\n\r\n"
            self.seen.append(head)
            down, up = await asyncio.open_connection("127.0.0.1", port)
            up.write(head)
            both = asyncio.gather(self._copy(reader, up), self._answer(down, writer))
            await asyncio.wait_for(both, None if upgraded else self.limit)
        except (TimeoutError, asyncio.TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the client sees the connection end
        finally:
            for w in (writer, up):
                if w is not None:
                    w.close()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readline()
        self.statuses.append(int(first.split()[1]))
        writer.write(first)
        await self._copy(reader, writer)
        writer.close()  # the sandbox has ended it, and so ends the copy of the other direction


@pytest.fixture
def router(request):
    r = Router(**getattr(request, "param", {}))
    yield r
    r.close()


def through(router: Router, server, token: str | None = TOKEN) -> ServerClient:
    pty = server._pty_url.rsplit(":", 1)[1]
    client = ServerClient(router.url, token=token, headers=ROUTE | {"X-Sandbox-Port": str(server.port)},
                          pty_url=f"ws://127.0.0.1:{pty}")
    return client


def test_the_token_arrives_although_authorization_is_stripped(serve, router):
    server = serve(POLICY)
    assert through(router, server).discover_sync().identity_id == "caller"
    with pytest.raises(ServerAuthError):
        through(router, server, token=None).discover_sync()
    assert not [head for head in router.seen if b"authorization" in head.lower()]
    assert all(b"Host: 10.1.2.3" in head for head in router.seen)


def test_a_day_through_the_router(serve, router):
    """Nothing is answered by a redirect or by what the router's own client tries again (502, 503, 504)."""
    server = serve(POLICY)
    client, base = through(router, server), server.base
    client.discover_sync()
    data = bytes(range(256)) * 4096
    name = f"{base}/a b/ü%2Fc/d.bin"
    client.files.mkdir_sync(f"{base}/a b/ü%2Fc")
    assert client.files.upload_sync(name, data).size == len(data)
    assert client.files.download_sync(name) == data
    assert client.process.shell_sync("sh -c 'exit 3'").exit_code == 3
    assert not client.files.stat_sync(f"{base}/nothing").exists
    assert set(router.statuses) == {200}


def test_a_slash_that_is_escaped_stays_one_segment(serve, router):
    """%2F in a path is no separator: the route of a resource is not another's."""
    server = serve(POLICY)
    headers = ROUTE | {"X-Sandbox-Port": str(server.port), "X-Access-Token": TOKEN}
    with httpx.Client(base_url=router.url, headers=headers, trust_env=False) as c:
        for path, status in (("/process/1%2Foutput", 400), ("/files%2Fstat", 404), ("//health", 404), ("/health/", 200)):
            got = c.get(path)
            assert got.status_code == status and not got.is_redirect, path
    assert any(b"GET /process/1%2Foutput HTTP/1.1" in head for head in router.seen)


def test_a_browser_behind_the_router_is_a_caller_with_a_token(serve, router):
    """The rewritten Host is no concern of a caller with a valid token, even if it is a browser."""
    server = serve(POLICY)
    headers = ROUTE | {"X-Sandbox-Port": str(server.port), "Sec-Fetch-Site": "same-origin", "User-Agent": "Mozilla/5.0"}
    with httpx.Client(base_url=router.url, headers=headers, trust_env=False) as c:
        assert c.get("/capabilities", headers={"X-Access-Token": TOKEN}).status_code == 200
        assert c.get("/capabilities").status_code == 401


@pytest.mark.parametrize("router", [{"limit": 1.0}], indirect=True)
def test_what_the_routers_limit_cuts_is_cleaned_up(serve, router, tmp_path):
    """After its limit the router cuts a request; what only that caller could see ends, a background process does not."""
    server = serve(POLICY)
    headers = ROUTE | {"X-Sandbox-Port": str(server.port), "X-Access-Token": TOKEN}
    mark = f"{server.base}/pid"
    with httpx.Client(base_url=router.url, headers=headers, timeout=30, trust_env=False) as c:
        started = c.post("/process/start", json={"command": "sleep 60"}).json()
        with pytest.raises(httpx.TransportError):
            body = {"command": f"sh -c 'echo $$ >{mark}; exec sleep 60'"}
            with c.stream("POST", "/shell/stream", json=body) as answer:
                for _ in answer.iter_bytes():
                    pass
        with open(mark) as f:
            pid = int(f.read())
        deadline = time.monotonic() + 10
        while runs(pid):
            assert time.monotonic() < deadline, "the program of the cut stream still runs"
            time.sleep(0.02)
        assert c.get(f"/process/{started['pid']}").status_code == 200 and runs(started["pid"])


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("router", [{"limit": 0.5}], indirect=True)
def test_a_terminal_outlasts_the_routers_limit(serve, router):
    """An upgrade arrives without Origin and with a rewritten Host, and is not cut."""
    server = serve(POLICY)
    session = through(router, server).pty.create_sync()
    path = re.sub(r"^ws://[^/]+", "", session.ws_url)
    pty = server._pty_url.rsplit(":", 1)[1]
    with socket.create_connection(("127.0.0.1", router.port), timeout=10) as s:
        s.sendall((
            f"GET {path} HTTP/1.1\r\nHost: gateway.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://evil.example\r\n"
            f"X-Access-Token: {TOKEN}\r\nX-Sandbox-ID: box-1\r\nX-Sandbox-Port: {pty}\r\n\r\n"
        ).encode())
        data = s.recv(65536)
        assert data.startswith(b"HTTP/1.1 101"), data
        until = time.monotonic() + 1.5  # three times the limit
        s.settimeout(0.1)
        while time.monotonic() < until:
            try:
                assert s.recv(65536) != b"", "the terminal was cut"
            except TimeoutError:
                pass
        s.sendall(frame(json.dumps({"type": "input", "data": 'echo o""k\n'}).encode()))
        seen, deadline = b"", time.monotonic() + 10
        while b"ok" not in seen:
            assert time.monotonic() < deadline, seen
            try:
                seen += s.recv(65536)
            except TimeoutError:
                pass


def frame(payload: bytes) -> bytes:
    """A masked text frame; the mask is zero."""
    return b"\x81" + bytes([0x80 | len(payload)]) + b"\0\0\0\0" + payload
