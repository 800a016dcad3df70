"""What comes late, slowly or not at all: networks, login shells, renewals, answers."""

import contextlib
import errno
import os
import pathlib
import time

import pytest

from harness import Mount, unique, unique_seconds, wait_for
from network import Network
from targets import Target
from test_e2b_faults import HTML, faulty, start_meanwhile  # noqa: F401: a fixture

pytestmark = pytest.mark.waits


def at(peer, address, env=None, **fields):
    return Target(address=address, env={**peer.env, **(env or {})}, name="e2b", **fields)


# ---- a slow network ----


class SlowNetwork(Network):
    """So many bytes, at most, come back at a time, which takes so many seconds."""

    def __init__(self, port, piece, pause):
        self.piece, self.pause = piece, pause
        super().__init__(port)

    def there(self, server, client):
        data = server.recv(self.piece)
        client.sendall(data)
        time.sleep(self.pause * len(data) / self.piece)
        return data


class Holding(Network):
    """A gateway that passes a request with a mark on after so long, whoever has gone meanwhile."""

    def __init__(self, port, seconds):
        self.seconds, self.mark = seconds, None
        super().__init__(port)

    def here(self, client, server):
        data = client.recv(1 << 16)
        held = self.mark and self.mark in data
        if held:
            self.mark = None
            time.sleep(self.seconds)
        server.sendall(data)
        if held:
            time.sleep(5)
        return data


@pytest.mark.deadline(90)
@pytest.mark.parametrize("piece,pause", [(32 << 10, 0.15), (150_000, 0.8)])
def test_what_a_leader_wrote_is_waited_for_on_a_slow_network(peer, tmp_path, piece, pause):
    """A child holds the pipes: but the leader's own output is on its way, and is no child's."""
    with SlowNetwork(peer.port, piece, pause) as network:
        there = at(peer, f"e2b:{peer.create()['sandboxID']}", {"E2B_SANDBOX_URL": network.url})
        with Mount(there, tmp_path / "m") as mount, mount.new() as e:
            # Early output: the pause before the rest is no sign that all has come.
            script = "echo early; sleep 1000 & sleep .5; head -c 3000000 /dev/zero; exit 7"
            e.spec({"cmd": ["sh", "-c", script]})
            assert e.result() == "7"
            assert len(e.read("stdout")) == 6 + 3_000_000


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


# ---- renewals ----


FAILURES = (
    {"fault": "answer", "status": 503, "body": HTML},
    {"fault": "answer", "status": 429, "body": HTML, "headers": {"retry-after": "1000"}},
    {"fault": "reset"},
    {"fault": "stall"},
)


@pytest.mark.deadline(90)
def test_a_renewal_that_fails_is_made_again_in_time(peer, tmp_path):
    """However short the time to live is: here of one mount for each failure."""
    before = {s["id"] for s in peer.state()["sandboxes"]}
    for failure in FAILURES:
        peer.plan(call="POST /sandboxes/ID/timeout", **failure)
    with contextlib.ExitStack() as stack:
        execs = []
        for i, _ in enumerate(FAILURES):
            there = at(peer, "e2b:new?timeout=15", noise=["kept alive"])
            mount = stack.enter_context(Mount(there, tmp_path / f"m{i}"))
            execs.append(mount.new())
            execs[-1].spec({"cmd": ["sleep", "20"]})
        ids = {s["id"] for s in peer.state()["sandboxes"]} - before
        assert [e.result() for e in execs] == ["0"] * len(FAILURES)
        assert peer.state()["spoiled"] == len(ids) == len(FAILURES)
        assert all(peer.sandbox(id) for id in ids)
    peer.reset()


@pytest.mark.waits("minutes")
@pytest.mark.deadline(200)
def test_a_sandbox_that_was_there_is_extended_while_commands_run(peer, tmp_path):
    """And only then: nothing is asked of the control plane for a mount that lies idle.

    One that has longer to live anyway keeps it.
    """
    ids = [peer.create(timeout=timeout)["sandboxID"] for timeout in (60, 60, 3000)]
    with Mount(at(peer, "e2b:"), tmp_path / "m") as mount:
        for id in ids:
            mount.run({"cmd": ["true"], "sandbox": id})
        running = [mount.new() for _ in range(2)]
        for e, id in zip(running, (ids[0], ids[2])):
            e.spec({"cmd": ["sleep", unique_seconds()], "sandbox": id})
        renewals = "POST /sandboxes/ID/refreshes"
        wait_for(lambda: peer.calls(renewals) == 2, "the renewals", 120, every=0.5)
        time.sleep(2)
        assert peer.sandbox(ids[0])["ttl"] > 290 > 210 > peer.sandbox(ids[1])["ttl"]
        assert peer.sandbox(ids[2])["ttl"] > 2800
        # Its time has come, too: it is extended when something is about to run.
        assert mount.run({"cmd": ["true"], "sandbox": ids[1]}) == ("0", b"", b"")
        wait_for(lambda: peer.sandbox(ids[1])["ttl"] > 290, "the other to be extended")
        assert peer.calls(renewals) == 3
        for e in running:
            e.remove()


# ---- input ----


@pytest.mark.waits("minutes")
@pytest.mark.deadline(120)
def test_input_that_is_not_read_for_long_is_not_given_up(peer, tmp_path):
    """Longer than another call to envd may take; and neither is its end, which waits behind it."""
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        spec = {"cmd": ["sh", "-c", "sleep 35; wc -c"]}
        assert mount.run(spec, bytes(200_000)) == ("0", b"200000\n", b"")


# ---- the answer to Start ----


@pytest.mark.deadline(60)
def test_a_kill_during_a_late_start_is_carried_out_when_it_has_started(faulty):
    """Not when the next try is due, which may be after the end of the mount."""
    mark = unique()
    faulty.plan(mark, wait=14_000)
    e = faulty.mount.new()
    since = time.monotonic()
    pid = start_meanwhile(e, "sleep 1000", mark)
    wait_for(lambda: e.status()["state"] == "starting", "the start to be under way")
    e.ctl("kill")
    assert e.result() == "killed"
    wait_for(lambda: e.status()["remote"] == "gone", "the command to be killed", 40)
    # Tries are due after 12.8 and 27.8 s.
    assert 14 <= time.monotonic() - since < 23
    assert not faulty.commands(mark)
    os.waitpid(pid, 0)


@pytest.mark.waits("minutes")
@pytest.mark.deadline(200)
def test_a_start_that_was_given_up_and_comes_all_the_same(peer, tmp_path):
    """A gateway that holds a request for longer than anybody waits passes it on in the end."""
    witness, mark = tmp_path / "ran", unique()
    with Holding(peer.port, 70) as gateway:
        id = peer.create()["sandboxID"]
        there = at(peer, f"e2b:{id}", {"E2B_SANDBOX_URL": gateway.url}, noise=["did not answer", "kill failed"])
        with Mount(there, tmp_path / "m") as mount:
            gateway.mark = mark.encode()
            e = mount.new()
            e.spec({"cmd": ["/bin/sh", "-c", f"echo run >> {witness}; sleep 1000", mark]})
            assert e.result() == "lost stream_closed"
            assert "did not answer" in e.status()["error"]
            wait_for(witness.exists, "it to run all the same", 30)
            assert e.status()["remote"] == "running", "nobody knows"
            wait_for(lambda: not peer.sandbox(id)["processes"], "it to be killed", 40)
            wait_for(lambda: e.status()["remote"] == "gone", "the daemon to see that it is gone", 60)
            assert witness.read_text() == "run\n"
