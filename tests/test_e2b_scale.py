"""Much of everything: sandboxes, commands at once, and a network that is not there."""

import concurrent.futures
import contextlib
import errno
import os
import signal
import time

import pytest

import e2b_peer
from harness import SLOW, Mount, rss, unique_seconds, wait_for
from targets import Target
from test_e2b_http2 import echo_at_once


@pytest.fixture
def peer():
    with e2b_peer.Peer() as running:
        yield running


def at(peer, address, **fields):
    return Target(address=address, env=peer.env, name="e2b", **fields)


NO_PTRACE = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]


def test_a_sandbox_that_does_not_show_how_a_leader_ended(tmp_path):
    """Its root may not look at that; envd is made to tell when a child holds the output."""
    with e2b_peer.Peer(wrap=NO_PTRACE) as peer:
        with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
            spec = {"cmd": ["sh", "-c", "sleep 1000 & head -c 300000 /dev/zero; echo end; exit 7"]}
            assert mount.run(spec) == ("7", bytes(300_000) + b"end\n", b"")
            assert peer.calls("SendSignal")


@pytest.mark.deadline(500)
def test_thousands_of_sandboxes_under_one_mount(peer, tmp_path):
    """Each is attached to, asked for its PATH, and runs a command of its own."""
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        ids = list(pool.map(lambda _: peer.create()["sandboxID"], range(2000)))
        with Mount(at(peer, "e2b:"), tmp_path / "m") as mount:
            before = rss(mount.pid)

            def visit(id):
                return mount.run({"cmd": "echo $E2B_SANDBOX_ID", "sandbox": id})

            assert list(pool.map(visit, ids)) == [("0", id.encode() + b"\n", b"") for id in ids]
            each = (rss(mount.pid) - before) / len(ids)
            # A sanitizer keeps what was freed.
            most = 64 << 10 if SLOW == 1 else 1 << 20
            assert each < most, f"{each / 1024:.0f} KiB for each"


@pytest.mark.deadline(180)
def test_a_thousand_commands_at_once(peer, tmp_path):
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}"), tmp_path / "m") as mount:
        echo_at_once(mount, 1000)


# ---- no network ----


@contextlib.contextmanager
def silent(peer):
    """Nobody answers any more, and connections stay open."""
    pids = [p for p in peer.host_pids().values() if p > 1]
    servers = [p for p in pids if open(f"/proc/{p}/comm").read().strip() in ("node", "MainThread")]
    assert servers
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.deadline(90)
def test_a_removal_does_not_wait_for_a_dead_network(peer, tmp_path):
    with Mount(at(peer, f"e2b:{peer.create()['sandboxID']}", noise=["kill"]), tmp_path / "m") as mount:
        seconds = unique_seconds()
        e = mount.new()
        e.spec(["sleep", seconds])
        wait_for(lambda: mount.target.processes(seconds), "the command to run")
        with silent(peer):
            since = time.monotonic()
            os.rmdir(e)
            assert time.monotonic() - since < 1 and e.name not in os.listdir(mount.path)
            time.sleep(2)
            assert mount.target.processes(seconds)
        wait_for(lambda: not mount.target.processes(seconds), "the command to be killed", 40)


@pytest.mark.deadline(60)
def test_a_kill_that_is_given_up_is_told(peer, tmp_path):
    """A paused sandbox cannot be reached; its command is not told to be gone."""
    id = peer.create()["sandboxID"]
    there = at(peer, f"e2b:{id}", noise=["lost", "kill", "kept alive"])
    with Mount(there, tmp_path / "m", ["kill_give_up=3"]) as mount, mount.new() as e:
        e.spec(["sleep", unique_seconds()])
        peer.api("POST", f"/sandboxes/{id}/pause", {})
        assert e.result() == "lost stream_closed"
        wait_for(lambda: e.status()["remote"] == "unknown", "the kill to be given up")
        assert "gave up killing" in mount.stderr() and "paused" in e.status()["error"]
        assert 2 <= mount.stderr().count("kill failed") < 10
        assert peer.calls("Start") < 15, "it is asked with a growing delay"


def test_a_peer_that_went_away(tmp_path):
    """What runs is lost; what is begun then fails, and says where it wanted to go."""
    with e2b_peer.Peer() as gone:
        there = at(gone, f"e2b:{gone.create()['sandboxID']}", noise=[".*"])
        mount = Mount(there, tmp_path / "m", ["kill_give_up=1"]).start()
        running = mount.new()
        running.spec(["sleep", unique_seconds()])
    try:
        assert running.result() == "lost stream_closed"
        e = mount.new()
        with pytest.raises(OSError) as caught:
            e.spec(["true"])
        assert caught.value.errno == errno.EHOSTUNREACH
        assert e.result() == "failed EHOSTUNREACH"
        assert there.env["E2B_SANDBOX_URL"] in e.status()["error"]
    finally:
        mount.stop()
