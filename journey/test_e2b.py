"""What the README and docs/envd.md say about the E2B SDKs, run as it stands."""

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

ROOT = Path(__file__).parent.parent


def lines(language: str, document: str = "README.md", heading: str = "Use the E2B SDK with no cloud") -> str:
    """The code block of that language in that section."""
    section = (ROOT / document).read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert len(found) == 1
    return found[0]


@pytest.fixture(params=[None])
def envd(tmp_path, request):
    """The URL of an envd listener without any configuration, or with the token that is the parameter."""
    with socket.socket() as a, socket.socket() as b, socket.socket() as c:
        for s in (a, b, c):
            s.bind(("127.0.0.1", 0))
        http, pty, port = (s.getsockname()[1] for s in (a, b, c))
    env = {k: v for k, v in os.environ.items() if not k.startswith("ABX_")}
    if request.param:
        env["ABX_SERVER_TOKEN"] = request.param
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


def run(argv: list[str], url: str, script: str, token: str | None = None) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("E2B_", "ABX_"))} | {"E2B_SANDBOX_URL": url}
    if token:
        env["ABX_SERVER_TOKEN"] = token
    p = subprocess.run([*argv, script], env=env, capture_output=True, text=True, timeout=50)
    assert p.returncode == 0 and p.stdout.split() == ["hello"], (p.stdout, p.stderr[-2000:])


def check(argv: list[str], url: str, code: str) -> None:
    note = Path(f"/tmp/note-{os.getpid()}-{time.monotonic_ns()}.txt")
    try:
        run(argv, url, code.replace("/tmp/note.txt", str(note)))
        assert note.read_text() == "kept"
    finally:
        note.unlink(missing_ok=True)


def javascript(code: str) -> str:
    """The code, with the package where E2B_JS_DIR says."""
    root = os.environ.get("E2B_JS_DIR")
    if not root or not shutil.which("node"):
        pytest.skip("needs node, and E2B_JS_DIR with the npm package e2b installed")
    return code.replace("from 'e2b'", f"from '{root}/node_modules/e2b/dist/index.mjs'")


NODE = ["node", "--input-type=module", "-e"]
PYTHON = [sys.executable, "-c"]


def test_python_lines_of_the_readme(envd):
    check(PYTHON, envd, lines("python"))


def test_javascript_lines_of_the_readme(envd):
    check(NODE, envd, javascript(lines("js")))


@pytest.mark.parametrize("envd", ["t0ken-of-this-test"], indirect=True)
def test_lines_with_a_token(envd):
    code = lines("python", "docs/envd.md", "Who may call")
    run(PYTHON, envd, code, "t0ken-of-this-test")
    with pytest.raises(AssertionError, match="unauthorized"):
        run(PYTHON, envd, code, "another")


@pytest.mark.parametrize("envd", ["t0ken-of-this-test"], indirect=True)
def test_javascript_lines_with_a_token(envd):
    run(NODE, envd, javascript(lines("js", "docs/envd.md", "Who may call")), "t0ken-of-this-test")
