"""Every image that is built, run as PID 1 of a container."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import tarfile
import time

import httpx
import pytest
from agent_sandbox.models.errors import ServerAuthError
from conftest import GUARDED, IMAGE, docker, inspect, wait_for

RUNNABLE = ["sandbox", "full", "copied"]


@pytest.fixture
def guarded(container):
    def make(target, *more, command=()):
        c = container(target, GUARDED + more, command)
        c.healthy()
        return c

    return make


# ---------------------------------------------------------------- what the images say


@pytest.mark.parametrize("target", ["sandbox", "full", "default"])
def test_the_contract(target):
    config = inspect("image", IMAGE + target)["Config"]
    assert config["User"] == "1000:1000" and config["WorkingDir"] == "/home/user"
    assert config["Entrypoint"] == ["agent-sandbox-server"] and config["Cmd"] == ["serve"]
    assert set(config["ExposedPorts"]) == {"9000/tcp", "9001/tcp"} and config["StopSignal"] == "SIGTERM"
    health = config["Healthcheck"]
    assert health["Test"] == ["CMD", "agent-sandbox-server", "healthcheck"]
    assert (health["Interval"], health["Timeout"], health["StartPeriod"], health["Retries"]) == (10**10, 3 * 10**9, 5 * 10**9, 3)
    assert not [v for v in config["Env"] if v.startswith("ABX_")]


@pytest.mark.parametrize("target", ["binary", "binary-arm64"])
def test_the_binary_is_alone(target):
    """Nothing but one static program, of the platform that was asked for."""
    saved = subprocess.run(["docker", "save", IMAGE + target], capture_output=True, timeout=120, check=True).stdout
    names, program = [], b""
    with tarfile.open(fileobj=io.BytesIO(saved)) as image:
        for layer in json.load(image.extractfile("manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(image.extractfile(layer).read())) as files:
                for member in files:
                    names.append((member.name, oct(member.mode & 0o7777)))
                    program = files.extractfile(member).read()
    assert names == [("agent-sandbox-server", "0o755")]
    machine = {"binary": 62, "binary-arm64": 183}[target]
    assert program[:4] == b"\x7fELF" and int.from_bytes(program[18:20], "little") == machine
    assert b"/lib64/ld-linux" not in program and b"/lib/ld-linux" not in program


@pytest.mark.parametrize("target", ["sandbox", "full"])
def test_the_policy_of_the_template_is_in_the_image(container, target):
    """The server block, where the server looks, in root's hands."""
    c = container(target, GUARDED)
    c.healthy()
    file = "/etc/agent-sandbox/server-policy.json"
    assert c.run("stat", "-c", "%U:%G %a", file, "/etc/agent-sandbox").stdout.split("\n")[:2] == ["root:root 644", "root:root 755"]
    policy = c.client().discover_sync()
    assert policy.preset == "default" and policy.configured is True
    checked = c.run("agent-sandbox-server", "check-config", "--policy", file, "--strict")
    assert checked.stderr == "" and "warning" not in checked.stdout


# ---------------------------------------------------------------- running


@pytest.mark.parametrize("target", RUNNABLE)
def test_the_published_client_drives_it(guarded, target):
    """As PID 1, nobody special, on a read-only root, with little memory and few processes."""
    c = guarded(target)
    client = c.client()
    assert client.discover_sync().api_version == 2
    data = bytes(range(256)) * 4096
    client.files.mkdir_sync("/home/user/d")
    assert client.files.upload_sync("/home/user/d/a.bin", data).size == len(data)
    assert client.files.download_sync("/home/user/d/a.bin") == data
    assert [e.name for e in client.files.list_sync("/home/user/d")] == ["a.bin"]
    who = client.process.shell_sync("sh -c 'id -u; cat /proc/1/comm; touch /x 2>/dev/null || echo read-only'")
    assert who.stdout.split() == ["1000", "agent-sandbox-s", "read-only"]

    async def terminal():
        await client.discover()
        session = await client.pty.create()
        async with client.pty.connect(session.session_id) as stream:
            await stream.send('echo ter""minal\n')
            seen = ""
            async for message in stream:
                seen += str(message)
                if "terminal" in seen:
                    return
        raise AssertionError(seen)

    asyncio.run(asyncio.wait_for(terminal(), 20))


