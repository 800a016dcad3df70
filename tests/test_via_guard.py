"""via: the guard on the far side, which ends the commands of a daemon that was killed."""

import contextlib
import shlex
import signal
import subprocess
import time

import pytest

import harness
import targets
from harness import line_of, unique_seconds, wait_for
from test_via_far import far, guards  # noqa: F401 (fixture)
from test_via_prefix import behind, check_basics  # noqa: F401 (fixture)
from via_far import Far

# Seconds: enough for another guard to come on a busy machine.
LEASE = 4


def tree(mark, wait="wait"):
    """A command with children that have left it in every way."""
    return ["sh", "-c", f"setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &); "
                        f"(sleep {mark} &); env -i sleep {mark} & echo up; trap '' TERM INT HUP; {wait}"]


@contextlib.contextmanager
def running(mount, *commands):
    """Commands whose first line is out, each an exec that nobody removes."""
    with contextlib.ExitStack() as stack:
        for command in commands:
            e = mount.new()
            e.spec(command)
            assert line_of(stack.enter_context(e.lines())) == b"up\n"
        yield


def kill_daemon(mount):
    mount.broken = True
    harness.kill(mount.pid)


def gone(*marks):
    return not any(targets.local_processes(mark) for mark in marks)


def check_daemons_death(mount):
    """Commands that nothing here can reach end with the daemon all the same."""
    mark = unique_seconds()
    with running(mount, tree(mark), ["sh", "-c", f"echo up; exec sleep {mark}"]):
        assert len(targets.local_processes(mark)) >= 6
        kill_daemon(mount)
        wait_for(lambda: gone(mark), "the commands to be killed", 20)


def test_what_a_killed_daemon_leaves(far, behind):
    """All its commands die at once, whatever they have started; those of another mount do not."""
    mount = behind(far.prefix("--kubectl"))
    other = behind(far.prefix())
    marks = [unique_seconds() for _ in range(3)]
    with running(other, tree(marks[2])), running(mount, tree(marks[0]), tree(marks[1])):
        kill_daemon(mount)
        wait_for(lambda: gone(*marks[:2]), "the commands to be killed")
        assert len(targets.local_processes(marks[2])) >= 5
    other.remove_all()
    wait_for(lambda: gone(marks[2]), "rmdir to kill the other's")


def test_the_guard_is_not_told(far, behind):
    """Its client dies with the daemon, as when their machine does: the commands have the lease."""
    mount = behind(far.prefix(), f"lease={LEASE}")
    mark = unique_seconds()
    with running(mount, tree(mark)):
        [client] = guards(mount)
        harness.kill(mount.pid, signal.SIGSTOP)
        harness.kill(client)
        kill_daemon(mount)
        time.sleep(LEASE / 2)
        assert len(targets.local_processes(mark)) >= 5
        wait_for(lambda: gone(mark), "the commands to be killed", 20)
        wait_for(lambda: not guards(), "the guard to leave")


def test_an_end_in_order_leaves_no_guard(far, behind):
    mount = behind(far.prefix())
    assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
    assert len(guards(mount)) == 1
    assert mount.unmount() == "" and mount.wait_daemon() == 0
    mount.broken = True
    wait_for(lambda: not guards(), "the guard to leave")


def test_one_guard_for_all(far, behind):
    """Called with the first command that needs it, not with the mount."""
    mount = behind(far.prefix())
    assert not guards(mount)
    for _ in range(3):
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
    [client] = guards(mount)
    with contextlib.ExitStack() as stack:
        execs = [stack.enter_context(mount.new()) for _ in range(8)]
        for e in execs:
            e.spec(["echo", "x"])
        assert [e.result() for e in execs] == ["0"] * 8
    assert list(guards(mount)) == [client]


