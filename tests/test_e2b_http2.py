"""Many commands over the few connections of HTTP/2."""

import contextlib

import pytest

import e2b_peer
from harness import Mount, wait_for
from targets import Target


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    certificates = e2b_peer.make_certificates(tmp_path_factory.mktemp("certificates"))
    with e2b_peer.Peer(certificates=certificates) as running:
        running.ca = certificates[0]
        yield running


@pytest.fixture
def mount(peer, tmp_path):
    there = Target(
        address=f"e2b:{peer.create()['sandboxID']}",
        env=peer.env,
        options=[f"ca={peer.ca}"],
        name="e2b",
    )
    with Mount(there, tmp_path / "m", ["retain=256K", "spool_memory=64K"]) as mounted:
        yield mounted


def test_a_held_back_stream_does_not_hold_others(mount):
    """They share a connection, and its window must not be eaten up by what nobody reads."""
    held = [mount.new() for _ in range(4)]
    for e in held:
        e.spec({"cmd": ["yes"]})
    for e in held:
        wait_for(lambda: e.status()["stdout"]["held"], "the output to be held back")
    for size in (10, 1 << 20, 20 << 20):
        with mount.new() as e:
            e.spec({"cmd": ["head", "-c", str(size), "/dev/zero"]})
            assert len(e.read("stdout")) == size
            assert e.result() == "0"
    assert mount.run({"cmd": ["cat"]}, bytes(300_000)) == ("0", bytes(300_000), b"")


@pytest.mark.deadline(120)
def test_many_at_once_share_connections(peer, mount):
    before = peer.state()["connections"]["total"]
    with contextlib.ExitStack() as stack:
        execs = [stack.enter_context(mount.new()) for _ in range(300)]
        for e in execs:
            e.spec({"cmd": ["cat"]})
        for i, e in enumerate(execs):
            e.append("stdin", b"%d\n" % i)
        for i, e in enumerate(execs):
            e.ctl("eof")
            assert (e.read("stdout"), e.result()) == (b"%d\n" % i, "0")
    assert peer.state()["connections"]["total"] - before < 20
