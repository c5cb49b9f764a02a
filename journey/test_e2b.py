"""The lines of the README's section about the E2B SDKs, run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

README = Path(__file__).parent.parent / "README.md"


def lines(language: str) -> str:
    """The code block of that language in the section."""
    section = README.read_text().split("## Use the E2B SDK with no cloud\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert len(found) == 1
    return found[0]


@pytest.fixture
def envd(tmp_path):
    """The URL of an envd listener without any configuration."""
    with socket.socket() as a, socket.socket() as b, socket.socket() as c:
        for s in (a, b, c):
            s.bind(("127.0.0.1", 0))
        http, pty, port = (s.getsockname()[1] for s in (a, b, c))
    env = {k: v for k, v in os.environ.items() if not k.startswith("ABX_")}
    with (tmp_path / "log").open("wb") as log:
        proc = subprocess.Popen(
            [os.environ["SERVER_BIN"], "serve", "--host", "127.0.0.1", "--port", str(http), "--pty-port", str(pty), "--envd-port", str(port)],
            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 15
        while True:
            assert proc.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            try:
                if httpx.get(url + "/health", timeout=1, trust_env=False).status_code == 204:
                    break
            except httpx.HTTPError:
                time.sleep(0.02)
        yield url
    finally:
        proc.terminate()
        proc.wait(15)


def check(argv: list[str], url: str, code: str) -> None:
    note = Path(f"/tmp/note-{os.getpid()}-{time.monotonic_ns()}.txt")
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")} | {"E2B_SANDBOX_URL": url}
    try:
        script = code.replace("/tmp/note.txt", str(note))
        p = subprocess.run([*argv, script], env=env, capture_output=True, text=True, timeout=50)
        assert p.returncode == 0 and p.stdout.split() == ["hello"], (p.stdout, p.stderr[-2000:])
        assert note.read_text() == "kept"
    finally:
        note.unlink(missing_ok=True)


def test_python_lines_of_the_readme(envd):
    check([sys.executable, "-c"], envd, lines("python"))


def test_javascript_lines_of_the_readme(envd):
    root, node = os.environ.get("E2B_JS_DIR"), shutil.which("node")
    if not root or not node:
        pytest.skip("needs node, and E2B_JS_DIR with the npm package e2b installed")
    code = lines("js").replace("from 'e2b'", f"from '{root}/node_modules/e2b/dist/index.mjs'")
    check([node, "--input-type=module", "-e"], envd, code)