def test_an_end_in_order_takes_earlier_guards_along(far, behind):
    """They have a second until they look, and the whole lease when there is no later one any more."""
    mount = behind(far.prefix(), "lease=3600")
    mark = unique_seconds()
    with running(mount, tree(mark)):
        [(client, there)] = guards(mount).items()
        for pid in there:
            harness.kill(pid, signal.SIGSTOP)  # it does not get to look
        harness.kill(client)
        wait_for(lambda: set(guards(mount)) - {client}, "another guard")
    mount.remove_all()
    assert mount.unmount() == "" and mount.wait_daemon() == 0
    mount.broken = True
    wait_for(lambda: not guards(), "all guards to leave")


def test_a_mount_without_commands_has_none(far, behind):
    mount = behind(far.prefix(), "lease=1")
    for _ in range(2):
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
        assert guards(mount)
        wait_for(lambda: not guards(), "the guard to leave")
    mark = unique_seconds()
    with running(mount, tree(mark)):
        time.sleep(2)
        assert guards(mount) and not gone(mark)
        kill_daemon(mount)
        wait_for(lambda: gone(mark), "the commands to be killed")


@pytest.mark.parametrize("prefix", ["env", "nice -n 1", "sh -c '\"$@\"; exit $?' sh",
                                    "unshare --pid --fork --mount-proc", "unshare -r",
                                    "bwrap --bind / / --dev /dev --proc /proc --unshare-pid"])
def test_no_guard_where_the_keeper_is_enough(behind, prefix):
    """What is below the call on this machine dies with the daemon."""
    mount = behind(prefix)
    mark = unique_seconds()
    with running(mount, tree(mark)):
        assert not set(targets.local_processes("SPAWNFS_EXEC=guard-")) & set(harness.descendants(mount.pid))
        kill_daemon(mount)
        wait_for(lambda: gone(mark), "the commands to be killed")


def test_the_guards_client_dies(far, behind):
    """It is no end of any command: another guard is called, and the old one sees it."""
    mount = behind(far.prefix(), f"lease={LEASE}")
    mark = unique_seconds()
    with running(mount, tree(mark)):
        for _ in range(2):
            [client] = guards(mount)
            time.sleep(0.6)  # not one that ends as soon as it has come
            harness.kill(client)
            wait_for(lambda: set(guards(mount)) - {client}, "another guard")
        wait_for(lambda: len(guards()) == 1, "the old guards to leave", 2 * LEASE)
        time.sleep(LEASE)
        assert len(targets.local_processes(mark)) >= 5
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
        kill_daemon(mount)
        wait_for(lambda: gone(mark), "the commands to be killed", 20)


def test_the_guard_is_silent(far, behind):
    """Its call has not ended, but carries nothing: another is called while the lease runs."""
    mount = behind(far.prefix(), f"lease={LEASE}")
    mark = unique_seconds()
    with running(mount, tree(mark)):
        [client] = guards(mount)
        harness.kill(client, signal.SIGSTOP)
        wait_for(lambda: set(guards(mount)) - {client}, "another guard", LEASE)
        wait_for(lambda: len(guards()) == 1, "the old guard to leave", 2 * LEASE)
        assert len(targets.local_processes(mark)) >= 5


def test_no_other_guard_comes(far, behind, tmp_path):
    """The lease runs out: on the far side this is the same as the daemon's death."""
    barred = tmp_path / "barred"
    mount = behind(shlex.join(["sh", "-c", f'[ ! -e {barred} ] || exit 9; exec {far.prefix()} "$@"', "sh"]),
                   f"lease={LEASE}")
    mount.allow("no guard stands on the far side: it ended with status 9", "kill failed")
    mark = unique_seconds()
    e = mount.new()
    e.spec(["sh", "-c", f"echo up; exec sleep {mark}"])
    [client] = guards(mount)
    barred.touch()
    harness.kill(client)
    assert e.result() == "signal KILL"
    assert gone(mark)
    barred.unlink()
    wait_for(lambda: mount.run(["echo", "x"]) == ("0", b"x\n", b"") and guards(mount), "a guard", 20)


