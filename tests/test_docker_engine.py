"""docker: an engine that dies and comes back, Docker's and Podman's; each test has its own."""

import contextlib
import errno
import os
import signal

import pytest

import engine
import targets
from harness import Mount, unique_seconds, wait_for


@pytest.fixture(params=["docker", "podman"])
def own(request):
    with engine.running({"docker": engine.Docker, "podman": engine.Podman}[request.param]) as running:
        yield running


def start_again(own):
    # Its own containerd dies with it, a moment later; unreaped, the next would take it for alive.
    wait_for(lambda: not targets.local_processes(f"{own.place}/exec/containerd/containerd.toml"), "its end")
    # What a daemon that was killed has left in the way of the next.
    for name in ("pid", "api.sock", "exec/containerd/containerd.pid"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own.place / name)
    own.start()


@pytest.mark.deadline(180)
def test_the_engine_is_killed(own, tmp_path):
    """Nobody knows how the commands ended, and nothing of them goes on."""
    name = own.container("busybox:test")
    target = targets.container_target(own, f"docker:{name}", noise=["exec", "docker"])
    mark = unique_seconds()
    with Mount(target, tmp_path / "m") as mount:
        with mount.new() as e, mount.new() as reader:
            e.spec(f"echo up; setsid sleep {mark} & sleep {mark}")
            reader.spec("echo up; read x; echo end; exit 9")
            for running in (e, reader):
                running.wait_size(3)
            wait_for(lambda: len(mount.target.processes(mark)) >= 2, "the tree")
            own.stop_process(signal.SIGKILL)
            for running in (e, reader):
                assert running.result().startswith("lost "), running.result()
                assert running.read("stdout") == b"up\n"
                assert running.status()["remote"] == "running"
            with mount.new() as refused:
                with pytest.raises(OSError) as caught:
                    refused.spec(["true"])
                assert caught.value.errno == errno.EHOSTUNREACH
                assert "is the engine running?" in refused.status()["error"]
            start_again(own)
            for running in (e, reader):
                wait_for(lambda: running.status()["remote"] == "gone", "remote: gone", 60)
            assert not mount.target.processes(mark)
        # Docker stops its containers when it finds them after a crash.
        own.client("start", name)
        assert mount.run(["echo", "again"]) == ("0", b"again\n", b"")
