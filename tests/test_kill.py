"""Kill: every process of an exec dies, whichever way the exec ends, and nothing else does."""

import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from harness import SLOW, blocked, child, line_of, unique_seconds, wait_for
from test_tree import raises

# Each makes a tree in which every process can be found by "$1", and says "up" when it is complete.
TREES = {
    "one": ("exec sleep $1", 1),
    "children": ("sleep $1 & sleep $1 & echo up; wait", 3),
    "setsid": ("setsid sleep $1 & sleep $1 & echo up; wait", 3),
    "double fork": ("(setsid sh -c 'sleep $1 & sleep $1 & exit' sh $1 &) ; echo up; exec sleep $1", 3),
    "daemon": (
        "setsid sh -c 'cd /; exec < /dev/null > /dev/null 2>&1; (sleep $1 &) ; exit' sh $1;"
        "echo up; exec sleep $1",
        2,
    ),
    "deaf": ("trap '' TERM HUP INT QUIT; echo up; while :; do sleep $1; done", 2),
    "stopped": ("sleep $1 & kill -s STOP $!; echo up; wait", 2),
    "orphans": ("for i in 1 2 3 4 5 6 7 8; do (sleep $1 &) ; done; echo up; exec sleep $1", 9),
    "new name": ("env -i sleep $1 & echo up; wait", 2),
    "bare leader": ("exec env -i sleep $1", 1),
    "bare tree": ("exec env -i sh -c 'sleep $1 & sleep $1 & wait' sh $1", 3),
}


def grow(e, tree):
    """Starts a tree and waits until it stands; returns what finds its processes."""
    script, count = TREES[tree]
    mark = unique_seconds()
    e.spec(["sh", "-c", script, "sh", mark])
    # The shell itself has the mark in its argv, too, while it lives.
    wait_for(lambda: len(e.mount.target.processes(mark)) >= count, f"{count} processes of the tree")
    return mark


def gone(mount, mark):
    wait_for(
        lambda: not mount.target.processes(mark),
        lambda: f"the tree to die; left: {mount.target.processes(mark)}",
        mount.target.kill_seconds,
    )


def sigkill(mount, tree):
    """Kills the daemon: the tree that it runs dies with it."""
    mount.broken = True
    mark = grow(mount.new(), tree)
    mount.daemon.kill()
    mount.wait_daemon()
    gone(mount, mark)
    wait_for(lambda: not mount.left(), "every process of the mount to end", 5)


@pytest.mark.parametrize("tree", TREES)
def test_rmdir(mount, tree):
    e = mount.new()
    mark = grow(e, tree)
    os.rmdir(e)
    gone(mount, mark)


@pytest.mark.parametrize("tree", TREES)
def test_ctl_kill(mount, job, tree):
    mark = grow(job, tree)
    job.ctl("kill")
    assert job.result() == "killed"
    gone(mount, mark)
    wait_for(lambda: job.status()["remote"] == "gone", "remote: gone")
    assert job.status()["state"] == "done"


@pytest.mark.needs("children")
def test_a_bare_child_of_a_leader_that_has_ended(mount):
    """It kept nothing but the session; as long as it lives nobody is told that all is over."""
    e = mount.new()
    mark = unique_seconds()
    e.spec(["sh", "-c", "env -i sleep $1 <&- >&- 2>&- & exit 3", "sh", mark])
    assert e.result() == "3"
    wait_for(lambda: mount.target.processes(mark), "the child to be seen, which in execve(2) it is not")
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        assert e.status()["remote"] == "running"
        time.sleep(0.05)
    os.rmdir(e)
    gone(mount, mark)


@pytest.mark.needs("children", "early-end")
@pytest.mark.parametrize("then", ["exec sleep $0", "sleep 0.5; exec sleep $0 <&- >&- 2>&-"],
                         ids=["keeps it", "lets go"])
