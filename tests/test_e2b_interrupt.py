"""A signal while a mount is still making its sandbox: nothing is left that somebody pays for."""

import contextlib
import os
import signal
import subprocess
import threading

import pytest

from harness import SLOW, SPAWNFS, wait_for
from network import Network


class Held(Network):
    """Answers wait until they are let go; `asked` once there is one to wait for."""

    def __init__(self, port):
        super().__init__(port)
        self.asked, self.free = threading.Event(), threading.Event()

    def there(self, server, client):
        data = server.recv(1 << 16)
        self.asked.set()
        self.free.wait()
        client.sendall(data)
        return data

    def __exit__(self, *_):
        self.free.set()
        super().__exit__()


@contextlib.contextmanager
def mounting(peer, path, **urls):
    """A daemon about to make a sandbox."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("E2B_")} | peer.env | urls
    daemon = subprocess.Popen([SPAWNFS, "-f", "e2b:new?timeout=300", path], env=env, text=True,
                              stderr=subprocess.PIPE)
    try:
        yield daemon
    finally:
        daemon.kill()
        daemon.communicate()


def sandboxes(peer):
    return {s["id"] for s in peer.state()["sandboxes"]}


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("held", ["E2B_API_URL", "E2B_SANDBOX_URL"], ids=["making", "reaching"])
def test_a_signal_before_the_mount_is_up(peer, tmp_path, held, signo):
    before = sandboxes(peer)
    with Held(peer.port) as network, mounting(peer, tmp_path, **{held: network.url}) as daemon:
        assert network.asked.wait(20 * SLOW)
        assert len(sandboxes(peer) - before) == 1
        daemon.send_signal(signo)
        assert f"signal {signo}: ending" in daemon.stderr.readline()
        network.free.set()
        assert daemon.wait(20 * SLOW) == 1
        assert "Interrupted" in daemon.stderr.read()
        assert sandboxes(peer) == before
    assert not os.path.ismount(tmp_path)


def test_a_second_signal_is_not_kept_waiting(peer, tmp_path):
    with Held(peer.port) as network, mounting(peer, tmp_path, E2B_API_URL=network.url) as daemon:
        assert network.asked.wait(20 * SLOW)
        daemon.send_signal(signal.SIGINT)
        assert "signal 2: ending" in daemon.stderr.readline()
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(20 * SLOW) == -signal.SIGTERM
        assert "a second signal" in daemon.stderr.read()


def test_a_signal_right_behind_the_answer(peer, tmp_path):
    """However it falls, between the sandbox and the mount there is no moment without a watch."""
    before = sandboxes(peer)
    for _ in range(10):
        with mounting(peer, tmp_path) as daemon:
            wait_for(lambda: sandboxes(peer) != before, "a sandbox", every=0.001)
            daemon.terminate()
            daemon.wait(20 * SLOW)
        assert sandboxes(peer) == before and not os.path.ismount(tmp_path)
