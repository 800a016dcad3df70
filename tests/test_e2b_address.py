"""How the daemon finds E2B when nothing but a key is given, and how it trusts what it finds.

The usual addresses are reached through an HTTP proxy of the test's, which knows one server for
all names.
"""

import os
import subprocess

import pytest

import e2b_peer
import harness
from harness import Mount
from network import Network
from targets import Target
from test_e2b_http2 import peer  # noqa: F401: a fixture


class Proxy(Network):
    """Answers CONNECT for any name with a connection to one port of this machine."""

    def __init__(self, port):
        self.asked = set()
        super().__init__(port)

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        self.asked.add(head.split()[1].decode())
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        super().serve(client)


@pytest.fixture
def proxy(peer):
    with Proxy(peer.port) as running:
        yield running


def at(proxy, peer, address, **env):
    env = {"E2B_API_KEY": e2b_peer.KEY, "https_proxy": proxy.url, "no_proxy": "", **env}
    return Target(address=address, env=env, options=[f"ca={peer.ca}"], name="e2b")


def test_the_usual_addresses(peer, proxy, tmp_path):
    id = peer.create()["sandboxID"]
    with Mount(at(proxy, peer, f"e2b:{id}"), tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")
    assert proxy.asked == {"api.e2b.app:443", "sandbox.e2b.app:443"}


def test_a_domain_of_ones_own(peer, proxy, tmp_path):
    """Its sandboxes have a host each."""
    id = peer.create()["sandboxID"]
    with Mount(at(proxy, peer, f"e2b:{id}", E2B_DOMAIN="peer.test"), tmp_path / "m") as mount:
        assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")
    assert proxy.asked == {"api.peer.test:443", f"49983-{id}.peer.test:443"}


def test_a_domain_that_the_control_plane_names(peer, proxy, tmp_path):
    id = peer.create()["sandboxID"]
    peer.set(domain="peer.test")
    try:
        with Mount(at(proxy, peer, f"e2b:{id}"), tmp_path / "m") as mount:
            assert mount.run(["echo", "hi"]) == ("0", b"hi\n", b"")
    finally:
        peer.set(domain=None)
    assert proxy.asked == {"api.e2b.app:443", f"49983-{id}.peer.test:443"}


def test_a_certificate_for_another_name(peer, proxy, tmp_path):
    there = at(proxy, peer, "e2b:x", E2B_DOMAIN="other.test")
    done = subprocess.run(
        [harness.SPAWNFS, "-f", "-o", there.options[0], there.address, tmp_path],
        env={**os.environ, **there.env},
        capture_output=True,
        text=True,
        timeout=30 * harness.SLOW,
        check=False,
    )
    assert done.returncode != 0
    assert "api.other.test" in done.stderr and "certificate" in done.stderr
    assert proxy.asked == {"api.other.test:443"} and e2b_peer.KEY not in done.stderr


def test_debug(tmp_path):
    """An envd at its port on this machine, without a control plane."""
    with e2b_peer.Peer("--debug", "--port", "49983", own_network=True) as debug:
        there = Target(address="e2b:debug_sandbox_id", env={"E2B_DEBUG": "true"}, name="e2b")
        with Mount(there, tmp_path / "m", wrap=debug.inside) as mount:
            assert mount.run({"cmd": ["cat"]}, b"x") == ("0", b"x", b"")
