"""via: through the real kubectl, to a pod that nothing here can reach but by it."""

import contextlib
import errno
import os
import pathlib
import shlex

import pytest

import e2b_peer
import harness
import targets
from harness import line_of, unique_seconds, wait_for
from test_via_guard import check_daemons_death
from test_via_prefix import behind, check_basics, check_kill, check_signals  # noqa: F401 (fixture)


class Pod(e2b_peer.Peer):
    """An API server with one pod, in a PID namespace of its own."""

    program = "kube.mjs"

    def prefix(self, name="pod"):
        environment = ["env", "KUBECONFIG=/dev/null", f"HOME={self.home}"]
        return shlex.join([*environment, "kubectl", "--server", self.url, "exec", "-i", name, "--"])


@pytest.fixture(scope="module")
def pod():
    with Pod() as pod:
        yield pod


def clients(mount):
    """The pids of the kubectl that the mount runs."""
    found = []
    for pid in harness.descendants(mount.pid):
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"kubectl\0"):
                found.append(pid)
    return found


def test_into_a_pod(pod, behind):
    mount = behind(pod.prefix())
    check_basics(mount)
    check_kill(mount, targets.local_processes)
    data = os.urandom(1 << 20)
    assert mount.run(["cat"], data) == ("0", data, b"")


@pytest.mark.parametrize("end, result", [
    ("exit 0", "0"), ("exit 1", "1"), ("exit 126", "126"), ("exit 127", "127"), ("exit 255", "255"),
    ("kill -KILL $$", "signal KILL"), ("kill -TERM $$", "signal TERM"), ("exit 137", "137"),
])
def test_results(pod, behind, end, result):
    assert behind(pod.prefix()).run(["sh", "-c", f"echo out; echo err >&2; {end}"]) == (
        result, b"out\n", b"err\n")


def test_a_program_that_is_not_there(pod, behind):
    result, out, err = behind(pod.prefix()).run(["no-such-program"])
    assert (result, out) == ("127", b"") and b"no-such-program" in err


def test_signals(pod, behind):
    check_signals(behind(pod.prefix()))


def test_many_at_once(pod, behind):
    mount = behind(pod.prefix())
    jobs = [mount.new() for _ in range(20)]
    for i, e in enumerate(jobs):
        e.spec(["sh", "-c", "read x; echo $x $0", str(i)])
    for i, e in enumerate(jobs):
        e.write("stdin", b"in\n")
    for i, e in enumerate(jobs):
        assert (e.result(), e.read("stdout")) == ("0", b"in %d\n" % i)


def test_the_clients_death_is_a_loss_and_ends_the_command(pod, behind):
    mount = behind(pod.prefix())
    mount.allow("lost")
    mark = unique_seconds()
    with mount.new() as e:
        e.spec(["sh", "-c", f"setsid sleep {mark} & echo up; exec sleep {mark}"])
        with e.lines() as out:
            assert line_of(out) == b"up\n"
            for pid in clients(mount):
                harness.kill(pid)
            assert e.result() == "lost stream_closed"
        wait_for(lambda: not targets.local_processes(mark), "the command to be gone")
        wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_the_daemons_death_ends_the_commands(pod, behind):
    check_daemons_death(behind(pod.prefix()))


@pytest.mark.parametrize("how", ["no such pod", "no shell", "no server"])
def test_a_prefix_that_leads_nowhere(pod, behind, how):
    with e2b_peer.refusing_url() as nobody:
        prefix, said = {
            "no such pod": (pod.prefix("nosuch"), "nosuch"),
            "no shell": (f"{pod.prefix()} /no/such/shell", "OCI runtime exec failed"),
            "no server": (pod.prefix().replace(pod.url, nobody), "refused"),
        }[how]
        mount = behind(prefix)
        with mount.new() as e:
            with pytest.raises(OSError) as caught:
                e.spec(["true"])
            assert caught.value.errno == errno.ENXIO
            assert e.result() == "failed ENXIO"
            assert said in e.status()["error"]