def test_a_bare_child_that_holds_the_output(mounted, then):
    """Whose it is does not depend on when, or whether, it lets the output go."""
    mount = mounted("drain_quiet=1", "drain_limit=1")
    mark = unique_seconds()
    e = mount.new()
    e.spec(["sh", "-c", 'env -i sh -c "$0" $1 &', then, mark])
    assert e.result() == "0"
    wait_for(lambda: mount.target.processes(mark), "the child to be seen")
    e.wait_state("done")
    os.rmdir(e)
    gone(mount, mark)


@pytest.mark.parametrize("tree", ["one", "double fork"])
def test_the_last_close_of_owner(mount, tree):
    e = mount.new()
    with child("sh", "-c", f"exec 9< {e / 'owner'}; echo held; read x", stdin=subprocess.PIPE,
               stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        mark = grow(e, tree)
        holder.kill()
        holder.wait()
    gone(mount, mark)
    wait_for(lambda: e.name not in os.listdir(mount.path), "the exec to be removed")


def test_owner_lives_as_long_as_any_holder(mount):
    e = mount.new()
    first = os.open(e / "owner", os.O_RDONLY)
    second = os.open(e / "owner", os.O_RDONLY)
    copy = os.dup(second)
    mark = grow(e, "one")
    os.close(first)
    os.close(second)
    assert e.status()["state"] == "running" and mount.target.processes(mark)
    os.close(copy)
    gone(mount, mark)
    wait_for(lambda: e.name not in os.listdir(mount.path), "the exec to be removed")


@pytest.mark.parametrize("copier", ["cat {}/* > /dev/null", "cp -r {} $T", "tar -C {} -cf $T/x .",
                                    "rsync -a {} $T", "grep -r zzz {}; true"])
def test_who_reads_owner_is_not_one(mount, job, tmp_path, copier):
    """Else to save a directory would be to remove it."""
    job.spec("echo saved; exit 5")
    assert job.result() == "5"
    environment = {**os.environ, "T": str(tmp_path)}
    subprocess.run(
        ["sh", "-c", copier.format(job.path)], env=environment, timeout=20 * SLOW, stderr=subprocess.DEVNULL
    )
    # Removal would follow the close, which is asynchronous.
    other = mount.new()
    os.close(os.open(other / "owner", os.O_RDONLY))
    wait_for(lambda: other.name not in os.listdir(mount.path), "a later close to be seen")
    assert job.read("stdout") == b"saved\n" and job.result() == "5"


def test_a_reader_beside_an_owner_changes_nothing(mount):
    e = mount.new()
    e.spec(["sleep", "1000"])
    with open(e / "owner", "rb") as owner:
        assert e.read("owner")
        e.wait_state("running")
        del owner
    wait_for(lambda: e.name not in os.listdir(mount.path), "the last owner's close to remove it")


def test_owner_of_an_exec_that_has_ended(mount):
    e = mount.new()
    with open(e / "owner", "rb"):
        e.spec(["true"])
        assert e.result() == "0"
    wait_for(lambda: e.name not in os.listdir(mount.path), "the exec to be removed")


def test_owner_of_an_exec_that_never_started(mount):
    e = mount.new()
    os.close(os.open(e / "owner", os.O_RDONLY))
    wait_for(lambda: e.name not in os.listdir(mount.path), "the exec to be removed")


@pytest.mark.parametrize("tree", ["children", "double fork", "deaf"])
def test_unmount(mounted, tree):
    mount = mounted()
    mark = grow(mount.new(), tree)
    assert mount.unmount() == ""
    assert mount.wait_daemon() == 0
    gone(mount, mark)
    mount.broken = True


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_daemon(mounted, signo):
    mount = mounted()
    mark = grow(mount.new(), "double fork")
    e = mount.new()
    e.spec(["cat"])
    with child("cat", e / "exit", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        blocked(reader.pid)
        mount.broken = True
        mount.daemon.send_signal(signo)
        assert mount.wait_daemon() == 0
        reader.wait(5)
    gone(mount, mark)
    assert not mount.left()
    assert not os.listdir(mount.path), "unmounted"


def test_a_daemon_told_to_end_while_files_are_open(mounted):
    mount = mounted()
    mark = grow(mount.new(), "one")
    e = mount.new()
    e.spec(["echo", "x"])
    assert e.result() == "0"
    with open(e / "stdout", "rb", buffering=0) as f:
        mount.broken = True
        mount.daemon.terminate()
        assert mount.wait_daemon() == 0
        with pytest.raises(OSError):
            f.read(10)
    gone(mount, mark)


@pytest.mark.deadline(60)
def test_rmdir_returns_at_once_and_kills_many(mount):
    marks = []
    jobs = [mount.new() for _ in range(20)]
    for e in jobs:
        marks.append(grow(e, "one"))
    for e in jobs:
        os.rmdir(e)
    assert os.listdir(mount.path) == [".spawnfs"]
    for mark in marks:
        gone(mount, mark)


def test_a_kill_reaches_nothing_else(mount):
    keep, other = mount.new(), mount.new()
    kept = grow(keep, "double fork")
    mark = grow(other, "double fork")
    other.remove()
    gone(mount, mark)
    assert len(mount.target.processes(kept)) >= TREES["double fork"][1]
    assert keep.status()["state"] == "running"


@pytest.mark.parametrize("leader", ["stays", "ends"])
def test_a_tree_that_forks_all_the_time_cannot_outrun_it(mount, leader):
    e = mount.new()
    mark = unique_seconds()
    stop = pathlib.Path(f"/tmp/spawnfs-test-stop-{mark}")
    # Each generation leaves its group and session, makes the next, and ends.
    runner = 'echo; test -e $3 || setsid sh -c "$1" x "$1" $2 $3 & sleep .02'
    script = 'sh -c "$1" x "$1" $2 $3 & sh -c "$1" x "$1" $2 $3 & wait'
    if leader == "stays":
        script += "; exec sleep $2"
    try:
        e.spec(["sh", "-c", script, "x", runner, mark, str(stop)])
        e.wait_size(10 if leader == "stays" else 1)
        e.remove()
        gone(mount, mark)
    finally:
        stop.touch()
        wait_for(lambda: not mount.target.processes(mark), "the tree to stop growing by itself")
        stop.unlink()


def test_a_kill_before_the_start_is_over(mount):
    for _ in range(20):
        e = mount.new()
        mark = unique_seconds()
        with child("sh", "-c", f"""echo '["sleep","{mark}"]' > {e / 'spec'}""",
                   stderr=subprocess.DEVNULL) as writer:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(e)
            writer.wait(10)
        gone(mount, mark)


def test_ctl_kill_before_the_start(mount, job):
    try:
        job.ctl("kill")
    except OSError as error:
        assert error.errno == errno.ESRCH
        assert job.status()["state"] == "new"
    else:
        assert job.result() == "killed"
        with pytest.raises(OSError):
            job.spec(["true"])


@pytest.mark.parametrize("way", ["rmdir", "ctl"])
def test_a_kill_in_the_middle_of_a_start(mount, way):
    """Whoever starts what another one kills is told of the kill, not of a fault of the target."""
    for pause in range(20):
        e = mount.new()
        exit_file = os.open(e / "exit", os.O_RDONLY)
        killer = threading.Timer(pause / 10000, e.remove if way == "rmdir" else lambda: e.ctl("kill"))
        killer.start()
        try:
            e.spec(["sleep", "1000"])
        except OSError as error:
            allowed = (errno.ECANCELED, errno.EBUSY, errno.ENOENT)
            assert error.errno in allowed, (error, e.path.exists() and e.status()["error"])
        killer.join()
        assert os.read(exit_file, 100) == b"killed\n"
        os.close(exit_file)
        e.remove()


# ---- ctl ----


def deaf(job, name, answer="got"):
    """A command that answers a signal with a word and goes on to exit 7."""
    job.spec(["sh", "-c", f"trap 'echo {answer}; exit 7' {name}; echo up; while :; do sleep .05; done"])
    return job.wait_up()


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "QUIT"])
def test_ctl_signal(mount, job, name):
    with deaf(job, name) as out:
        job.ctl(f"signal {name}")
        assert line_of(out) == b"got\n"
    assert job.result() == "7"


