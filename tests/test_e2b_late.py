"""What comes late, slowly or not at all: networks, login shells, renewals, answers."""

import contextlib
import errno
import os
import pathlib
import socket
import threading
import time

import pytest

from harness import Mount, unique, unique_seconds, wait_for
from targets import Target
from test_e2b_faults import HTML, faulty, peer  # noqa: F401: fixtures


def at(peer, address, env=None, **fields):
    return Target(address=address, env={**peer.env, **(env or {})}, name="e2b", **fields)


# ---- login shells ----


@pytest.fixture
def profile(peer):
    """Writes what the login shells of the sandbox read."""
    file = pathlib.Path(peer.home, ".bash_profile")
    yield file.write_text
    file.unlink()


@pytest.mark.parametrize(
    "plan",
    [dict(fault="cut", at="data"), dict(fault="cut", at="start", bytes=0, how="close"), dict(fault="reset"),
     dict(fault="answer", status=503, body=HTML)],
    ids=["in its answer", "before it", "no answer", "a gateway"],
)  # fmt: skip
def test_a_login_shell_whose_answer_is_lost_is_asked_again(peer, profile, tmp_path, plan):
    """A network that fails once is no reason to run all commands without their PATH for ever."""
    (tmp_path / "own-tool").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "own-tool").chmod(0o755)
    profile(f"export PATH='{tmp_path}':$PATH\n")
    peer.plan(call="Start", match="command -v setsid", **plan)
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        assert peer.state()["spoiled"] == 1
        assert mount.run(["own-tool"]) == ("0", b"mine\n", b"")
    peer.reset()


def test_a_login_shell_that_is_never_answered_starts_nothing(peer, tmp_path):
    id = peer.create()["sandboxID"]
    with Mount(at(peer, "e2b:"), tmp_path / "m") as mount:
        peer.plan(call="Start", match="command -v setsid", times=99, fault="answer", status=503, body=HTML)
        with mount.new() as e, pytest.raises(OSError) as caught:
            e.spec({"cmd": ["true"], "sandbox": id})
        assert caught.value.errno == errno.EHOSTUNREACH
        assert peer.calls("Start") < 10
        peer.reset()
        assert mount.run({"cmd": ["echo", "well"], "sandbox": id}) == ("0", b"well\n", b"")
        mount.allow("refused")


@pytest.mark.deadline(90)
def test_a_login_shell_that_hangs_delays_nobody_else(peer, profile, tmp_path):
    profile('[ "$(id -un)" = daemon ] && sleep 1000\n')
    id = peer.create()["sandboxID"]
    with Mount(at(peer, f"e2b:{id}", noise=["does not say its PATH|has no setsid"]), tmp_path / "m") as mount:
        waiting = mount.new()
        pid = os.fork()
        if pid == 0:
            try:
                waiting.spec({"cmd": ["true"], "user": "daemon", "cwd": "/"})
            finally:
                os._exit(0)
        wait_for(lambda: peer.sandbox(id)["commands"], "the shell to be asked")
        since = time.monotonic()
        assert mount.run(["echo", "well"]) == ("0", b"well\n", b"")
        assert time.monotonic() - since < 15
        assert waiting.status()["state"] == "starting"
        os.rmdir(waiting)
        os.waitpid(pid, 0)
