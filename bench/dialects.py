"""Measures one server through its two dialects: our HTTP routes, and E2B's SDK on the envd listener.

    bench/dialects          starts SERVER_BIN (bin/agent-sandbox-server by default) and prints a Markdown table

Loopback only. The SDK's own work is in its figures, as it is for whoever uses it.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import httpx
from e2b import Sandbox

SIZE = 256 << 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def median(rounds, work):
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def shell_stream(http, command):
    with http.stream("POST", "/shell/stream", json={"command": command}) as answer:
        for _ in answer.iter_raw():
            pass


def main():
    binary = os.environ.get("SERVER_BIN", "bin/agent-sandbox-server")
    with tempfile.TemporaryDirectory() as base:
        port, pty_port, envd_port = free_port(), free_port(), 49983
        env = dict(os.environ, ABX_MAX_UPLOAD_SIZE=str(1 << 30))
        server = subprocess.Popen(
            [binary, "serve", "--host", "127.0.0.1", "--port", str(port), "--pty-port", str(pty_port), "--envd-port", str(envd_port), "--base-dir", base],
            env=env, stderr=subprocess.DEVNULL,
        )
        try:
            http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
            deadline = time.monotonic() + 10
            while True:
                try:
                    http.get("/health")
                    break
                except httpx.HTTPError:
                    if time.monotonic() > deadline:
                        sys.exit("the server does not answer")
            sandbox = Sandbox.create(debug=True)
            data = os.urandom(SIZE)
            many = "seq 1 11500000"  # 100 MB of short lines
            name = base + "/f"
            rows = [
                ("run `true`", 40, lambda: http.post("/shell", json={"command": "true"}).raise_for_status(), lambda: sandbox.commands.run("true")),
                ("the same by a login shell, as the SDK does", 40, lambda: http.post("/shell", json={"command": "bash -l -c true"}).raise_for_status(), lambda: sandbox.commands.run("true")),
                ("stream 100 MB of short lines", 1, lambda: shell_stream(http, many), lambda: sandbox.commands.run(many, on_stdout=lambda _: None, timeout=240)),
                ("upload 256 MiB", 2, lambda: http.put("/files/content", params={"path": name}, content=data).raise_for_status(), lambda: sandbox.files.write(name, data)),
                ("download 256 MiB", 2, lambda: http.get("/files/content", params={"path": name}).raise_for_status(), lambda: sandbox.files.read(name, format="bytes")),
            ]
            print("| What | our routes | E2B's SDK | SDK ÷ routes |\n|---|--:|--:|--:|")
            for what, rounds, ours, sdk in rows:
                a, b = median(rounds, ours), median(rounds, sdk)
                print(f"| {what} | {a * 1000:.1f} ms | {b * 1000:.1f} ms | {b / a:.2f} |", flush=True)
        finally:
            server.terminate()
            server.wait(20)


main()
