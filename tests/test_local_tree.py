"""local: holds the trees of its commands together in two ways; the promises are the same for both."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from harness import (
    SLOW, Mount, blocked, child, descendants, kill, line_of, open_files, process_state,
    unique_seconds, wait_for,
)
from test_kill import TREES, gone, grow, sigkill
from test_local_usage import refused, spawnfs


@pytest.fixture(params=["cgroup", "walk"])
def held(request, mounted):
    """A mount that holds its trees in the one way or the other."""
    return mounted(f"tree={request.param}")


def keeper_of(mount):
    """The one child of the daemon."""
    children = pathlib.Path(f"/proc/{mount.pid}/task/{mount.pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


@pytest.mark.parametrize("tree", TREES)
def test_kill(held, tree):
    e = held.new()
    mark = grow(e, tree)
    e.ctl("kill")
    assert e.result() == "killed"
    gone(held, mark)
    wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


@pytest.mark.parametrize("tree", TREES)
def test_sigkill_of_the_daemon(held, tree):
    sigkill(held, tree)


def test_sigkill_of_the_daemon_is_no_end_of_input(held, tmp_path):
    """Or a command would take the half of its input that it got for the whole."""
    held.broken = True
    mark = unique_seconds()
    for n in range(8):
        e = held.new()
        e.spec({
            "cmd": f"cat > got{n}; echo whole > whole{n}",
            "cwd": str(tmp_path),
            "env": {"MARK": mark},
        })
        e.append("stdin", b"half")
    wait_for(
        lambda: sum(p.stat().st_size == 4 for p in tmp_path.glob("got*")) == 8, "the commands to read"
    )
    held.daemon.kill()
    held.wait_daemon()
    gone(held, mark)
    assert not list(tmp_path.glob("whole*"))


@pytest.mark.parametrize("tree", TREES)
def test_sigkill_of_the_keeper(held, tree):
    """The daemon notices, kills what is left, and makes no result up."""
    held.allow("keeper of the commands was killed", "lost")
    e = held.new()
    mark = grow(e, tree)
    with child("cat", e / "exit", stdout=subprocess.PIPE) as reader:
        kill(keeper_of(held))
        assert reader.stdout.read() == b"lost keeper_died\n"
    gone(held, mark)
    wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")
    wait_for(lambda: not descendants(held.pid), "the daemon to reap what fell to it")
    after = held.new()
    with pytest.raises(OSError):
        after.spec(["true"])
    assert after.result() == "failed EIO"
    assert "mount again" in after.status()["error"]


def test_children_that_go_on(held):
    """After the leader: its result is told, its children live on and can be killed."""
    e = held.new()
    mark = unique_seconds()
    e.spec(f"setsid sleep {mark} > /dev/null 2>&1 < /dev/null & exit 3")
    assert e.result() == "3"
    assert e.status()["remote"] == "running"
    assert held.target.processes(mark)
    os.rmdir(e)
    gone(held, mark)


def test_what_a_child_has_written_is_kept_when_it_is_cut_off(mounted):
    """Its write has succeeded: the bytes fit into the spool and the pipe, which waits for room."""
    mount = mounted("drain_quiet=0.3", "drain_limit=0.5")
    with mount.new() as e:
        script = "(head -c 100000 /dev/zero; echo $? >&2; sleep 1000) & read x"
        e.spec({"cmd": script, "retain": "64K"})
        e.wait_size(len("0\n"), "stderr")
        e.write("stdin", b"end\n")
        assert e.result() == "0"
        assert e.read("stderr") == b"0\n"
        assert len(e.read("stdout")) == 100000


@pytest.mark.parametrize("way", ["rmdir", "unmount"])
def test_a_kill_with_a_stopped_keeper(held, way):
    """Nothing may stay that waits for it to go on."""
    e = held.new()
    mark = grow(e, "setsid")
    kill(keeper_of(held), signal.SIGSTOP)
    if way == "rmdir":
        os.rmdir(e)
    else:
        held.broken = True  # it ends here
        assert held.unmount() == ""
        assert held.wait_daemon() == 0
    gone(held, mark)


def test_children_that_end_later(held):
    e = held.new()
    e.spec("(setsid sh -c 'sleep 0.3' > /dev/null 2>&1 < /dev/null &); exit 4")
    assert e.result() == "4"
    wait_for(lambda: e.status()["remote"] == "gone", "remote: gone")


def test_a_tree_that_runs_away(held):
    """Three runners, each of which is a new process and an orphan thousands of times a second."""
    e = held.new()
    mark = unique_seconds()
    e.spec(["sh", "-c", "sleep $1 & r() { r & }; r & r & r & echo up; wait", "sh", mark])
    e.wait_up().close()
    time.sleep(0.2)
    e.ctl("kill")
    assert e.result() == "killed"
    wait_for(lambda: e.status()["remote"] == "gone", "remote: gone", 20)
    gone(held, mark)


def test_a_thousand_leave_nothing(held):
    keeper = keeper_of(held)
    held.run(["true"])
    files = open_files(held.pid) + open_files(keeper)
    for _ in range(20):
        execs = [held.new() for _ in range(50)]
        for e in execs:
            e.spec("true & (true &)")
        for e in execs:
            assert e.result() == "0"
            e.remove()
    wait_for(
        lambda: open_files(held.pid) + open_files(keeper) <= files, "the descriptors to be closed"
    )
    # All that is below the daemon is its keeper.
    wait_for(lambda: list(descendants(held.pid)) == [keeper], "every zombie to be reaped")


def cgroup2():
    """Where the v2 hierarchy is mounted."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return line.split()[4]
    return None