@pytest.mark.parametrize("spelling", ["SIGUSR1", "usr1", "10", "sigusr1"])
def test_ctl_signal_spellings(mount, job, spelling):
    with deaf(job, "USR1") as out:
        job.ctl(f"signal {spelling}")
        assert line_of(out) == b"got\n"
    assert job.result() == "7"


def test_ctl_signal_reaches_the_group(mount, job):
    mark = unique_seconds()
    job.spec(["sh", "-c", f"sleep {mark} & trap : TERM; echo up; wait; echo over"])
    with job.wait_up() as out:
        job.ctl("signal TERM")
        assert line_of(out) == b"over\n"
    gone(mount, mark)


def test_ctl_signal_that_ends_the_command_is_a_signal(mount, target, job):
    job.spec(["sleep", unique_seconds()])
    job.ctl("signal TERM")
    assert job.result() in (
        ("signal TERM",) if target.can("signal-result") else ("signal TERM", "143")
    )


@pytest.mark.parametrize("form", ["json", "text"])
def test_ctl_signal_in_the_moment_of_the_start(mount, target, form):
    """On the way to its program it cannot be lost. Text starts after its close has returned."""
    results = ("signal TERM",) if target.can("signal-result") else ("signal TERM", "143")
    execs = [mount.new() for _ in range(min(30, target.many))]
    for e in execs:
        seconds = unique_seconds()
        e.spec(["sleep", seconds] if form == "json" else f"exec sleep {seconds}")
        e.ctl("signal TERM")
    for e in execs:
        assert e.result() in results