def test_the_daemon_dies_while_a_command_starts(far, behind):
    """With its first command, and with a later one: nothing starts that nobody ends."""
    mark = unique_seconds()
    with contextlib.ExitStack() as stack:
        for i in range(14):
            mount = behind(far.prefix(), f"lease={LEASE}")
            if i % 2:
                mount.run(["true"])
            e = mount.new()
            spec = f'["sh", "-c", "setsid sleep {mark} & sleep {mark}"]'
            stack.enter_context(harness.child("sh", "-c", f"echo '{spec}' > {e / 'spec'}"))
            time.sleep((0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.4)[i // 2])
            kill_daemon(mount)
        wait_for(lambda: not guards() and gone(f"sleep\0{mark}"), "all to be gone", 30)


def test_a_far_side_that_cannot_look(far, behind):
    """Commands run, and the log says what that means."""
    mount = behind(f"{far.prefix()} unshare -m sh -c 'umount -l /proc; exec \"$@\"' sh", "shutdown=1")
    mount.allow("outlive a daemon that is killed", "kill failed", "may still run", "gave up")
    for _ in range(2):
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
    assert mount.stderr().count("outlive") == 1
    assert not guards()


def test_a_far_side_that_forks_for_each_call(far, behind):
    """A guard in a place of its own would be of no use."""
    mount = behind(f"{far.prefix()} unshare --pid --fork --mount-proc")
    mount.allow("each call of the prefix leads to another place")
    for _ in range(2):
        assert mount.run(["sh", "-c", "cat; exit 3"], b"x") == ("3", b"x", b"")
    assert mount.stderr().count("outlive") == 1
    wait_for(lambda: not guards(), "the guard to leave")


def test_commands_in_two_places(behind, tmp_path):
    """As behind a load balancer: a guard that goes to the other place must kill nobody by mistake."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    flag = tmp_path / "flag"
    marks = unique_seconds(), unique_seconds()
    with Far(tmp_path / "a") as a, Far(tmp_path / "b") as b:
        script = f'if [ -e {flag} ]; then exec {b.prefix()} "$@"; fi; exec {a.prefix()} "$@"'
        mount = behind(shlex.join(["sh", "-c", script, "sh"]), "lease=1", "shutdown=1")
        mount.allow("each call of the prefix leads to another place", "kill failed", "may still run", "gave up")
        with running(mount, tree(marks[0])):
            flag.touch()
            with running(mount, tree(marks[1])):
                wait_for(lambda: not guards(), "the guard to leave")
                time.sleep(2)
                assert all(len(targets.local_processes(mark)) >= 5 for mark in marks)
                mount.remove_all()
                wait_for(lambda: gone(marks[1]), "the second to be killed")


def test_the_place_is_replaced(behind, tmp_path):
    """As a pod is: a guard in the new one."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    flag = tmp_path / "flag"
    mark = unique_seconds()
    with Far(tmp_path / "a") as a, Far(tmp_path / "b") as b:
        script = f'if [ -e {flag} ]; then exec {b.prefix()} "$@"; fi; exec {a.prefix()} "$@"'
        mount = behind(shlex.join(["sh", "-c", script, "sh"]), f"lease={LEASE}")
        assert mount.run(["echo", "x"]) == ("0", b"x\n", b"")
        flag.touch()
        with running(mount, tree(mark)):
            wait_for(lambda: len(guards()) == 1, "the old guard to leave")
            kill_daemon(mount)
            wait_for(lambda: gone(mark), "the commands to be killed", 20)


def test_without_a_lease(far, behind):
    mount = behind(far.prefix(), "lease=0")
    mark = unique_seconds()
    with running(mount, ["sh", "-c", f"echo up; exec sleep {mark}"]):
        assert not guards()
        check_basics(mount)
        kill_daemon(mount)
        time.sleep(1)
        assert not gone(mark)


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "1e9"])
def test_a_lease_that_is_none(tmp_path, value):
    done = subprocess.run([harness.SPAWNFS, "-f", "-o", f"lease={value}", "via:env", tmp_path],
                                  capture_output=True, text=True, timeout=30)
    assert done.returncode != 0 and "lease" in done.stderr, done