@pytest.mark.parametrize("target", RUNNABLE)
def test_orphans_leave_no_zombies(guarded, target):
    """PID 1 inherits what loses its parent, and buries it."""
    client = guarded(target).client()
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do (sh -c 'sleep 0.1 &' &) ; done"
    assert client.process.shell_sync(f'sh -c "{script}"').exit_code == 0

    def zombies():
        text = client.process.shell_sync("sh -c 'cat /proc/[0-9]*/stat 2>/dev/null; true'").stdout
        rest = [line.rsplit(")", 1) for line in text.splitlines() if ")" in line]
        return [line for line in rest if line[1].split()[0] == "Z" or line[0].endswith("(sleep")]

    wait_for(lambda: not zombies(), why="for the orphans to go")


@pytest.mark.parametrize("target", RUNNABLE)
def test_a_child_that_eats_the_memory_dies_alone(guarded, target):
    """The server lives on and says what it died of."""
    c = guarded(target)
    url = c.url()
    hog = httpx.post(url + "/process/start", json={"command": "tail /dev/zero"}, timeout=10, trust_env=False).json()

    def ended():
        got = httpx.get(f"{url}/process/{hog['pid']}", timeout=10, trust_env=False).json()
        return got if got.get("reason") else None

    got = wait_for(ended, 60, "for the memory to run out")
    assert got["reason"] == "oom", got
    assert c.client().process.shell_sync("echo alive").stdout == "alive\n"
    assert inspect("container", c.name)["State"]["Running"]


@pytest.mark.parametrize("target", RUNNABLE)
def test_sigterm_ends_it_cleanly(guarded, target):
    """`docker stop`: the programs first, then the server, with 0 and well before it is killed."""
    c = guarded(target)
    httpx.post(c.url() + "/process/start", json={"command": "sleep 600"}, timeout=10, trust_env=False).raise_for_status()
    docker("stop", "--time", "30", c.name)
    state = inspect("container", c.name)["State"]
    assert state["ExitCode"] == 0 and not state["OOMKilled"], c.log()


@pytest.mark.parametrize("target", ["sandbox", "full"])
def test_the_engine_calls_it_healthy(container, target):
    c = container(target, GUARDED + ("--health-interval", "1s"))
    wait_for(lambda: inspect("container", c.name)["State"]["Health"]["Status"] == "healthy", 60)
    assert c.run("agent-sandbox-server", "healthcheck").stdout == ""
    assert c.run("agent-sandbox-server", "healthcheck", "--port", "9009", check=False).returncode == 1


def test_a_taken_process_limit_is_an_answer(guarded):
    """What cannot be started is told; the server and its health are not part of the limit's harm."""
    c = guarded("sandbox", "--pids-limit", "40")
    url = c.url()
    statuses = {
        httpx.post(url + "/process/start", json={"command": "sleep 600"}, timeout=20, trust_env=False).status_code
        for _ in range(60)
    }
    assert 200 in statuses and max(statuses) < 600
    assert httpx.get(url + "/health", timeout=10, trust_env=False).json() == {"status": "ok"}


# ---------------------------------------------------------------- other ways in


def test_it_starts_in_a_running_container(container):
    """As the SDK's start_server does it: a shell command in the background, with policy and token in its environment."""
    c = container("sandbox", GUARDED + ("--entrypoint", "sleep", "--no-healthcheck"), ("600",))
    policy = json.dumps({"version": 1, "groups": ["dev_tools"], "endpoints": {"env_set": {"enabled": False}}})
    env = ("--env", f"ABX_SERVER_POLICY={policy}", "--env", "ABX_SERVER_TOKEN=it's $HOME;")
    c.run("sh", "-c", "agent-sandbox-server serve --port 9100 >/tmp/log 2>&1 &", options=env)
    c.healthy(9100)
    client = c.client("it's $HOME;", 9100)
    caps = client.discover_sync()
    assert caps.identity_id == "server" and caps.can("code_run") and not caps.can("env_set")
    with pytest.raises(ServerAuthError):
        c.client(port=9100).discover_sync()
    client.files.upload_sync("/home/user/x", b"x")
    assert client.process.shell_sync("cat /home/user/x").stdout == "x"

    second = c.run("agent-sandbox-server", "serve", "--port", "9100", check=False)
    assert second.returncode == 1
    assert second.stderr.startswith("listen error: ") and len(second.stderr.splitlines()) == 1
    assert client.health_sync()