def test_a_signal_waits_for_text_that_is_not_yet_closed(mount, job):
    with open(job / "spec", "wb", buffering=0) as f:
        with raises(errno.ESRCH):
            job.ctl("signal TERM")
        f.write(b"trap 'echo got; exit 3' TERM; read x")
        job.ctl("signal TERM")
        job.ctl("signal CONT")
        assert job.status()["state"] == "new"
    assert job.result() in ("3", "143", "signal TERM")


def test_a_signal_is_not_for_the_next_text(mount, job):
    with open(job / "spec", "wb", buffering=0) as f:
        f.write(b"read x; exit 3")
        job.ctl("signal TERM")
        os.truncate(job / "spec", 0)
        with raises(errno.ESRCH):
            job.ctl("signal TERM")
    job.spec("read x; exit 4")
    job.append("stdin", b"\n")
    assert job.result() == "4"


def test_ctl_signal_stop_and_cont(mount, job):
    job.spec(["cat"])
    job.append("stdin", b"a")
    job.wait_size(1)
    job.ctl("signal STOP")
    job.ctl("signal CONT")
    job.append("stdin", b"b")
    job.wait_size(2)


@pytest.mark.parametrize(
    "line", ["nonsense", "signal", "signal NOSUCH", "signal 0", "signal 99999", "signal -1", "kill now",
             "signal TERM TERM", "EOF", "x" * 300]
)
def test_ctl_that_makes_no_sense(mount, job, line):
    job.spec(["cat"])
    with raises(errno.EINVAL):
        job.ctl(line)
    assert job.status()["state"] == "running"


def test_ctl_resize_is_refused_without_a_terminal(mount, job):
    job.spec(["cat"])
    with pytest.raises(OSError):
        job.ctl("resize 24 80")
    assert job.status()["state"] == "running"


def test_ctl_signal_without_a_command(mount, job):
    with raises(errno.ESRCH):
        job.ctl("signal TERM")
    job.spec(["true"])
    assert job.result() == "0"
    with raises(errno.ESRCH):
        job.ctl("signal TERM")


def test_ctl_without_a_newline_and_from_a_shell(mount, job):
    job.spec(["sleep", unique_seconds()])
    with child("sh", "-c", f"printf 'signal CONT' > {job / 'ctl'}; echo kill > {job / 'ctl'}") as shell:
        assert shell.wait(10) == 0
    assert job.result() == "killed"
