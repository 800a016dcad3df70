"""via: through the command line clients of real engines, into containers that outlive each call."""

import contextlib
import os
import pathlib
import shlex

import pytest

import engine
import harness
import targets
from harness import line_of, unique_seconds, wait_for
from test_via_guard import check_daemons_death
from test_via_prefix import behind, check_basics, check_kill, check_signals  # noqa: F401 (fixture)

pytestmark = pytest.mark.deadline(120)


@pytest.fixture(scope="module", params=["docker", "podman"])
def running_engine(request):
    kind = {"docker": engine.Docker, "podman": engine.Podman}[request.param]
    with engine.running(kind) as running:
        yield running


def client(running):
    """The client's own words for `exec -i`."""
    if running.program == "podman":
        environment = f"CONTAINERS_CONF={running.place}/containers.conf"
        return shlex.join(["env", environment, *running.own(), "exec", "-i"])
    return shlex.join(["/usr/bin/docker", "-H", running.host, "exec", "-i"])


@pytest.fixture(params=["debian:test", "busybox:test"])
def container(running_engine, request):
    name = running_engine.container(request.param)
    yield name
    running_engine.kill_container(name)


def test_into_a_container(running_engine, container, behind):
    mount = behind(f"{client(running_engine)} {container}")
    check_basics(mount)
    check_kill(mount, targets.local_processes)
    data = os.urandom(1 << 20)
    assert mount.run(["cat"], data) == ("0", data, b"")


def test_signals(running_engine, container, behind):
    check_signals(behind(f"{client(running_engine)} {container}"))


def test_the_clients_death_is_a_loss_and_ends_the_command(running_engine, container, behind):
    mount = behind(f"{client(running_engine)} {container}")
    mount.allow("lost")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", f"echo up; exec sleep {mark}"])
        with e.lines() as out:
            assert line_of(out) == b"up\n"
            for pid in harness.descendants(mount.pid):
                with contextlib.suppress(OSError):
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if b"exec" in command and not command[0].endswith(b"spawnfs"):
                        harness.kill(pid)
            assert e.result() == "lost stream_closed"
        wait_for(lambda: not targets.local_processes(mark), "the command to be gone")
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_the_daemons_death_ends_the_commands(running_engine, container, behind):
    check_daemons_death(behind(f"{client(running_engine)} {container}"))


def test_no_such_container(running_engine, behind):
    mount = behind(f"{client(running_engine)} nosuch")
    with mount.new() as e:
        with pytest.raises(OSError):
            e.spec(["true"])
        assert e.result() == "failed ENXIO"
        assert "nosuch" in e.status()["error"].split("saying")[1]
