"""What a user of the published client does in a day, against the real binary."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import time

import pytest
from agent_sandbox.models.errors import (
    CommandTimeoutError,
    EndpointNotAvailableError,
    FileNotFoundError_,
    FilePolicyDeniedError,
    PolicyDeniedError,
    ServerAuthError,
)

SERVER_BIN = os.environ["SERVER_BIN"]


def wait_for(what, timeout: float = 10.0):
    """Polls until `what()` holds; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# ---------------------------------------------------------------- default policy


def test_discover(serve):
    caps = serve().client().discover_sync()
    assert caps.can("files_list") and caps.can("shell") and caps.can("pty_create_session")
    assert not caps.can("browser_navigate")  # an opt-in group


def test_a_file_from_upload_to_delete(serve):
    server = serve()
    client, base = server.client(), server.base
    client.discover_sync()
    data = bytes(range(256)) * 64

    client.files.mkdir_sync(f"{base}/d/sub")
    assert client.files.upload_sync(f"{base}/d/sub/a.bin", data).size == len(data)
    assert client.files.upload_sync(f"{base}/d/grüße.txt", "hallo\n").size == 6
    assert (base / "d/sub/a.bin").read_bytes() == data

    assert sorted((e.name, e.type) for e in client.files.list_sync(f"{base}/d")) == [
        ("grüße.txt", "file"), ("sub", "directory")]
    assert "a.bin" in [e.name for e in client.files.list_sync(f"{base}/d", recursive=True)]
    info = client.files.stat_sync(f"{base}/d/sub/a.bin")
    assert info.exists and info.type == "file" and info.size == len(data)
    assert client.files.download_sync(f"{base}/d/sub/a.bin") == data
    assert client.files.read_text_sync(f"{base}/d/grüße.txt") == "hallo\n"
    assert [h.name for h in client.files.search_sync(f"{base}", "*.bin").results] == ["a.bin"]

    client.files.move_sync(f"{base}/d/sub/a.bin", f"{base}/d/b.bin")
    assert not (base / "d/sub/a.bin").exists() and (base / "d/b.bin").read_bytes() == data
    client.files.delete_sync(f"{base}/d/b.bin")
    assert not (base / "d/b.bin").exists()
    assert client.files.exists_sync(f"{base}/d/b.bin") is False
    with pytest.raises(FileNotFoundError_):
        client.files.download_sync(f"{base}/d/b.bin")


def test_shell(serve):
    server = serve()
    client = server.client()
    client.discover_sync()
    result = client.process.shell_sync(
        "bash -c 'pwd; echo $GREETING; echo oops >&2; exit 3'", cwd=str(server.base), env={"GREETING": "grüß dich"})
    assert result.stdout == f"{server.base}\ngrüß dich\n"
    assert result.stderr == "oops\n"
    assert result.exit_code == 3
    with pytest.raises(CommandTimeoutError):
        client.process.shell_sync("sleep 60", timeout=0.5)


def test_run_stream(serve):
    client = serve().client()
    out, err = [], []
    result = client.process.run_stream_sync(
        "bash -c 'seq 1 1000; echo; echo broken >&2; exit 4'", on_stdout=out.append, on_stderr=err.append)
    lines = [str(n) for n in range(1, 1001)] + [""]
    assert out == lines and err == ["broken"]
    assert result.stdout == "\n".join(lines) + "\n"
    assert result.exit_code == 4


def test_a_background_process(serve):
    client = serve().client()
    started = client.process.start_sync("bash -c 'read line; echo got $line; exit 5'", capture_output=True, stdin=True)
    client.process.send_stdin_sync(started.pid, "hello\n", eof=True)
    assert client.process.wait_sync(started.pid, timeout=20) == 5
    output = client.process.output_sync(started.pid)
    assert "".join(e.data for e in output.events) == "got hello\n"


def test_a_terminal(serve):
    client = serve().client()
    made = client.pty.create_sync(cols=77, rows=19)

    async def session():
        async with client.pty.connect(made.session_id) as term:
            await term.send("stty size; echo sum$((40+2))\n")
            assert "19 77" in await term.expect("sum42", timeout=10)

    asyncio.run(session())
    client.pty.delete_sync(made.session_id)
    assert made.session_id not in [s.id for s in client.pty.list_sync()]


# ---------------------------------------------------------------- policies