def test_an_init_container_brings_it_into_any_image(container):
    """The recipe of the guide: one container copies the program, the other, of any image, runs it."""
    volume = "asbx-volume-" + str(time.monotonic_ns())
    docker("volume", "create", volume)
    try:
        docker("run", "--rm", "--user", "0", "--network", "none", "--volume", f"{volume}:/agent-sandbox", "--entrypoint", "cp",
               IMAGE + "sandbox", "/usr/local/bin/agent-sandbox-server", "/agent-sandbox/")
        c = container("debian", GUARDED + ("--volume", f"{volume}:/agent-sandbox:ro"), ("/agent-sandbox/agent-sandbox-server", "serve"))
        c.healthy()
        assert c.client().process.shell_sync("sh -c 'cat /proc/1/comm'").stdout == "agent-sandbox-s\n"
        c.close()
    finally:
        docker("volume", "rm", "--force", volume, check=False)


MIGRATED = f"""FROM {IMAGE}full
USER 0:0
RUN mkdir /app && printf '%s\\n' 'from agent_sandbox.server import command, start' '@command(description="Add.")' \\
    'def add(a: int, b: int) -> int:' '    return a + b' 'start(9000)' >/app/commands.py && agent-sandbox-server install-shim
USER 1000:1000
ENTRYPOINT ["python3", "/app/commands.py"]
CMD []
"""


def test_an_image_that_starts_python_commands_py_starts_ours(container):
    """The guide for templates of the Python server: one program, one shim, and commands.py as it was."""
    built = subprocess.run(["docker", "build", "--network", "none", "-t", IMAGE + "migrated", "-"], input=MIGRATED, text=True,
                           capture_output=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    c = container("migrated", GUARDED)
    c.healthy()
    assert c.client().discover_sync().can("run_command")
    answer = httpx.post(c.url() + "/commands/add", json={"a": 40, "b": 2}, timeout=20, trust_env=False)
    assert answer.status_code == 200 and answer.json()["result"] == 42, answer.text
    with httpx.Client(base_url=c.url(), trust_env=False) as web:
        assert web.get("/capabilities").json()["server_version"] == c.run("agent-sandbox-server", "version").stdout.strip()
    docker("stop", "--time", "20", c.name)
    assert inspect("container", c.name)["State"]["ExitCode"] == 0


def test_the_full_image_has_what_its_endpoints_need(container):
    """Python, git and a browser, for who switches their groups on."""
    policy = json.dumps({"groups": ["dev_tools", "browser"], "endpoints": {"browser_*": {"params": {"allow_loopback": True, "block_private_networks": False}}}})
    limits = [o if o != "256m" else "1g" for o in GUARDED]
    c = container("full", tuple(limits) + ("--env", f"ABX_SERVER_POLICY={policy}"))
    c.healthy()
    url = c.url()

    def post(path, **body):
        answer = httpx.post(url + path, json=body, timeout=90, trust_env=False)
        assert answer.status_code == 200, f"{path}: {answer.text}\n{c.log()}"
        return answer.json()

    assert post("/code/run", language="python", code="print(6 * 7)")["stdout"] == "42\n"
    assert c.client().process.shell_sync("git init -q /home/user/r").exit_code == 0
    answer = httpx.get(url + "/git/status", params={"path": "/home/user/r"}, timeout=20, trust_env=False)
    assert answer.status_code == 200, answer.text
    post("/browser/navigate", url="http://127.0.0.1:9000/health")
    assert "ok" in json.dumps(httpx.get(url + "/browser/content", timeout=60, trust_env=False).json())


@pytest.mark.parametrize("target", RUNNABLE)
def test_start_to_healthy_and_size_are_shown(container, target):
    """Figures for the guide (`-s` shows them); only that there are any is asserted."""
    times = []
    for _ in range(5):
        c = container(target, GUARDED)
        times.append(c.healthy())
        c.close()
    size = inspect("image", IMAGE + target)["Size"]
    print(f"\nfigure {target}: {size / 1e6:.1f} MB, docker run to healthy {sorted(times)[2]:.2f} s")
    assert size > 0