def test_no_group_is_left(target, tmp_path):
    with Mount(target, tmp_path / "m", ["tree=cgroup"]) as mount:
        e = mount.new()
        e.spec("grep ^0:: /proc/self/cgroup; exec sleep 1000")
        with e.lines() as out:
            group = pathlib.Path(cgroup2() + line_of(out).decode().strip()[3:])
        assert group.is_dir() and group.parent.name.startswith("spawnfs-")
        os.rmdir(e)
        wait_for(lambda: not group.exists(), "the command's group to be removed")
    assert not group.parent.exists()


def test_cwd_and_program_in_the_mount_itself(held):
    """The command waits for the daemon before it has become one: nobody else waits."""
    script = held.new()
    script.spec(["printf", "#!/bin/sh\\necho from the mount\\n"])
    assert script.result() == "0"
    for spec, result, output in [
        ({"cmd": ["ls"], "cwd": str(held.path / ".spawnfs")}, "0", b"version"),
        ({"cmd": ["sh", "./stdout"], "cwd": str(script.path)}, "0", b"from the mount"),
        # Files of the mount are not executable: 126, and no hang.
        ([str(script / "stdout")], "126", b""),
        ({"cmd": ["stdout"], "env": {"PATH": str(script.path)}}, "126", b""),
    ]:
        with held.new() as e:
            e.spec(spec)
            assert e.result() == result
            assert output in e.read("stdout")


def test_a_stopped_keeper_holds_up_nothing_but_starts(held):
    e = held.new()
    e.spec(["cat"])
    keeper = keeper_of(held)
    kill(keeper, signal.SIGSTOP)
    try:
        wait_for(lambda: process_state(keeper) == "T", "the keeper to stop")
        e.append("stdin", b"still\n")
        with e.lines() as out:
            assert line_of(out) == b"still\n"
        late = held.new()
        with child("sh", "-c", f"echo '[\"echo\", \"late\"]' > {late / 'spec'}") as writer:
            blocked(writer.pid)
            assert e.status()["state"] == "running"
            assert late.status()["state"] == "starting"
            kill(keeper, signal.SIGCONT)
            assert writer.wait(10 * SLOW) == 0
    finally:
        kill(keeper, signal.SIGCONT)
    assert late.read("stdout") == b"late\n"


def test_the_option(tmp_path):
    place = tmp_path / "m"
    place.mkdir()
    refused(spawnfs("-f", "-o", "tree=bush", "local:", place), "tree", "bush", "cgroup", "walk")
    refused(spawnfs("-f", "-o", "branch=1", "local:", place), "branch")
    refused(spawnfs("-f", "local:nothing", place), "local:nothing")