def test_tokens(serve):
    server = serve(policy={"auth": {"tokens": [
        {"id": "admin", "token_sha256": hashlib.sha256(b"admin-secret").hexdigest(), "scopes": ["*"]},
        {"id": "reader", "token_env": "READER_TOKEN", "scopes": ["core:read", "files:read"]},
    ]}}, env={"READER_TOKEN": "reader-secret"})
    path = f"{server.base}/a.txt"

    assert server.client().health_sync() is True
    for token in (None, "wrong"):
        with pytest.raises(ServerAuthError):
            server.client(token).files.list_sync(str(server.base))

    admin, reader = server.client("admin-secret"), server.client("reader-secret")
    admin.files.upload_sync(path, "x")
    assert reader.files.read_text_sync(path) == "x"
    with pytest.raises(PolicyDeniedError) as denied:
        reader.files.upload_sync(path, "y")
    assert denied.value.scope == "files:write"
    with pytest.raises(PolicyDeniedError):
        reader.process.shell_sync("true")
    assert (server.base / "a.txt").read_text() == "x"

    caps = reader.discover_sync()
    assert caps.can("files_download_stream") and not caps.can("files_upload_stream")


def test_a_token_from_the_environment_stays_with_the_server(serve):
    server = serve(env={"ABX_SERVER_TOKEN": "environment-secret"})
    with pytest.raises(ServerAuthError):
        server.client().discover_sync()
    client = server.client("environment-secret")
    assert client.discover_sync().can("shell")
    assert "environment-secret" not in client.process.shell_sync("env").stdout
    assert "environment-secret" not in server.log()


def test_read_only(serve):
    server = serve(args=["--preset", "read-only"])
    (server.base / "a.txt").write_text("kept")
    discovered, blind = server.client(), server.client()
    discovered.discover_sync()
    for client in (discovered, blind):  # the client's own refusal and the server's
        assert client.files.read_text_sync(f"{server.base}/a.txt") == "kept"
        assert [e.name for e in client.files.list_sync(str(server.base))] == ["a.txt"]
        for forbidden in (
            lambda: client.files.upload_sync(f"{server.base}/a.txt", "changed"),
            lambda: client.files.delete_sync(f"{server.base}/a.txt"),
            lambda: client.files.move_sync(f"{server.base}/a.txt", f"{server.base}/b.txt"),
            lambda: client.files.mkdir_sync(f"{server.base}/d"),
            lambda: client.process.shell_sync("true"),
            lambda: client.pty.create_sync(),
        ):
            with pytest.raises(EndpointNotAvailableError):
                forbidden()
    assert [p.name for p in server.base.iterdir()] == ["a.txt"]
    assert (server.base / "a.txt").read_text() == "kept"


def test_a_denied_path(serve, tmp_path):
    server = serve(policy={"endpoints": {"files_*": {"paths": {"deny": ["**/.ssh"]}}}})
    client, base = server.client(), server.base
    (base / ".ssh").mkdir()
    (base / ".ssh/id").write_text("secret")
    (base / "inside").symlink_to(base / ".ssh/id")
    (tmp_path / "outside").write_text("secret")
    (base / "out").symlink_to(tmp_path / "outside")

    for path in (f"{base}/.ssh/id", f"{base}/d/../.ssh/id", f"{base}/inside", f"{base}/out", f"{tmp_path}/outside"):
        with pytest.raises(FilePolicyDeniedError):
            client.files.download_sync(path)
        with pytest.raises(FilePolicyDeniedError):
            client.files.upload_sync(path, "overwritten")
    with pytest.raises(FilePolicyDeniedError):
        client.files.move_sync(f"{base}/.ssh/id", f"{base}/stolen")
    assert (base / ".ssh/id").read_text() == "secret"
    assert (tmp_path / "outside").read_text() == "secret"
    assert not (base / "stolen").exists()


# ---------------------------------------------------------------- the program


def test_healthcheck_and_version(serve):
    server = serve()
    healthy = [SERVER_BIN, "healthcheck", "--port", str(server.port)]
    assert subprocess.run(healthy, timeout=10).returncode == 0
    server.stop()
    assert subprocess.run(healthy, timeout=10).returncode == 1
    version = subprocess.run([SERVER_BIN, "version"], capture_output=True, text=True, timeout=10)
    assert version.returncode == 0 and len(version.stdout.split()) == 1


def test_sigterm_ends_the_server_and_what_it_started(serve):
    server = serve()
    pid = server.client().process.start_sync("sleep 600").pid
    assert os.path.exists(f"/proc/{pid}")
    assert server.stop() == 0
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


def test_named_commands(serve, tmp_path):
    manifest = tmp_path / "commands.yaml"
    manifest.write_text("""
version: 1
commands:
  - name: greet
    description: Say hello
    args:
      - {name: name, type: string}
    argv: [printf, "hi %s", "{name}"]
""")
    client = serve(args=["--commands", str(manifest)]).client()
    assert [c.name for c in client.commands.list_sync()] == ["greet"]
    assert client.commands.run_sync("greet", name="Ada") == "hi Ada"
